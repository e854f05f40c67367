"""Annealing many chains at once: lanes in, final states out.

A lane is one read of one problem. Lanes that share a curvature are annealed in blocks, one vector
register wide; each lane has its own random stream, so its result depends neither on its companions nor
on the number of threads.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from annealfit._support.errors import InvalidInputError
from annealfit.samplers.native.chains import Stop, Workers
from annealfit.samplers.native.schedule import Schedule

logger = logging.getLogger(__name__)

PRECISIONS: dict[str, DTypeLike] = {"single": np.float32, "double": np.float64}


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
    dtype = PRECISIONS[precision]
    try:
        run = _Run(_kernel(), lanes, schedule, start, dtype)
        with Workers(num_threads, len(run.blocks)) as workers:
            try:
                if should_stop is not None:
                    return _anneal_in_groups(run, workers, should_stop)
                workers.map(functools.partial(run.advance, first=0, last=schedule.num_sweeps), run.blocks)
                return run.states(), schedule.num_sweeps
            finally:
                run.cancelled = True  # after Ctrl-C, lets the other threads end with their chunk
    except MemoryError as error:
        size = len(lanes.curvature)
        raise InvalidInputError(
            f"annealing {len(lanes.seeds)} lanes of {size} parameters needs more memory than there is "
            f"({size * size * np.dtype(dtype).itemsize / 2**30:.1f} GiB for the curvature alone); "
            "use fewer reads, or a smaller problem"
        ) from error


def _anneal_in_groups(run: _Run, workers: Workers, should_stop: Stop) -> tuple[NDArray[np.uint8], int]:
    lanes, total, group = run.lanes, run.schedule.num_sweeps, run.kernel.SWEEPS_PER_GROUP
    states = run.states()
    best, best_energies = states, lanes.energies(states)
    for first in range(0, total, group):
        if should_stop():
            return best, first
        workers.map(functools.partial(run.advance, first=first, last=min(first + group, total)), run.blocks)
        states = run.states()
        energies = lanes.energies(states)
        better = energies < best_energies
        best, best_energies = np.where(better, states, best), np.where(better, energies, best_energies)
    return states, total


class _Run:
    """The lanes cut into blocks as the kernel wants them, each block with its own arrays."""

    def __init__(
        self, kernel: Any, lanes: Lanes, schedule: Schedule, start: NDArray[np.uint8] | None, dtype: DTypeLike
    ) -> None:
        self.kernel, self.lanes, self.schedule = kernel, lanes, schedule
        self.cancelled = False
        # Powers of two bring all numbers near 1, where single precision has room to both sides, without
        # changing a bit of any mantissa: the result does not depend on which lanes share the scale.
        width = _power_of_two(lanes.steps)
        energy = max(_power_of_two(lanes.curvature) * width**2, _power_of_two(lanes.gradient) * width)
        self.curvature = (lanes.curvature * (width**2 / energy)).astype(dtype)
        intercept, slope = schedule.line(lanes.hot * energy, lanes.cold * energy)
        self._chunk = self._sweeps_per_chunk()
        self.blocks = []
        for first in range(0, len(lanes.seeds), kernel.LANES):
            own = slice(first, min(first + kernel.LANES, len(lanes.seeds)))
            words = np.zeros((len(lanes.curvature), kernel.LANES), dtype=np.uint32)
            streams = np.zeros((kernel.STATE_WORDS, kernel.LANES), dtype=np.uint32)
            kernel.start_block(lanes.seeds[own], len(lanes.steps), words, streams)
            if start is not None:
                words[:, : own.stop - first] = kernel.pack_bits(start[:, :, own])
            self.blocks.append(
                _Block(
                    gradient=self._padded(lanes.gradient[:, own] * (width / energy), dtype),
                    steps=self._padded(lanes.steps[:, own] / width, dtype),
                    intercept=self._padded(intercept[own], np.float64),
                    slope=self._padded(slope[own], np.float64),
                    words=words,
                    streams=streams,
                )
            )

    def advance(self, block: _Block, first: int, last: int) -> None:
        """Sweeps `first` to `last − 1` of one block; its words and random streams are overwritten."""
        for start in range(first, last, self._chunk):
            if self.cancelled:
                return
            self.kernel.anneal_block(
                self.curvature,
                block.gradient,
                block.steps,
                self.schedule.shares(start, min(start + self._chunk, last)),
                block.intercept,
                block.slope,
                self.schedule.is_geometric,
                block.words,
                block.streams,
            )

    def states(self) -> NDArray[np.uint8]:
        """The current states (D, K, L) of all lanes."""
        words = np.concatenate([block.words for block in self.blocks], axis=1)
        return self.kernel.unpack_bits(words[:, : len(self.lanes.seeds)], len(self.lanes.steps))

    def _sweeps_per_chunk(self) -> int:
        """Sweeps to run before leaving the compiled code, where Ctrl-C is not heard: about a tenth of a second."""
        parameters, bits = len(self.lanes.curvature), len(self.lanes.steps)
        groups = 1e7 / (self.kernel.SWEEPS_PER_GROUP * parameters * (parameters + 10 * bits))
        return self.kernel.SWEEPS_PER_GROUP * max(1, int(groups))

    def _padded(self, values: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
        padded = np.zeros((*values.shape[:-1], self.kernel.LANES), dtype=dtype)
        padded[..., : values.shape[-1]] = values
        return padded


@dataclass(frozen=True, eq=False)
class _Block:
    """The arrays of up to one vector's width of lanes; only `words` and `streams` change."""

    gradient: NDArray[Any]
    steps: NDArray[Any]
    intercept: NDArray[np.float64]
    slope: NDArray[np.float64]
    words: NDArray[np.uint32]
    streams: NDArray[np.uint32]


def _power_of_two(values: NDArray[np.float64]) -> float:
    """The power of two at or below the largest magnitude (1 if all are zero)."""
    largest = float(np.abs(values).max(initial=0.0))
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0


@functools.cache
def _kernel() -> Any:
    """The compiled part, imported when it is first needed, because numba takes a moment to load."""
    from annealfit.samplers.native import _kernel

    if not any(Path(_kernel.anneal_block.stats.cache_path).glob("_kernel.anneal_block-*.nbi")):
        logger.warning("Compiling the annealing kernel; this takes a few seconds, once per machine.")
    return _kernel
