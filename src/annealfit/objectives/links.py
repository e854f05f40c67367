"""Links: from the outputs of a linear head to probabilities and losses, row by row.

Arrays are (outputs, n) and (classes, n): class by class, so that reductions over classes run along contiguous rows.
`Softmax` has an output per class. `Logistic` has one output for two classes, the logit of the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from annealfit.arrays import Array
from annealfit.objectives.base import group_starts

MOST_GROUPS = 128  # of outputs with a multiple of their own: the work beyond grows with the square of their number
# Outputs of so many rows are evaluated by compiled code. Fewer take no time; and so the paper's trainings, a thousand
# rows each, round as they always did.
MANY_OUTPUTS = 2**15


class Link(Protocol):
    """What a head needs to know about its outputs."""

    @property
    def n_outputs(self) -> int:
        """Outputs of a row."""

    @property
    def steepest(self) -> Array:
        """An upper bound, shape (outputs, outputs), of the Hessian of a row's loss in its outputs (Böhning 1992)."""

    def evaluate(self, outputs: Array, labels: NDArray[np.intp]) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Probabilities (outputs, n), losses (n,), and whether each row's first largest output is its label's (n,)."""

    def probabilities(self, outputs: Array) -> Array:
        """Of the outputs, (outputs, n), alone."""

    def residuals(self, probabilities: Array, labels: NDArray[np.intp], *, overwrite: bool = False) -> Array:
        """`π − y`, shape (outputs, n): the derivative of each row's loss in its outputs."""

    def bends(self, probabilities: Array, changes: Array, weights: Array | None = None) -> Array:
        """The second derivatives, summed over rows, in the multiples of changes (m, outputs, n) of the outputs.

        Rows have weights (n,), or count once. Shape (m·groups, m·groups): each of the m changes of each output, or
        group of outputs, has a multiple of its own.
        """

    def bent(self, probabilities: Array, changes: Array) -> Array:
        """How the derivatives (outputs, n) of each row's loss change with changes (outputs, n) of the outputs."""

    @property
    def groups(self) -> int:
        """Groups of outputs that share multiples; as many as outputs, unless these are very many."""

    def roots(self, probabilities: Array) -> Array:
        """`R` with `RᵀR` the Hessian of each row's loss in its outputs, shape (n, outputs, outputs)."""

    def distribution(self, probabilities: Array) -> Array:
        """The probabilities of all classes, shape (classes, n)."""

    def of_outputs(self, distribution: Array) -> Array:
        """The inverse of `distribution`."""


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


def _weighed(values: Array, weights: Array | None) -> Array:
    """Values (…, n), each multiplied by its row's weight, in the values' precision."""
    return values if weights is None else values * weights.astype(values.dtype, copy=False)


