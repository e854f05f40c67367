"""Shared by the benchmarks: one thread, the least of several times, and a plain table."""

import os

# Before NumPy is loaded: one thread against one thread.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import time
from collections.abc import Callable

from benchmarks.tables import print_table

__all__ = ["least_seconds", "print_table"]


def least_seconds(function: Callable[[], object], *, repeats: int, budget_seconds: float = 20.0) -> float:
    """The least time of up to `repeats` calls: what the machine can do when nothing else disturbs it."""
    best, started = float("inf"), time.perf_counter()
    for _ in range(repeats):
        before = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - before)
        if time.perf_counter() - started > budget_seconds:
            break
    return best
