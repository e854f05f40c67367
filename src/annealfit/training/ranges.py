"""Range policies: how far an update may reach in the next iteration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from annealfit.training.outcome import Outcome

# Chosen by measurement: see docs/defaults.md.
GROWTH, SHRINKAGE = 1.3, 0.5
SMALLEST, LARGEST = 1e-12, 1e6  # far beyond what training reaches; keeps arithmetic finite

RangePolicy = Callable[[NDArray[np.float64], Outcome], NDArray[np.float64]]


def fixed(ranges: NDArray[np.float64], outcome: Outcome) -> NDArray[np.float64]:
    """The same range for ever, as in the paper."""
    return ranges


def adaptive(ranges: NDArray[np.float64], outcome: Outcome) -> NDArray[np.float64]:
    """A trust region for each problem: wider after an update that promised descent, narrower after one that did not.

    Halving δ is worth a bit of resolution and costs no variable. A solve that failed says nothing about its range.
    """
    without_descent = np.where(outcome.solved, SHRINKAGE, 1.0)
    return np.clip(ranges * np.where(outcome.energies < 0, GROWTH, without_descent), SMALLEST, LARGEST)


RANGE_POLICIES: dict[str, RangePolicy] = {"fixed": fixed, "adaptive": adaptive}
