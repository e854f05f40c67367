"""What the next iteration needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import SideBySide
from annealfit.training.objectives import ONLY


@dataclass(frozen=True, eq=False)
class Best:
    """The weights of every part that did best on the validation data so far."""

    iteration: int
    merit: tuple[float, float]
    parts: Mapping[str, NDArray[np.float64]]

    @property
    def weights(self) -> NDArray[np.float64]:
        """Those of an objective that has one part."""
        return self.parts[ONLY]


def merit_of(figures: Mapping[str, float]) -> tuple[float, float]:
    """What weights are compared by: more rows right, or as many and a lower loss. Larger is better."""
    return float(figures.get("accuracy", 0.0)), -float(figures["loss"])


@dataclass(frozen=True, eq=False)
class Previous:
    """The point that the last applied step started from."""

    weights: NDArray[np.float64]
    cached_outputs: NDArray[np.float64] | SideBySide | None = None


@dataclass(frozen=True, eq=False)
class Last:
    """What a range policy is told again at its next revision."""

    rating: float  # of the iteration, by the policy itself
    ranges: NDArray[np.float64]  # kept at that iteration, (P,)


@dataclass(frozen=True, eq=False)
class Anchor:
    """Where the curvature was worked out last, and what it measured that point by."""

    weights: NDArray[np.float64]
    measure: float


@dataclass(frozen=True, eq=False)
class PartState:
    """What the next step of a part needs."""

    weights: NDArray[np.float64]  # of a linear head W, (D, outputs), the bias in the last row
    ranges: NDArray[np.float64] | None = None  # δ of every problem, (P,), as the range policy keeps them; None before
    bits: int = 0  # the part's first turn, and no bits either
    damping: float | None = None  # of the curvature, where there is a policy for it
    previous: Previous | None = None  # before the last step that was applied
    last: Last | None = None  # what the range policy made of the step before
    anchor: Anchor | None = None  # of a curvature that serves for a while


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A training between two iterations. Replaced as a whole, so an interrupt never sees half of one."""

    iteration: int
    parts: Mapping[str, PartState]  # of an objective that is trained in turns; else there is one, `ONLY`
    part: str = ONLY  # that had its turn last; before the first iteration, the one that is next
    best: Best | None = None  # where there are validation data
    cached_outputs: NDArray[np.float64] | SideBySide | None = None  # by the point, beyond its weights

    @property
    def own(self) -> PartState:
        """The state of the part that had its turn last."""
        return self.parts[self.part]

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weights of the part that had its turn last."""
        return self.own.weights

    def on_other_data(self) -> TrainingState:
        """The state without what belongs to the data: memories, the steps before, where the curvature is from."""
        parts = {name: replace(own, previous=None, anchor=None) for name, own in self.parts.items()}
        return replace(self, parts=parts, cached_outputs=None)

    @property
    def all_weights(self) -> dict[str, NDArray[np.float64]]:
        """The weights of every part."""
        return {name: part.weights for name, part in self.parts.items()}
