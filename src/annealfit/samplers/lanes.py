"""Annealing many chains at once: lanes in, final states out.

A lane is one read of one problem. Lanes that share a curvature are annealed in blocks, one vector
register wide; each lane has its own random stream, so its result depends neither on its companions nor
on the number of threads.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from annealfit.errors import InvalidInputError, check_number, choose
from annealfit.samplers.schedule import Schedule

logger = logging.getLogger(__name__)

# Sweeps between two looks at the clock. The fields are recomputed there too, so the number is part of
# what decides the last bits of a single-precision run: it must not depend on anything.
SWEEPS_PER_GROUP = 32
SWEEPS_PER_CHUNK = 32 * SWEEPS_PER_GROUP  # temperatures are made for this many sweeps at a time
PRECISIONS: dict[str, DTypeLike] = {"single": np.float32, "double": np.float64}

Stop = Callable[[], bool]


@dataclass(frozen=True, eq=False)
class Lanes:
    """L chains on `E(b) = uᵀGu + 2gᵀu`, `u_j = Σ_k steps_k (b_jk − ½)`, with a common curvature G."""

    curvature: NDArray[np.float64]  # (D, D)
    gradient: NDArray[np.float64]  # (D, L)
    steps: NDArray[np.float64]  # (K, L): by how much each bit changes a parameter
    hot: NDArray[np.float64]  # (L,): β of the first sweep
    cold: NDArray[np.float64]  # (L,): β of the last sweep
    seeds: NDArray[np.uint64]  # (L,)

    def energies(self, bits: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Energies (L,) of states (D, K, L), in double precision."""
        updates = np.einsum("jkl,kl->lj", bits, self.steps) - self.steps.sum(axis=0)[:, None] / 2
        return np.vecdot(updates @ self.curvature + 2 * self.gradient.T, updates)


def anneal_lanes(
    lanes: Lanes,
    schedule: Schedule,
    *,
    start: NDArray[np.uint8] | None = None,
    precision: str = "single",
    num_threads: int | None = None,
    should_stop: Stop | None = None,
) -> tuple[NDArray[np.uint8], int]:
    """Run the chains; returns their states (D, K, L) and the number of sweeps done.

    After all sweeps the states are the chains' last. If `should_stop` ends the anneal early, they are the
    best of those at the ends of the groups of sweeps.
    """
    kernel = _kernel()
    n_bits, n_lanes = lanes.steps.shape
    words, streams = kernel.start_lanes(lanes.seeds, len(lanes.curvature), n_bits)
    if start is not None:
        words = kernel.pack_bits(start)
    dtype = PRECISIONS[choose("precision", precision, PRECISIONS)]
    try:
        run = _Run(kernel, lanes, schedule, words, streams, np.dtype(dtype))
        with _Workers(num_threads, len(run.blocks)) as workers:
            try:
                if should_stop is not None:
                    return _anneal_in_groups(run, workers, should_stop)
                workers.map(lambda block: run.advance(block, 0, schedule.num_sweeps), run.blocks)
                return kernel.unpack_bits(run.words(), n_bits), schedule.num_sweeps
            finally:
                run.cancelled = True  # after Ctrl-C, lets the other threads end with their group
    except MemoryError as error:
        size = len(lanes.curvature)
        raise InvalidInputError(
            f"annealing {n_lanes} lanes of {size} parameters needs more memory than there is "
            f"({size * size * np.dtype(dtype).itemsize / 2**30:.1f} GiB for the curvature alone); "
            "use fewer reads, or a smaller problem"
        ) from error


def _anneal_in_groups(run: _Run, workers: _Workers, should_stop: Stop) -> tuple[NDArray[np.uint8], int]:
    kernel, lanes, total = run.kernel, run.lanes, run.schedule.num_sweeps
    n_bits = len(lanes.steps)
    states = kernel.unpack_bits(run.words(), n_bits)
    best, best_energies = states, lanes.energies(states)
    for first in range(0, total, SWEEPS_PER_GROUP):
        if should_stop():
            return best, first
        last = min(first + SWEEPS_PER_GROUP, total)
        workers.map(functools.partial(run.advance, first=first, last=last), run.blocks)
        states = kernel.unpack_bits(run.words(), n_bits)
        energies = lanes.energies(states)
        better = energies < best_energies
        best, best_energies = np.where(better, states, best), np.where(better, energies, best_energies)
    return states, total


