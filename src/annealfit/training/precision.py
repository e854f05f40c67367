"""Precision policies: how many bits an update has in the next iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from annealfit.training.outcome import Outcome


@dataclass(frozen=True)
class PrecisionPolicy:
    """The bits of the first iteration, from the bits allowed; and of each next one, from the present ones too."""

    first: Callable[[int], int]
    following: Callable[[int, int, Outcome], int]


def _one_more_when_stuck(bits: int, most: int, outcome: Outcome) -> int:
    stuck = 2 * int((outcome.energies < 0).sum()) < int(outcome.solved.sum())
    return min(bits + 1, most) if stuck else bits


# As in the paper: the same number of bits throughout.
fixed = PrecisionPolicy(first=lambda most: most, following=lambda bits, most, outcome: bits)

# The paper's outlook: one bit first, another whenever fewer than half of the solves promise descent.
adaptive = PrecisionPolicy(first=lambda most: 1, following=_one_more_when_stuck)

PRECISION_POLICIES: dict[str, PrecisionPolicy] = {"fixed": fixed, "adaptive": adaptive}
