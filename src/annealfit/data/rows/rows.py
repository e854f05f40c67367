"""Rows of features with labels and weights, in memory or streamed from a table in chunks.

An objective passes a *term* to `Rows.mean`: a function of one chunk that returns a tuple of sums over the rows of that
chunk. The result is the tuple of weighted means over all rows. So an objective does not depend on how many rows there
are, or where they are stored.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError
from annealfit._support.threads import WORTH_THREADS, in_order
from annealfit.data.rows.chunks import NEIGHBOURS, Chunk, DenseChunk, SingleChunk, SparseChunk
from annealfit.data.rows.tables import (
    check_table,
    chunk_bounds,
    is_out_of_core,
    keep_memory,
    read_slice,
    reading_lock,
    rows_at_once,
)

Term = Callable[[Chunk], tuple[Any, ...]]

ARITHMETICS = ("auto", "double", "numpy")
SINGLE_FEATURES = 100  # "auto" computes outputs in single precision from this many features on: docs/large.md
_CENTRE_ROWS = 15  # their median is the centre: outliers do not move it, and a constant feature is its own centre


class Rows(ABC):
    """All rows. A subclass has `n_parameters`, `n_classes` and implements `chunks`.

    Rows on other machines also override `sum`, and send the term there.
    """

    n_parameters: int  # D: features and 1
    n_classes: int  # C
    chunks_are_cached: bool = True  # False: chunks are read anew at every pass, so per-chunk results are not kept
    is_single: bool = False  # whether outputs are computed in single precision
    is_checked: bool = False  # whether sizes and labels were checked when the rows were made

    @property
    def classes(self) -> NDArray[Any]:
        """Labels that 0 … C − 1 stand for, sorted, (C,)."""
        return np.arange(self.n_classes)

    @abstractmethod
    def chunks(self) -> Iterable[Chunk]:
        """Return the rows in chunks, in the same order at every call."""

    def sample(self, count: int) -> Rows:
        """Return about `count` rows, always the same ones, where there are more and it is cheap; else all."""
        return self

    def sum(self, term: Term) -> tuple[Any, ...]:
        """Return the sums over all chunks of the values of the term."""
        return add_up(map(term, self.chunks()))

    def mean(self, term: Term) -> tuple[Any, ...]:
        """Return the weighted means over all rows of what the term sums."""
        return tuple(total / self.total_weight for total in self.sum(term))

    @cached_property
    def columns(self) -> tuple[float, Array]:
        """Number of rows, and weighted sums of columns, their squares and their magnitudes (3, D)."""
        count, sums = self.sum(lambda chunk: (len(chunk.labels), chunk.column_sums()))
        return float(count), np.asarray(sums)

    @cached_property
    def total_weight(self) -> float:
        """Total weight of all rows; their number without weights."""
        return self.sum(lambda chunk: (chunk.total_weight,))[0]

    @cached_property
    def entries(self) -> int:
        """Number of stored feature values."""
        return self.sum(lambda chunk: (chunk.entries,))[0]

    @cached_property
    def class_shares(self) -> Array:
        """Share of each class in the total weight (C,)."""
        return self.mean(lambda chunk: (chunk.class_weights(self.n_classes),))[0]

    def digest(self) -> str:
        """Return a SHA-256 of features, labels and weights, chunk by chunk."""
        return digest_of(
            array
            for chunk in self.chunks()
            for array in (*chunk.content(), chunk.labels, *(() if chunk.weights is None else (chunk.weights,)))
        )


def add_up(found: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the sums of tuples, in the order given."""
    total: tuple[Any, ...] | None = None
    for one in found:
        total = one if total is None else tuple(a + b for a, b in zip(total, one, strict=True))
    assert total is not None, "there is at least one row"
    return total


def digest_of(arrays: Iterable[NDArray[Any]]) -> str:
    """Return the SHA-256 of the bytes of arrays, integers as 64-bit."""
    found = hashlib.sha256()
    for array in arrays:
        numbers = array.astype(np.int64, copy=False) if array.dtype.kind in "iu" else array
        found.update(np.ascontiguousarray(numbers).tobytes())
    return found.hexdigest()


