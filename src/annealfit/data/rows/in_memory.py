"""Rows in memory, dense or sparse: always at hand, mostly in one chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.threads import in_order
from annealfit.data.rows import products
from annealfit.data.rows.base import Chunk, Rows, Term, add_up, dense_column_sums, digest_of, moved_grams
from annealfit.data.rows.in_single import CopiedChunk, are_worth_a_copy
from annealfit.data.rows.tables import TableChunk, keep_memory

MANY_ROWS = 2**17  # from so many on they are several chunks, in several threads; before, sums take no time
MANY_FEATURES = 100  # from so many on rows stay as they are: a copy with a column of ones takes as long as a product


class InMemoryRows(Rows):
    """Features (N, d), a NumPy array or a SciPy sparse array, with labels (N,) and perhaps weights (N,).

    >>> rows = InMemoryRows(np.array([[1.0], [3.0]]), np.array([0, 1]), n_classes=2)
    >>> rows.n_parameters, rows.total_weight, rows.class_shares.tolist()
    (2, 2.0, [0.5, 0.5])
    """

    def __init__(
        self,
        features: Any,
        labels: NDArray[np.intp],
        n_classes: int,
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        from scipy.sparse import issparse  # here: what only names rows does not wait for SciPy

        if issparse(features):
            self._chunks: list[Chunk] = [SparseChunk(features, labels, weights)]
        else:
            features = np.asarray(features, dtype=np.float64)
            self._chunks = _dense_chunks(features, labels, n_classes, weights)
        self.is_rounded = isinstance(self._chunks[0], CopiedChunk)
        self._features, self._labels, self._weights = features, labels, weights
        self._samples: dict[int, Rows] = {}
        self.n_parameters, self.n_classes = features.shape[1] + 1, n_classes

    def chunks(self) -> Iterable[Chunk]:
        """The rows in their order; mostly one chunk of all of them."""
        return self._chunks

    def sum(self, term: Term) -> tuple[Any, ...]:
        """The sums over all chunks, added up in their order, worked out in as many threads as there are processors."""
        if len(self._chunks) == 1:
            return term(self._chunks[0])
        keep_memory()
        return add_up(in_order(term, self._chunks))

    def sample(self, count: int) -> Rows:
        """Rows drawn at random, in their order."""
        total = len(self._labels)
        if total <= count:
            return self
        if count not in self._samples:
            chosen = np.sort(np.random.default_rng(0).choice(total, count, replace=False))
            weights = None if self._weights is None else self._weights[chosen]
            self._samples[count] = InMemoryRows(self._features[chosen], self._labels[chosen], self.n_classes, weights)
        return self._samples[count]

    def digest(self) -> str:
        """A digest of all features, then all labels, then all weights: that of one chunk, however many there are."""
        weights = () if self._weights is None else (self._weights,)
        features = [array for chunk in self._chunks for array in chunk.content()]
        return digest_of([*features, self._labels, *weights])


def _dense_chunks(
    features: NDArray[np.float64], labels: NDArray[np.intp], n_classes: int, weights: NDArray[np.float64] | None
) -> list[Chunk]:
    if features.shape[1] >= MANY_FEATURES:
        kind = CopiedChunk if are_worth_a_copy(features) else TableChunk
        whole = kind(np.ascontiguousarray(features), labels, weights)
        return [whole] if len(labels) < MANY_ROWS else [*whole.parts(n_classes)]
    if len(labels) < MANY_ROWS:
        return [DenseChunk(features, labels, weights)]
    parts = TableChunk(features, labels, weights).parts(n_classes)
    return [DenseChunk(part.features, part.labels, part.weights) for part in parts]


class DenseChunk(Chunk):
    """Rows of a NumPy array, copied once to have the column of ones beside them."""

    def __init__(
        self, features: NDArray[np.float64], labels: NDArray[np.intp], weights: NDArray[np.float64] | None = None
    ) -> None:
        self._augmented = np.column_stack([features, np.ones(len(features))])
        self.labels, self.weights = labels, weights

    def project(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """`WᵀXᵀ`, (O, n): later reductions over outputs run along contiguous rows."""
        return weights.T @ self._augmented.T

    def moments(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`VX`, (O, D)."""
        return values @ self._augmented

    def gram(self, values: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """`Xᵀ diag(v) X`, (D, D)."""
        left = self._augmented.T
        return (left if values is None else left * values) @ self._augmented

    def column_sums(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Without a matrix."""
        sums, squares, magnitudes = dense_column_sums(self._augmented, self.weights)
        return sums, squares, magnitudes

    def block_grams(
        self, values: NDArray[np.float64], blocks: Sequence[slice], origin: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Without what is between the blocks."""
        return products.block_grams(self._augmented, values, blocks, origin)

    @property
    def entries(self) -> int:
        """n·D."""
        return self._augmented.size

    def content(self) -> Iterable[NDArray[Any]]:
        """The features with their column of ones."""
        return (self._augmented,)


class SparseChunk(Chunk):
    """Rows of a SciPy sparse array, which stays sparse; the column of ones is never written down."""

    def __init__(self, features: Any, labels: NDArray[np.intp], weights: NDArray[np.float64] | None = None) -> None:
        from scipy.sparse import csr_array

        self._features = csr_array(features)
        self._transposed = self._features.T.tocsr()
        self.labels, self.weights = labels, weights

    def project(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """`WᵀXᵀ`, (O, n)."""
        return np.ascontiguousarray((self._features @ weights[:-1] + weights[-1]).T)

    def moments(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`VX`, (O, D)."""
        return np.column_stack([(self._transposed @ values.T).T, values.sum(axis=1)])

    def gram(self, values: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """`Xᵀ diag(v) X`, (D, D); dense, as a curvature is."""
        return _sparse_gram(self._transposed, np.ones(len(self.labels)) if values is None else values)

    def column_sums(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Without a matrix."""
        weights = self.weighted(np.ones(len(self.labels)))
        powers = self._transposed, self._transposed.multiply(self._transposed), abs(self._transposed)
        sums, squares, magnitudes = (np.append(values @ weights, weights.sum()) for values in powers)
        return sums, squares, magnitudes

    def block_grams(
        self, values: NDArray[np.float64], blocks: Sequence[slice], origin: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Without what is between the blocks."""
        grams = [_sparse_gram(self._transposed[block], values) for block in blocks]
        return moved_grams(np.concatenate([gram.ravel() for gram in grams]), blocks, origin)

    @property
    def entries(self) -> int:
        """Those that are not zero, and the ones."""
        return self._features.nnz + len(self.labels)

    def content(self) -> Iterable[NDArray[Any]]:
        """The stored entries and where they stand."""
        return self._features.data, self._features.indices, self._features.indptr


def _sparse_gram(transposed: Any, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """`Xᵀ diag(v) X`, (D, D), of features (d, n) and a 1."""
    size = transposed.shape[0]
    gram = np.empty((size + 1, size + 1))
    gram[:-1, :-1] = (transposed.multiply(values) @ transposed.T).toarray()
    gram[-1, :-1] = gram[:-1, -1] = transposed @ values
    gram[-1, -1] = values.sum()
    return gram
