"""SimulatedAnnealer: D-Wave's Markov chain on the factored problem, all classes and reads at once.

A lane is one read of one problem. Lanes that share a curvature are annealed in blocks, one vector register wide; each
lane has its own random stream, so its result depends neither on its companions nor on the number of threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, choose
from annealfit.problems.export import largest_coefficients
from annealfit.problems.problem import Problems
from annealfit.samplers.native.annealing import Annealer, BetaRange, Limit, Schedule, Stop, in_threads, new_flag
from annealfit.samplers.protocol import Samples

PRECISIONS: dict[str, DTypeLike] = {"single": np.float32, "double": np.float64}

# Chosen by measurement: see docs/samplers.md.
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
    >>> from annealfit.problems.problem import QuadraticProblem
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

    def _anneal(self, problems: Problems, seeds: NDArray[np.uint64], limit: Limit | None) -> list[Samples]:
        times, reads = [time.perf_counter()], self.num_reads
        hot, cold = self._beta_ends(problems)
        lanes = Lanes(
            curvature=problems.shared_curvature.matrix,
            gradient=np.repeat(problems.gradients.T, reads, axis=1),
            steps=np.exp2(np.arange(problems.bits))[:, None] * np.repeat(2 * problems.resolutions, reads),
            hot=np.repeat(hot, reads),
            cold=np.repeat(cold, reads),
            seeds=seeds,
            schedule=self._schedule,
            precision=self.precision,
            num_threads=self.num_threads,
        )
        times.append(time.perf_counter())
        states, sweeps = lanes.anneal(limit)
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
    diagonal = problems.shared_curvature.diagonal
    fields = np.abs(problems.gradients) + problems.ranges[:, None] * problems.shared_curvature.row_norms
    largest = (coarsest * (2 * fields + coarsest * diagonal)).max(axis=1)
    largest[largest <= 0] = 1.0
    hot = HOT_FACTOR / largest
    return hot, np.maximum(COLD_FACTOR / (finest**2 * problems.shared_curvature.typical_stiffness), hot)


@dataclass(eq=False)
class Lanes:
    """L chains on `E(b) = uᵀGu + 2gᵀu`, `u_j = Σ_k steps_k (b_jk − ½)`, with a common curvature G."""

    curvature: Array  # (D, D)
    gradient: Array  # (D, L)
    steps: Array  # (K, L): by how much each bit changes a parameter
    hot: Array  # (L,): β of the first sweep
    cold: Array  # (L,): β of the last sweep
    seeds: NDArray[np.uint64]  # (L,)
    schedule: Schedule
    precision: str
    num_threads: int | None
    start: NDArray[np.uint8] | None = None  # (D, K, L); None is random states

    def anneal(self, limit: Limit | None) -> tuple[NDArray[np.uint8], int]:
        """Run the chains; returns states (D, K, L) and the number of sweeps.

        After all sweeps the states are the chains' last. If the limit ends the anneal early, they are the best of
        those at the ends of the groups of sweeps.
        """
        from annealfit.samplers.native import _kernel  # numba takes a moment to load

        total, group = self.schedule.num_sweeps, _kernel.SWEEPS_PER_GROUP
        try:
            self._cut_into_blocks()
            if limit is None:
                self._advance(0, total)
                return self._states(), total
            best = states = self._states()
            best_energies = self.energies(states)
            for first in range(0, total, group):
                if limit.is_reached():
                    return best, first
                self._advance(first, min(first + group, total))
                states = self._states()
                energies = self.energies(states)
                better = energies < best_energies
                best, best_energies = np.where(better, states, best), np.where(better, energies, best_energies)
            return states, total
        except MemoryError as error:
            size = len(self.curvature)
            raise InvalidInputError(
                f"annealing {len(self.seeds)} lanes of {size} parameters needs more memory than there is "
                f"({size * size * np.dtype(PRECISIONS[self.precision]).itemsize / 2**30:.1f} GiB for the curvature "
                "alone); use fewer reads, or a smaller problem"
            ) from error

    def energies(self, bits: NDArray[np.uint8]) -> Array:
        """Energies (L,) of states (D, K, L), in double precision."""
        updates = np.einsum("jkl,kl->lj", bits, self.steps) - self.steps.sum(axis=0)[:, None] / 2
        return np.vecdot(updates @ self.curvature + 2 * self.gradient.T, updates)

    def _cut_into_blocks(self) -> None:
        """Make the arrays that the kernel needs: of each block of up to one vector's width of lanes."""
        from annealfit.samplers.native import _kernel

        def padded(values: Array, dtype: DTypeLike) -> NDArray[Any]:
            whole = np.zeros((*values.shape[:-1], _kernel.LANES), dtype=dtype)
            whole[..., : values.shape[-1]] = values
            return whole

        dtype, size, bits = PRECISIONS[self.precision], len(self.curvature), len(self.steps)
        # Powers of two bring all numbers near 1, where single precision has room to both sides, without
        # changing a bit of any mantissa: the result does not depend on which lanes share the scale.
        width = _power_of_two(self.steps)
        energy = max(_power_of_two(self.curvature) * width**2, _power_of_two(self.gradient) * width)
        self._curvature = (self.curvature * (width**2 / energy)).astype(dtype)
        intercept, slope = self.schedule.line(self.hot * energy, self.cold * energy)
        self._blocks = []  # the last two arrays of each block are overwritten
        for first in range(0, len(self.seeds), _kernel.LANES):
            own = slice(first, min(first + _kernel.LANES, len(self.seeds)))
            words = np.zeros((size, _kernel.LANES), dtype=np.uint32)
            streams = np.zeros((_kernel.STATE_WORDS, _kernel.LANES), dtype=np.uint32)
            _kernel.start_block(self.seeds[own], bits, words, streams)
            if self.start is not None:
                words[:, : own.stop - first] = _kernel.pack_bits(self.start[:, :, own])
            scaled = self.gradient[:, own] * (width / energy), self.steps[:, own] / width
            line = padded(intercept[own], np.float64), padded(slope[own], np.float64)
            self._blocks.append((*(padded(values, dtype) for values in scaled), *line, words, streams))

    def _advance(self, first: int, last: int) -> None:
        """Run the sweeps `first` to `last − 1` of all lanes, in threads."""
        from annealfit.samplers.native import _kernel

        stop, (bits, size) = new_flag(), (len(self.steps), len(self.curvature))
        # Sweeps before compiled code is left, where Ctrl-C is not heard: about a tenth of a second.
        groups = 1e7 / (_kernel.SWEEPS_PER_GROUP * size * (size + 10 * bits))
        sweeps_per_call = _kernel.SWEEPS_PER_GROUP * max(1, int(groups))

        def advance(block: tuple[NDArray[Any], ...]) -> None:
            gradient, steps, intercept, slope, words, streams = block
            for start in range(first, last, sweeps_per_call):
                if stop[0]:
                    return
                shares = self.schedule.shares(start, min(start + sweeps_per_call, last))
                line = shares, intercept, slope, self.schedule.is_geometric
                _kernel.anneal_block(self._curvature, gradient, steps, *line, words, streams)

        in_threads(advance, self._blocks, self.num_threads, stop)

    def _states(self) -> NDArray[np.uint8]:
        """The current states (D, K, L) of all lanes."""
        from annealfit.samplers.native import _kernel

        words = np.concatenate([words for *_, words, _ in self._blocks], axis=1)
        return _kernel.unpack_bits(words[:, : len(self.seeds)], len(self.steps))


def _power_of_two(values: Array) -> float:
    """The power of two at or below the largest magnitude (1 if all are zero)."""
    largest = float(np.abs(values).max(initial=0.0))
    return math.ldexp(0.5, math.frexp(largest)[1]) if largest > 0 else 1.0
