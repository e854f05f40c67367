"""What is minimised: an objective and its points, for a linear head and for the filters of a network.

An objective of your own implements `Objective` and `Point`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from annealfit._support.arrays import Array
from annealfit.training.objectives.conv_net import FILTER_CURVATURES, ConvLayer, ConvNet, LayerPoint
from annealfit.training.objectives.curvature import CURVATURES
from annealfit.training.objectives.linear_head import HeadPoint, LinearHead, Logistic, Softmax, softmax

__all__ = [
    "CURVATURES",
    "FILTER_CURVATURES",
    "ConvLayer",
    "ConvNet",
    "HeadPoint",
    "LayerPoint",
    "LinearHead",
    "Logistic",
    "Objective",
    "Point",
    "Softmax",
    "softmax",
]


class Point(Protocol):
    """An objective at some weights.

    The parameters come in blocks of one size, one block per output of a layer: gradients and updates are (B, S), for B
    blocks of S parameters.
    """

    weights: Array  # in the shape that the objective gives them
    loss: float  # what training minimises

    @property
    def gradients(self) -> Array:
        """Gradient of the loss (B, S)."""

    def step_from(self, previous: Array) -> Array:
        """Return the step from previous weights to these, as blocks (B, S)."""

    def curvature_along(self, directions: Array, previous: Array | None = None) -> Array:
        """Return second derivatives of the loss in multiples of directions (m, B, S), one multiple per block.

        The shape is (m·B, m·B), or (m·G, m·G) where G groups of neighbouring blocks share multiples (`group_starts`).
        If `previous` weights are given, the second direction is the step from them, and their outputs may be cached.
        """

    def moved(self, updates: Array, *, remove_class_mean: bool = False) -> Point:
        """Return the point after updates (B, S).

        `remove_class_mean` subtracts the mean over blocks from the new weights where it changes the penalty only.
        """

    def is_within(self, gap: float) -> bool:
        """Whether the loss is certified to be at most `gap` above its minimum."""

    def lower_bound(self) -> float:
        """Return a lower bound of the minimum of the loss; −∞ without a certificate."""

    def figures(self) -> Mapping[str, float]:
        """Return the columns of the history that describe the point; `loss` is one of them."""


class Objective(Protocol):
    """A loss to minimise."""

    @property
    def multiplications(self) -> float:
        """Multiplications of the largest matrix product of an evaluation: decides how many threads are used."""

    def at(self, weights: Array, /) -> Point:
        """Return the point of these weights."""
