"""How often reads succeed and how long success takes, each with what chance leaves open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from annealfit._support.errors import check_number

CONFIDENCE = 0.99  # with which a time to solution holds at least one success
INTERVAL = 0.95  # of the intervals of estimates


@dataclass(frozen=True)
class Estimate:
    """A number that was estimated from reads, and the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float


UNKNOWN = Estimate(math.nan, math.nan, math.nan)
NEVER = Estimate(math.inf, math.inf, math.inf)


def estimate_share(successes: int, trials: int, confidence: float = INTERVAL) -> Estimate:
    """The share of trials that succeed, with Wilson's interval; without a trial it can be anything.

    With z the normal quantile, p the share and n the trials, the interval is
    `(p + z²/2n ± z·√(p(1 − p)/n + z²/4n²)) / (1 + z²/n)`. Unlike the textbook's `p ± z·√(p(1 − p)/n)` it says
    something where p is 0 or 1.

    >>> estimate_share(5, 10)
    Estimate(value=0.5, low=0.236..., high=0.763...)
    """
    if trials == 0:
        return Estimate(0.0, 0.0, 1.0)
    check_number("successes", successes, minimum=0, maximum=trials)
    share = successes / trials
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shrink = z * z / trials
    centre = (share + shrink / 2) / (1 + shrink)
    half = z * math.sqrt(share * (1 - share) / trials + shrink / (4 * trials)) / (1 + shrink)
    # The ends are exact where all trials agree, but for the last bits.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return Estimate(share, low, high)


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
    """The time to solution of an estimated share, whose interval is carried through: more success, less time."""
    low, high = time_to_solution(seconds, share.high), time_to_solution(seconds, share.low)
    return Estimate(time_to_solution(seconds, share.value), low, high)
