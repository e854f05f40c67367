"""Samplers of our own: the annealing engine (`annealer` → `lanes` → `_kernel`), brute force, and rounding."""
