"""Links: from the outputs of a linear head to probabilities and losses, row by row.

Arrays are (outputs, n) and (classes, n), so that reductions over classes run along contiguous rows. `Softmax` has an
output per class. `Logistic` has one output for two classes, the logit of the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from annealfit._support.arrays import Array

MOST_GROUPS = 128  # of outputs in a line search: beyond, work would grow with the square of their number

# Probabilities (outputs, n), losses (n,), and whether the first largest output of each row is right (n,).
Evaluation = tuple[Array, Array, NDArray[np.bool_]]


class Link(Protocol):
    """The loss of one row as a function of its outputs, with probabilities π and one-hot labels y."""

    @property
    def n_outputs(self) -> int:
        """Outputs of a row."""

    @property
    def hessian_bound(self) -> Array:
        """Upper bound of the Hessian of a row's loss in its outputs, (outputs, outputs) (Böhning 1992)."""

    @property
    def is_shift_invariant(self) -> bool:
        """Whether adding a constant to all outputs changes no probability."""

    @property
    def groups(self) -> int:
        """Groups of outputs that share their step lengths; the number of outputs, unless there are very many."""

    def evaluate(self, outputs: Array, labels: NDArray[np.intp]) -> Evaluation:
        """Return probabilities, losses, and which rows are right."""

    def residuals(self, probabilities: Array, labels: NDArray[np.intp]) -> Array:
        """Return `π − y` (outputs, n): the derivative of each row's loss."""

    def mean_variances(self, outputs: Array) -> Array:
        """Return the mean over outputs of `π(1 − π)` (n,): the mean curvature of each row's loss."""

    def curvature_along(self, probabilities: Array, changes: Array, weights: Array | None = None) -> Array:
        """Return second derivatives, summed over rows, in multiples of changes (m, outputs, n) of the outputs.

        Every change of every group of outputs has its own multiple: the shape is (m·groups, m·groups).
        """

    def hessian_product(self, probabilities: Array, changes: Array) -> Array:
        """Return the product of each row's Hessian with changes (outputs, n) of the outputs."""

    def roots(self, probabilities: Array) -> Array:
        """Return R (n, outputs, outputs) with `RᵀR` the Hessian of each row's loss."""

    def distribution(self, probabilities: Array) -> Array:
        """Return the probabilities of all classes (classes, n)."""

    def of_outputs(self, distribution: Array) -> Array:
        """Invert `distribution`."""

    def logits(self, outputs: Array) -> Array:
        """Return numbers (classes, n) whose softmax is the distribution."""


def link_of(n_classes: int, *, compiled: bool = True) -> Link:
    """Return the logistic link for two classes, else softmax; compiled, or in NumPy as in `annealfit.paper`."""
    return Logistic(compiled) if n_classes == 2 else Softmax(n_classes, compiled)


def softmax(logits: Array) -> Array:
    """Return the softmax over the first axis, without overflow.

    >>> softmax(np.array([[1000.0], [1000.0]])).tolist()
    [[0.5], [0.5]]
    """
    probabilities = np.exp(logits - logits.max(axis=0))
    probabilities /= probabilities.sum(axis=0)
    return probabilities


def group_starts(blocks: int, groups: int) -> NDArray[np.intp]:
    """Return the first block of each of `groups` groups of neighbours, as equal as possible.

    >>> group_starts(5, 2).tolist(), group_starts(3, 3).tolist()
    ([0, 2], [0, 1, 2])
    """
    return np.arange(groups) * blocks // groups


def _weighted(values: Array, weights: Array | None) -> Array:
    return values if weights is None else values * weights


