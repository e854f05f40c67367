"""Range policies: how far an update may reach."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from annealfit.problems import Problems
from annealfit.training.outcome import Outcome

# Chosen by measurement: see docs/defaults.md.
GROWTH, SHRINKAGE = 1.3, 0.5
SMALLEST, LARGEST = 1e-12, 1e6  # far beyond what training reaches; keeps arithmetic finite


class RangePolicy:
    """The same range for ever, as in the paper. Other policies override one method or both."""

    def choose(self, problems: Problems) -> NDArray[np.float64]:
        """The ranges (P,) of the problems that are about to be solved; they come with those kept so far."""
        return problems.ranges

    def revise(self, ranges: NDArray[np.float64], outcome: Outcome) -> NDArray[np.float64]:
        """The ranges (P,) to keep for the next iteration, from those kept so far and from what came of this one."""
        return ranges


class AdaptiveRange(RangePolicy):
    """A trust region for each problem: wider after an update that promised descent and was applied, else narrower.

    Halving δ is worth a bit of resolution and costs no variable. A solve that failed says nothing about its range.
    """

    def revise(self, ranges: NDArray[np.float64], outcome: Outcome) -> NDArray[np.float64]:
        """Grow or shrink each."""
        gained = outcome.accepted & (outcome.energies < 0)
        factors = np.where(gained, GROWTH, np.where(outcome.solved, SHRINKAGE, 1.0))
        return np.clip(ranges * factors, SMALLEST, LARGEST)


RANGE_POLICIES: dict[str, RangePolicy] = {"fixed": RangePolicy(), "adaptive": AdaptiveRange()}
