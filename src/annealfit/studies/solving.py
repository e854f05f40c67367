"""Problems solved by a sampler: how often a read is the optimum, how good the others are, and how long they take."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import BudgetExhaustedError, InvalidInputError, SamplerError
from annealfit._support.randomness import child_seeds
from annealfit.problems.problem import Problems
from annealfit.samplers.protocol import Sampler
from annealfit.studies.success import NEVER, UNKNOWN, Estimate, estimate_share, estimate_time
from annealfit.studies.truth import Truth


@dataclass(frozen=True, eq=False)
class ProblemSet:
    """The problems of one iteration of a training, which a sampler is handed together."""

    name: str
    after: int  # iterations before it
    problems: Problems
    bounds: NDArray[np.float64]  # (P,): no energy is below, whatever the bits
    truth: Truth
    coordinates: str = "raw"

    @property
    def bits(self) -> int:
        """Bits per parameter."""
        return self.problems.bits

    @property
    def variant(self) -> tuple[str, int]:
        """Coordinates and bits: what sets of one training have in common."""
        return self.coordinates, self.bits

    def own(self, rows: Iterable[SolveRow]) -> list[SolveRow]:
        """Of some rows those of these problems."""
        key = self.name, *self.variant
        return [row for row in rows if (row.problems, row.coordinates, row.bits) == key]

    def knowing(self, solves: Mapping[str, Solves | str]) -> ProblemSet:
        """The set, knowing what was found: where there is no proof, the lowest energy of all is the best known."""
        truth = self.truth
        for found in solves.values():
            if isinstance(found, Solves):
                truth = truth.lowered(np.array([energies.min(initial=np.inf) for energies in found.reads]))
        return replace(self, truth=truth)


@dataclass(frozen=True, eq=False)
class Solves:
    """What a sampler's repeated solves of one problem set gave."""

    energies: NDArray[np.float64]  # (repeats, P), best reads; without one 0, the energy of leaving the weights alone
    reads: tuple[NDArray[np.float64], ...]  # P arrays: the energies of all reads of a problem, of all repeats
    seconds: NDArray[np.float64]  # (repeats,): of a solve of the whole set
    unsolved: int = 0  # (problem, repeat) pairs without an answer
    access_seconds: float | None = None  # of a QPU: mean of a solve


@dataclass(frozen=True)
class SolveRow:
    """One sampler on one problem set. Energies are of best reads, sums over the problems and means over repeats."""

    sampler: str
    problems: str  # the set's name
    coordinates: str = "raw"
    bits: int = 0
    energy: float = math.nan
    gap: float = math.nan  # above the bound
    gap_share: float = math.nan  # of the bound's absolute value
    least_seconds: float = math.nan  # of a solve of the set
    median_seconds: float = math.nan
    seconds_per_read: float = math.nan
    reads: tuple[int, ...] = ()  # of each problem
    successes: tuple[int, ...] = ()  # reads of each problem that are the lowest energy there is
    success: Estimate = UNKNOWN  # share of all reads
    seconds_to_solution: Estimate = NEVER  # a problem's, median
    residual: float = math.nan  # (E − E*)/|E*|, mean over reads and problems
    proven: bool = False  # every problem's lowest energy; else success is reaching the best known
    access_seconds: float | None = None
    unsolved: int = 0
    failure: str | None = None

    @property
    def problems_solved(self) -> int:
        """Problems of which some read is a success."""
        return sum(count > 0 for count in self.successes)


def with_reads(sampler: Sampler, reads: int) -> Sampler:
    """The sampler with this many reads, or itself if it takes no `num_reads`.

    >>> from annealfit.samplers import RoundedSampler, SimulatedAnnealer
    >>> with_reads(SimulatedAnnealer(), 8).num_reads, with_reads(RoundedSampler(), 8)
    (8, RoundedSampler())
    """
    changed = copy.copy(sampler)
    try:
        return changed.set_params(num_reads=reads)
    except InvalidInputError:
        return sampler


