"""What the next iteration needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Best:
    """The weights that did best on the validation data so far."""

    iteration: int
    merit: tuple[float, float]
    weights: NDArray[np.float64]


def merit_of(figures: Mapping[str, float]) -> tuple[float, float]:
    """What weights are compared by: more rows right, or as many and a lower loss. Larger is better."""
    return float(figures.get("accuracy", 0.0)), -float(figures["loss"])


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A training between two iterations. Replaced as a whole, so an interrupt never sees half of one."""

    iteration: int
    weights: NDArray[np.float64]  # of a linear head W, (D, outputs), the bias in the last row
    ranges: NDArray[np.float64]  # δ of every problem, (P,), as the range policy keeps them
    bits: int
    best: Best | None = None  # where there are validation data
