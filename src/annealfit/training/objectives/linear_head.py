"""The classifier head: the regularised cross-entropy of a linear model, which is convex."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array, SideBySide
from annealfit._support.errors import InvalidInputError
from annealfit._support.threads import blas_threads, free_memory, threads_for_large_product
from annealfit.data.rows import Chunk, Rows, rows_of
from annealfit.training.objectives.base import Span, group_starts
from annealfit.training.objectives.certificate import loss_lower_bound
from annealfit.training.objectives.head_span import HeadSpan
from annealfit.training.objectives.links import Evaluation, link_of
from annealfit.training.objectives.witness import refined_lower_bound

_ROWS_FOR_BENDS = 2**20  # of rows that pass by: a line search tells a step's length, not whether it is taken
# The outputs (outputs, n) of a chunk's rows, and what the link says of them; None for a chunk that is not known.
OutputUpdate = Callable[[Chunk], tuple[Array, Evaluation] | None]
_MATRICES = 4  # Gram matrix, curvature, its inverse, and what is worked out on the way


class LinearHead:
    """`f(W) = Σ_n a_n ℓ(Wᵀx_n, y_n) / Σ_n a_n + ½λ‖w‖²`: rows, a link that makes a loss of outputs, and a penalty.

    A block of parameters is the D = d + 1 weights of one output, the bias last; the bias is not regularised. Two
    classes have one output, more have one each.
    """

    def __init__(self, rows: Rows, regularization: float) -> None:
        self.rows, self.regularization = rows, float(regularization)
        self.link = link_of(rows.n_classes)

    @classmethod
    def of_arrays(
        cls,
        features: Any,
        labels: NDArray[np.intp],
        n_classes: int,
        regularization: float,
        weights: Array | None = None,
    ) -> LinearHead:
        """The head of features (N, d), in memory or not, labels (N,) below `n_classes`, and perhaps weights (N,)."""
        return cls(rows_of(features, labels, n_classes, weights), regularization)

    @property
    def n_parameters(self) -> int:
        """Parameters of one output, `D`."""
        return self.rows.n_parameters

    @property
    def n_outputs(self) -> int:
        """Outputs, each a block of parameters."""
        return self.link.n_outputs

    @property
    def multiplications(self) -> float:
        """Of the product of all rows with the weights."""
        return float(self.rows.entries * self.n_outputs)

    @cached_property
    def gram(self) -> Array:
        """`G = Σ_n a_n x_n x_nᵀ / Σ_n a_n`, shape (D, D): the paper's equation 3."""
        self._check_memory()
        with blas_threads(self.rows.entries * self.n_parameters):
            return self.rows.mean(lambda chunk: (chunk.gram(chunk.weights),))[0]

    @cached_property
    def ridge(self) -> Array:
        """The diagonal of `Λ = λ·diag(1, …, 1, 0)`, shape (D,)."""
        diagonal = np.full(self.n_parameters, self.regularization)
        diagonal[-1] = 0.0
        return diagonal

    def _check_memory(self) -> None:
        """Say it before the machine is driven into swap: features beyond counting make a curvature of their square."""
        needed, free = _MATRICES * 8 * self.n_parameters**2, free_memory()
        if free is not None and needed > free:
            raise InvalidInputError(
                f"{self.n_parameters - 1} features make a curvature of {self.n_parameters**2 * 8 / 2**30:.1f} GiB, and "
                f"{_MATRICES} such matrices are needed; {free / 2**30:.1f} GiB are free: use fewer features "
                "(TruncatedSVD, SelectKBest)"
            )

    @cached_property
    def bounding_curvature(self) -> Array:
        """`½G + Λ`, for two classes `¼G + Λ`: the least multiple of the Gram matrix that bounds the curvature."""
        steepest = float(np.linalg.eigvalsh(self.link.hessian_bound)[-1])
        return steepest * self.gram + np.diag(self.ridge)

    @cached_property
    def _columns(self) -> tuple[float, Array]:
        """How many rows there are; and the weighted means of features, their squares and their magnitudes, (3, d)."""
        count, *sums = self.rows.sum(lambda chunk: (len(chunk.labels), *chunk.column_sums()))
        return float(count), np.array(sums)[:, :-1] / self.rows.total_weight

    @property
    def feature_means(self) -> Array:
        """The weighted mean of every feature, shape (d,)."""
        return self._columns[1][0]

    @property
    def feature_squares(self) -> Array:
        """The weighted mean of every feature's square, shape (d,)."""
        return self._columns[1][1]

    @cached_property
    def extent(self) -> tuple[float, Array]:
        """How many rows there are, and means (d,) of features' magnitudes: what rounding can do to sums over rows."""
        return self._columns[0], self._columns[1][2]

    @property
    def feature_spread(self) -> float:
        """The root mean square distance of a feature from its mean: a unit."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # rows of no weight, or of huge numbers
            means, squares = self.feature_means, self.feature_squares
            spread = float(np.sqrt(np.maximum(squares - means**2, 0.0).mean()))
            is_known = spread > 1e-6 * np.sqrt(squares.max(initial=0.0)) and np.isfinite(spread)
        return spread if is_known else 1.0

    @cached_property
    def rows_for_bends(self) -> Rows:
        """Enough rows to tell how the loss bends; all of them, unless they pass by and are very many."""
        return self.rows.thinned(_ROWS_FOR_BENDS)

    def at(self, weights: Array, cached_outputs: Array | SideBySide | None = None) -> HeadPoint:
        """The head at weights (D, outputs), with the outputs (outputs, N) that a point cached_outputs."""
        if cached_outputs is None:
            return self.point(weights)
        chunks, outputs = list(self.rows.chunks()), np.asarray(cached_outputs)
        *ends, count = np.cumsum([len(chunk.labels) for chunk in chunks])
        if outputs.shape != (self.n_outputs, count):
            raise InvalidInputError(
                f"what was cached_outputs has the shape {outputs.shape}; expected {(self.n_outputs, int(count))}"
            )
        of_chunks = map(np.ascontiguousarray, np.split(outputs, ends, axis=1))
        known = dict(zip(chunks, of_chunks, strict=True))
        nothing = np.zeros((0, self.n_outputs))

        def arrive(chunk: Chunk) -> tuple[Array, Evaluation] | None:  # as the point did, to the last bit
            if chunk not in known:
                return None
            changes = np.zeros((0, *known[chunk].shape))
            return self.link.move(known[chunk], nothing, changes, chunk.labels, balance=False)

        return self.point(weights, arrive)

    def point(self, weights: Array, arrive: OutputUpdate | None = None) -> HeadPoint:
        """The head at weights (D, outputs), with what is known of the outputs from the way to these weights."""
        if not self.rows.chunks_are_cached:
            from annealfit.training.objectives.streaming import StreamedPoint  # which is a kind of HeadPoint

            return StreamedPoint(self, weights)
        return HeadPoint(self, weights, arrive)

    def with_penalty(self, bends: Array, directions: Array) -> Array:
        """Bends along directions (m, outputs, D), of outputs or of groups, with the penalty's; overwrites bends."""
        from annealfit.training.objectives import _spans  # numba takes a moment to load

        _spans.add_penalties(bends, directions, self.ridge, group_starts(self.n_outputs, self.link.groups))
        return bends


