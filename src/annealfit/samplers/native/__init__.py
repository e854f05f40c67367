"""Samplers of our own.

The annealing engine (`annealer` → `lanes` → `_kernel`), the proven optimum (`lattice` → `branching` → `_lattice`),
brute force, and rounding.
"""
