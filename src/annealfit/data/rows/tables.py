"""Tables that need not fit into memory: any object with a shape and row slices."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit._support.files import StrPath

# Features of a chunk: small enough to stay in the cache between the two products of a pass.
CHUNK_BYTES = 4 * 2**20
# The sums of a chunk are as large as the weights, and adding them costs as much as a few rows: so a chunk has at least
# this many rows, unless they are very wide.
FEWEST_ROWS, MOST_BYTES = 512, 32 * 2**20
_IN_MEMORY_KINDS = ("iloc", "__dataframe__", "__dask_graph__")  # data frames and Dask collections


def is_dask(value: Any) -> bool:
    """Whether a value is a Dask collection, without importing Dask."""
    return hasattr(value, "__dask_graph__")


def is_out_of_core(table: Any) -> bool:
    """Whether a table is read in slices: a memory-mapped array, or an object of HDF5's or zarr's kind.

    >>> is_out_of_core(np.zeros((3, 2))), is_out_of_core(MappedTable(np.zeros((3, 2)), abs, 2, np.float64))
    (False, True)
    """
    if isinstance(table, np.ndarray):
        return _is_mapped(table)
    from scipy.sparse import issparse  # here: modules that only name tables do not wait for SciPy

    if issparse(table) or any(hasattr(table, name) for name in _IN_MEMORY_KINDS):
        return False
    return all(hasattr(table, name) for name in ("shape", "dtype", "__getitem__"))


def _is_mapped(array: Any) -> bool:
    """Whether an array is a view of a memory-mapped file (scikit-learn passes on plain views of them)."""
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
    """Return (first, last) of every chunk; by default features and outputs of a chunk take at most `CHUNK_BYTES`."""
    step = chunk_rows or max(64, CHUNK_BYTES // bytes_of_a_row(table, n_outputs))
    return list(pairwise([*range(0, table.shape[0], step), table.shape[0]]))


def bytes_of_a_row(table: Any, n_outputs: int) -> int:
    """Return the larger of the bytes of a row's features and of its outputs."""
    return max((4 if np.dtype(table.dtype) in (np.float16, np.float32) else 8) * table.shape[1], 8 * n_outputs)


def rows_at_once(table: Any, n_classes: int) -> int:
    """Return the rows of a chunk in training, where up to three outputs per class are computed for each row."""
    row = bytes_of_a_row(table, 3 * n_classes)
    return max(CHUNK_BYTES // row, min(FEWEST_ROWS, MOST_BYTES // row), 1)


def keep_memory() -> None:
    """Keep the C library (glibc) from returning the memory of every chunk to the system.

    glibc returns free memory beyond twice the largest piece that was ever freed, and mapping new pages for every chunk
    takes a third of the time of a line search. Allocating and freeing a larger piece, which is never written to, once
    per pass raises that limit at no cost.
    """
    np.empty(4 * CHUNK_BYTES, np.uint8)


def read_slice(table: Any, first: int, last: int) -> NDArray[Any]:
    """Return rows first … last − 1 as an array: single precision is kept, integers become double."""
    rows = np.asarray(table[first:last])
    if rows.dtype in (np.float32, np.float64):
        return rows.view(np.ndarray)
    return rows.astype(np.float32 if rows.dtype == np.float16 else np.float64)


class SlicedTable:
    """A table that is read in row slices only.

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
        """Return some of the rows as a table that can be sent to another process."""
        return Selection(self, np.arange(first, last))


class NpyTable(SlicedTable):
    """The array of a .npy file, memory-mapped. Pickled, it is the path: the other process must see the same file."""

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)
        super().__init__(np.load(self.path, mmap_mode="r", allow_pickle=False))

    def __reduce__(self) -> tuple[Any, ...]:
        return NpyTable, (self.path.resolve(),)


class Selection(SlicedTable):
    """Rows of a table at ascending positions.

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
        """Return some of the rows."""
        return Selection(self.source, self._positions[first:last])


class MappedTable(SlicedTable):
    """A table whose rows are computed from those of another table when they are read.

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
        """Return some of the rows."""
        whole = self.source if isinstance(self.source, SlicedTable) else SlicedTable(self.source)
        return MappedTable(whole.part(first, last), self._function, self.shape[1], self.dtype)


def reading_lock(table: Any) -> AbstractContextManager[Any]:
    """Return a lock to hold while a slice is read; arrays need none, other objects may not be thread-safe."""
    while isinstance(table, SlicedTable):
        table = table.source
    return nullcontext() if isinstance(table, np.ndarray) else threading.Lock()
