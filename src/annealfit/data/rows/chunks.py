"""Chunks of rows: the products and sums that objectives are made of, for dense and sparse features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array

NEIGHBOURS = 64  # rows that `Chunk.thinned` keeps together
_LANES = 16  # annealfit._support._vectors.LANES, which would load numba
_BLOCK_ROWS = 2**17  # numbers of a temporary array of column sums, 1 MB
_SAFE = 1e-12, 1e12  # distances from the centre whose squares can be summed in single precision
_ORDINARY = 1e-3, 1e3  # largest weights that need no rescaling in single precision


class Chunk(ABC):
    """Consecutive rows: features with a last column of ones (n, D), labels (n,) and weights (n,) or None.

    Chunks are compared by identity. A subclass implements `project`, `moments`, `gram`, `content` and `entries`.
    """

    labels: NDArray[np.intp]  # integers below the number of classes
    weights: Array | None
    start: int = 0  # position of the first row among all rows
    is_safe: bool = False  # whether single precision can hold the distances of all features from a centre

    @abstractmethod
    def project(self, weights: Array) -> Array:
        """Return the outputs `WᵀXᵀ` (O, n) of weights (D, O)."""

    @abstractmethod
    def moments(self, values: Array) -> Array:
        """Return `VX` (O, D) of values (O, n): sums over rows."""

    @abstractmethod
    def gram(self, values: Array | None = None) -> Array:
        """Return `Xᵀ diag(v) X` (D, D) of values (n,), or of ones."""

    @abstractmethod
    def content(self) -> Iterable[NDArray[Any]]:
        """Return the arrays that hold the features; their digest identifies the data of a checkpoint."""

    @property
    @abstractmethod
    def entries(self) -> int:
        """Number of stored feature values: the cost of a product for each output."""

    def exact_project(self, weights: Array) -> Array:
        """Return `project(weights)` in double precision."""
        return self.project(weights)

    def exact_moments(self, values: Array) -> Array:
        """Return `moments(values)` in double precision."""
        return self.moments(values)

    def block_grams(self, values: Array, blocks: Sequence[slice], origin: Array | None = None) -> list[Array]:
        """Return the diagonal blocks of `gram(values)` with features measured from `origin` (d,), values (n,) ≥ 0.

        Each block holds its features and the constant column.
        """
        whole = self.gram(values)
        parts = [whole[np.ix_(chosen, chosen)] for chosen in (np.r_[block, len(whole) - 1] for block in blocks)]
        return _shifted_grams(parts, blocks, origin)

    def squares(self, values: Array, origin: Array | None = None) -> Array:
        """Return `Σ v (x − o)²` of every feature (d,), measured from `origin` (d,), of values (n,) ≥ 0."""
        found = self._plain_squares(values)
        if origin is None:
            return found
        sums = self.moments(values[None])[0]
        return np.maximum(found + origin * (sums[-1] * origin - 2 * sums[:-1]), 0.0)

    def _plain_squares(self, values: Array) -> Array:
        return self.gram(values).diagonal()[:-1]

    def column_sums(self) -> Array:
        """Return weighted sums over rows of every column, its squares and its magnitudes (or upper bounds), (3, D)."""
        ones = self.weighted(np.ones(len(self.labels)))
        squares = np.append(self._plain_squares(ones), self.total_weight)
        return np.stack([self.moments(ones[None])[0], squares, np.sqrt(self.total_weight * squares)])

    def thinned(self, every: int) -> Chunk:
        """Return one group of 64 neighbouring rows in `every`; a chunk that cannot be thinned returns itself."""
        return self

    def weighted(self, values: NDArray[Any]) -> NDArray[Any]:
        """Multiply values (…, n) by the weights of the rows."""
        return values if self.weights is None else values * self.weights

    @property
    def total_weight(self) -> float:
        """Sum of the weights; the number of rows without weights."""
        return float(len(self.labels)) if self.weights is None else float(self.weights.sum())

    def class_weights(self, n_classes: int) -> Array:
        """Return the total weight of each class (C,)."""
        return np.bincount(self.labels, weights=self.weights, minlength=n_classes).astype(float)


def _shifted_grams(grams: Sequence[Array], blocks: Sequence[slice], origin: Array | None) -> list[Array]:
    """Return Gram matrices of `x − origin` and 1, from those of x and 1."""
    if origin is None:
        return list(grams)
    shifted = []
    for gram, block in zip(grams, blocks, strict=True):
        total, sums, shift = gram[-1, -1], gram[:-1, -1], origin[block]
        moved = gram.copy()
        moved[:-1, :-1] += np.outer(shift, total * shift - sums) - np.outer(sums, shift)
        moved[:-1, -1] -= total * shift
        moved[-1, :-1] = moved[:-1, -1]
        shifted.append(moved)
    return shifted


def dense_chunk(
    features: NDArray[Any], labels: NDArray[np.intp], weights: Array | None, start: int, centre: Array | None
) -> DenseChunk:
    """Return dense rows, with products in single precision if there is a centre."""
    if centre is None:
        return DenseChunk(features, labels, weights, start)
    return SingleChunk(features, labels, weights, centre, start)


class DenseChunk(Chunk):
    """Dense rows, copied once with the column of ones beside them; by default in double precision, as all results."""

    centre: Array | None = None

    def __init__(
        self,
        features: NDArray[Any],
        labels: NDArray[np.intp],
        weights: Array | None = None,
        start: int = 0,
        *,
        dtype: Any = np.float64,
    ) -> None:
        self._augmented = np.ones((len(features), features.shape[1] + 1), dtype)
        self._augmented[:, :-1] = features
        self.features = self._augmented[:, :-1]
        self.labels, self.weights, self.start = labels, weights, start

    def project(self, weights: Array) -> Array:
        """Return `WᵀXᵀ` (O, n)."""
        found = weights.T.astype(self._augmented.dtype, copy=False) @ self._augmented.T
        return found.astype(np.float64, copy=False)

    def moments(self, values: Array) -> Array:
        """Return `VX` (O, D)."""
        found = values.astype(self._augmented.dtype, copy=False) @ self._augmented
        return found.astype(np.float64, copy=False)

    def gram(self, values: Array | None = None) -> Array:
        """Return `Xᵀ diag(v) X` (D, D)."""
        left, dtype = self._augmented.T, self._augmented.dtype
        found = (left if values is None else left * values.astype(dtype, copy=False)) @ self._augmented
        if dtype == np.float64:
            return found
        exact = found.astype(np.float64)
        return (exact + exact.T) / 2

    def column_sums(self) -> Array:
        """Return weighted sums of the columns, their squares and magnitudes (3, D)."""
        total, size = np.zeros((3, self._augmented.shape[1])), self._augmented.shape[1]
        for first in range(0, len(self.labels), 1 + _BLOCK_ROWS // size):
            rows = slice(first, first + 1 + _BLOCK_ROWS // size)
            part = self._augmented[rows]
            own = np.ones(len(part)) if self.weights is None else self.weights[rows]
            with np.errstate(over="ignore", invalid="ignore"):  # squares of huge features: checked where they matter
                total += [own @ part, own @ np.square(part), own @ np.abs(part)]
        return total

    def block_grams(self, values: Array, blocks: Sequence[slice], origin: Array | None = None) -> list[Array]:
        """Compute the blocks only, in double precision."""
        from annealfit.data.rows import _kernels  # numba takes a moment to load

        features, start = np.ascontiguousarray(self._exact), self._start(origin)
        roots, grams = np.sqrt(values), [np.empty((block.stop - block.start + 1,) * 2) for block in blocks]
        for block, gram in zip(blocks, grams, strict=True):
            _kernels.gram_of_block(features, start, roots, block.start, block.stop, gram)
        return grams

    def squares(self, values: Array, origin: Array | None = None) -> Array:
        """Return `Σ v (x − o)²` of every feature (d,)."""
        from annealfit.data.rows import _kernels

        start, found = self._start(origin), np.zeros(self.features.shape[1])
        _kernels.add_squares(np.ascontiguousarray(self._exact), start, np.ascontiguousarray(values), found)
        return found

    def _start(self, origin: Array | None) -> Array:
        return np.zeros(self.features.shape[1]) if origin is None else origin

    def thinned(self, every: int) -> Chunk:
        """Return one group of 64 neighbouring rows in `every`."""
        groups = (self.start + np.arange(len(self.labels))) // NEIGHBOURS
        chosen = np.flatnonzero(groups % every == 0)
        weights = None if self.weights is None else self.weights[chosen]
        return dense_chunk(self.features[chosen], self.labels[chosen], weights, 0, self.centre)

    @property
    def _exact(self) -> Array:
        """The features in double precision, perhaps with the column of ones."""
        return self._augmented.astype(np.float64, copy=False)

    @property
    def entries(self) -> int:
        """Return n·D."""
        return len(self.labels) * (self.features.shape[1] + 1)

    def content(self) -> Iterable[NDArray[Any]]:
        """Return the features with the column of ones."""
        return (self._augmented,)


class SingleChunk(DenseChunk):
    """Dense rows whose outputs are computed from a copy in single precision, in half the time.

    The copy holds `x − centre` (n, d), so that features far from zero keep the digits by which rows differ. An output
    depends on its row alone, and sums over rows are in double precision: results do not depend on how rows are cut into
    chunks, beyond the rounding of double precision.
    """

    centre: Array

    def __init__(
        self, features: NDArray[Any], labels: NDArray[np.intp], weights: Array | None, centre: Array, start: int = 0
    ) -> None:
        self.features = np.ascontiguousarray(features)
        self.labels, self.weights, self.centre, self.start = labels, weights, centre, start

    @cached_property
    def _copy(self) -> NDArray[np.float32]:
        """`x − centre` in single precision, with columns of zeros up to a multiple of the vector length."""
        from annealfit.data.rows import _single_kernels

        copy = self._empty_copy()
        _single_kernels.subtract_centre(self.features, self.centre, copy)
        return copy

    def _empty_copy(self) -> NDArray[np.float32]:
        padded = -(-len(self.centre) // _LANES) * _LANES
        copy = np.empty((len(self.features), padded), np.float32)
        copy[:, len(self.centre) :] = 0.0
        return copy

    def project(self, weights: Array) -> Array:
        """Return `WᵀXᵀ` (O, n), right to about seven digits."""
        from annealfit.data.rows import _single_kernels

        largest = float(np.abs(weights[:-1]).max(initial=0.0))
        unit = 1.0 if largest == 0 or _ORDINARY[0] < largest < _ORDINARY[1] else largest
        factors = np.zeros((weights.shape[1], self._copy.shape[1]), np.float32)
        factors[:, : len(self.centre)] = (weights[:-1] / unit).T
        outputs = np.empty((weights.shape[1], len(self.labels)))
        _single_kernels.project_rows(self._copy, factors, unit, weights[-1] + self.centre @ weights[:-1], outputs)
        return outputs

    def moments(self, values: Array) -> Array:
        """Return `VX` (O, D), sums in double precision of features in single."""
        from annealfit.data.rows import _single_kernels

        size, sums = len(self.centre), np.zeros((len(values), self._copy.shape[1]))
        _single_kernels.add_moments(self._copy, np.ascontiguousarray(values), sums)
        found = np.empty((len(values), size + 1))
        found[:, -1] = values.sum(axis=1)
        found[:, :-1] = sums[:, :size] + found[:, -1:] * self.centre
        return found

    def exact_project(self, weights: Array) -> Array:
        """Return `WᵀXᵀ` (O, n) in double precision."""
        from annealfit.data.rows import _single_kernels

        outputs, factors = np.empty((weights.shape[1], len(self.labels))), np.ascontiguousarray(weights[:-1].T)
        _single_kernels.project_rows(np.ascontiguousarray(self._exact), factors, 1.0, weights[-1].copy(), outputs)
        return outputs

    def exact_moments(self, values: Array) -> Array:
        """Return `VX` (O, D) in double precision."""
        return np.column_stack([values @ self._exact, values.sum(axis=1)])

    def gram(self, values: Array | None = None) -> Array:
        """Return `Xᵀ diag(v) X` (D, D) in double precision."""
        values = np.ones(len(self.labels)) if values is None else values
        weighted = self._exact * values[:, None]
        gram = np.empty((len(self.centre) + 1,) * 2)
        gram[:-1, :-1] = weighted.T @ self._exact
        gram[-1, :-1] = gram[:-1, -1] = weighted.sum(axis=0)
        gram[-1, -1] = values.sum()
        return gram

    @cached_property
    def _columns(self) -> tuple[Array, Array]:
        """Column sums (3, d) and largest distances from the centre (d,); the same pass fills the copy."""
        from annealfit.data.rows import _single_kernels

        weights = np.ones(len(self.labels)) if self.weights is None else self.weights
        totals, farthest, copy = np.zeros((3, len(self.centre))), np.zeros(len(self.centre)), self._empty_copy()
        _single_kernels.add_columns(self.features, weights, self.centre, copy, totals, farthest)
        self.__dict__["_copy"] = copy
        return totals, farthest

    def column_sums(self) -> Array:
        """Return weighted sums of the columns, their squares and magnitudes (3, D)."""
        return np.column_stack([self._columns[0], np.full(3, self.total_weight)])

    @property
    def is_safe(self) -> bool:  # type: ignore[override]
        """Whether single precision can hold the distances of all features from the centre."""
        totals, farthest = self._columns
        within = (farthest == 0) | ((_SAFE[0] <= farthest) & (farthest <= _SAFE[1]))
        return bool(within.all() and np.isfinite(totals[0]).all())

    @property
    def _exact(self) -> Array:
        return self.features.astype(np.float64, copy=False)

    def content(self) -> Iterable[NDArray[Any]]:
        """Return the features."""
        return (self.features,)


class SparseChunk(Chunk):
    """Rows of a SciPy sparse array, in double precision; the column of ones is not stored."""

    def __init__(self, features: Any, labels: NDArray[np.intp], weights: Array | None = None, start: int = 0) -> None:
        from scipy.sparse import csr_array

        self._features = csr_array(features)
        self._transposed = self._features.T.tocsr()
        self._transposed.sum_duplicates()
        self.labels, self.weights, self.start = labels, weights, start

    def project(self, weights: Array) -> Array:
        """Return `WᵀXᵀ` (O, n)."""
        return np.ascontiguousarray((self._features @ weights[:-1] + weights[-1]).T)

    def moments(self, values: Array) -> Array:
        """Return `VX` (O, D)."""
        return np.column_stack([(self._transposed @ values.T).T, values.sum(axis=1)])

    def gram(self, values: Array | None = None) -> Array:
        """Return `Xᵀ diag(v) X` (D, D), dense."""
        return _sparse_gram(self._transposed, np.ones(len(self.labels)) if values is None else values)

    def column_sums(self) -> Array:
        """Return weighted sums of the columns, their squares and magnitudes (3, D)."""
        weights = self.weighted(np.ones(len(self.labels)))
        powers = self._transposed, self._powers(2), self._powers(1)
        return np.stack([np.append(values @ weights, weights.sum()) for values in powers])

    def block_grams(self, values: Array, blocks: Sequence[slice], origin: Array | None = None) -> list[Array]:
        """Compute the blocks only."""
        from annealfit.data.rows import _kernels

        columns, grams = self._transposed, [np.empty((block.stop - block.start + 1,) * 2) for block in blocks]
        for block, gram in zip(blocks, grams, strict=True):
            starts = columns.indptr[block.start : block.stop + 1].astype(np.intp)
            own = slice(starts[0], starts[-1])
            _kernels.gram_of_sparse_block(columns.data[own], columns.indices[own], starts - starts[0], values, gram)
        return _shifted_grams(grams, blocks, origin)

    def _plain_squares(self, values: Array) -> Array:
        return self._powers(2) @ values

    def _powers(self, exponent: int) -> Any:
        """Return the magnitudes of the features to a power (d, n)."""
        columns = self._transposed
        return type(columns)((np.abs(columns.data) ** exponent, columns.indices, columns.indptr), columns.shape)

    @property
    def entries(self) -> int:
        """Number of stored values and of ones."""
        return self._features.nnz + len(self.labels)

    def content(self) -> Iterable[NDArray[Any]]:
        """Return the stored values and their positions."""
        return self._features.data, self._features.indices, self._features.indptr


def _sparse_gram(transposed: Any, values: Array) -> Array:
    """Return `Xᵀ diag(v) X` (D, D) of features (d, n) and the constant column."""
    size = transposed.shape[0]
    gram = np.empty((size + 1, size + 1))
    gram[:-1, :-1] = (transposed.multiply(values) @ transposed.T).toarray()
    gram[-1, :-1] = gram[:-1, -1] = transposed @ values
    gram[-1, -1] = values.sum()
    return gram
