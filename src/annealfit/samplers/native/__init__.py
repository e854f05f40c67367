"""Samplers of our own.

Two annealers (`annealer` → `lanes` → `_kernel`, `level_annealer` → `_levels`), the proven optimum (`lattice` →
`branching` → `_lattice`), brute force, and rounding.
"""