def _flat_positions(labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """Where the values of the labels stand in a (classes, n) array read as one line: quicker than by two indices."""
    return labels.astype(np.intp, copy=False) * len(labels) + np.arange(len(labels))


@dataclass(frozen=True)
class Softmax:
    """An output per class; the cross-entropy of their softmax."""

    n_outputs: int

    @property
    def steepest(self) -> Array:
        """`½(I − 11ᵀ/C)`."""
        return 0.5 * (np.eye(self.n_outputs) - 1 / self.n_outputs)

    def evaluate(self, outputs: Array, labels: NDArray[np.intp]) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Probabilities, losses, and which rows are classified rightly."""
        if outputs.size >= MANY_OUTPUTS:
            from annealfit.objectives import _links  # numba takes a moment to load

            found = np.empty_like(outputs), np.empty(len(labels)), np.empty(len(labels), dtype=bool)
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

    def probabilities(self, outputs: Array) -> Array:
        """Their softmax."""
        if outputs.size < MANY_OUTPUTS:
            return softmax(outputs)
        from annealfit.objectives import _links

        found = np.empty_like(outputs)
        _links.softmax_of_rows(outputs, found)
        return found

    def residuals(self, probabilities: Array, labels: NDArray[np.intp], *, overwrite: bool = False) -> Array:
        """`π − y`."""
        residuals = probabilities if overwrite else probabilities.copy()
        if residuals.size >= MANY_OUTPUTS:
            from annealfit.objectives import _links

            _links.subtract_labels(residuals, labels)
            return residuals
        positions = _flat_positions(labels)
        residuals.put(positions, residuals.take(positions) - 1)
        return residuals

    def bends(self, probabilities: Array, changes: Array, weights: Array | None = None) -> Array:
        """The covariances of the outputs' changes under each row's probabilities."""
        count, groups, rows = len(changes), self.groups, changes.shape[2]
        if groups != self.n_outputs:
            shares, squares = self._grouped(probabilities, changes, weights)
        elif weights is None and changes.size >= MANY_OUTPUTS:
            from annealfit.objectives import _links

            shares, squares = np.empty_like(changes), np.empty((groups, count, count))
            _links.share(probabilities, changes, shares, squares)
        else:
            shares = probabilities * changes
            squares = np.einsum("acn,bcn->cab", _weighed(shares, weights), changes)
        products = _weighed(shares, weights).reshape(-1, rows) @ shares.reshape(-1, rows).T
        found = -products.reshape(count, groups, count, groups)
        own = np.arange(groups)
        found[:, own, :, own] += squares
        return found.reshape(count * groups, count * groups)

    def bent(self, probabilities: Array, changes: Array) -> Array:
        """`π(z − πᵀz)`."""
        shares = probabilities * changes
        shares -= probabilities * shares.sum(axis=0)
        return shares

    def _grouped(self, probabilities: Array, changes: Array, weights: Array | None) -> tuple[Array, Array]:
        """The sums over each group of its outputs' shares (m, groups, n), and of their squares (groups, m, m).

        So the work grows with the outputs, not with their square; and group by group there is little in memory.
        """
        starts = [*group_starts(self.n_outputs, self.groups), self.n_outputs]
        sums = np.empty((len(changes), self.groups, changes.shape[2]), changes.dtype)
        squares = np.empty((self.groups, len(changes), len(changes)), changes.dtype)
        for group, (first, last) in enumerate(pairwise(starts)):
            shares = probabilities[first:last] * changes[:, first:last]
            shares.sum(axis=1, out=sums[:, group])
            squares[group] = np.einsum("acn,bcn->ab", _weighed(shares, weights), changes[:, first:last])
        return sums, squares

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


@dataclass(frozen=True)
class Logistic:
    """One output, the logit of the second of two classes, as in scikit-learn's `LogisticRegression`."""

    n_outputs: int = 1

    @property
    def steepest(self) -> Array:
        """`¼`."""
        return np.array([[0.25]])

    def evaluate(self, outputs: Array, labels: NDArray[np.intp]) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Probabilities of the second class, losses, and which rows are classified rightly."""
        logits = outputs[0]
        losses = np.logaddexp(0.0, np.where(labels == 1, -logits, logits))
        return expit(outputs), losses, (logits > 0) == (labels == 1)

    def probabilities(self, outputs: Array) -> Array:
        """Of the second class."""
        return expit(outputs)

    def residuals(self, probabilities: Array, labels: NDArray[np.intp], *, overwrite: bool = False) -> Array:
        """`π − y`."""
        return probabilities - labels.astype(probabilities.dtype)

    def bends(self, probabilities: Array, changes: Array, weights: Array | None = None) -> Array:
        """`π(1 − π)` times the products of the changes."""
        flat = changes[:, 0]
        return (flat * _weighed(probabilities * (1 - probabilities), weights)) @ flat.T

    def bent(self, probabilities: Array, changes: Array) -> Array:
        """`π(1 − π)z`."""
        return probabilities * (1 - probabilities) * changes

    @property
    def groups(self) -> int:
        """The one."""
        return 1

    def roots(self, probabilities: Array) -> Array:
        """`√(π(1 − π))`."""
        return np.sqrt(probabilities * (1 - probabilities)).T[:, :, None]

    def distribution(self, probabilities: Array) -> Array:
        """Both classes' probabilities, (2, n)."""
        return np.concatenate([1 - probabilities, probabilities])

    def of_outputs(self, distribution: Array) -> Array:
        """The second class's probabilities, (1, n)."""
        return distribution[1:]


def link_of(n_classes: int) -> Link:
    """Two classes have one output, more have one each."""
    return Logistic() if n_classes == 2 else Softmax(n_classes)
