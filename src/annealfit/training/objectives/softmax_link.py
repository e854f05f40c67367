"""The softmax of a linear head's outputs, one per class: probabilities, losses, and how they bend."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit.training.objectives.base import group_starts

MOST_GROUPS = 128  # of outputs with a multiple of their own: the work beyond grows with the square of their number
# Outputs of so many rows are evaluated by compiled code. Fewer take no time; and so the paper's trainings, a thousand
# rows each, round as they always did.
MANY_OUTPUTS = 2**15

# Probabilities (outputs, n), losses (n,), and whether each row's first largest output is its label's (n,).
Evaluation = tuple[Array, Array, NDArray[np.bool_]]


def softmax(logits: Array) -> Array:
    """Softmax over the first axis, which does not overflow at large logits.

    >>> softmax(np.array([[1000.0], [1000.0]])).tolist()
    [[0.5], [0.5]]
    """
    return _normalise(logits, logits.max(axis=0))[0]


def _normalise(logits: Array, largest: Array) -> tuple[Array, Array]:
    """The softmax, and the logarithm of its normaliser."""
    probabilities = logits - largest
    np.exp(probabilities, out=probabilities)
    total = probabilities.sum(axis=0)
    probabilities /= total
    return probabilities, np.log(total) + largest


def weighed(values: Array, weights: Array | None) -> Array:
    """Values (…, n), each multiplied by its row's weight, in the values' precision."""
    return values if weights is None else values * weights.astype(values.dtype, copy=False)


def _flat_positions(labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """Where the values of the labels stand in a (classes, n) array read as one line: quicker than by two indices."""
    return labels.astype(np.intp, copy=False) * len(labels) + np.arange(len(labels))


def space_for(outputs: Array) -> Evaluation:
    """Arrays for an evaluation of the outputs (outputs, n), to be overwritten."""
    count = outputs.shape[1]
    return np.empty_like(outputs), np.empty(count), np.empty(count, dtype=bool)


@dataclass(frozen=True)
class Softmax:
    """An output per class; the cross-entropy of their softmax."""

    n_outputs: int

    @property
    def hessian_bound(self) -> Array:
        """`½(I − 11ᵀ/C)`."""
        return 0.5 * (np.eye(self.n_outputs) - 1 / self.n_outputs)

    def evaluate(self, outputs: Array, labels: NDArray[np.intp]) -> Evaluation:
        """Probabilities, losses, and which rows are classified rightly."""
        if outputs.size >= MANY_OUTPUTS:
            from annealfit.training.objectives import _links  # numba takes a moment to load

            found = space_for(outputs)
            _links.evaluate(outputs, labels, *found)
            return found
        largest = outputs.max(axis=0)
        probabilities, log_normaliser = _normalise(outputs, largest)
        of_true_class = outputs.take(_flat_positions(labels))
        if np.count_nonzero(outputs == largest) == len(labels):  # no ties, so the largest is the first largest:
            right = of_true_class == largest  # what argmax says, at a third of its time
        else:
            right = outputs.argmax(axis=0) == labels
        return probabilities, log_normaliser - of_true_class, right

    def move(
        self, outputs: Array, multiples: Array, changes: Array, labels: NDArray[np.intp], *, balance: bool
    ) -> tuple[Array, Evaluation]:
        """One look at the outputs does both."""
        from annealfit.training.objectives import _links

        moved, found = np.empty_like(outputs), space_for(outputs)
        _links.move(outputs, multiples, changes, labels, balance, moved, *found)
        return moved, found

    def probabilities(self, outputs: Array) -> Array:
        """Their softmax."""
        if outputs.size < MANY_OUTPUTS:
            return softmax(outputs)
        from annealfit.training.objectives import _links

        found = np.empty_like(outputs)
        _links.softmax_of_rows(outputs, found)
        return found

    def mean_spreads(self, outputs: Array) -> Array:
        """`(1 − Σ_c π_c²)/C`."""
        from annealfit.training.objectives import _links

        found = np.empty(outputs.shape[1], outputs.dtype)
        _links.mean_spreads(outputs, found)
        return found

    def residuals(
        self, probabilities: Array, labels: NDArray[np.intp], *, overwrite: bool = False, dtype: Any = None
    ) -> Array:
        """`π − y`."""
        residuals = probabilities if overwrite else probabilities.astype(dtype or probabilities.dtype)
        if residuals.size >= MANY_OUTPUTS:
            from annealfit.training.objectives import _links

            _links.subtract_labels(probabilities, labels, residuals)
            return residuals
        positions = _flat_positions(labels)
        residuals.put(positions, probabilities.take(positions) - 1)  # in their precision: what is left may be small
        return residuals

    def curvature_along(self, probabilities: Array, changes: Array, weights: Array | None = None) -> Array:
        """The covariances of the outputs' changes under each row's probabilities."""
        if self.groups != self.n_outputs:
            return self._bends_of_groups(probabilities, changes, weights)
        from annealfit.training.objectives import _spans

        roots = np.sqrt(np.empty(0) if weights is None else weights).astype(changes.dtype, copy=False)
        found = np.empty((len(changes) * self.n_outputs,) * 2)
        _spans.curvature_along(probabilities, changes, roots, found)
        return found

    def hessian_product(self, probabilities: Array, changes: Array) -> Array:
        """`π(z − πᵀz)`."""
        shares = probabilities * changes
        shares -= probabilities * shares.sum(axis=0)
        return shares

    @property
    def is_relative(self) -> bool:
        """It is."""
        return True

    def _bends_of_groups(self, probabilities: Array, changes: Array, weights: Array | None) -> Array:
        """The same where groups of outputs share their multiples.

        Of each group there are the sums of its outputs' shares, and of their squares: so the work grows with the
        outputs, not with their square; and group by group there is little in memory.
        """
        count, groups, rows = len(changes), self.groups, changes.shape[2]
        starts = [*group_starts(self.n_outputs, groups), self.n_outputs]
        sums = np.empty((count, groups, rows), changes.dtype)
        squares = np.empty((groups, count, count), changes.dtype)
        for group, (first, last) in enumerate(pairwise(starts)):
            shares = probabilities[first:last] * changes[:, first:last]
            shares.sum(axis=1, out=sums[:, group])
            squares[group] = np.einsum("acn,bcn->ab", weighed(shares, weights), changes[:, first:last])
        products = weighed(sums, weights).reshape(-1, rows) @ sums.reshape(-1, rows).T
        found = -products.reshape(count, groups, count, groups)
        own = np.arange(groups)
        found[:, own, :, own] += squares
        return found.reshape(count * groups, count * groups)

    @property
    def groups(self) -> int:
        """At most `MOST_GROUPS`."""
        return min(self.n_outputs, MOST_GROUPS)

    def roots(self, probabilities: Array) -> Array:
        """`√π_c (e_c − π)`: with `v = √π`, a unit vector, `diag π − ππᵀ` is the square of `(I − vvᵀ) diag v`."""
        by_row = probabilities.T
        return np.sqrt(by_row)[:, :, None] * (np.eye(self.n_outputs) - by_row[:, None, :])

    def distribution(self, probabilities: Array) -> Array:
        """They are."""
        return probabilities

    def of_outputs(self, distribution: Array) -> Array:
        """They are."""
        return distribution

    def logits(self, outputs: Array) -> Array:
        """They are."""
        return outputs