class HeadPoint:
    """A head at some weights. What was worked out for a chunk is kept as long as the chunk is.

    The outputs of chunks that stay in memory may be known from the way to these weights, which saves a product.
    """

    def __init__(self, head: LinearHead, weights: Array, arrive: OutputUpdate | None = None) -> None:
        self.head, self.weights = head, weights  # which the term below asks for
        self._came_with_outputs = False
        self._outputs: WeakKeyDictionary[Chunk, Array] = WeakKeyDictionary()
        self._probabilities: WeakKeyDictionary[Chunk, Array] = WeakKeyDictionary()

        def term(chunk: Chunk) -> tuple[float, float]:
            arrived = None if arrive is None else arrive(chunk)
            self._came_with_outputs |= arrived is not None
            self._outputs[chunk], (probabilities, losses, right) = arrived or self._work_out(chunk)
            self._probabilities[chunk] = probabilities
            return chunk.weighted(losses).sum(), chunk.weighted(right).sum()

        self._set(head, weights, *head.rows.mean(term))

    def _set(self, head: LinearHead, weights: Array, cross_entropy: float, accuracy: float) -> None:
        self.head, self.weights = head, weights
        self.cross_entropy, self.accuracy = float(cross_entropy), float(accuracy)
        self.penalty = float(0.5 * (head.ridge @ weights**2).sum())
        self.loss = self.cross_entropy + self.penalty

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_probabilities": WeakKeyDictionary(), "_outputs": WeakKeyDictionary()}

    def figures(self) -> dict[str, float]:
        """The regularised loss, the cross-entropy alone, and the share of rows that are classified rightly."""
        return {"loss": self.loss, "cross_entropy": self.cross_entropy, "accuracy": self.accuracy}

    @cached_property
    def gradients(self) -> Array:
        """`g_c = Σ_n a_n (π_nc − y_nc) x_n / Σ_n a_n + Λw_c`, shape (outputs, D)."""
        return self.head.rows.mean(self._slopes)[0] + self.weights.T * self.head.ridge

    def span(self, updates: Array, previous: Any = None) -> Span:
        """The head with multiples of an update, and of the step from a previous point, applied."""
        return HeadSpan(self, updates.reshape(self.head.n_outputs, -1), previous)

    def cached_outputs(self) -> SideBySide | None:
        """The outputs (outputs, N), where they came with the point."""
        if not self._came_with_outputs:
            return None
        return SideBySide([self.outputs(chunk) for chunk in self.head.rows.chunks()])

    def output_grams(self) -> Array:
        """`Σ_n a_n π_nc(1 − π_nc) x_n x_nᵀ / Σ_n a_n`, shape (outputs, D, D): each output's block of the Hessian."""
        with threads_for_large_product(self.head.rows.entries * self.head.n_parameters):
            return self.head.rows.mean(self._output_grams)[0]

    def moved(self, updates: Array) -> HeadPoint:
        """The head with updates of its blocks applied."""
        return self.head.at(self.weights + updates.reshape(self.head.n_outputs, -1).T)

    def is_within(self, gap: float) -> bool:
        """Whether the loss is certified to be at most `gap` above the optimum."""
        if self.head.regularization <= 0:
            return False
        # ‖∇f‖²/(2λ) bounds the distance where the biases are at their best. It is at hand, so it is asked first;
        # the certificate, which needs another look at the data, has the last word.
        estimate = float((self.gradients[:, :-1] ** 2).sum()) / (2 * self.head.regularization)
        return estimate <= gap and self.exact.loss - self.exact.lower_bound() <= gap

    def is_proven_within(self, gap: float) -> bool:
        """The same after a longer look, which is worth it now and then: see `annealfit.training.objectives.witness`."""
        bound = refined_lower_bound(self, gap)
        if bound == -np.inf or self.exact.loss - bound > gap:
            return False
        self.exact._lower_bound = bound
        return True

    def lower_bound(self) -> float:
        """What no weights can get below."""
        if self._lower_bound is None:
            self._lower_bound = loss_lower_bound(self)
        return self._lower_bound

    _lower_bound: float | None = None  # the best that is known

    @property
    def exact(self) -> HeadPoint:
        """The point in double precision, worked out from its weights, where what it knows is rounded."""
        if not (self.head.rows.is_rounded and self._came_with_outputs):
            return self
        if self._exact is None:
            self._exact = self.head.point(self.weights)
        return self._exact

    _exact: HeadPoint | None = None  # never the point itself, which would keep all rows alive

    def probabilities(self, chunk: Chunk) -> Array:
        """The link's probabilities (outputs, n) of a chunk of rows."""
        if chunk not in self._probabilities:
            self._probabilities[chunk] = self.head.link.probabilities(self.outputs(chunk))
        return self._probabilities[chunk]

    def outputs(self, chunk: Chunk) -> Array:
        """The outputs (outputs, n) of a chunk of rows."""
        if chunk not in self._outputs:
            self._outputs[chunk] = chunk.project(self.weights)
        return self._outputs[chunk]

    def _work_out(self, chunk: Chunk) -> tuple[Array, Evaluation]:
        outputs = chunk.project(self.weights)
        return outputs, self.head.link.evaluate(outputs, chunk.labels)

    @property
    def logits(self) -> Callable[[Chunk], Array]:
        """What gives numbers (C, n) for a chunk whose softmax is the distribution below."""
        return lambda chunk: self.head.link.logits(self.outputs(chunk))

    @property
    def distributions(self) -> Callable[[Chunk], Array]:
        """What gives the probabilities (C, n) of all classes for a chunk."""
        return lambda chunk: self.head.link.distribution(self.probabilities(chunk))

    # Terms, each a sum over the rows of a chunk.

    def _slopes(self, chunk: Chunk) -> tuple[Array]:
        residuals = self.head.link.residuals(self.probabilities(chunk), chunk.labels, dtype=chunk.precision)
        return (chunk.moments(chunk.weighted(residuals)),)

    def _output_grams(self, chunk: Chunk) -> tuple[Array]:
        probabilities = self.probabilities(chunk)
        spreads = chunk.weighted(probabilities * (1 - probabilities))
        return (np.stack([chunk.gram(spread) for spread in spreads]),)
