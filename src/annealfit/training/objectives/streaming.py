"""A linear head of rows that pass by: nothing is kept of them, so each look at all rows does as much as it can.

A point is one pass: loss and gradient together. A line search is another: the outputs at the point and how they change
along every direction come of one product, with a sample where rows are millions. Terms know the link and the weights
alone, so that they can be sent to where the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from annealfit._support.arrays import Array
from annealfit.data.rows import Chunk
from annealfit.training.objectives.head_span import moved_weights
from annealfit.training.objectives.linear_head import HeadPoint, LinearHead
from annealfit.training.objectives.links import Link


@dataclass(frozen=True, eq=False)
class LossAndSlopes:
    """Term: the losses, how many rows are right, and the gradient (outputs, D) of the losses."""

    link: Link
    weights: Array  # (D, outputs)
    is_exact: bool = False  # whether outputs are in double precision whatever that of the rows is

    def __call__(self, chunk: Chunk) -> tuple[float, float, Array]:
        """Of a chunk."""
        project = chunk.exact_project if self.is_exact else chunk.project
        probabilities, losses, right = self.link.evaluate(project(self.weights), chunk.labels)
        residuals = self.link.residuals(probabilities, chunk.labels, overwrite=True)
        slopes = chunk.moments(chunk.weighted(residuals))
        return chunk.weighted(losses).sum(dtype=np.float64), chunk.weighted(right).sum(dtype=np.float64), slopes


@dataclass(frozen=True, eq=False)
class Bends:
    """Term: the second derivatives along directions, (m·outputs, m·outputs)."""

    link: Link
    weights: Array  # (D, outputs)
    directions: Array  # (m, outputs, D)

    def __call__(self, chunk: Chunk) -> tuple[Array]:
        """Of a chunk."""
        stacked = np.concatenate([self.weights.T, *self.directions]).T
        projected = chunk.project(stacked).reshape(len(self.directions) + 1, self.link.n_outputs, -1)
        found = self.link.curvature_along(self.link.probabilities(projected[0]), projected[1:], chunk.weights)
        return (found.astype(np.float64, copy=False),)


@dataclass(frozen=True, eq=False)
class OutputGrams:
    """Term: each output's block of the Hessian, (outputs, D, D)."""

    link: Link
    weights: Array

    def __call__(self, chunk: Chunk) -> tuple[Array]:
        """Of a chunk."""
        probabilities = self.link.probabilities(chunk.project(self.weights))
        spreads = chunk.weighted(probabilities * (1 - probabilities))
        return (np.stack([chunk.gram(spread) for spread in spreads]),)


@dataclass(frozen=True, eq=False)
class Logits:
    """What the probabilities of all classes are the softmax of, (C, n) for a chunk, in double precision."""

    link: Link
    weights: Array

    def __call__(self, chunk: Chunk) -> Array:
        """Of a chunk."""
        return self.link.logits(chunk.project(self.weights).astype(np.float64, copy=False))


@dataclass(frozen=True, eq=False)
class Distributions:
    """The probabilities (C, n) of all classes for the rows of a chunk, in double precision."""

    link: Link
    weights: Array

    def __call__(self, chunk: Chunk) -> Array:
        """Of a chunk."""
        outputs = chunk.project(self.weights).astype(np.float64, copy=False)
        return self.link.distribution(self.link.probabilities(outputs))


class StreamedPoint(HeadPoint):
    """A head at some weights, of rows that are not kept: its loss and its gradient are found in one pass."""

    def __init__(self, head: LinearHead, weights: Array, *, is_exact: bool = False) -> None:
        cross_entropy, accuracy, slopes = head.rows.mean(LossAndSlopes(head.link, weights, is_exact))
        self._is_exact = is_exact or not head.rows.is_rounded
        self._set(head, weights, cross_entropy, accuracy)
        self.gradients = slopes + weights.T * head.ridge

    def span(self, updates: Array, previous: Any = None) -> StreamedSpan:
        """The head with multiples of an update, and of the step from a previous point, applied."""
        return StreamedSpan(self, updates.reshape(self.head.n_outputs, -1), previous)

    def cached_outputs(self) -> None:
        """Nothing: the weights say it all."""
        return None

    @property
    def exact(self) -> HeadPoint:
        """The point in double precision, by another pass, where the rows are in single."""
        if self._is_exact:
            return self
        if self._exact is None:
            self._exact = StreamedPoint(self.head, self.weights, is_exact=True)
        return self._exact

    def output_grams(self) -> Array:
        """`Σ_n a_n π_nc(1 − π_nc) x_n x_nᵀ / Σ_n a_n`, shape (outputs, D, D): each output's block of the Hessian."""
        return self.head.rows.mean(OutputGrams(self.head.link, self.weights))[0]

    def outputs(self, chunk: Chunk) -> Array:
        """The outputs (outputs, n) of a chunk of rows, worked out when asked for."""
        return chunk.project(self.weights)

    def probabilities(self, chunk: Chunk) -> Array:
        """The link's probabilities (outputs, n) of a chunk of rows, as above."""
        return self.head.link.probabilities(self.outputs(chunk))

    @property
    def logits(self) -> Logits:
        """What gives numbers for a chunk whose softmax is the distribution below."""
        return Logits(self.head.link, self.weights)

    @property
    def distributions(self) -> Distributions:
        """What gives the probabilities of all classes for a chunk."""
        return Distributions(self.head.link, self.weights)


class StreamedSpan:
    """The heads around a point: multiples of an update, and of the step that led to the point."""

    def __init__(self, point: StreamedPoint, updates: Array, previous: HeadPoint | None) -> None:
        self.point = point
        steps = [] if previous is None else [(point.weights - previous.weights).T]
        self.directions = np.stack([updates, *steps])

    def curvature_along(self) -> Array:
        """The mean over rows of the outputs' covariances along the directions, and the penalty's curvature.

        Of millions of rows, those of a sample. Whether a step is taken is decided by the loss of all of them.
        """
        head = self.point.head
        (found,) = head.rows_for_bends.mean(Bends(head.link, self.point.weights, self.directions))
        return head.with_penalty(found, self.directions)

    def at(self, multiples: Array) -> HeadPoint:
        """The head there."""
        return self.point.head.point(moved_weights(self.point, multiples, self.directions, False)[0])

    def at_without_class_mean(self, multiples: Array) -> HeadPoint:
        """The same, balanced."""
        return self.point.head.point(moved_weights(self.point, multiples, self.directions, True)[0])
