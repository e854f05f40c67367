"""The samplers of this package: two annealers, the proven optimum, brute force, and rounding.

`levels` (kernels in `_levels`) anneals the levels of parameters, `annealer` (`_kernel`) flips bits as D-Wave's sampler
does, `lattice` (`_lattice`) proves the optimum; `annealing` is what the annealers share.
"""
