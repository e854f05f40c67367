"""Calibration rows of a network: arrays or files, checked against its inputs, in batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit._support.files import read_arrays
from annealfit.quantization.onnx_graph import OnnxGraph, onnx_module

_ROWS_PER_BATCH = 256


@dataclass(frozen=True, eq=False)
class Calibration:
    """Rows for every input of a network."""

    arrays: Mapping[str, NDArray[Any]]  # by the input's name
    types: Mapping[str, np.dtype[Any]]  # that the network reads
    rows_per_batch: int
    is_batch_fixed: bool  # the network reads just so many rows at a time

    @classmethod
    def of(cls, given: Any, network: OnnxGraph) -> Calibration:
        """The rows that were given as an array, an npy or npz file, or a mapping of inputs' names to these."""
        inputs = {value.name: value.type.tensor_type for value in network.inputs}
        arrays = _arrays(given, list(inputs))
        if set(arrays) != set(inputs):
            raise InvalidInputError(
                f"the network has the inputs {list(inputs)} and the calibration {list(arrays)}; give each one's rows"
            )
        fixed = set()
        for name, kind in inputs.items():
            shape = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
            _check(arrays[name], name, shape)
            fixed |= {size for size in shape[:1] if size}
        counts = {len(array) for array in arrays.values()}
        if len(counts) > 1:
            raise InvalidInputError(f"calibration has different numbers of rows: {sorted(counts)}")
        batch = min(fixed, default=_ROWS_PER_BATCH)
        if fixed and min(counts) < batch:
            raise InvalidInputError(f"the network reads {batch} rows at a time, and calibration has {min(counts)}")
        to_numpy = onnx_module("onnx.helper").tensor_dtype_to_np_dtype
        types = {name: np.dtype(to_numpy(kind.elem_type)) for name, kind in inputs.items()}
        return cls(arrays, types, batch, is_batch_fixed=bool(fixed))

    def batches(self) -> Iterator[dict[str, NDArray[Any]]]:
        """What the network is fed, in turn; of a fixed number of rows the rest that does not fill it is left out."""
        count, step = len(next(iter(self.arrays.values()))), self.rows_per_batch
        for first in range(0, count - count % step if self.is_batch_fixed else count, step):
            rows = slice(first, first + step)
            yield {name: np.ascontiguousarray(array[rows], self.types[name]) for name, array in self.arrays.items()}


def _arrays(given: Any, inputs: list[str]) -> dict[str, NDArray[Any]]:
    """Arrays by the names of inputs; a single array is that of a single input."""
    if not isinstance(given, Mapping):
        found = _read(given)
        if isinstance(found, np.ndarray):
            return {inputs[0] if len(inputs) == 1 else "(an array)": found}
        if len(found) == len(inputs) == 1:
            return dict(zip(inputs, found.values(), strict=True))
        return {name: found[name] for name in inputs if name in found}
    arrays = {name: _read(value) for name, value in given.items()}
    for name, found in arrays.items():
        if not isinstance(found, np.ndarray):
            raise InvalidInputError(
                f"{os.fspath(given[name])} holds {len(found)} arrays; give one array for each input"
            )
    return arrays


def _read(given: Any) -> Any:
    """An array as it is, the array of an npy file, or those of an npz file by name; nothing is unpickled."""
    if not isinstance(given, str | os.PathLike):
        return np.asarray(given)
    name, suffix = os.fspath(given), Path(given).suffix.lower()
    if suffix not in (".npy", ".npz"):
        raise InvalidInputError(f"{name} is neither an npy nor an npz file; write calibration rows with numpy.save")
    try:
        return np.load(name, mmap_mode="r", allow_pickle=False) if suffix == ".npy" else dict(read_arrays(given))
    except FileFormatError:
        raise
    except (ValueError, EOFError, KeyError) as error:
        raise FileFormatError(f"{name} is not a file of plain NumPy arrays ({error})") from error


def _check(array: NDArray[Any], name: str, shape: list[int | None]) -> None:
    """Refuse what an input of this shape, None where any length will do, cannot read."""
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"calibration is an array of {array.dtype}; expected numbers")
    sizes = list(zip(shape, array.shape, strict=False))[1:]
    if shape and (len(shape) != array.ndim or any(size not in (None, found) for size, found in sizes)):
        wanted = f"({', '.join('N' if size is None or k == 0 else str(size) for k, size in enumerate(shape))})"
        hint = "one row for each image, as the network reads it"
        fixed = [size for size in shape[1:] if size is not None]
        if len(fixed) == len(shape) - 1 and array.ndim and np.prod(fixed) == np.prod(array.shape[1:]):
            hint = f"reshape it: X.reshape(-1, {', '.join(map(str, fixed))})"
        raise InvalidInputError(
            f"calibration has shape {array.shape}; the network's input {name!r} is {wanted}: {hint}"
        )
    if len(array) == 0:
        raise InvalidInputError("calibration has no rows; some hundred are needed, better a thousand or more")
    if array.dtype.kind == "f" and not all(np.isfinite(array[k : k + 1024]).all() for k in range(0, len(array), 1024)):
        raise InvalidInputError("calibration holds NaN or infinity")