def solve_repeatedly(sampler: Sampler, taken: ProblemSet, repeats: int, seed: int) -> Solves:
    """Solve the set `repeats` times with different seeds, after one solve of its first problem that is not timed.

    That one pays for what is paid once: compiling, connecting, embedding.
    """
    numbers = np.arange(len(taken.problems))
    energies, seconds = np.zeros((repeats, len(numbers))), np.zeros(repeats)
    reads: list[list[NDArray[np.float64]]] = [[] for _ in numbers]
    unsolved, access = 0, 0.0
    if sampler.preflight(taken.problems) is None:  # a device is paid for each solve, and its preflight embeds
        sampler.solve(taken.problems[:1], child_seeds(seed, repeats, numbers[:1]).tolist())
    for repeat in range(repeats):
        seeds = child_seeds(seed, repeat, numbers).tolist()
        started = time.perf_counter()
        try:
            answers = sampler.solve(taken.problems, seeds)
        except BudgetExhaustedError:
            if repeat == 0:
                raise
            energies, seconds, repeats = energies[:repeat], seconds[:repeat], repeat  # what was paid for counts
            break
        seconds[repeat] = time.perf_counter() - started
        for number, (problem, answer) in enumerate(zip(taken.problems, answers, strict=True)):
            if answer.failure is None:
                reads[number].append(problem.energy(answer.bits))  # ours: never taken on trust
                energies[repeat, number] = reads[number][-1].min()
            else:
                unsolved += 1
        access += float(sampler.summarise(answers).get("access_seconds", math.nan))
    if unsolved == energies.size:
        raise SamplerError(f"no problem was solved in {repeats} solves; {answers[0].failure}")
    together = tuple(np.concatenate(found) if found else np.empty(0) for found in reads)
    return Solves(energies, together, seconds, unsolved, None if math.isnan(access) else access / repeats)


def rate_solves(taken: ProblemSet, solves: Mapping[str, Solves | str], target: float) -> list[SolveRow]:
    """A row per sampler, from its solves or from the reason why there are none.

    A read succeeds if its energy is within a relative `target` of the lowest that is known of the problem. The row's
    share is that of all reads, with the interval of as many independent ones; reads of unequal problems vary less, so
    it is on the safe side. Its time to solution is the median over the problems', and so are the ends of its interval.
    (The time of a pooled share would not do: a sampler that always finds one half of the problems and never the other
    is not helped by reading on.)
    """
    return [
        SolveRow(name, taken.name, taken.coordinates, taken.bits, proven=taken.truth.is_proven, failure=found)
        if isinstance(found, str)
        else _rate(name, taken, found, target)
        for name, found in solves.items()
    ]


def _rate(name: str, taken: ProblemSet, found: Solves, target: float) -> SolveRow:
    truth = taken.truth
    energy, bound = float(found.energies.sum(axis=1).mean()), float(taken.bounds.sum())
    reads = tuple(map(len, found.reads))
    successes = tuple(
        int(truth.is_reached(position, energies, target).sum()) for position, energies in enumerate(found.reads)
    )
    seconds = float(np.median(found.seconds))
    # A device's own time is what it is paid for; around a simulated one the clock says nothing.
    spent = seconds if found.access_seconds is None else found.access_seconds
    per_read = spent * len(found.seconds) / sum(reads)
    return SolveRow(
        name,
        taken.name,
        taken.coordinates,
        taken.bits,
        energy=energy,
        gap=energy - bound,
        gap_share=(energy - bound) / abs(bound) if bound else math.nan,
        least_seconds=float(found.seconds.min()),
        median_seconds=seconds,
        seconds_per_read=per_read,
        reads=reads,
        successes=successes,
        success=estimate_share(sum(successes), sum(reads)),
        seconds_to_solution=_median_time(successes, reads, per_read),
        residual=_residual(found.reads, truth),
        proven=truth.is_proven,
        access_seconds=found.access_seconds,
        unsolved=found.unsolved,
    )


def _median_time(successes: tuple[int, ...], reads: tuple[int, ...], seconds_per_read: float) -> Estimate:
    times = [estimate_time(seconds_per_read, estimate_share(*counts)) for counts in zip(successes, reads, strict=True)]
    ends = np.median([(time.value, time.low, time.high) for time in times], axis=0)
    return Estimate(*ends.tolist())


def _residual(reads: tuple[NDArray[np.float64], ...], truth: Truth) -> float:
    # Nothing is below the optimum but by rounding: where it is proven, a read cannot be better.
    means = [
        float(np.maximum(energies - lowest, 0.0).mean() / abs(lowest))
        for energies, lowest in zip(reads, truth.energies.tolist(), strict=True)
        if len(energies) and lowest
    ]
    return float(np.mean(means)) if means else math.nan
