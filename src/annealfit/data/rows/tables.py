"""Tables that need not fit into memory: any object with a shape and row slices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit._support.files import StrPath


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


def read_slice(table: Any, first: int, last: int) -> NDArray[Any]:
    """Return rows first … last − 1 as an array: single precision is kept, integers become double."""
    source = _source(table)
    mapped = getattr(source, "_mmap", None)  # of an np.memmap
    if mapped is not None and mapped.size() < len(mapped):  # now, and when it was mapped
        raise InvalidInputError(f"{source.filename} became shorter while it was read; write it again, and train anew")
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


class NpyTable(SlicedTable):
    """The array of a .npy file, memory-mapped. Pickled, it is the path: the other process must see the same file."""

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)
        super().__init__(np.load(self.path, mmap_mode="r", allow_pickle=False))

    @classmethod
    def write(cls, path: StrPath, shape: tuple[int, ...], dtype: Any, blocks: Iterable[NDArray[Any]]) -> Self:
        """Write blocks of rows one after another; a full disk is an error, where writing to a map would kill."""
        with open(path, "wb") as file:
            described = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, described)
            for block in blocks:
                file.write(np.ascontiguousarray(block, dtype).tobytes())
        return cls(path)

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


def reading_lock(table: Any) -> AbstractContextManager[Any]:
    """Return a lock to hold while a slice is read; arrays need none, other objects may not be thread-safe."""
    return nullcontext() if isinstance(_source(table), np.ndarray) else threading.Lock()


def _source(table: Any) -> Any:
    while isinstance(table, SlicedTable):
        table = table.source
    return table