def thinning(count: float, fewest: int) -> int:
    """Return k such that one group of 64 rows in k leaves at least `fewest` of `count` rows; 1 keeps all.

    >>> thinning(1000, 2000), thinning(3_000_000, 2**20)
    (1, 2)
    """
    return max(int(count) // (fewest + NEIGHBOURS), 1)


def drawn_positions(total: int, count: int) -> NDArray[np.intp]:
    """Return `count` of `total` positions drawn at random, sorted, the same at every call; all if there are fewer."""
    return np.arange(total) if total <= count else np.sort(np.random.default_rng(0).choice(total, count, replace=False))


def centre_positions(total: int) -> NDArray[np.intp]:
    """Return the positions of the rows whose median is the centre of single-precision copies."""
    return np.arange(0, total, -(-total // _CENTRE_ROWS))


def centre_of(features: NDArray[Any]) -> Array:
    """Return the median of rows in double precision."""
    with np.errstate(over="ignore", invalid="ignore"):  # huge features are found unsafe later
        return np.median(features.astype(np.float64, copy=False), axis=0)


def rows_of(
    features: Any, labels: NDArray[np.intp], n_classes: int, weights: Array | None = None, *, arithmetic: str = "auto"
) -> Rows:
    """Return rows in memory or streamed, by the kind of the features."""
    kind = ChunkedRows if is_out_of_core(features) else InMemoryRows
    return kind(features, labels, n_classes, weights, arithmetic=arithmetic)


class InMemoryRows(Rows):
    """Features (N, d), a NumPy array or a SciPy sparse array, with labels (N,) and optional weights (N,).

    `arithmetic` is "auto" (single-precision products from 100 features on, see `SingleChunk`), "double", or "numpy"
    (double; used for bit-for-bit equality with `annealfit.paper`).

    >>> rows = InMemoryRows(np.array([[1.0], [3.0]]), np.array([0, 1]), n_classes=2)
    >>> rows.n_parameters, rows.total_weight, rows.class_shares.tolist()
    (2, 2.0, [0.5, 0.5])
    """

    def __init__(
        self,
        features: Any,
        labels: NDArray[np.intp],
        n_classes: int,
        weights: Array | None = None,
        *,
        arithmetic: str = "auto",
    ) -> None:
        from scipy.sparse import issparse  # here: modules that only name rows do not wait for SciPy

        self._features, self._labels, self._weights, self._arithmetic = features, labels, weights, arithmetic
        self.n_parameters, self.n_classes = features.shape[1] + 1, n_classes
        self._samples: dict[int, Rows] = {}
        if issparse(features):
            self._chunks: list[Chunk] = [SparseChunk(features, labels, weights)]
            return
        self._features = np.ascontiguousarray(features, dtype=np.float64)
        is_whole = arithmetic == "numpy" or features.size * n_classes < WORTH_THREADS
        step = len(labels) if is_whole else rows_at_once(self._features, n_classes)
        bounds = chunk_bounds(self._features, n_classes, step)
        if arithmetic == "auto" and features.shape[1] >= SINGLE_FEATURES:
            centre = centre_of(self._features[centre_positions(len(labels))])
            single = [SingleChunk(*self._part(each), centre, each[0]) for each in bounds]
            self.is_single = all(in_order(lambda chunk: chunk.is_safe, single))
            self._chunks = list(single)
        if not self.is_single:
            self._chunks = [DenseChunk(*self._part(each), each[0]) for each in bounds]

    def _part(self, bounds: tuple[int, int]) -> tuple[Array, NDArray[np.intp], Array | None]:
        part = slice(*bounds)
        return self._features[part], self._labels[part], None if self._weights is None else self._weights[part]

    def chunks(self) -> Iterable[Chunk]:
        """Return the rows in their order."""
        return self._chunks

    def sum(self, term: Term) -> tuple[Any, ...]:
        """Return the sums over all chunks in their order; large data has several, which are processed in threads."""
        keep_memory()
        return add_up(in_order(term, self._chunks)) if len(self._chunks) > 1 else term(self._chunks[0])

    @cached_property
    def entries(self) -> int:
        """Number of stored feature values."""
        return sum(chunk.entries for chunk in self._chunks)

    def sample(self, count: int) -> Rows:
        """Return rows drawn at random, in their order."""
        if len(self._labels) <= count:
            return self
        if count not in self._samples:
            chosen = drawn_positions(len(self._labels), count)
            weights = None if self._weights is None else self._weights[chosen]
            self._samples[count] = InMemoryRows(
                self._features[chosen], self._labels[chosen], self.n_classes, weights, arithmetic=self._arithmetic
            )
        return self._samples[count]

    def digest(self) -> str:
        """Return a SHA-256 of all features, then labels, then weights: independent of the chunks."""
        weights = () if self._weights is None else (self._weights,)
        if isinstance(self._chunks[0], SparseChunk):
            return digest_of([*self._chunks[0].content(), self._labels, *weights])
        return digest_of([*digested(self._features), self._labels, *weights])


def digested(features: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the features as digests contain them: with a column of ones below 100 features, as in 0.1.0."""
    for first in range(0, len(features), 2**14):
        part = features[first : first + 2**14]
        yield np.column_stack([part, np.ones(len(part))]) if features.shape[1] < SINGLE_FEATURES else part


class ChunkedRows(Rows):
    """Rows streamed from a table: any object with a shape and row slices. Labels (N,) and weights (N,) are in memory.

    Chunks are read and summed in threads, and the sums are added in the order of the chunks. Memory is used for a few
    chunks only. The arithmetic is that of `InMemoryRows`: results agree to the rounding of double precision.

    >>> rows = ChunkedRows(np.array([[1.0], [3.0], [2.0]]), np.array([0, 1, 1]), n_classes=2, chunk_rows=2)
    >>> len(list(rows.chunks())), rows.sum(lambda chunk: (chunk.moments(np.ones((1, len(chunk.labels)))),))
    (2, (array([[6., 3.]]),))
    """

    chunks_are_cached = False

    def __init__(
        self,
        features: Any,
        labels: NDArray[np.intp],
        n_classes: int,
        weights: Array | None = None,
        *,
        arithmetic: str = "auto",
        chunk_rows: int | None = None,
    ) -> None:
        check_table(features)
        self._features, self._labels, self._weights = features, labels, weights
        self.n_parameters, self.n_classes = features.shape[1] + 1, n_classes
        self._arithmetic = arithmetic
        self._bounds = chunk_bounds(features, n_classes, chunk_rows or rows_at_once(features, n_classes))
        self._lock = reading_lock(features)
        self._centre: Array | None = None
        if arithmetic == "auto" and features.shape[1] >= SINGLE_FEATURES:
            self._centre = centre_of(self._read_at(centre_positions(len(labels))))
        _ = self.columns  # the first pass: column sums, and whether all features are finite

    def chunks(self) -> Iterable[Chunk]:
        """Return the rows in their order, each chunk read when it is needed."""
        return map(self._chunk, self._bounds)

    def sum(self, term: Term) -> tuple[Any, ...]:
        """Return the sums over all chunks, added in their order."""
        keep_memory()
        return add_up(in_order(lambda bounds: term(self._chunk(bounds)), self._bounds))

    @cached_property
    def columns(self) -> tuple[float, Array]:
        """Number of rows and column sums; decides on single precision and refuses NaN and infinity."""

        def term(chunk: Chunk) -> tuple[Array, int]:
            return chunk.column_sums(), int(isinstance(chunk, SingleChunk) and chunk.is_safe)

        sums, safe = self.sum(term)
        if not np.isfinite(sums[0]).all():
            self._check_finite()
        self.is_single = safe == len(self._bounds)
        if not self.is_single:
            self._centre = None
        return float(len(self._labels)), sums

    def _check_finite(self) -> None:
        for first, last in self._bounds:
            wrong = np.argwhere(~np.isfinite(self._read((first, last))))
            if len(wrong):
                raise InvalidInputError(
                    f"Input X contains NaN or infinity (the first in row {first + wrong[0, 0]}, column {wrong[0, 1]}); "
                    "fill or leave out such rows"
                )

    def sample(self, count: int) -> Rows:
        """Return rows drawn at random, in their order, in memory."""
        chosen = drawn_positions(len(self._labels), count)
        weights = None if self._weights is None else self._weights[chosen]
        return InMemoryRows(
            self._read_at(chosen), self._labels[chosen], self.n_classes, weights, arithmetic=self._arithmetic
        )

    @cached_property
    def total_weight(self) -> float:
        """Total weight of all rows."""
        return float(len(self._labels)) if self._weights is None else float(self._weights.sum())

    @cached_property
    def entries(self) -> int:
        """Number of feature values and ones."""
        return len(self._labels) * self.n_parameters

    @cached_property
    def class_shares(self) -> Array:
        """Share of each class in the total weight (C,)."""
        counts = np.bincount(self._labels, weights=self._weights, minlength=self.n_classes)
        return counts / self.total_weight

    def digest(self) -> str:
        """Return the digest that the same rows have in memory."""
        weights = () if self._weights is None else (self._weights,)
        features = (array for bounds in self._bounds for array in digested(self._read(bounds)))
        return digest_of(chain(features, [self._labels, *weights]))

    def _chunk(self, bounds: tuple[int, int]) -> Chunk:
        part = slice(*bounds)
        weights = None if self._weights is None else self._weights[part]
        features = self._read(bounds)
        if self._centre is None:
            return DenseChunk(features, self._labels[part], weights, bounds[0])
        return SingleChunk(features, self._labels[part], weights, self._centre, bounds[0])

    def _read(self, bounds: tuple[int, int]) -> NDArray[Any]:
        with self._lock:
            return read_slice(self._features, *bounds)

    def _read_at(self, chosen: NDArray[np.intp]) -> NDArray[Any]:
        """Return the rows at sorted positions, read slice by slice."""
        found = []
        for first, last in self._bounds:
            own = chosen[np.searchsorted(chosen, first) : np.searchsorted(chosen, last)]
            if len(own):
                found.append(self._read((int(own[0]), int(own[-1]) + 1))[own - own[0]])
        return np.concatenate(found)
