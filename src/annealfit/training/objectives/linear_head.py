"""The classifier head: the regularised cross-entropy of a linear model, a convex objective.

A link takes outputs to probabilities and losses, row by row: `Logistic` with one output for two classes, `Softmax` with
one per class. Its arrays are (outputs, n), so that reductions over classes run along contiguous rows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError
from annealfit._support.threads import blas_threads, free_memory, threads_for_large_product
from annealfit.data.rows import NEIGHBOURS, Chunk, Rows, rows_of
from annealfit.training.objectives.certificate import loss_lower_bound, refined_lower_bound

LINE_SEARCH_ROWS = 2**20  # beyond twice as many rows, the length of a step is computed from a part of them
_MATRICES = 4  # of size D×D: Gram matrix, curvature, its factor, and a temporary
MOST_GROUPS = 128  # of outputs in a line search: beyond, work would grow with the square of their number


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


def _weighted(values: NDArray[Any], weights: Array | None) -> NDArray[Any]:
    return values if weights is None else values * weights


Evaluation = tuple[Array, Array, float, float]
_NO_WEIGHTS = np.empty(0)


def _evaluated(kernel: Any, outputs: Array, labels: NDArray[np.intp], weights: Array | None) -> Evaluation:
    probabilities, residuals = np.empty(outputs.shape), np.empty(outputs.shape)
    integers, given = np.ascontiguousarray(labels, np.intp), _NO_WEIGHTS if weights is None else weights
    sums = kernel(np.ascontiguousarray(outputs), integers, given, probabilities, residuals)
    return probabilities, residuals, *sums


@dataclass(frozen=True)
class Softmax:
    """The link of one output per class: the loss of a row is the cross-entropy of the softmax π of its outputs.

    `compiled=False` evaluates it in NumPy, bit for bit as in `annealfit.paper`.
    """

    n_outputs: int
    compiled: bool = True

    @property
    def hessian_bound(self) -> Array:
        """Upper bound `½(I − 11ᵀ/C)` of the Hessian of a row's loss in its outputs (Böhning 1992)."""
        return 0.5 * (np.eye(self.n_outputs) - 1 / self.n_outputs)

    @property
    def groups(self) -> int:
        """Groups of outputs that share their step lengths, at most `MOST_GROUPS`."""
        return min(self.n_outputs, MOST_GROUPS)

    def evaluate(self, outputs: Array, labels: NDArray[np.intp], weights: Array | None = None) -> Evaluation:
        """Return probabilities π (outputs, n), `a(π − y)`, `Σ aℓ`, and the weight of the rows that are right.

        A row is right if its first largest output is that of its label.
        """
        if self.compiled:
            from annealfit.data.rows import _kernels  # numba takes a moment to load

            return _evaluated(_kernels.evaluate, outputs, labels, weights)
        largest = outputs.max(axis=0)
        probabilities = np.exp(outputs - largest)
        total = probabilities.sum(axis=0)
        probabilities /= total
        losses = np.log(total) + largest - outputs[labels, np.arange(len(labels))]
        right, residuals = outputs.argmax(axis=0) == labels, self.residuals(probabilities, labels)
        found = (_weighted(values, weights) for values in (residuals, losses, right))
        return probabilities, next(found), next(found).sum(), next(found).sum()

    def residuals(self, probabilities: Array, labels: NDArray[np.intp]) -> Array:
        """Return `π − y` (outputs, n) with one-hot labels y: the derivative of each row's loss."""
        residuals = probabilities.copy()
        residuals[labels, np.arange(len(labels))] -= 1
        return residuals

    def mean_variances(self, outputs: Array) -> Array:
        """Return the mean over outputs of `π(1 − π)` (n,): the mean curvature of each row's loss."""
        from annealfit.data.rows import _kernels

        found = np.empty(outputs.shape[1])
        _kernels.mean_variances(np.ascontiguousarray(outputs), found)
        return found

    def curvature_along(self, probabilities: Array, changes: Array, weights: Array | None = None) -> Array:
        """Return second derivatives, summed over rows, in multiples of changes (m, outputs, n) of the outputs.

        Every change of every group of outputs has its own multiple: the shape is (m·groups, m·groups).
        """
        from annealfit.data.rows import _kernels

        count, groups, rows = len(changes), self.groups, changes.shape[2]
        edges = np.append(group_starts(self.n_outputs, groups), self.n_outputs)
        shares, squares = np.empty((count * groups, rows)), np.empty((groups, count, count))
        roots = _NO_WEIGHTS if weights is None else np.sqrt(weights)
        _kernels.sum_over_groups(probabilities, changes, roots, edges, shares, squares)
        found = -(shares @ shares.T).reshape(count, groups, count, groups)
        own = np.arange(groups)
        found[:, own, :, own] += squares
        return found.reshape(count * groups, -1)

    def hessian_product(self, probabilities: Array, changes: Array) -> Array:
        """Return `π(z − πᵀz)`: each row's Hessian times changes z (outputs, n) of the outputs."""
        shares = probabilities * changes
        shares -= probabilities * shares.sum(axis=0)
        return shares

    def roots(self, probabilities: Array) -> Array:
        """Return R (n, outputs, outputs) with `RᵀR` the Hessian of each row's loss: `√π_c (e_c − π)`."""
        by_row = probabilities.T
        return np.sqrt(by_row)[:, :, None] * (np.eye(self.n_outputs) - by_row[:, None, :])

    def logits(self, outputs: Array) -> Array:
        """Return numbers (classes, n) whose softmax are the probabilities of all classes."""
        return outputs


