"""Links: from the outputs of a linear head to probabilities and losses, row by row.

Arrays are (outputs, n) and (classes, n): class by class, so that reductions over classes run along contiguous rows.
`Softmax` has an output per class. `Logistic` has one output for two classes, the logit of the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from annealfit._support.arrays import Array
from annealfit.training.objectives.softmax_link import MOST_GROUPS, Evaluation, Softmax, softmax, space_for, weighed

__all__ = ["MOST_GROUPS", "Evaluation", "Link", "Logistic", "Softmax", "link_of", "softmax"]


class Link(Protocol):
    """What a head needs to know about its outputs."""

    @property
    def n_outputs(self) -> int:
        """Outputs of a row."""

    @property
    def hessian_bound(self) -> Array:
        """An upper bound, shape (outputs, outputs), of the Hessian of a row's loss in its outputs (Böhning 1992)."""

    def evaluate(self, outputs: Array, labels: NDArray[np.intp]) -> Evaluation:
        """What there is to say about outputs (outputs, n)."""

    def move(
        self, outputs: Array, multiples: Array, changes: Array, labels: NDArray[np.intp], *, balance: bool
    ) -> tuple[Array, Evaluation]:
        """Outputs after multiples (m, outputs) of changes (m, outputs, n), balanced or not; and `evaluate` of them."""

    def probabilities(self, outputs: Array) -> Array:
        """Of the outputs, (outputs, n), alone."""

    def mean_spreads(self, outputs: Array) -> Array:
        """The mean over outputs of `π(1 − π)`, shape (n,): how much each row's loss bends."""

    def residuals(
        self, probabilities: Array, labels: NDArray[np.intp], *, overwrite: bool = False, dtype: Any = None
    ) -> Array:
        """`π − y`, shape (outputs, n): the derivative of each row's loss in its outputs.

        In the place of the probabilities, or in another precision; else as they are.
        """

    def curvature_along(self, probabilities: Array, changes: Array, weights: Array | None = None) -> Array:
        """The second derivatives, summed over rows, in the multiples of changes (m, outputs, n) of the outputs.

        Rows have weights (n,), or count once. Shape (m·groups, m·groups): each of the m changes of each output, or
        group of outputs, has a multiple of its own.
        """

    def hessian_product(self, probabilities: Array, changes: Array) -> Array:
        """How the derivatives (outputs, n) of each row's loss change with changes (outputs, n) of the outputs."""

    @property
    def is_relative(self) -> bool:
        """Whether what all outputs share changes no probability."""

    @property
    def groups(self) -> int:
        """Groups of outputs that share multiples; as many as outputs, unless these are very many."""

    def roots(self, probabilities: Array) -> Array:
        """`R` with `RᵀR` the Hessian of each row's loss in its outputs, shape (n, outputs, outputs)."""

    def distribution(self, probabilities: Array) -> Array:
        """The probabilities of all classes, shape (classes, n)."""

    def of_outputs(self, distribution: Array) -> Array:
        """The inverse of `distribution`."""

    def logits(self, outputs: Array) -> Array:
        """Numbers (classes, n) whose softmax is the distribution."""


@dataclass(frozen=True)
class Logistic:
    """One output, the logit of the second of two classes, as in scikit-learn's `LogisticRegression`."""

    n_outputs: int = 1

    @property
    def hessian_bound(self) -> Array:
        """`¼`."""
        return np.array([[0.25]])

    def evaluate(self, outputs: Array, labels: NDArray[np.intp]) -> Evaluation:
        """Probabilities of the second class, losses, and which rows are classified rightly."""
        logits = outputs[0]
        losses = np.logaddexp(0.0, np.where(labels == 1, -logits, logits))
        return expit(outputs), losses, (logits > 0) == (labels == 1)

    def move(
        self, outputs: Array, multiples: Array, changes: Array, labels: NDArray[np.intp], *, balance: bool
    ) -> tuple[Array, Evaluation]:
        """One look at the outputs does both."""
        from annealfit.training.objectives import _links

        moved, found = np.empty_like(outputs), space_for(outputs)
        probabilities, losses, right = found
        _links.move_logit(outputs[0], multiples[:, 0], changes[:, 0], labels, moved[0], probabilities[0], losses, right)
        return moved, found

    def probabilities(self, outputs: Array) -> Array:
        """Of the second class."""
        return expit(outputs)

    def mean_spreads(self, outputs: Array) -> Array:
        """`π(1 − π)`."""
        probabilities = expit(outputs[0])
        return probabilities * (1 - probabilities)

    def residuals(
        self, probabilities: Array, labels: NDArray[np.intp], *, overwrite: bool = False, dtype: Any = None
    ) -> Array:
        """`π − y`."""
        residuals = probabilities - labels.astype(probabilities.dtype)
        return residuals if dtype is None else residuals.astype(dtype, copy=False)

    def curvature_along(self, probabilities: Array, changes: Array, weights: Array | None = None) -> Array:
        """`π(1 − π)` times the products of the changes."""
        flat = changes[:, 0]
        return (flat * weighed(probabilities * (1 - probabilities), weights)) @ flat.T

    def hessian_product(self, probabilities: Array, changes: Array) -> Array:
        """`π(1 − π)z`."""
        return probabilities * (1 - probabilities) * changes

    @property
    def is_relative(self) -> bool:
        """There is only one."""
        return False

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

    def logits(self, outputs: Array) -> Array:
        """The first class's are 0."""
        return np.concatenate([np.zeros_like(outputs), outputs])


def link_of(n_classes: int) -> Link:
    """Two classes have one output, more have one each."""
    return Logistic() if n_classes == 2 else Softmax(n_classes)
