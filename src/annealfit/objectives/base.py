"""What training asks of an objective: nothing about rows, classes or layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Point(Protocol):
    """An objective at some weights.

    Its parameters come in blocks of one size, one per output of a layer; gradients and updates are arrays (blocks,
    parameters of a block) in the same order.
    """

    weights: NDArray[np.float64]  # of whatever shape the objective gives them
    loss: float  # what training minimises

    @property
    def gradients(self) -> NDArray[np.float64]:
        """The gradient of the loss, block by block."""

    def bend(self, updates: NDArray[np.float64]) -> float:
        """The second derivative of the loss along an update of all blocks; a line search needs it."""

    def moved(self, updates: NDArray[np.float64]) -> Point:
        """The point that an update of all blocks leads to."""

    def is_within(self, gap: float) -> bool:
        """Whether the loss is certified to be at most `gap` above its least value."""

    def lower_bound(self) -> float:
        """A number no larger than the least loss; −∞ where there is no such certificate."""

    def figures(self) -> Mapping[str, float]:
        """What the history says of the point: `loss` first, and whatever else its readers want to see."""


class Objective(Protocol):
    """A loss, and how heavy a look at it is."""

    @property
    def multiplications(self) -> float:
        """Of the largest matrix product that a look at a point takes: decides how many threads are worth it."""

    def at(self, weights: NDArray[np.float64]) -> Point:
        """The point of these weights."""


def newton_multiple(point: Point, updates: NDArray[np.float64]) -> float:
    """`−f′(0)/f″(0)` of the loss along an update of all blocks: 0 where it does not fall, ∞ where it bends down."""
    slope = float((point.gradients * updates).sum())
    if slope >= 0:
        return 0.0
    bend = point.bend(updates)
    return -slope / bend if bend > 0 else math.inf