@dataclass(frozen=True)
class Softmax:
    """One output per class; the loss is the cross-entropy of their softmax."""

    n_outputs: int
    compiled: bool = True

    is_shift_invariant = True

    @property
    def hessian_bound(self) -> Array:
        """`½(I − 11ᵀ/C)`."""
        return 0.5 * (np.eye(self.n_outputs) - 1 / self.n_outputs)

    @property
    def groups(self) -> int:
        """At most `MOST_GROUPS`."""
        return min(self.n_outputs, MOST_GROUPS)

    def evaluate(self, outputs: Array, labels: NDArray[np.intp]) -> Evaluation:
        """Return the softmax, cross-entropies, and which rows are right."""
        if self.compiled:
            from annealfit.training.objectives import _kernels  # numba takes a moment to load

            count = outputs.shape[1]
            found = np.empty(outputs.shape), np.empty(count), np.empty(count, dtype=bool)
            _kernels.evaluate(np.ascontiguousarray(outputs), np.ascontiguousarray(labels, np.intp), *found)
            return found
        largest = outputs.max(axis=0)
        probabilities = np.exp(outputs - largest)
        total = probabilities.sum(axis=0)
        probabilities /= total
        own = outputs[labels, np.arange(len(labels))]
        return probabilities, np.log(total) + largest - own, outputs.argmax(axis=0) == labels

    def residuals(self, probabilities: Array, labels: NDArray[np.intp]) -> Array:
        """Return `π − y`."""
        residuals = probabilities.copy()
        residuals[labels, np.arange(len(labels))] -= 1
        return residuals

    def mean_variances(self, outputs: Array) -> Array:
        """Return `(1 − Σ_c π_c²)/C`."""
        from annealfit.training.objectives import _kernels

        found = np.empty(outputs.shape[1])
        _kernels.mean_variances(np.ascontiguousarray(outputs), found)
        return found

    def curvature_along(self, probabilities: Array, changes: Array, weights: Array | None = None) -> Array:
        """Return the covariances of the changes under the probabilities of each row."""
        if self.groups != self.n_outputs:
            return self._curvature_of_groups(probabilities, changes, weights)
        from annealfit.training.objectives import _kernels

        found = np.empty((len(changes) * self.n_outputs,) * 2)
        _kernels.covariances(probabilities, changes, np.sqrt(np.empty(0) if weights is None else weights), found)
        return found

    def _curvature_of_groups(self, probabilities: Array, changes: Array, weights: Array | None) -> Array:
        """Return the covariances of sums over groups; work and memory grow linearly with the number of outputs."""
        count, groups, rows = len(changes), self.groups, changes.shape[2]
        starts = [*group_starts(self.n_outputs, groups), self.n_outputs]
        sums, squares = np.empty((count, groups, rows)), np.empty((groups, count, count))
        for group, (first, last) in enumerate(pairwise(starts)):
            shares = probabilities[first:last] * changes[:, first:last]
            shares.sum(axis=1, out=sums[:, group])
            squares[group] = np.einsum("acn,bcn->ab", _weighted(shares, weights), changes[:, first:last])
        products = _weighted(sums, weights).reshape(-1, rows) @ sums.reshape(-1, rows).T
        found = -products.reshape(count, groups, count, groups)
        own = np.arange(groups)
        found[:, own, :, own] += squares
        return found.reshape(count * groups, count * groups)

    def hessian_product(self, probabilities: Array, changes: Array) -> Array:
        """Return `π(z − πᵀz)`."""
        shares = probabilities * changes
        shares -= probabilities * shares.sum(axis=0)
        return shares

    def roots(self, probabilities: Array) -> Array:
        """Return `√π_c (e_c − π)`: with the unit vector `v = √π`, `diag π − ππᵀ` is `(I − vvᵀ) diag v` squared."""
        by_row = probabilities.T
        return np.sqrt(by_row)[:, :, None] * (np.eye(self.n_outputs) - by_row[:, None, :])

    def distribution(self, probabilities: Array) -> Array:
        """Return the probabilities."""
        return probabilities

    def of_outputs(self, distribution: Array) -> Array:
        """Return the distribution."""
        return distribution

    def logits(self, outputs: Array) -> Array:
        """Return the outputs."""
        return outputs


@dataclass(frozen=True)
class Logistic:
    """One output, the logit of the second of two classes, as in scikit-learn's `LogisticRegression`."""

    compiled: bool = True

    n_outputs = groups = 1
    is_shift_invariant = False

    @property
    def hessian_bound(self) -> Array:
        """`¼`."""
        return np.array([[0.25]])

    def evaluate(self, outputs: Array, labels: NDArray[np.intp]) -> Evaluation:
        """Return probabilities of the second class, losses, and which rows are right."""
        if self.compiled:
            from annealfit.training.objectives import _kernels

            probabilities, losses, right = np.empty(outputs.shape), np.empty(len(labels)), np.empty(len(labels), bool)
            integers = np.ascontiguousarray(labels, np.intp)
            _kernels.evaluate_logit(np.ascontiguousarray(outputs[0]), integers, probabilities[0], losses, right)
            return probabilities, losses, right
        logits = outputs[0]
        losses = np.logaddexp(0.0, np.where(labels == 1, -logits, logits))
        return expit(outputs), losses, (logits > 0) == (labels == 1)

    def residuals(self, probabilities: Array, labels: NDArray[np.intp]) -> Array:
        """Return `π − y`."""
        return probabilities - labels

    def mean_variances(self, outputs: Array) -> Array:
        """Return `π(1 − π)`."""
        probabilities = expit(outputs[0])
        return probabilities * (1 - probabilities)

    def curvature_along(self, probabilities: Array, changes: Array, weights: Array | None = None) -> Array:
        """Return `Σ π(1 − π) z z'`."""
        flat = changes[:, 0]
        return (flat * _weighted(probabilities * (1 - probabilities), weights)) @ flat.T

    def hessian_product(self, probabilities: Array, changes: Array) -> Array:
        """Return `π(1 − π)z`."""
        return probabilities * (1 - probabilities) * changes

    def roots(self, probabilities: Array) -> Array:
        """Return `√(π(1 − π))`."""
        return np.sqrt(probabilities * (1 - probabilities)).T[:, :, None]

    def distribution(self, probabilities: Array) -> Array:
        """Return the probabilities of both classes (2, n)."""
        return np.concatenate([1 - probabilities, probabilities])

    def of_outputs(self, distribution: Array) -> Array:
        """Return the probabilities of the second class (1, n)."""
        return distribution[1:]

    def logits(self, outputs: Array) -> Array:
        """Return 0 for the first class and the output for the second."""
        return np.concatenate([np.zeros_like(outputs), outputs])
