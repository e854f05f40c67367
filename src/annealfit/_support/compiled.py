"""Numba kernels with fixed argument types: compiled once per machine, loaded from numba's cache afterwards.

A kernel is ready when its module has been imported, so modules of kernels are imported where they are first needed.
Arguments of other types are refused rather than compiled for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numba.core import types
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys

_logger = logging.getLogger(__name__)
_announced: list[str] = []


def array(dtype: Any, ndim: int) -> types.Array:
    """Return the type of a C-contiguous array that a kernel overwrites."""
    return types.Array(dtype, ndim, "C")


def constant(dtype: Any, ndim: int) -> types.Array:
    """Return the type of a C-contiguous array that a kernel only reads; writable arrays are accepted too."""
    return types.Array(dtype, ndim, "C", readonly=True)


# Arrays of double precision by their dimension, read (`In`) or overwritten (`Out`), and of integers that are read.
In1, In2, In3 = (constant(types.float64, ndim) for ndim in (1, 2, 3))
Out1, Out2, Out3 = (array(types.float64, ndim) for ndim in (1, 2, 3))
InInt1, InInt2 = (constant(types.intp, ndim) for ndim in (1, 2))


class _Cache(FunctionCache):
    """numba's cache of machine code, without its rules for compiling, which take 0.2 s to load in every process.

    Machine code needs the symbols of numba's runtime only. The rules are loaded once something is compiled.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def compiled(*signatures: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for these signatures, without Python's lock, and cache the machine code on disk.

    Without signatures it is compiled for the types of its first call, or by its method `compile`.
    """

    def compile_now(function: Callable[..., Any]) -> Any:
        kernel = njit(nogil=True, **options)(function)
        kernel._cache = _Cache(function)
        module, name = function.__module__, function.__qualname__
        is_cached = any(Path(kernel.stats.cache_path).glob(f"*.{name}-*.nbi"))
        if not is_cached and not _announced:
            _announced.append(module)
            _logger.warning("Compiling code for this machine; this takes some 20 seconds, once.")
        for signature in signatures:
            kernel.compile(signature)
        if signatures:
            kernel.disable_compile()
        return kernel

    return compile_now


@njit
def splitmix(seed: Any, index: Any) -> Any:
    """Return output number `index` of the SplitMix64 generator: `annealfit._support.randomness.descend`, compiled."""
    word = seed + np.uint64(0x9E3779B97F4A7C15) * np.uint64(index + 1)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
