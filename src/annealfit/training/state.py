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
class Previous:
    """The point that the last applied step started from."""

    weights: NDArray[np.float64]
    remembered: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class Last:
    """What a range policy is told again at its next revision."""

    rating: float  # of the iteration, by the policy itself
    ranges: NDArray[np.float64]  # kept at that iteration, (P,)


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A training between two iterations. Replaced as a whole, so an interrupt never sees half of one."""

    iteration: int
    weights: NDArray[np.float64]  # of a linear head W, (D, outputs), the bias in the last row
    ranges: NDArray[np.float64]  # δ of every problem, (P,), as the range policy keeps them
    bits: int
    best: Best | None = None  # where there are validation data
    remembered: NDArray[np.float64] | None = None  # by the point, beyond its weights
    previous: Previous | None = None  # before the last step that was applied
    last: Last | None = None  # what the range policy made of the iteration before