@dataclass(frozen=True)
class Logistic:
    """The link of one output, the logit of the second of two classes; its methods are those of `Softmax`."""

    compiled: bool = True

    n_outputs = groups = 1

    @property
    def hessian_bound(self) -> Array:
        """`¼`."""
        return np.array([[0.25]])

    def evaluate(self, outputs: Array, labels: NDArray[np.intp], weights: Array | None = None) -> Evaluation:
        """Return probabilities of the second class, `a(π − y)`, `Σ aℓ`, and the weight of the rows that are right."""
        if self.compiled:
            from annealfit.data.rows import _kernels

            return _evaluated(_kernels.evaluate_logit, outputs, labels, weights)
        logits, probabilities = outputs[0], expit(outputs)
        losses = np.logaddexp(0.0, np.where(labels == 1, -logits, logits))
        right = (logits > 0) == (labels == 1)
        residuals = _weighted(self.residuals(probabilities, labels), weights)
        return probabilities, residuals, _weighted(losses, weights).sum(), _weighted(right, weights).sum()

    def residuals(self, probabilities: Array, labels: NDArray[np.intp]) -> Array:
        """Return `π − y`."""
        return probabilities - labels

    def mean_variances(self, outputs: Array) -> Array:
        """Return `π(1 − π)`."""
        probabilities = expit(outputs[0])
        return probabilities * (1 - probabilities)

    def curvature_along(self, probabilities: Array, changes: Array, weights: Array | None = None) -> Array:
        """Return `Σ π(1 − π) z z'`."""
        scaled = changes[:, 0] * np.sqrt(_weighted(probabilities * (1 - probabilities), weights))
        return scaled @ scaled.T  # exactly symmetric

    def hessian_product(self, probabilities: Array, changes: Array) -> Array:
        """Return `π(1 − π)z`."""
        return probabilities * (1 - probabilities) * changes

    def roots(self, probabilities: Array) -> Array:
        """Return `√(π(1 − π))`."""
        return np.sqrt(probabilities * (1 - probabilities)).T[:, :, None]

    def logits(self, outputs: Array) -> Array:
        """Return 0 for the first class and the output for the second."""
        return np.concatenate([np.zeros_like(outputs), outputs])


Link = Softmax | Logistic


def link_of(n_classes: int, *, compiled: bool = True) -> Link:
    """Return the logistic link for two classes, else softmax."""
    return Logistic(compiled) if n_classes == 2 else Softmax(n_classes, compiled)


