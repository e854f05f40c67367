"""SimulatedAnnealer: D-Wave's Markov chain on the factored problem, all classes and reads at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.errors import InvalidInputError, choose
from annealfit._support.randomness import descend
from annealfit.problems.encoding import Encoding
from annealfit.problems.export import largest_coefficients
from annealfit.problems.problem import Problems, QuadraticProblem, group_by_curvature
from annealfit.samplers.native.chains import Annealer, Stop, Stopwatch, as_words, for_each_read
from annealfit.samplers.native.lanes import PRECISIONS, Lanes, anneal_lanes
from annealfit.samplers.native.schedule import BetaRange
from annealfit.samplers.protocol import Samples

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
        See `annealfit.samplers.native.schedule.Schedule`.
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
        """Compile the kernel for this precision."""
        _compile_kernel(self.precision)

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
        return self._anneal(group, as_words([seed]), self._should_stop, start)[0]

    def _anneal(
        self,
        problems: Problems,
        seeds: NDArray[np.uint64],
        should_stop: Stop | None,
        start: NDArray[np.uint8] | None = None,
    ) -> list[Samples]:
        """Anneal problems with a common metric, from random states or from `start` (reads, D, K) of a single one."""
        clock = Stopwatch()
        reads = self.num_reads
        finest_steps = 2 * problems.resolutions
        hot, cold = self._beta_ends(problems)
        lanes = Lanes(
            curvature=problems.metric.matrix,
            gradient=for_each_read(problems.gradients.T, reads),
            steps=for_each_read(np.exp2(np.arange(problems.bits))[:, None] * finest_steps, reads),
            hot=for_each_read(hot, reads),
            cold=for_each_read(cold, reads),
            seeds=descend(seeds[:, None], np.arange(reads)).ravel(),
        )
        clock.lap()
        states, sweeps = anneal_lanes(
            lanes,
            self._schedule,
            start=None if start is None else start.transpose(1, 2, 0),
            precision=self.precision,
            num_threads=self.num_threads,
            should_stop=should_stop,
        )
        clock.lap()
        energies = lanes.energies(states).reshape(len(problems), reads)
        by_problem = states.transpose(2, 0, 1).reshape(len(problems), reads, *states.shape[:2])
        return self._answers(by_problem, energies, (hot, cold), sweeps, clock)

    def _beta_ends(self, problems: Problems) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.beta_schedule is None and self.beta_range is None:
            return automatic_beta_range(problems)
        scales = largest_coefficients(problems) if self.normalize else np.ones(len(problems))
        scales[scales == 0] = 1.0  # an all-zero problem has no scale, and needs none
        if self.beta_schedule is not None:  # the ends only carry the scale: see Schedule.betas
            return 1 / scales, 1 / scales
        hot, cold = self.beta_range  # type: ignore[misc]
        return hot / scales, cold / scales


@cache
def _compile_kernel(precision: str) -> None:
    problem = QuadraticProblem(np.eye(1), np.zeros(1), Encoding(bits=1, range=1.0))
    SimulatedAnnealer(num_sweeps=1, precision=precision).sample(problem)


def automatic_beta_range(problems: Problems) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Hot and cold β, shape (P,) each, of problems with a common metric.

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
    # Where the curvature is not convex, minima lie at corners, and what a level costs there is a matter of fields.
    stiffness = diagonal if problems.metric.is_convex else problems.metric.row_norms
    typical = stiffness.sum() / max(np.count_nonzero(stiffness), 1) or 1.0
    hot = HOT_FACTOR / largest
    return hot, np.maximum(COLD_FACTOR / (finest**2 * typical), hot)
