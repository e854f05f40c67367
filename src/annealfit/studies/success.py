"""How often reads of a sampler succeed and how long success takes, held against the lowest energy of each problem."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, check_number

if TYPE_CHECKING:
    from annealfit.problems.problem import Problems

CONFIDENCE = 0.99  # with which a time to solution holds at least one success
INTERVAL = 0.95  # of the intervals of estimates
TRUTH_SECONDS = 10.0  # of the search for the optimum of one problem, at most


@dataclass(frozen=True)
class Estimate:
    """A number that was estimated from reads, and the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float


UNKNOWN = Estimate(math.nan, math.nan, math.nan)
NEVER = Estimate(math.inf, math.inf, math.inf)


def estimate_share(successes: int, trials: int) -> Estimate:
    """The share of trials that succeed, with Wilson's interval; without a trial it can be anything.

    >>> estimate_share(5, 10)
    Estimate(value=0.5, low=0.236..., high=0.763...)
    """
    from scipy.stats import binomtest  # here: the constants above are needed without SciPy

    if trials == 0:
        return Estimate(0.0, 0.0, 1.0)
    check_number("successes", successes, minimum=0, maximum=trials)
    interval = binomtest(successes, trials).proportion_ci(INTERVAL, method="wilson")
    return Estimate(successes / trials, float(interval.low), float(interval.high))


def time_to_solution(seconds: float, share: float, confidence: float = CONFIDENCE) -> float:
    """Time until reads of `seconds` each, a `share` of which succeed, have succeeded at least once with `confidence`.

    `seconds · ln(1 − confidence) / ln(1 − share)`, but never less than one read; infinite where no read succeeds.

    >>> round(time_to_solution(2.0, 0.9), 9), time_to_solution(2.0, 1.0), time_to_solution(2.0, 0.0)
    (4.0, 2.0, inf)
    """
    check_number("share", share, minimum=0, maximum=1)
    if share >= confidence:
        return seconds
    return seconds * math.log1p(-confidence) / math.log1p(-share) if share > 0 else math.inf


def estimate_time(seconds: float, share: Estimate) -> Estimate:
    """The time to solution of an estimated share, at the share and at both ends of its interval."""
    return Estimate(*(time_to_solution(seconds, p) for p in (share.value, share.high, share.low)))


@dataclass(frozen=True, eq=False)
class Truth:
    """The lowest energies (P,) known of some problems, and which of them are proven to be the lowest there are."""

    energies: NDArray[np.float64]
    proven: NDArray[np.bool_]
    lower_bounds: NDArray[np.float64]  # the energies themselves where they are proven
    seconds: float = 0.0  # of the search of all the problems

    @property
    def is_proven(self) -> bool:
        """Whether the optimum of every problem is proven."""
        return bool(self.proven.all())

    def lowered(self, energies: NDArray[np.float64]) -> Truth:
        """The truth with lower energies (P,) that a sampler found; proven energies stay."""
        return replace(self, energies=np.where(self.proven, self.energies, np.minimum(self.energies, energies)))


def find_truth(problems: Problems, time_limit: float = TRUTH_SECONDS) -> Truth:
    """Search every problem for its proven optimum, for `time_limit` seconds at most; then the best found counts.

    A problem that is not convex is not searched: its lowest known energy is the lowest that samplers find.

    >>> from annealfit.problems.curvature import Curvature
    >>> from annealfit.problems.problem import Problems
    >>> problems = Problems((Curvature(np.eye(2)),), np.array([[0.3, -0.1]]), np.array([1.0]), bits=1)
    >>> find_truth(problems).proven
    array([ True])
    """
    from annealfit.samplers import LatticeSolver

    solver = LatticeSolver(time_limit=time_limit)
    solver.prepare()
    began = time.perf_counter()
    try:
        answers = solver.solve(problems, [0] * len(problems))
    except InvalidInputError:
        unknown = np.full(len(problems), np.inf)
        return Truth(unknown, np.zeros(len(problems), dtype=bool), -unknown)
    return Truth(
        energies=np.array([answer.best_energy for answer in answers]),
        proven=np.array([answer.info["proven"] for answer in answers]),
        lower_bounds=np.array([answer.info["lower_bound"] for answer in answers]),
        seconds=time.perf_counter() - began,
    )