class LinearHead:
    """`f(W) = Σ_n a_n ℓ(Wᵀx_n, y_n) / Σ_n a_n + ½λ‖w‖²` for rows (x_n, y_n, a_n), a link ℓ and a penalty λ.

    A block of parameters is the D = d + 1 weights of one output, the bias last; the bias is not regularised. Two
    classes have one output, more classes one each.
    """

    def __init__(self, rows: Rows, regularization: float, *, compiled: bool = True) -> None:
        self.rows, self.regularization = rows, float(regularization)
        self.link = link_of(rows.n_classes, compiled=compiled)
        self.n_parameters, self.n_outputs = rows.n_parameters, self.link.n_outputs  # D, and number of blocks
        self.ridge = np.full(self.n_parameters, self.regularization)  # diagonal of Λ = λ·diag(1, …, 1, 0), (D,)
        self.ridge[-1] = 0.0
        self._recent: deque[Outputs] = deque(maxlen=3)

    @classmethod
    def of_arrays(
        cls,
        features: Any,
        labels: NDArray[np.intp],
        n_classes: int,
        regularization: float,
        weights: Array | None = None,
        *,
        arithmetic: str = "auto",
    ) -> LinearHead:
        """Return the head of features (N, d), labels (N,) below `n_classes` and optional weights (N,)."""
        rows = rows_of(features, labels, n_classes, weights, arithmetic=arithmetic)
        return cls(rows, regularization, compiled=arithmetic != "numpy")

    @property
    def multiplications(self) -> float:
        """Multiplications of the product of all rows with the weights."""
        return float(self.rows.entries * self.n_outputs)

    @cached_property
    def gram(self) -> Array:
        """`G = Σ_n a_n x_n x_nᵀ / Σ_n a_n`, (D, D): equation 3 of the paper."""
        needed, free = _MATRICES * 8 * self.n_parameters**2, free_memory()
        if free is not None and needed > free:
            raise InvalidInputError(
                f"{self.n_parameters - 1} features make a curvature of {self.n_parameters**2 * 8 / 2**30:.1f} GiB, and "
                f"{_MATRICES} such matrices are needed; {free / 2**30:.1f} GiB are free: use fewer features "
                "(TruncatedSVD, SelectKBest)"
            )
        with blas_threads(self.rows.entries * self.n_parameters):
            return self.rows.mean(lambda chunk: (chunk.gram(chunk.weights),))[0]

    @cached_property
    def bounding_curvature(self) -> Array:
        """`½G + Λ`, for two classes `¼G + Λ`: the smallest multiple of G that bounds the curvature of the loss."""
        return float(np.linalg.eigvalsh(self.link.hessian_bound)[-1]) * self.gram + np.diag(self.ridge)

    @property
    def feature_means(self) -> Array:
        """Weighted means of the features (d,)."""
        return self.rows.columns[1][0, :-1] / self.rows.total_weight

    @property
    def feature_squares(self) -> Array:
        """Weighted means of the squares of the features (d,)."""
        return self.rows.columns[1][1, :-1] / self.rows.total_weight

    @property
    def feature_spread(self) -> float:
        """Root mean square distance of a feature from its mean; 1 where it is lost to rounding."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # weightless rows, huge features
            means, squares = self.feature_means, self.feature_squares
            spread = float(np.sqrt(np.maximum(squares - means**2, 0.0).mean()))
            is_known = spread > 1e-6 * np.sqrt(squares.max(initial=0.0)) and np.isfinite(spread)
        return spread if is_known else 1.0

    @property
    def expected_steps(self) -> Array:
        """Sizes of Newton steps from zero weights (D,), relative to each other: `σ_j/(λ + ωσ_j²)`, of the bias `d^¼/ω`.

        The gradient of a weight is proportional to the spread σ_j of the feature, and ω is the mean of `π(1 − π)`.
        Features that are constant, but for rounding, have a thousandth of the root mean square.
        """
        means, squares, classes = self.feature_means, self.feature_squares, self.rows.n_classes
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # weightless rows, huge features
            variances, variance = squares - means**2, (1 - 1 / classes) / classes
            spreads = np.sqrt(np.where(variances > 1e-9 * squares, variances, 0.0))
            steps = spreads / (self.regularization + variance * variances)
            steps = np.append(np.where(np.isfinite(steps), steps, 0.0), len(means) ** 0.25 / variance)
            typical = np.sqrt((steps[:-1] ** 2).mean())
        return np.maximum(steps / typical, 1e-3) if 0 < typical < np.inf else np.ones(len(steps))

    def at(self, weights: Array) -> HeadPoint:
        """Return the head at weights (D, outputs)."""
        return HeadPoint(self, weights)

    def evaluate(self, outputs: Outputs) -> tuple[float, float]:
        """Return cross-entropy and accuracy."""

        def term(chunk: Chunk) -> tuple[float, float]:
            _, _, loss, right = outputs.evaluate(chunk)
            return loss, right

        cross_entropy, accuracy = self.rows.mean(term)
        return float(cross_entropy), float(accuracy)

    def outputs_at(self, weights: Array) -> Outputs:
        """Return the outputs at weights, those of a recent point if the array is the same."""
        for known in self._recent:
            if known.weights is weights:
                return known
        return Outputs(self.link, weights, cached=self.rows.chunks_are_cached)

    def figures(self, weights: Array) -> dict[str, float]:
        """Return loss, cross-entropy and accuracy at weights."""
        cross_entropy, accuracy = self.evaluate(Outputs(self.link, weights, cached=False))
        return {"loss": cross_entropy + self.penalty(weights), "cross_entropy": cross_entropy, "accuracy": accuracy}

    def penalty(self, weights: Array) -> float:
        """Return `½λ‖w‖²`."""
        return float(0.5 * (self.ridge @ weights**2).sum())


class Outputs:
    """Outputs and probabilities of chunks at some weights. They are cached for rows that stay in memory.

    The object can be sent to other processes: it refers to the link and the weights only.
    """

    def __init__(self, link: Link, weights: Array, *, cached: bool, exact: bool = False) -> None:
        self.link, self.weights, self._cached, self._exact = link, weights, cached, exact
        self._outputs: dict[Chunk, Array] = {}
        self._probabilities: dict[Chunk, Array] = {}

    def project(self, chunk: Chunk) -> Array:
        """Return outputs (outputs, n)."""
        found = self._outputs.get(chunk)
        if found is None:
            found = chunk.exact_project(self.weights) if self._exact else chunk.project(self.weights)
            if self._cached:
                self._outputs[chunk] = found
        return found

    def evaluate(self, chunk: Chunk) -> Evaluation:
        """Return probabilities, residuals, and the sums of the losses and of the right rows, with weights."""
        found = self.link.evaluate(self.project(chunk), chunk.labels, chunk.weights)
        if self._cached:
            self._probabilities[chunk] = found[0]
        return found

    def probabilities(self, chunk: Chunk) -> Array:
        """Return probabilities (outputs, n)."""
        found = self._probabilities.get(chunk)
        return self.evaluate(chunk)[0] if found is None else found


class HeadPoint:
    """A head at weights (D, outputs): loss and gradient from one pass over the rows."""

    def __init__(self, head: LinearHead, weights: Array) -> None:
        self.head, self.weights = head, weights
        self.outputs = outputs = head.outputs_at(weights)

        def term(chunk: Chunk) -> tuple[float, float, Array]:
            """Σ_n a_n ℓ_n, Σ_n a_n [right], and Σ_n a_n (π_n − y_n) x_nᵀ."""
            _, residuals, loss, right = outputs.evaluate(chunk)
            return loss, right, chunk.moments(residuals)

        losses, right, slopes = head.rows.sum(term)
        total = head.rows.total_weight
        head._recent.append(outputs)
        self.cross_entropy, self.accuracy = float(losses / total), float(right / total)
        self.penalty = head.penalty(weights)
        self.loss = self.cross_entropy + self.penalty
        self.gradients: Array = slopes / total + weights.T * head.ridge  # equation 16 of the paper, (outputs, D)

    def figures(self) -> dict[str, float]:
        """Return the regularised loss, the cross-entropy alone, and the accuracy."""
        return {"loss": self.loss, "cross_entropy": self.cross_entropy, "accuracy": self.accuracy}

    def step_from(self, previous: Array) -> Array:
        """Return the step from previous weights (D, outputs) as blocks (outputs, D)."""
        return (self.weights - previous).T

    def curvature_along(self, directions: Array, previous: Array | None = None) -> Array:
        """Return the second derivatives of the loss in multiples of directions (m, outputs, D).

        Of more than 2^21 rows about 2^20 are used, groups of 64 at fixed positions: whether a step is taken is
        decided by the loss of all rows.
        """
        head, link, now = self.head, self.head.link, self.outputs
        before = None if previous is None else head.outputs_at(previous)
        every = int(head.rows.columns[0]) // (LINE_SEARCH_ROWS + NEIGHBOURS)  # one group in so many is used

        def term(chunk: Chunk) -> tuple[Array, float]:
            """Σ_n a_n zᵀ(diag π_n − π_nπ_nᵀ)z' for the changes z of the outputs along the directions."""
            part = chunk.thinned(every) if every > 1 else chunk
            outputs, probabilities = now.project(part), now.probabilities(part)
            changes = np.empty((len(directions), *outputs.shape))
            for index, direction in enumerate(directions):
                if before is not None and index == 1:
                    np.subtract(outputs, before.project(part), out=changes[1])
                else:
                    changes[index] = part.project(direction.T)
            return link.curvature_along(probabilities, changes, part.weights), part.total_weight

        found, weight = head.rows.sum(term)
        found = found / weight
        # Σ_j λ_j u_j u'_j, of every output or group of outputs
        groups, count = link.groups, len(directions)
        penalties = np.vecdot((directions * head.ridge)[:, None], directions)  # (m, m, outputs)
        if groups != head.n_outputs:
            penalties = np.add.reduceat(penalties, group_starts(head.n_outputs, groups), axis=2)
        of_groups: Array = np.einsum("agbg->abg", found.reshape(count, groups, count, groups))  # a view
        of_groups += penalties
        return found

    def moved(self, updates: Array, *, remove_class_mean: bool = False) -> Self:
        """Return the head after updates of its blocks (outputs, D).

        Softmax is invariant to adding the same vector to every class, so the class mean of quantised updates is not
        corrected by later steps, but it is penalised. `remove_class_mean` subtracts it if every class moves.
        """
        blocks = updates.reshape(self.head.n_outputs, -1)
        weights = self.weights + blocks.T
        if remove_class_mean and len(blocks) > 1 and blocks.any(axis=1).all():
            weights -= weights.sum(axis=1, keepdims=True) / len(blocks)
        return type(self)(self.head, weights)

    def output_grams(self) -> Array:
        """Return `Σ_n a_n π_nc(1 − π_nc) x_n x_nᵀ / Σ_n a_n` (outputs, D, D): each output's block of the Hessian."""
        now = self.outputs

        def term(chunk: Chunk) -> tuple[Array]:
            probabilities = now.probabilities(chunk)
            variances = chunk.weighted(probabilities * (1 - probabilities))
            return (np.stack([chunk.gram(variance) for variance in variances]),)

        with threads_for_large_product(self.head.rows.entries * self.head.n_parameters):
            return self.head.rows.mean(term)[0]

    def distribution(self, chunk: Chunk) -> Array:
        """Return the probabilities of all classes (C, n) for a chunk."""
        probabilities = self.outputs.probabilities(chunk)
        return probabilities if len(probabilities) > 1 else np.concatenate([1 - probabilities, probabilities])

    @cached_property
    def exact_outputs(self) -> Outputs:
        """Outputs in double precision."""
        rows = self.head.rows
        if not rows.is_single:
            return self.outputs
        return Outputs(self.head.link, self.weights, cached=rows.chunks_are_cached, exact=True)

    @cached_property
    def exact_loss(self) -> float:
        """The loss in double precision."""
        return self.head.evaluate(self.exact_outputs)[0] + self.penalty if self.head.rows.is_single else self.loss

    @property
    def has_certificate(self) -> bool:
        """Whether there is a lower bound of the loss."""
        return self.head.regularization > 0

    def is_within(self, gap: float) -> bool:
        """Whether the loss is certified to be at most `gap` above the optimum."""
        if not self.has_certificate:
            return False
        # ‖∇f‖²/(2λ) bounds the gap where the biases are optimal. It costs nothing, so it is checked first; the
        # certificate, which needs further passes, decides.
        estimate = float((self.gradients[:, :-1] ** 2).sum()) / (2 * self.head.regularization)
        return estimate <= gap and self.exact_loss - self.lower_bound() <= gap

    def is_refined_within(self, gap: float) -> bool:
        """Whether the Newton-refined certificate, which takes some passes, proves the same."""
        bound = refined_lower_bound(self, gap)
        if bound == -np.inf or self.exact_loss - bound > gap:
            return False
        self._lower_bound = bound
        return True

    _lower_bound: float | None = None

    def lower_bound(self) -> float:
        """Return a lower bound of the loss over all weights."""
        if self._lower_bound is None:
            self._lower_bound = loss_lower_bound(self)
        return self._lower_bound
