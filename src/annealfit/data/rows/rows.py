"""Rows of features with labels and weights, in memory or streamed from a table in chunks.

An objective passes a *term* to `Rows.mean`: a function of one chunk that returns a tuple of sums over the rows of that
chunk. The result is the tuple of weighted means over all rows. So an objective does not depend on how many rows there
are, or where they are stored.
"""

from __future__ import annotations

import hashlib
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError
from annealfit._support.threads import WORTH_THREADS, in_order
from annealfit.data.rows.chunks import Chunk, SparseChunk, dense_chunk
from annealfit.data.rows.tables import check_table, read_slice, reading_lock

Term = Callable[[Chunk], tuple[Any, ...]]

ARITHMETICS = ("auto", "double", "numpy")
SINGLE_FEATURES = 100  # "auto" computes outputs in single precision from this many features on: docs/large.md
_CENTRE_ROWS = 15  # their median is the centre: outliers do not move it, and a constant feature is its own centre

# Features of a chunk: small enough to stay in the cache between the two products of a pass.
CHUNK_BYTES = 4 * 2**20
# The sums of a chunk are as large as the weights, and adding them costs as much as a few rows: so a chunk has at least
# this many rows, unless they are very wide.
FEWEST_ROWS, MOST_BYTES = 512, 32 * 2**20
_IN_MEMORY_KINDS = ("iloc", "__dataframe__", "__dask_graph__")  # data frames and Dask collections


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
        weight = self.total_weight
        return tuple([total / weight for total in self.sum(term)])

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


def checked_columns(chunk: Chunk) -> tuple[Array, bool]:
    """Return the column sums of dense rows, and whether single precision is safe; NaN and infinity are refused."""
    sums = chunk.column_sums()
    if not np.isfinite(sums[0]).all():
        (features,) = chunk.content()
        wrong = np.argwhere(~np.isfinite(features))
        if len(wrong):
            raise InvalidInputError(
                f"Input X contains NaN or infinity (in row {chunk.start + wrong[0, 0]}, column {wrong[0, 1]}); "
                "fill or leave out such rows"
            )
    return sums, chunk.is_safe


def rows_of(
    features: Any, labels: NDArray[np.intp], n_classes: int, weights: Array | None = None, *, arithmetic: str = "auto"
) -> Rows:
    """Return rows in memory or streamed, by the kind of the features."""
    kind = ChunkedRows if is_out_of_core(features) else InMemoryRows
    return kind(features, labels, n_classes, weights, arithmetic=arithmetic)


class TableRows(Rows):
    """Features (N, d) of any kind, with labels (N,) and optional weights (N,) in memory."""

    _bounds: list[tuple[int, int]]  # first and last + 1 of every chunk
    _centre: Array | None = None  # of single-precision copies

    def __init__(
        self, features: Any, labels: NDArray[np.intp], n_classes: int, weights: Array | None, arithmetic: str
    ) -> None:
        self._features, self._labels, self._weights, self._arithmetic = features, labels, weights, arithmetic
        self.n_parameters, self.n_classes = features.shape[1] + 1, n_classes
        self.total_weight = float(len(labels)) if weights is None else float(weights.sum())
        self.entries = len(labels) * self.n_parameters

    @cached_property
    def class_shares(self) -> Array:
        """Share of each class in the total weight (C,)."""
        return np.bincount(self._labels, weights=self._weights, minlength=self.n_classes) / self.total_weight

    def chunks(self) -> Iterable[Chunk]:
        """Return the rows in their order, each chunk read when it is needed."""
        return map(self._chunk, self._bounds)

    def sum(self, term: Term) -> tuple[Any, ...]:
        """Return the sums over all chunks, added in their order; chunks are read and summed in threads."""
        keep_memory()
        return add_up(in_order(lambda bounds: term(self._chunk(bounds)), self._bounds))

    def sample(self, count: int) -> Rows:
        """Return rows drawn at random, in their order, in memory."""
        if self.chunks_are_cached and len(self._labels) <= count:
            return self
        chosen = drawn_positions(len(self._labels), count)
        weights = None if self._weights is None else self._weights[chosen]
        given = self._read_at(chosen), self._labels[chosen], self.n_classes, weights
        return InMemoryRows(*given, arithmetic=self._arithmetic)

    def digest(self) -> str:
        """Return a SHA-256 of all features, then labels, then weights: independent of the chunks."""
        features = (array for bounds in self._bounds for array in digested(self._read(bounds)))
        return digest_of(chain(features, [self._labels], () if self._weights is None else [self._weights]))

    def _begin_single(self) -> None:
        """Choose the centre if outputs may be computed in single precision."""
        if self._arithmetic == "auto" and self.n_parameters > SINGLE_FEATURES:
            self._centre = centre_of(self._read_at(centre_positions(len(self._labels))))

    def _chunk(self, bounds: tuple[int, int]) -> Chunk:
        part = slice(*bounds)
        weights = None if self._weights is None else self._weights[part]
        return dense_chunk(self._read(bounds), self._labels[part], weights, bounds[0], self._centre)

    def _read(self, bounds: tuple[int, int]) -> NDArray[Any]:
        return self._features[slice(*bounds)]

    def _read_at(self, chosen: NDArray[np.intp]) -> Any:
        return self._features[chosen]


