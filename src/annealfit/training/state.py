"""What the next iteration needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Best:
    """The weights that did best on the validation data so far."""

    iteration: int
    accuracy: float
    cross_entropy: float
    weights: NDArray[np.float64]

    def is_beaten_by(self, accuracy: float, cross_entropy: float) -> bool:
        """Whether these figures are better: more rows right, or as many and a lower cross-entropy."""
        return (accuracy, -cross_entropy) > (self.accuracy, -self.cross_entropy)


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A training between two iterations. Replaced as a whole, so an interrupt never sees half of one."""

    iteration: int
    weights: NDArray[np.float64]  # of a linear head W, (D, outputs), the bias in the last row
    ranges: NDArray[np.float64]  # δ of every problem, (P,), as the range policy keeps them
    bits: int
    best: Best | None = None  # where there are validation data
