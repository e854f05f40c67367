"""Samplers of our own: two annealers (`annealer` → `lanes` → `_kernel`, `level_annealer` → `_levels`), exact ones."""
