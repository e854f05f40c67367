"""Annealing over the levels of parameters: the engine `LevelChains`, and the sampler `LevelAnnealer` on it.

The engine runs chains from any start, with a spacing of levels for every parameter: training uses it through
`LevelAnnealer`, quantisation directly.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import choose
from annealfit._support.randomness import descend
from annealfit._support.threads import WORTH_THREADS, blas_threads
from annealfit.problems.bounds import QUICK, compile_kernel, relax
from annealfit.problems.curvature import Curvature
from annealfit.problems.encoding import bits_of
from annealfit.problems.problem import Problems
from annealfit.samplers.native.annealing import Annealer, BetaRange, Limit, Stop, flag_after, in_threads, new_flag
from annealfit.samplers.protocol import Samples

STARTS = ("relaxation", "random")
SWEEPS_BETWEEN_QUESTIONS, MOST_WORK = 32, 6_000_000  # at most, and in multiplications: about 3 ms
LANES_PER_BLOCK = 16  # the unit of work of a thread

# β times the cost of being one level off the centre, at the hot end and at the cold one (see docs/samplers.md).
# From the relaxation the answer is a level or two away; from random levels the whole range has to be in reach.
WARM, COLD = 1.0, 20.0
MOST_PARAMETERS_FOR_CHAINS = 100  # the work grows as the square
RELAXATION_SWEEPS = 4  # of the box-constrained descent that the start is rounded from
ANNEALING_SHARE = 0.75  # of the time that a limit leaves after the start; the rest is for polishing
FIELDS_AT_THE_END = 2  # computed after polishing: of the best states where it was cut short, and for their energies


@cache
def _kernels() -> Any:
    """The compiled code, which is loaded when it is imported."""
    with blas_threads(WORTH_THREADS):  # which loads the libraries of linear algebra: no time limit is spent on it
        from annealfit.samplers.native import _levels

    return _levels


@dataclass(eq=False)
class LevelChains:
    """Chains ("lanes") over the levels of problems that share a curvature; their `levels` are overwritten.

    Parameter j of a lane has the value `spacing_j · (level_j + origin)`, with a level in 0 … top. Besides single
    parameters a chain moves pairs: each parameter with its `partners`, by the same number of levels, in the direction
    in which their coupling helps. Energies are `uᵀGu + 2gᵀu`, and β is their inverse temperature.

    >>> curvature = Curvature([[2.0, 1.9], [1.9, 2.0]])
    >>> chains = LevelChains(
    ...     curvature, np.array([[0.3, -0.3]]), np.ones((1, 2)), origin=-1.0, top=2,
    ...     levels=np.array([[1, 1]]), seeds=np.array([1], dtype=np.uint64), partners=soft_partners(curvature, 1),
    ... )
    >>> chains.polish(with_chains=False)  # one parameter alone gains nothing; both together do
    >>> chains.levels.tolist(), chains.energies().round(3).tolist()
    ([[0, 2]], [-1.0])
    """

    curvature: Curvature
    gradients: Array  # (L, D)
    spacings: Array  # (L, D)
    origin: float
    top: int
    levels: NDArray[np.int64]  # (L, D)
    seeds: NDArray[np.uint64]  # (L,)
    partners: NDArray[np.intp] | None = None  # (D, M)
    num_threads: int | None = None

    def __post_init__(self) -> None:
        lanes, size = self.levels.shape
        self.levels = np.array(self.levels, dtype=np.int64, order="C")
        self.spacings = np.ascontiguousarray(self.spacings)
        if self.partners is None:
            self.partners = np.empty((size, 0), dtype=np.intp)
        self._fields = self._current_fields()
        self._counters = np.zeros(lanes, dtype=np.uint64)  # draws so far
        self._blocks = [slice(first, first + LANES_PER_BLOCK) for first in range(0, lanes, LANES_PER_BLOCK)]
        # The energy of every block of the curvature, counted from the start; the best states, if they are kept.
        self._energies = np.zeros((lanes, len(self.curvature.blocks)))
        self._lowest, self._best = np.empty((0, 0)), np.empty((0, 0), dtype=np.int64)

    @property
    def values(self) -> Array:
        """The values of the levels, (L, D)."""
        return self.spacings * (self.levels + self.origin)

    def energies(self) -> Array:
        """The energy of each lane, (L,)."""
        return self.curvature.energies(self.gradients, self.values)

    def anneal(self, betas: Array, stop: NDArray[np.uint8] | None = None) -> int:
        """Sweep once for each row of `betas` (S, L); returns how often, which is less if `stop` was set meanwhile."""
        kernel, flag = _kernels().anneal_levels, new_flag() if stop is None else stop

        def anneal(lanes: slice) -> int:
            own = np.ascontiguousarray(betas[:, lanes]), *self._state(lanes), self.seeds[lanes], self._counters[lanes]
            return kernel(*self._problem(lanes), *own, flag, self._lowest[lanes], self._best[lanes])

        return min(in_threads(anneal, self._blocks, self.num_threads, flag))

    def polish(self, stop: NDArray[np.uint8] | None = None, *, with_chains: bool | None = None) -> None:
        """Descend until no move of a parameter or of a pair of partners lowers the energy, or `stop` is set.

        `with_chains` nor does a chain of moves by a level each; None is up to 100 parameters.
        """
        kernel, flag = _kernels().polish_levels, new_flag() if stop is None else stop
        chains = self.curvature.size <= MOST_PARAMETERS_FOR_CHAINS if with_chains is None else with_chains

        def polish(lanes: slice) -> None:
            kernel(*self._problem(lanes), *self._state(lanes), flag, chains)

        in_threads(polish, self._blocks, self.num_threads, flag)

    def keep_best(self) -> None:
        """Keep the best state of every lane at the ends of sweeps from now on."""
        self._lowest, self._best = self._energies.copy(), self.levels.copy()

    def return_to_best(self) -> None:
        """Go back to the best states where they are better than the present ones, block by block of the curvature."""
        better = self._lowest < self._energies
        if better.any():
            for number, (block, _) in enumerate(self.curvature.blocks):
                np.copyto(self.levels[:, block], self._best[:, block], where=better[:, number, None])
            np.minimum(self._energies, self._lowest, out=self._energies)
            self._fields = self._current_fields()

    def _current_fields(self) -> Array:
        return self.curvature.times(self.values) + self.gradients

    def _problem(self, lanes: slice) -> tuple[Any, ...]:
        return *self.curvature.packed, self.spacings[lanes], self.top, self.partners

    def _state(self, lanes: slice) -> tuple[Any, ...]:
        """What kernels overwrite."""
        return self.levels[lanes], self._fields[lanes], self._energies[lanes]


def soft_partners(curvature: Curvature, count: int) -> NDArray[np.intp]:
    """For each parameter those that are most strongly coupled to it, (D, count) or fewer: by `G_ij/√(G_ii·G_jj)`."""
    sizes = np.sqrt(curvature.diagonal)
    strengths = np.abs(curvature.matrix) / np.outer(sizes, sizes)
    np.fill_diagonal(strengths, -1.0)
    count = min(count, curvature.size - 1)
    return np.ascontiguousarray(np.argsort(-strengths, axis=1, kind="stable")[:, :count])


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
        parameters) a chain of up to six that change by a level each: see docs/samplers.md. Without it a read ends
        where the annealing does.
    beta_range : (hot, cold) or None
        Inverse temperatures of the first and the last sweep, in units of the problem's energy. None takes them from
        the problem: from the start's temperature to one at which every parameter settles.
    beta_schedule_type, num_sweeps_per_beta, beta_schedule
        See `annealfit.samplers.native.annealing.Schedule`.
    num_threads : int or None
        Threads over blocks of 16 lanes (a lane is one read of one problem). Results do not depend on it.
    time_limit : float or None
        Seconds for all problems together. The start is always computed: a Cholesky factorisation and four sweeps of a
        descent. Annealing ends when three quarters of the time left after it have passed; the best state of every
        read so far is polished in the rest.
    interrupt_function : callable or None
        Called between groups of up to 32 sweeps; a true answer ends annealing early, and the best states are polished.

    Examples
    --------
    >>> from annealfit.problems.encoding import Encoding
    >>> from annealfit.problems.problem import QuadraticProblem
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
        """Load the compiled code."""
        _kernels()
        compile_kernel()

    def _anneal(self, problems: Problems, seeds: NDArray[np.uint64], limit: Limit | None) -> list[Samples]:
        times, reads, top = [time.perf_counter()], self.num_reads, problems.levels - 1
        spacings, curvature = 2 * problems.resolutions, problems.shared_curvature
        hot, cold = self._beta_ends(problems, spacings)
        gradients = problems.gradients if reads == 1 else np.repeat(problems.gradients, reads, axis=0)
        levels = self._first_levels(problems, spacings, seeds)
        if curvature.blocks:
            line = self._schedule.line(
                *((hot, cold) if reads == 1 else (np.repeat(hot, reads), np.repeat(cold, reads)))
            )
            steps = np.repeat(spacings, reads * problems.n_parameters).reshape(gradients.shape)
            started = time.perf_counter()
            chains = LevelChains(
                curvature, gradients, steps, -0.5 * top, top, levels, seeds, num_threads=self.num_threads
            )
            times.append(time.perf_counter())
            sweeps = self._run(chains, line, limit and limit.earlier(FIELDS_AT_THE_END * (times[-1] - started)))
            levels, energies = chains.levels, chains.energies()
        else:  # no parameter is coupled to another, and all are at their best level
            times.append(time.perf_counter())
            sweeps, values = 0, np.repeat(spacings, reads)[:, None] * (levels - 0.5 * top)
            energies = curvature.energies(gradients, values)
        times.append(time.perf_counter())
        bits = bits_of(levels, problems.bits).reshape(len(problems), reads, *levels.shape[1:], problems.bits)
        return self._answers(bits, energies.reshape(len(problems), reads), (hot, cold), sweeps, times)

    def _beta_ends(self, problems: Problems, spacings: Array) -> tuple[Array, Array]:
        if self.beta_schedule is not None:  # the ends only carry the scale: see Schedule.line
            return np.ones(len(problems)), np.ones(len(problems))
        if self.beta_range is not None:
            hot, cold = self.beta_range
            return np.full(len(problems), float(hot)), np.full(len(problems), float(cold))
        scales = 1 / (problems.shared_curvature.typical_stiffness * spacings**2)
        hottest = WARM if self.start == "relaxation" else WARM / (problems.levels / 2) ** 2
        return hottest * scales, COLD * scales

    def _first_levels(self, problems: Problems, spacings: Array, seeds: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Where the reads begin, (P·reads, D). Parameters that are coupled to no other are at their best level."""
        is_random, alone, top = self.start == "random", problems.shared_curvature.alone[0], problems.levels - 1
        if is_random:
            words = descend(descend(seeds, [0])[:, None], np.arange(problems.n_parameters))
            drawn = (words >> np.uint64(64 - problems.bits)).astype(np.int64)
            if not len(alone):
                return drawn
        minima, _ = relax(problems, RELAXATION_SWEEPS, QUICK["relative_gap"])
        places = minima / spacings[:, None] + (0.5 * top - _kernels().TIE)
        levels = np.rint(np.minimum(np.maximum(places, 0.0), top)).astype(np.int64)
        levels = levels if self.num_reads == 1 else np.repeat(levels, self.num_reads, axis=0)
        if is_random:
            drawn[:, alone] = levels[:, alone]
        return drawn if is_random else levels

    def _run(self, chains: LevelChains, line: tuple[Array, Array], limit: Limit | None) -> int:
        """Anneal and polish, as far as the limit allows; returns the number of sweeps."""
        total = self._schedule.num_sweeps
        if limit is None:
            done = self._sweep(chains, line, None, new_flag())
            if self.polish:
                chains.polish()
            return done
        chains.keep_best()
        annealing = limit.part(ANNEALING_SHARE if self.polish else 1.0)
        with flag_after(annealing.seconds_left) as stop:
            done = self._sweep(chains, line, annealing, stop)
        if done < total:
            chains.return_to_best()
        if self.polish:
            with flag_after(limit.seconds_left) as stop:
                chains.polish(stop)
            if stop[0]:
                chains.return_to_best()
        return done

    def _sweep(
        self, chains: LevelChains, line: tuple[Array, Array], limit: Limit | None, stop: NDArray[np.uint8]
    ) -> int:
        """Run the schedule in groups of sweeps, between which the limit is asked; returns the number of sweeps.

        Groups are short, because a timer's flag can be late on a busy machine.
        """
        schedule, done = self._schedule, 0
        work = len(chains.levels) * len(chains.curvature.packed[0])  # of one sweep
        group = min(max(MOST_WORK // work, 1), SWEEPS_BETWEEN_QUESTIONS)
        while done < schedule.num_sweeps and not stop[0] and (limit is None or not limit.is_reached()):
            shares = schedule.shares(done, min(done + group, schedule.num_sweeps))
            betas = line[0] + shares[:, None] * line[1]
            done += chains.anneal(np.exp(betas) if schedule.is_geometric else betas, stop)
        return done
