"""Range policies: how far an update may reach."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from annealfit.problems.problem import Problems
from annealfit.training.outcome import Outcome

# Chosen by measurement: see docs/defaults.md.
GROWTH, SHRINKAGE = 1.3, 0.5
FIRST_RANGE = 0.1
# By bits; more bits as 5. From 3 on about what a uniform quantiser of normal values wants.
FIRST_MULTIPLES = {1: 0.3, 2: 1.2, 3: 2.05, 4: 2.5, 5: 2.9}
CLIMB, MULTIPLES = 1.1, (0.02, 4.0)
SMALLEST, LARGEST = 1e-12, 1e6  # far beyond what training reaches; keeps arithmetic finite


class RangePolicy:
    """The same range for ever, as in the paper. Other policies override one method or both."""

    def first(self, problems: Problems, update_range: float | None) -> NDArray[np.float64]:
        """What is kept for each of the first problems (P,), from the user's `update_range`, if there is one."""
        return np.full(len(problems), FIRST_RANGE if update_range is None else update_range)

    def choose(self, problems: Problems) -> NDArray[np.float64]:
        """The ranges (P,) of the problems that are about to be solved; they come with those kept so far."""
        return problems.ranges

    def revise(self, ranges: NDArray[np.float64], outcome: Outcome) -> NDArray[np.float64]:
        """The ranges (P,) to keep for the next iteration, from those kept so far and from what came of this one."""
        return ranges

    def rate(self, problems: Problems, loss_change: float) -> float:
        """How well an iteration went, in the policy's own measure: `revise` is told it, and the one before."""
        return 0.0


class AdaptiveRange(RangePolicy):
    """A trust region for each problem: wider after an update that promised descent and was applied, else narrower.

    Halving δ is worth a bit of resolution and costs no variable. A solve that failed says nothing about its range.
    """

    def revise(self, ranges: NDArray[np.float64], outcome: Outcome) -> NDArray[np.float64]:
        """Grow or shrink each."""
        gained = outcome.accepted & (outcome.energies < 0)
        factors = np.where(gained, GROWTH, np.where(outcome.solved, SHRINKAGE, 1.0))
        return np.clip(ranges * factors, SMALLEST, LARGEST)


class RelaxationRange(RangePolicy):
    """A multiple of the size of the continuous minimum `−G⁻¹g`, problem by problem; the multiple is sought.

    Small multiples give short, saturated updates, most of them at the ends of the range, which the acceptance rule
    stretches; large ones resolve the minimum of a surrogate that may be far from the loss. Which is better depends on
    the data, so the multiple climbs: it goes on in the direction in which the loss fell faster, measured by what the
    surrogate's minimum promises. A problem whose update was not applied has a range that is too wide for so few
    levels: its own multiple shrinks.
    """

    def first(self, problems: Problems, update_range: float | None) -> NDArray[np.float64]:
        """The first multiples; those that make the first ranges what the user wants, if there is a wish."""
        if update_range is None:
            return np.full(len(problems), FIRST_MULTIPLES.get(problems.bits, FIRST_MULTIPLES[5]))
        return update_range / _sizes(problems)

    def choose(self, problems: Problems) -> NDArray[np.float64]:
        """What is kept are multiples; here they become ranges."""
        return (problems.ranges * _sizes(problems)).clip(SMALLEST, LARGEST)

    def revise(self, ranges: NDArray[np.float64], outcome: Outcome) -> NDArray[np.float64]:
        """One step up or down, all problems together; those whose update was not applied shrink by themselves."""
        gained, refused = outcome.accepted, outcome.solved & ~outcome.accepted
        if not outcome.solved.any():
            return ranges
        upward = True
        if outcome.last_rating is not None and outcome.last_ranges is not None:
            rose = bool(ranges[gained].sum() >= outcome.last_ranges[gained].sum())
            upward = rose == (outcome.rating >= outcome.last_rating)
        climbed = (ranges * (CLIMB if upward else 1 / CLIMB)).clip(*MULTIPLES)
        shrunk = np.maximum(ranges * SHRINKAGE, SMALLEST)
        return np.where(gained, climbed, np.where(refused, shrunk, ranges))

    def rate(self, problems: Problems, loss_change: float) -> float:
        """The fall of the loss, in units of what the surrogate promises without a box and without levels."""
        promised = -0.5 * float((problems.gradients * problems.newton_steps).sum())
        return -loss_change / promised if promised > 0 else 0.0


def _sizes(problems: Problems) -> NDArray[np.float64]:
    """The root mean square (P,) of the continuous minima; never 0."""
    steps = problems.newton_steps
    return np.maximum(np.sqrt(np.vecdot(steps, steps) / steps.shape[1]), SMALLEST)


RANGE_POLICIES: dict[str, RangePolicy] = {
    "fixed": RangePolicy(),
    "adaptive": AdaptiveRange(),
    "relaxation": RelaxationRange(),
}