class InMemoryRows(TableRows):
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

        super().__init__(features, labels, n_classes, weights, arithmetic)
        if issparse(features):
            self._chunks: list[Chunk] = [SparseChunk(features, labels, weights)]
            self.entries = self._chunks[0].entries
            return
        self._features = np.ascontiguousarray(features, dtype=np.float64)
        is_whole = arithmetic == "numpy" or features.size * n_classes < WORTH_THREADS
        step = len(labels) if is_whole else rows_at_once(self._features, n_classes)
        self._bounds = chunk_bounds(self._features, n_classes, step)
        self._begin_single()
        self._chunks = [self._chunk(bounds) for bounds in self._bounds]
        self.is_single = self._centre is not None and all(in_order(lambda chunk: chunk.is_safe, self._chunks))
        if self._centre is not None and not self.is_single:
            self._centre = None
            self._chunks = [self._chunk(bounds) for bounds in self._bounds]

    def chunks(self) -> Iterable[Chunk]:
        """Return the rows in their order."""
        return self._chunks

    def sum(self, term: Term) -> tuple[Any, ...]:
        """Return the sums over all chunks in their order; large data has several, which are processed in threads."""
        keep_memory()
        return add_up(in_order(term, self._chunks)) if len(self._chunks) > 1 else term(self._chunks[0])

    def digest(self) -> str:
        """Return a SHA-256 of all features, then labels, then weights: independent of the chunks."""
        return Rows.digest(self) if isinstance(self._chunks[0], SparseChunk) else super().digest()


def digested(features: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the features as digests contain them: with a column of ones below 100 features, as in 0.1.0."""
    for first in range(0, len(features), 2**14):
        part = features[first : first + 2**14]
        yield np.column_stack([part, np.ones(len(part))]) if features.shape[1] < SINGLE_FEATURES else part


class ChunkedRows(TableRows):
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
        super().__init__(features, labels, n_classes, weights, arithmetic)
        self._bounds = chunk_bounds(features, n_classes, chunk_rows or rows_at_once(features, n_classes))
        self._lock = reading_lock(features)
        self._begin_single()
        sums, safe = self.sum(checked_columns)
        self.columns = float(len(labels)), sums
        self.is_single = safe == len(self._bounds)
        if not self.is_single:
            self._centre = None

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


# How tables are told apart and cut into chunks


def is_dask(value: Any) -> bool:
    """Whether a value is a Dask collection, without importing Dask."""
    return hasattr(value, "__dask_graph__")


def is_out_of_core(table: Any) -> bool:
    """Whether a table is read in slices: a memory-mapped array, or an object of HDF5's or zarr's kind.

    >>> from annealfit.data.rows.tables import SlicedTable
    >>> is_out_of_core(np.zeros((3, 2))), is_out_of_core(SlicedTable(np.zeros((3, 2))))
    (False, True)
    """
    if isinstance(table, np.ndarray):
        below: Any = table  # scikit-learn passes on plain views of memory maps
        while isinstance(below, np.ndarray):
            below = below.base
        return isinstance(below, mmap.mmap)
    from scipy.sparse import issparse  # here: modules that only name tables do not wait for SciPy

    if issparse(table) or any(hasattr(table, name) for name in _IN_MEMORY_KINDS):
        return False
    return all(hasattr(table, name) for name in ("shape", "dtype", "__getitem__"))


def chunk_bounds(table: Any, n_outputs: int, chunk_rows: int | None = None) -> list[tuple[int, int]]:
    """Return (first, last) of every chunk; by default features and outputs of a chunk take at most `CHUNK_BYTES`."""
    step = chunk_rows or max(64, CHUNK_BYTES // _bytes_of_a_row(table, n_outputs))
    return list(pairwise([*range(0, table.shape[0], step), table.shape[0]]))


def rows_at_once(table: Any, n_classes: int) -> int:
    """Return the rows of a chunk in training, where up to three outputs per class are computed for each row."""
    row = _bytes_of_a_row(table, 3 * n_classes)
    return max(CHUNK_BYTES // row, min(FEWEST_ROWS, MOST_BYTES // row), 1)


def _bytes_of_a_row(table: Any, n_outputs: int) -> int:
    """Return the larger of the bytes of a row's features and of its outputs."""
    return max((4 if np.dtype(table.dtype) in (np.float16, np.float32) else 8) * table.shape[1], 8 * n_outputs)


@cache
def keep_memory() -> None:
    """Keep the C library (glibc) from returning the memory of every chunk to the system.

    glibc returns free memory beyond twice the largest piece that was ever freed, and mapping new pages for every chunk
    takes a third of the time of a line search. Allocating and freeing a larger piece once, which is never written to,
    raises that limit for the process.
    """
    np.empty(4 * CHUNK_BYTES, np.uint8)
