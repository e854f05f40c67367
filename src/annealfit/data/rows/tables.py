"""Tables that need not fit into memory: anything that has a shape and gives slices of its rows."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit._support.files import StrPath
from annealfit.data.rows import products
from annealfit.data.rows.base import Chunk, dense_column_sums

# Features of a chunk: small enough to stay in a processor's cache between the two products of a pass.
CHUNK_BYTES = 4 * 2**20
# The sums of a chunk are as large as the weights, and adding them to the others' costs what a few rows do: so chunks
# have so many rows, unless these are very wide.
FEWEST_ROWS, MOST_BYTES = 512, 32 * 2**20
_IN_MEMORY_KINDS = ("iloc", "__dataframe__", "__dask_graph__")  # data frames and Dask's collections have their own ways


def is_out_of_core(table: Any) -> bool:
    """Whether a table is read in slices: a memory-mapped array, or an object of HDF5's or zarr's kind.

    >>> is_out_of_core(np.zeros((3, 2))), is_out_of_core(MappedTable(np.zeros((3, 2)), abs, 2, np.float64))
    (False, True)
    """
    if isinstance(table, np.ndarray):
        return _is_mapped(table)
    from scipy.sparse import issparse  # here: what only names rows does not wait for SciPy

    if issparse(table) or any(hasattr(table, name) for name in _IN_MEMORY_KINDS):
        return False
    return all(hasattr(table, name) for name in ("shape", "dtype", "__getitem__"))


def _is_mapped(array: Any) -> bool:
    """Whether it is a view of a memory-mapped file: scikit-learn, for one, hands on views that do not say so."""
    below: Any = array
    while isinstance(below, np.ndarray):
        below = below.base
    return isinstance(below, mmap.mmap)


def check_table(table: Any, name: str = "X") -> None:
    """Raise unless the table has two dimensions and holds real numbers."""
    if len(table.shape) != 2:
        raise InvalidInputError(
            f"{name} has shape {tuple(table.shape)}; expected 2D: rows of features, or images as "
            "a feature extractor turns them into rows"
        )
    if min(table.shape) < 1:
        raise InvalidInputError(f"{name} has shape {tuple(table.shape)}; at least one row and one feature are needed")
    if np.dtype(table.dtype).kind not in "fiub":
        raise InvalidInputError(f"{name} has type {table.dtype}; expected real numbers")


def chunk_bounds(table: Any, n_outputs: int, chunk_rows: int | None = None) -> list[tuple[int, int]]:
    """Where chunks begin and end: their features, and their outputs, are at most `CHUNK_BYTES`."""
    step = chunk_rows or max(64, CHUNK_BYTES // bytes_of_a_row(table, n_outputs))
    return list(pairwise([*range(0, table.shape[0], step), table.shape[0]]))


def bytes_of_a_row(table: Any, n_outputs: int) -> int:
    """Of its features, or of its outputs if these are more, in the precision they are worked with."""
    return (4 if is_single(table) else 8) * max(table.shape[1], n_outputs)


def is_single(table: Any) -> bool:
    """Whether its rows are worked with in single precision."""
    return np.dtype(table.dtype) in (np.float16, np.float32)


def rows_at_once(table: Any, n_classes: int) -> int:
    """Rows of a chunk; the most that is worked out about one are outputs along three directions."""
    row = bytes_of_a_row(table, 3 * n_classes)
    return max(CHUNK_BYTES // row, min(FEWEST_ROWS, MOST_BYTES // row), 1)


def keep_memory() -> None:
    """Let what is worked out about a chunk be put where the last chunk's was.

    The C library (glibc) hands free memory back to the system where it is more than twice the largest piece that was
    ever freed, and new pages for every chunk take a third of a line search's time. So a larger piece is asked for, and
    freed, once per pass: not being written to, it costs nothing.
    """
    np.empty(4 * CHUNK_BYTES, np.uint8)


def read_slice(table: Any, first: int, last: int) -> NDArray[Any]:
    """Rows from first to last as an array: single precision stays so, whole numbers become double."""
    rows = np.asarray(table[first:last])
    if rows.dtype in (np.float32, np.float64):
        return rows.view(np.ndarray)
    return rows.astype(np.float32 if rows.dtype == np.float16 else np.float64)


class SlicedTable:
    """A table of which nothing is read before it is asked for, and then some rows at a time.

    >>> table = SlicedTable(np.arange(6).reshape(3, 2))
    >>> table.shape, table[1:2].tolist()
    ((3, 2), [[2, 3]])
    """

    def __init__(self, source: Any) -> None:
        self.source, self.shape, self.dtype = source, tuple(source.shape), np.dtype(source.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """Dimensions."""
        return len(self.shape)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return np.asarray(self.source[rows])

    def part(self, first: int, last: int) -> SlicedTable:
        """Some of the rows, as a table that knows no more than it needs: it may be sent far."""
        return Selection(self, np.arange(first, last))


class NpyTable(SlicedTable):
    """The array in a .npy file, memory-mapped; what is sent is the path, so the file has to be there as well."""

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)
        super().__init__(np.load(self.path, mmap_mode="r", allow_pickle=False))

    def __reduce__(self) -> tuple[Any, ...]:
        return NpyTable, (self.path.resolve(),)


class Selection(SlicedTable):
    """Some rows of a table, by their positions in ascending order.

    >>> Selection(np.arange(10)[:, None] * [1, 1], np.array([1, 4, 5, 8]))[1:3].tolist()
    [[4, 4], [5, 5]]
    """

    def __init__(self, source: Any, positions: NDArray[np.intp]) -> None:
        super().__init__(source)
        self._positions, self.shape = positions, (len(positions), *self.shape[1:])

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        chosen = self._positions[rows]
        if not len(chosen):
            return np.empty((0, *self.shape[1:]), self.dtype)
        first = int(chosen[0])
        return np.asarray(self.source[first : int(chosen[-1]) + 1])[chosen - first]

    def part(self, first: int, last: int) -> SlicedTable:
        """Some of the rows."""
        return Selection(self.source, self._positions[first:last])


class MappedTable(SlicedTable):
    """A table whose rows are made from another's when they are asked for.

    >>> MappedTable(np.array([[1.0], [2.0]]), lambda rows: 10 * rows, 1, np.float64)[1:2].tolist()
    [[20.0]]
    """

    def __init__(
        self, source: Any, function: Callable[[NDArray[Any]], NDArray[Any]], n_features: int, dtype: Any
    ) -> None:
        super().__init__(source)
        self._function, self.shape, self.dtype = function, (self.shape[0], n_features), np.dtype(dtype)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return self._function(np.asarray(self.source[rows]))

    def part(self, first: int, last: int) -> SlicedTable:
        """Some of the rows."""
        whole = self.source if isinstance(self.source, SlicedTable) else SlicedTable(self.source)
        return MappedTable(whole.part(first, last), self._function, self.shape[1], self.dtype)


def reading_lock(table: Any) -> AbstractContextManager[Any]:
    """What to hold while a slice is read: arrays can be read in several threads at once, of other objects who knows."""
    while isinstance(table, SlicedTable):
        table = table.source
    return nullcontext() if isinstance(table, np.ndarray) else threading.Lock()


class TableChunk(Chunk):
    """Rows as they are in a table, in their own precision: neither copied, nor is a column of ones written down.

    Products are in the rows' precision; what is summed over rows leaves the chunk in double precision.
    """

    def __init__(
        self, features: NDArray[Any], labels: NDArray[np.intp], weights: NDArray[np.float64] | None = None
    ) -> None:
        self.features, self.labels, self.weights = features, labels, weights
        if products.are_ours(features, n_outputs=2):
            products.compile_for(features.dtype)

    def parts(self, n_classes: int) -> list[Self]:
        """The same rows, few enough at a time for what is worked out about them to stay in the cache."""
        bounds = chunk_bounds(self.features, n_classes, rows_at_once(self.features, n_classes))
        parts = (slice(*each) for each in bounds)
        weights = self.weights
        return [
            type(self)(self.features[own], self.labels[own], None if weights is None else weights[own]) for own in parts
        ]

    def project(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """`WᵀXᵀ`, (O, n), in the rows' precision."""
        return _project(self.features, self._like(weights))

    def exact_project(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same in double precision."""
        return _project(self.features.astype(np.float64, copy=False), weights)

    def moments(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`VX`, (O, D)."""
        return self._moments(values, self._like(values))

    def exact_moments(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same in double precision."""
        return self._moments(values, values)

    def _moments(self, values: NDArray[np.float64], factors: NDArray[Any]) -> NDArray[np.float64]:
        found = np.empty((len(values), self.features.shape[1] + 1))
        found[:, :-1] = products.moments(self.features, factors)
        found[:, -1] = values.sum(axis=1)
        return found

    def gram(self, values: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """`Xᵀ diag(v) X`, (D, D)."""
        size = self.features.shape[1]
        weighed = self.features if values is None else self.features * self._like(values)[:, None]
        product = (weighed.T @ self.features).astype(np.float64)
        gram = np.empty((size + 1, size + 1))
        gram[:-1, :-1] = (product + product.T) / 2  # as symmetric as it would be in double precision
        gram[-1, :-1] = gram[:-1, -1] = weighed.sum(axis=0, dtype=np.float64)
        gram[-1, -1] = len(self.labels) if values is None else values.sum(dtype=np.float64)
        return gram

    def column_sums(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Without a matrix, in double precision."""
        found = dense_column_sums(self.features, self.weights)
        sums, squares, magnitudes = np.column_stack([found, np.full(3, self.total_weight)])
        return sums, squares, magnitudes

    def block_grams(
        self, values: NDArray[np.float64], blocks: Sequence[slice], origin: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Without what is between the blocks."""
        return products.block_grams(self.features, values, blocks, None if origin is None else self._like(origin))

    def weighted(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values (…, n), each multiplied by its row's weight, in the values' precision."""
        if self.weights is None:
            return values
        return values * (self._like(self.weights) if values.dtype == self.features.dtype else self.weights)

    @property
    def entries(self) -> int:
        """n·D."""
        return len(self.labels) * (self.features.shape[1] + 1)

    def content(self) -> Iterable[NDArray[Any]]:
        """The features."""
        return (self.features,)

    def _like(self, values: NDArray[Any]) -> NDArray[Any]:
        return values.astype(self.features.dtype, copy=False)


def _project(features: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    if not weights.any():  # as most trainings begin
        return np.zeros((weights.shape[1], len(features)), weights.dtype)
    outputs = products.project(features, weights[:-1].T)
    outputs += weights[-1][:, None]
    return outputs
