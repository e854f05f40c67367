"""LevelAnnealer: a heat bath over the levels of the parameters, where the bits of a code build no barriers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import choose
from annealfit.problems.bounds import QUICK, compile_kernel, relax
from annealfit.problems.curvature import Curvature
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import Problems, QuadraticProblem
from annealfit.samplers.native.chains import Annealer, Stop, Stopwatch, Workers, blocks_of_lanes, for_each_read
from annealfit.samplers.native.schedule import BetaRange, Schedule
from annealfit.samplers.protocol import Samples

STARTS = ("relaxation", "random")
SWEEPS_BETWEEN_QUESTIONS = 32

# β times what it costs to be one level off the centre, at the hot end and at the cold one (see docs/annealer.md).
# From the relaxation the answer is a level or two away; from anywhere the whole range has to be in reach.
WARM, COLD = 1.0, 20.0
MOST_PARAMETERS_FOR_CHAINS = 100  # the work grows as the square
RELAXATION_SWEEPS = 4  # of the box-constrained descent that the start is rounded from


@dataclass(frozen=True)
class LevelAnnealer(Annealer):
    """Annealing in which a parameter is drawn anew, from all its levels, given the others: a heat bath.

    Given the others, a parameter's energy is a parabola, so its Boltzmann distribution over the levels is a
    discretised Gaussian: one draw replaces the K flips of a K-bit code, at the price of one. It is not D-Wave's chain;
    that is `SimulatedAnnealer`.

    Parameters
    ----------
    num_sweeps, num_reads : int
    start : {"relaxation", "random"}
        Where every read starts: from the continuous minimum over the box, rounded, or from random levels.
    polish : bool
        End every read with a descent, to a state that no change of one parameter improves, nor (up to 100
        parameters) a chain of up to six that change by a level each: see docs/annealer.md. Without it a read ends
        where the annealing does.
    beta_range : (hot, cold) or None
        Inverse temperatures of the first and the last sweep, in units of the problem's energy. None takes them from
        the problem: from the start's temperature to one at which every parameter settles.
    beta_schedule_type, num_sweeps_per_beta, beta_schedule
        See `annealfit.samplers.native.schedule.Schedule`.
    num_threads : int or None
        Threads over blocks of 16 lanes (a lane is one read of one problem). Results do not depend on it.
    time_limit : float or None
        Seconds after which the anneal ends early.
    interrupt_function : callable or None
        Called between groups of sweeps; a true answer ends the anneal early.

    Examples
    --------
    >>> problem = QuadraticProblem([[2.0, 0.5], [0.5, 1.0]], [1.0, -1.0], Encoding(bits=3, range=1.0))
    >>> samples = LevelAnnealer(num_reads=4).sample(problem, seed=1)
    >>> samples.bits.shape, round(samples.best_energy, 3)
    ((4, 2, 3), -2.122)

    """

    num_sweeps: int = 3
    num_reads: int = 1
    start: str = "relaxation"
    polish: bool = True
    beta_range: BetaRange | None = None
    beta_schedule_type: str = "geometric"
    num_sweeps_per_beta: int = 1
    beta_schedule: Sequence[float] | None = None
    num_threads: int | None = None
    time_limit: float | None = None
    interrupt_function: Stop | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        choose("start", self.start, STARTS)
        super().__post_init__()

    def prepare(self) -> None:
        """Compile the kernel and the relaxation."""
        compile_kernel()
        _compile_levels()

    def _anneal(self, problems: Problems, seeds: NDArray[np.uint64], should_stop: Stop | None) -> list[Samples]:
        from annealfit.samplers.native import _levels  # numba takes a moment to load

        clock, reads, top = Stopwatch(), self.num_reads, problems.levels - 1
        spacings = 2 * problems.resolutions
        hot, cold = self._beta_ends(problems, spacings)
        minima, gradients = np.empty((0, 0)), problems.gradients
        if self.start == "relaxation":
            minima, _ = relax(problems, RELAXATION_SWEEPS, QUICK["relative_gap"])
        levels = np.empty((len(problems) * reads, problems.n_parameters), dtype=np.int64)
        updates, lane_seeds = np.empty(levels.shape), np.empty(len(levels), dtype=np.uint64)
        _levels.first_levels(minima, spacings, top, problems.bits, seeds, reads, levels, updates, lane_seeds)
        if reads > 1:
            spacings, gradients = np.repeat(spacings, reads), np.repeat(gradients, reads, axis=0)
        fields = problems.metric.times(updates) + gradients
        line = self._schedule.line(for_each_read(hot, reads), for_each_read(cold, reads))
        clock.lap()
        run = _Run(problems.metric, spacings, top, self._schedule, *line, levels, fields, lane_seeds)
        sweeps = run.go(self.num_threads, should_stop, self.polish)
        clock.lap()
        bits = np.empty((*levels.shape, problems.bits), dtype=np.uint8)
        _levels.read_levels(levels, spacings, top, bits, updates)
        energies = problems.metric.energies(gradients, updates).reshape(len(problems), reads)
        by_problem = bits.reshape(len(problems), reads, *bits.shape[1:])
        return self._answers(by_problem, energies, (hot, cold), sweeps, clock)

    def _beta_ends(
        self, problems: Problems, spacings: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.beta_schedule is not None:  # the ends only carry the scale: see Schedule.line
            return np.ones(len(problems)), np.ones(len(problems))
        if self.beta_range is not None:
            hot, cold = self.beta_range
            return np.full(len(problems), float(hot)), np.full(len(problems), float(cold))
        scales = 1 / (problems.metric.typical_stiffness * spacings**2)
        hottest = WARM if self.start == "relaxation" else WARM / (problems.levels / 2) ** 2
        return hottest * scales, COLD * scales


@dataclass(eq=False)
class _Run:
    """The lanes of one solve; their levels and fields are overwritten."""

    metric: Curvature
    spacings: NDArray[np.float64]  # between two levels, (L,)
    top: int  # the highest level
    schedule: Schedule
    intercept: NDArray[np.float64]  # of the schedule's line, (L,)
    slope: NDArray[np.float64]
    levels: NDArray[np.int64]  # (L, D)
    fields: NDArray[np.float64]  # (L, D)
    seeds: NDArray[np.uint64]  # (L,)
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.counters = np.zeros(len(self.seeds), dtype=np.uint64)  # draws so far

    def go(self, num_threads: int | None, should_stop: Stop | None, polish: bool) -> int:
        """Sweep, and say how often; `should_stop` is asked between groups of sweeps."""
        blocks = blocks_of_lanes(len(self.seeds))
        total = self.schedule.num_sweeps
        with Workers(num_threads, len(blocks)) as workers:
            try:
                for first in range(0, total, SWEEPS_BETWEEN_QUESTIONS):
                    if should_stop is not None and should_stop():
                        return first
                    last = min(first + SWEEPS_BETWEEN_QUESTIONS, total)
                    workers.map(functools.partial(self._advance, first=first, last=last), blocks)
                if polish:
                    workers.map(self._polish, blocks)
            finally:
                self.cancelled = True  # after Ctrl-C, lets the other threads end with their block
        return total

    def _advance(self, lanes: slice, first: int, last: int) -> None:
        from annealfit.samplers.native._levels import anneal_levels  # numba takes a moment to load

        logarithms = self.intercept[lanes] + self.schedule.shares(first, last)[:, None] * self.slope[lanes]
        betas = np.exp(logarithms) if self.schedule.is_geometric else logarithms
        if not self.cancelled:
            anneal_levels(
                *self.metric.packed,
                self.spacings[lanes],
                self.top,
                betas,
                self.levels[lanes],
                self.fields[lanes],
                self.seeds[lanes],
                self.counters[lanes],
            )

    def _polish(self, lanes: slice) -> None:
        from annealfit.samplers.native._descent import polish_levels

        with_chains = self.metric.size <= MOST_PARAMETERS_FOR_CHAINS
        if not self.cancelled:
            own = self.spacings[lanes], self.top, self.levels[lanes], self.fields[lanes]
            polish_levels(*self.metric.packed, *own, with_chains)


@cache
def _compile_levels() -> None:
    problem = QuadraticProblem(np.eye(1), np.zeros(1), Encoding(bits=1, range=1.0))
    LevelAnnealer(num_sweeps=1).sample(problem)
