"""Where a line search looks: around a point of a linear head, along an update and along the step before."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from annealfit._support.arrays import Array
from annealfit.data.rows import Chunk
from annealfit.training.objectives.links import Evaluation

if TYPE_CHECKING:
    from annealfit.training.objectives.linear_head import HeadPoint


def moved_weights(point: HeadPoint, multiples: Array, directions: Array, may_balance: bool) -> tuple[Array, bool]:
    """The weights (D, outputs) after multiples (m, outputs) of directions (m, outputs, D), and whether balanced.

    Quantised updates of the classes do not add up to nothing. What they all share changes no probability, so that
    their problems hardly see it; but it is penalised, and would take very many iterations to go away. Balanced weights
    are without it. A class that does not move, because its problem was not solved, keeps its weights, and so do all.
    """
    from annealfit.training.objectives import _spans  # numba takes a moment to load

    moved, is_relative = np.empty(point.weights.shape), point.head.link.is_relative
    balance = _spans.move_weights(point.weights, multiples, directions, may_balance and is_relative, moved)
    return moved, balance


class HeadSpan:
    """The heads around a point: multiples of an update, and of the step that led to the point."""

    def __init__(self, point: HeadPoint, updates: Array, previous: HeadPoint | None) -> None:
        self.point, self.previous = point, previous
        steps = [] if previous is None else [(point.weights - previous.weights).T]
        self.directions = np.array([updates, *steps])
        self._changes: WeakKeyDictionary[Chunk, Array] = WeakKeyDictionary()

    def curvature_along(self) -> Array:
        """The mean over rows of the outputs' covariances along the directions, and the penalty's curvature."""
        (found,) = self.point.head.rows.mean(self._bends)
        return self.point.head.with_penalty(found, self.directions)

    def at(self, multiples: Array) -> HeadPoint:
        """The head there; the outputs of chunks whose changes are at hand follow without a product."""
        return self._at(multiples, may_balance=False)

    def at_without_class_mean(self, multiples: Array) -> HeadPoint:
        """The same, balanced."""
        return self._at(multiples, may_balance=True)

    def _at(self, multiples: Array, *, may_balance: bool) -> HeadPoint:
        point = self.point
        weights, balance = moved_weights(point, multiples, self.directions, may_balance)

        def arrive(chunk: Chunk) -> tuple[Array, Evaluation] | None:
            changes = self._changes.get(chunk)
            if changes is None:
                return None
            return point.head.link.move(point.outputs(chunk), multiples, changes, chunk.labels, balance=balance)

        return point.head.point(weights, arrive)

    def changes(self, chunk: Chunk) -> Array:
        """How the outputs of a chunk change along each direction, (m, outputs, n)."""
        if chunk not in self._changes:
            found = np.empty((len(self.directions), *self.point.outputs(chunk).shape))
            chunk.step(self.directions[0].T, out=found[0])
            if self.previous is not None:
                np.subtract(self.point.outputs(chunk), self.previous.outputs(chunk), out=found[1])
            self._changes[chunk] = found
        return self._changes[chunk]

    def _bends(self, chunk: Chunk) -> tuple[Array]:
        probabilities = self.point.probabilities(chunk)
        return (self.point.head.link.curvature_along(probabilities, self.changes(chunk), chunk.weights),)