class _Run:
    """The lanes cut into blocks as the kernel wants them, each block with its own arrays."""

    def __init__(
        self,
        kernel: Any,
        lanes: Lanes,
        schedule: Schedule,
        words: NDArray[np.uint32],
        streams: NDArray[np.uint32],
        dtype: Any,
    ) -> None:
        self.kernel, self.lanes, self.schedule, self.dtype = kernel, lanes, schedule, dtype
        self.cancelled = False
        # Powers of two bring all numbers near 1, where single precision has room to both sides, without
        # changing a bit of any mantissa: the result does not depend on which lanes share the scale.
        width = _power_of_two(lanes.steps)
        self.energy_scale = max(_power_of_two(lanes.curvature) * width**2, _power_of_two(lanes.gradient) * width)
        self.curvature = (lanes.curvature * (width**2 / self.energy_scale)).astype(dtype)
        n_lanes = len(lanes.seeds)
        self.blocks = [slice(first, min(first + kernel.LANES, n_lanes)) for first in range(0, n_lanes, kernel.LANES)]
        self._arrays = {}
        for block in self.blocks:
            self._arrays[block.start] = (
                self._padded(lanes.gradient[:, block] * (width / self.energy_scale), dtype),
                self._padded(lanes.steps[:, block] / width, dtype),
                self._padded(words[:, block], np.uint32),
                self._padded(streams[:, block], np.uint32),
            )

    def advance(self, block: slice, first: int, last: int) -> None:
        """Sweeps `first` to `last − 1` of one block; its words and random streams are overwritten."""
        gradient, steps, words, streams = self._arrays[block.start]
        for chunk in range(first, last, SWEEPS_PER_CHUNK):
            end = min(chunk + SWEEPS_PER_CHUNK, last)
            betas = self.schedule.betas(chunk, end, self.lanes.hot[block], self.lanes.cold[block])
            # The kernel wants finite numbers; so cold a lane accepts no step upward either way.
            scaled = self._padded(np.minimum(betas * self.energy_scale, 1e30), self.dtype)
            for start in range(0, end - chunk, SWEEPS_PER_GROUP):
                if self.cancelled:
                    return
                self.kernel.anneal_block(
                    self.curvature, gradient, steps, scaled[start : start + SWEEPS_PER_GROUP], words, streams
                )

    def words(self) -> NDArray[np.uint32]:
        """The packed states (D, L) of all blocks."""
        return np.concatenate(
            [self._arrays[block.start][2][:, : block.stop - block.start] for block in self.blocks], axis=1
        )

    def _padded(self, values: NDArray[Any], dtype: Any) -> NDArray[Any]:
        padded = np.zeros((len(values), self.kernel.LANES), dtype=dtype)
        padded[:, : values.shape[1]] = values
        return padded


class _Workers:
    """`map` over blocks, in threads if there is more than one block and more than one processor."""

    def __init__(self, num_threads: int | None, n_blocks: int) -> None:
        if num_threads is not None:
            check_number("num_threads", num_threads, Integral, minimum=1)
        available = num_threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        count = min(available or 1, n_blocks)
        self._pool = ThreadPoolExecutor(count) if count > 1 else None

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[slice], None], blocks: list[slice]) -> None:
        """Call the function on every block and wait; an error in one is raised here."""
        if self._pool is None:
            for block in blocks:
                function(block)
            return
        for future in [self._pool.submit(function, block) for block in blocks]:
            future.result()


def _power_of_two(values: NDArray[np.float64]) -> float:
    """The power of two at or below the largest magnitude (1 if all are zero)."""
    largest = float(np.abs(values).max(initial=0.0))
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0


@functools.cache
def _kernel() -> Any:
    """The compiled part, imported when it is first needed, because numba takes a moment to load."""
    from annealfit.samplers import _kernel

    if not any(Path(_kernel.anneal_block.stats.cache_path).glob("_kernel.anneal_block-*.nbi")):
        logger.warning("Compiling the annealing kernel; this takes a few seconds, once per machine.")
    return _kernel
