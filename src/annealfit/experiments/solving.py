"""Problems solved again and again by a sampler: how good its answers are, and how long they take."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from annealfit.errors import BudgetExhaustedError, SamplerError, check_number
from annealfit.problems import Problems
from annealfit.randomness import child_seeds
from annealfit.samplers.protocol import Sampler

CONFIDENCE = 0.99


@dataclass(frozen=True, eq=False)
class ProblemSet:
    """The problems of one iteration of a training, which a sampler is handed together."""

    name: str
    after: int  # iterations before it
    problems: Problems
    bounds: NDArray[np.float64]  # (P,): no energy is below


@dataclass(frozen=True, eq=False)
class Solves:
    """What a sampler's repeated solves of one problem set gave."""

    energies: NDArray[np.float64]  # (repeats, P); without an answer 0, the energy of leaving the weights alone
    seconds: NDArray[np.float64]  # (repeats,): of a solve of the whole set
    unsolved: int = 0  # (problem, repeat) pairs without an answer
    access_seconds: float | None = None  # of a QPU: mean of a solve


@dataclass(frozen=True)
class SolveRow:
    """One sampler on one problem set; energies are sums over its problems and means over repeats."""

    sampler: str
    problems: str  # the set's name
    energy: float = math.nan
    gap: float = math.nan  # above the bound
    gap_share: float = math.nan  # of the bound's absolute value
    least_seconds: float = math.nan  # of a solve of the set
    median_seconds: float = math.nan
    reached: float = 0.0  # share of the (problem, repeat) pairs that reached the target
    problems_reached: int = 0  # in some repeat
    seconds_to_target: float = math.inf  # a problem's, median
    access_seconds: float | None = None
    unsolved: int = 0
    failure: str | None = None


def solve_repeatedly(sampler: Sampler, taken: ProblemSet, repeats: int, seed: int) -> Solves:
    """Solve the set `repeats` times with different seeds, after one solve that is not timed.

    That one pays for what is paid once: compiling, connecting, embedding.
    """
    numbers = np.arange(len(taken.problems))
    energies, seconds = np.zeros((repeats, len(numbers))), np.zeros(repeats)
    unsolved, access = 0, 0.0
    if sampler.preflight(taken.problems) is None:  # a device is paid for each solve, and its preflight embeds
        sampler.solve(taken.problems, child_seeds(seed, repeats, numbers).tolist())
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
                energies[repeat, number] = problem.energy(answer.bits).min()  # ours: never taken on trust
            else:
                unsolved += 1
        access += float(sampler.summarise(answers).get("access_seconds", math.nan))
    if unsolved == energies.size:
        raise SamplerError(f"no problem was solved in {repeats} solves; {answers[0].failure}")
    return Solves(energies, seconds, unsolved, None if math.isnan(access) else access / repeats)


def time_to_target(seconds: float, share: float, confidence: float = CONFIDENCE) -> float:
    """Time in which runs of `seconds` each, a `share` of which succeed, have succeeded at least once with `confidence`.

    `seconds · ln(1 − confidence) / ln(1 − share)`, but never less than one run; infinite where no run succeeds.

    >>> round(time_to_target(2.0, 0.9), 9), time_to_target(2.0, 1.0), time_to_target(2.0, 0.0)
    (4.0, 2.0, inf)
    """
    check_number("share", share, minimum=0, maximum=1)
    if share >= confidence:
        return seconds
    return seconds * math.log1p(-confidence) / math.log1p(-share) if share > 0 else math.inf


def rate_solves(taken: ProblemSet, solves: Mapping[str, Solves | str], target: float) -> list[SolveRow]:
    """A row per sampler, from its solves or from the reason why there are none.

    A repeat reaches a problem's target if its energy is within `target · |bound|` of the best that any of the samplers
    found for the problem in any repeat. With p the share of such repeats and t the median time of a solve divided by
    the number of problems, the problem takes `time_to_target(t, p)`; the row has the median over problems: in that
    time half of them are reached, with 99 % confidence each. (A share pooled over problems would not do: a sampler that
    always finds one half and never the other is not helped by repeating.)
    """
    done = [found.energies.min(axis=0) for found in solves.values() if isinstance(found, Solves)]
    enough = np.min(done, axis=0) + target * np.abs(taken.bounds) if done else taken.bounds
    return [
        SolveRow(name, taken.name, failure=found) if isinstance(found, str) else _rate(name, taken, found, enough)
        for name, found in solves.items()
    ]


def _rate(name: str, taken: ProblemSet, found: Solves, enough: NDArray[np.float64]) -> SolveRow:
    shares = (found.energies <= enough).mean(axis=0)
    seconds = float(np.median(found.seconds))
    energy, bound = float(found.energies.sum(axis=1).mean()), float(taken.bounds.sum())
    return SolveRow(
        name,
        taken.name,
        energy=energy,
        gap=energy - bound,
        gap_share=(energy - bound) / abs(bound) if bound else math.nan,
        least_seconds=float(found.seconds.min()),
        median_seconds=seconds,
        reached=float(shares.mean()),
        problems_reached=int((shares > 0).sum()),
        seconds_to_target=float(np.median([time_to_target(seconds / len(shares), float(p)) for p in shares])),
        access_seconds=found.access_seconds,
        unsolved=found.unsolved,
    )
