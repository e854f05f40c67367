"""What training asks of an objective: nothing about rows, classes or layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Span(Protocol):
    """The points that a line search, or one in several directions, chooses from.

    Every block has a multiple of its own in each of the m directions: multiples are arrays (m, blocks).
    """

    directions: NDArray[np.float64]  # (m, blocks, parameters of a block)

    def bends(self) -> NDArray[np.float64]:
        """The second derivatives of the loss in the multiples, (m·blocks, m·blocks)."""

    def at(self, multiples: NDArray[np.float64]) -> Point:
        """The point that these multiples lead to."""


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

    def span(self, updates: NDArray[np.float64], previous: Point | None = None) -> Span:
        """Where multiples of an update of all blocks lead, and of the step from a previous point to this one."""

    def moved(self, updates: NDArray[np.float64]) -> Point:
        """The point that an update of all blocks leads to."""

    def is_within(self, gap: float) -> bool:
        """Whether the loss is certified to be at most `gap` above its least value."""

    def lower_bound(self) -> float:
        """A number no larger than the least loss; −∞ where there is no such certificate."""

    def remembered(self) -> NDArray[np.float64] | None:
        """What a point knows from its way here and would not find again to the last bit; None if nothing."""

    def figures(self) -> Mapping[str, float]:
        """What the history says of the point: `loss` first, and whatever else its readers want to see."""


class Objective(Protocol):
    """A loss, and how heavy a look at it is."""

    @property
    def multiplications(self) -> float:
        """Of the largest matrix product that a look at a point takes: decides how many threads are worth it."""

    def at(self, weights: NDArray[np.float64], remembered: NDArray[np.float64] | None = None) -> Point:
        """The point of these weights, with what a point of them remembered."""
