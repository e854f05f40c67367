"""SimulatedAnnealer: D-Wave's Markov chain on the factored problem, all classes and reads at once.

A lane is one read of one problem. Lanes that share a curvature are annealed in blocks, one vector register wide; each
lane has its own random stream, so its result depends neither on its companions nor on the number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, choose
from annealfit.problems.export import largest_coefficients
from annealfit.problems.problem import Problems, QuadraticProblem, group_by_curvature
from annealfit.samplers.native.annealing import Annealer, BetaRange, Limit, Schedule, Stop, in_threads, new_flag
from annealfit.samplers.protocol import Samples

PRECISIONS: dict[str, DTypeLike] = {"single": np.float32, "double": np.float64}

# Chosen by measurement: see docs/annealer.md.
HOT_FACTOR, COLD_FACTOR = 10.0, 50.0


@dataclass(frozen=True)
class SimulatedAnnealer(Annealer):
    """Single-flip Metropolis annealing in variable order, on the factored problem.

    The chain is that of dwave-samplers' `SimulatedAnnealingSampler` with the same settings, and so are
    the names of the settings. A read ends in the state the chain is in after the last sweep.

    Parameters
    ----------
    num_sweeps, num_reads : int
    beta_range : (hot, cold) or None
        Inverse temperatures of the first and the last sweep, in units of the problem's energy. None takes them
        from the problem, cold enough that the finest bit settles (`automatic_beta_range`).
    beta_schedule_type, num_sweeps_per_beta, beta_schedule
        See `annealfit.samplers.native.annealing.Schedule`.
    normalize : bool
        Read `beta_range` or `beta_schedule` in units of the problem's largest coefficient, as the paper
        does, instead of in units of energy.
    precision : {"single", "double"}
    num_threads : int or None
        Threads over blocks of 16 lanes (a lane is one read of one problem); None is as many as this process may
        use (`annealfit._support.threads.processors`). Results do not depend on it.
    time_limit : float or None
        Seconds after which the anneal ends early, with the best states seen so far.
    interrupt_function : callable or None
        Called between groups of sweeps; a true answer ends the anneal early in the same way.

    Examples
    --------
    >>> from annealfit.problems.encoding import Encoding
    >>> problem = QuadraticProblem([[2.0, 0.5], [0.5, 1.0]], [1.0, -1.0], Encoding(bits=3, range=1.0))
    >>> samples = SimulatedAnnealer(num_reads=4).sample(problem, seed=1)
    >>> samples.bits.shape, round(samples.best_energy, 3)
    ((4, 2, 3), -2.122)

    """

    num_sweeps: int = 100
    num_reads: int = 1
    beta_range: BetaRange | None = None
    beta_schedule_type: str = "geometric"
    num_sweeps_per_beta: int = 1
    beta_schedule: Sequence[float] | None = None
    normalize: bool = False
    precision: str = "single"
    num_threads: int | None = None
    time_limit: float | None = None
    interrupt_function: Stop | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        choose("precision", self.precision, PRECISIONS)
        super().__post_init__()

    def prepare(self) -> None:
        """Load the compiled code."""
        from annealfit.samplers.native import _kernel

        _kernel.load_for(self.precision)

    def sample(self, problem: QuadraticProblem, *, seed: int = 0, initial_bits: ArrayLike | None = None) -> Samples:
        """Anneal one problem, from random states or from `initial_bits` of shape (reads, D, K) or (reads, D·K)."""
        start = None
        if initial_bits is not None:
            shape = (self.num_reads, problem.n_parameters, problem.encoding.bits)
            given = np.asarray(initial_bits)
            if given.shape not in (shape, (self.num_reads, problem.n_variables)):
                raise InvalidInputError(
                    f"initial_bits have shape {given.shape}; expected {shape}, "
                    f"one state for each of {self.num_reads} reads"
                )
            start = problem.as_bits(given.reshape(shape))
        ((_, group),) = group_by_curvature([problem])
        self.prepare()
        limit = Limit.of(self.time_limit, self.interrupt_function)
        return self._anneal(group, self._read_seeds([seed]).ravel(), limit, start)[0]

    def _anneal(
        self, problems: Problems, seeds: NDArray[np.uint64], limit: Limit | None, start: NDArray[np.uint8] | None = None
    ) -> list[Samples]:
        """Anneal problems with a common curvature, from random states or from `start` (reads, D, K) of a single one."""
        times, reads = [time.perf_counter()], self.num_reads
        hot, cold = self._beta_ends(problems)
        lanes = Lanes(
            curvature=problems.metric.matrix,
            gradient=np.repeat(problems.gradients.T, reads, axis=1),
            steps=np.exp2(np.arange(problems.bits))[:, None] * np.repeat(2 * problems.resolutions, reads),
            hot=np.repeat(hot, reads),
            cold=np.repeat(cold, reads),
            seeds=seeds,
        )
        first = None if start is None else start.transpose(1, 2, 0)
        times.append(time.perf_counter())
        states, sweeps = anneal_lanes(lanes, self._schedule, first, self.precision, self.num_threads, limit)
        times.append(time.perf_counter())
        energies = lanes.energies(states).reshape(len(problems), reads)
        bits = states.transpose(2, 0, 1).reshape(len(problems), reads, *states.shape[:2])
        return self._answers(bits, energies, (hot, cold), sweeps, times)

    def _beta_ends(self, problems: Problems) -> tuple[Array, Array]:
        if self.beta_schedule is None and self.beta_range is None:
            return automatic_beta_range(problems)
        scales = largest_coefficients(problems) if self.normalize else np.ones(len(problems))
        scales[scales == 0] = 1.0  # an all-zero problem has no scale, and needs none
        if self.beta_schedule is not None:  # the ends only carry the scale: see Schedule.line
            return 1 / scales, 1 / scales
        hot, cold = self.beta_range  # type: ignore[misc]
        return hot / scales, cold / scales


def automatic_beta_range(problems: Problems) -> tuple[Array, Array]:
    """Hot and cold β, shape (P,) each, of problems with a common curvature.

    Hot is set by the coarsest bit: flipping it changes `u_j` by `Δ = 2p_{K−1}` and the energy by
    `2Δh_j + Δ²G_jj`, where the field h of a random state is about `|g_j| + δ√Σ_i G_ij²`.
    Cold is set by the finest: moving off a minimum by one level, `2p_0`, costs `(2p_0)²G_jj`. So the
    anneal ends at the resolution of the encoding, whatever the number of bits.
    """
    finest = 2 * problems.resolutions
    coarsest = (finest * (problems.levels / 2))[:, None]
    diagonal = problems.metric.diagonal
    fields = np.abs(problems.gradients) + problems.ranges[:, None] * problems.metric.row_norms
    largest = (coarsest * (2 * fields + coarsest * diagonal)).max(axis=1)
    largest[largest <= 0] = 1.0
    hot = HOT_FACTOR / largest
    return hot, np.maximum(COLD_FACTOR / (finest**2 * problems.metric.typical_stiffness), hot)


@dataclass(frozen=True, eq=False)
class Lanes:
    """L chains on `E(b) = uᵀGu + 2gᵀu`, `u_j = Σ_k steps_k (b_jk − ½)`, with a common curvature G."""

    curvature: Array  # (D, D)
    gradient: Array  # (D, L)
    steps: Array  # (K, L): by how much each bit changes a parameter
    hot: Array  # (L,): β of the first sweep
    cold: Array  # (L,): β of the last sweep
    seeds: NDArray[np.uint64]  # (L,)

    def energies(self, bits: NDArray[np.uint8]) -> Array:
        """Energies (L,) of states (D, K, L), in double precision."""
        updates = np.einsum("jkl,kl->lj", bits, self.steps) - self.steps.sum(axis=0)[:, None] / 2
        return np.vecdot(updates @ self.curvature + 2 * self.gradient.T, updates)


def anneal_lanes(
    lanes: Lanes,
    schedule: Schedule,
    start: NDArray[np.uint8] | None,
    precision: str,
    num_threads: int | None,
    limit: Limit | None,
) -> tuple[NDArray[np.uint8], int]:
    """Run the chains from random states or from `start` (D, K, L); returns states (D, K, L) and the number of sweeps.

    After all sweeps the states are the chains' last. If the limit ends the anneal early, they are the best of those
    at the ends of the groups of sweeps.
    """
    dtype, total = PRECISIONS[precision], schedule.num_sweeps
    try:
        run = _Run(lanes, schedule, start, dtype, num_threads)
        if limit is None:
            run.advance(0, total)
            return run.states(), total
        best = states = run.states()
        best_energies = lanes.energies(states)
        for first in range(0, total, run.kernel.SWEEPS_PER_GROUP):
            if limit.is_reached():
                return best, first
            run.advance(first, min(first + run.kernel.SWEEPS_PER_GROUP, total))
            states = run.states()
            energies = lanes.energies(states)
            better = energies < best_energies
            best, best_energies = np.where(better, states, best), np.where(better, energies, best_energies)
        return states, total
    except MemoryError as error:
        size = len(lanes.curvature)
        raise InvalidInputError(
            f"annealing {len(lanes.seeds)} lanes of {size} parameters needs more memory than there is "
            f"({size * size * np.dtype(dtype).itemsize / 2**30:.1f} GiB for the curvature alone); "
            "use fewer reads, or a smaller problem"
        ) from error


class _Run:
    """The lanes cut into blocks as the kernel needs them, each block with its own arrays."""

    def __init__(
        self,
        lanes: Lanes,
        schedule: Schedule,
        start: NDArray[np.uint8] | None,
        dtype: DTypeLike,
        num_threads: int | None,
    ) -> None:
        from annealfit.samplers.native import _kernel  # numba takes a moment to load

        self.kernel, self._lanes, self._schedule, self._num_threads = _kernel, lanes, schedule, num_threads
        # Powers of two bring all numbers near 1, where single precision has room to both sides, without
        # changing a bit of any mantissa: the result does not depend on which lanes share the scale.
        width = _power_of_two(lanes.steps)
        energy = max(_power_of_two(lanes.curvature) * width**2, _power_of_two(lanes.gradient) * width)
        self._curvature = (lanes.curvature * (width**2 / energy)).astype(dtype)
        intercept, slope = schedule.line(lanes.hot * energy, lanes.cold * energy)
        # Sweeps before compiled code is left, where Ctrl-C is not heard: about a tenth of a second.
        size, bits = len(lanes.curvature), len(lanes.steps)
        groups = 1e7 / (_kernel.SWEEPS_PER_GROUP * size * (size + 10 * bits))
        self._sweeps_per_call = _kernel.SWEEPS_PER_GROUP * max(1, int(groups))
        self._blocks = []  # arrays of up to one vector's width of lanes; the last two of each block are overwritten
        for first in range(0, len(lanes.seeds), _kernel.LANES):
            own = slice(first, min(first + _kernel.LANES, len(lanes.seeds)))
            words = np.zeros((size, _kernel.LANES), dtype=np.uint32)
            streams = np.zeros((_kernel.STATE_WORDS, _kernel.LANES), dtype=np.uint32)
            _kernel.start_block(lanes.seeds[own], bits, words, streams)
            if start is not None:
                words[:, : own.stop - first] = _kernel.pack_bits(start[:, :, own])
            gradient = self._padded(lanes.gradient[:, own] * (width / energy), dtype)
            steps = self._padded(lanes.steps[:, own] / width, dtype)
            line = self._padded(intercept[own], np.float64), self._padded(slope[own], np.float64)
            self._blocks.append((gradient, steps, *line, words, streams))

    def advance(self, first: int, last: int) -> None:
        """Run the sweeps `first` to `last − 1` of all lanes, in threads."""
        stop = new_flag()

        def advance(block: tuple[NDArray[Any], ...]) -> None:
            gradient, steps, intercept, slope, words, streams = block
            for start in range(first, last, self._sweeps_per_call):
                if stop[0]:
                    return
                shares = self._schedule.shares(start, min(start + self._sweeps_per_call, last))
                line = shares, intercept, slope, self._schedule.is_geometric
                self.kernel.anneal_block(self._curvature, gradient, steps, *line, words, streams)

        in_threads(advance, self._blocks, self._num_threads, stop)

    def states(self) -> NDArray[np.uint8]:
        """The current states (D, K, L) of all lanes."""
        words = np.concatenate([words for *_, words, _ in self._blocks], axis=1)
        return self.kernel.unpack_bits(words[:, : len(self._lanes.seeds)], len(self._lanes.steps))

    def _padded(self, values: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
        padded = np.zeros((*values.shape[:-1], self.kernel.LANES), dtype=dtype)
        padded[..., : values.shape[-1]] = values
        return padded


def _power_of_two(values: Array) -> float:
    """The power of two at or below the largest magnitude (1 if all are zero)."""
    largest = float(np.abs(values).max(initial=0.0))
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0
