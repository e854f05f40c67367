"""What a network is shown while it is quantised: arrays or files, checked against its inputs, in batches."""

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
        missing = [name for name in inputs if name not in arrays]
        if missing or len(arrays) != len(inputs):
            raise InvalidInputError(
                f"the network has the inputs {list(inputs)} and the calibration {list(arrays)}; give each one's rows"
            )
        checked, fixed = {}, set()
        for name, kind in inputs.items():
            shape = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
            checked[name] = _checked(arrays[name], name, shape)
            if shape and shape[0] is not None and shape[0] > 0:
                fixed.add(shape[0])
        counts = {len(array) for array in checked.values()}
        if len(counts) > 1:
            raise InvalidInputError(f"calibration has different numbers of rows: {sorted(counts)}")
        batch = min(fixed, default=_ROWS_PER_BATCH)
        (count,) = counts
        if count < batch and fixed:
            raise InvalidInputError(f"the network reads {batch} rows at a time, and calibration has {count}")
        helper = onnx_module("onnx.helper")
        types = {name: np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)) for name, kind in inputs.items()}
        return cls(checked, types, batch, is_batch_fixed=bool(fixed))

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def batches(self) -> Iterator[dict[str, NDArray[Any]]]:
        """What the network is fed, in turn; of a fixed number of rows the rest that does not fill it is left out."""
        step = self.rows_per_batch
        whole = len(self) - len(self) % step if self.is_batch_fixed else len(self)
        for first in range(0, whole, step):
            rows = slice(first, min(first + step, whole))
            yield {name: np.ascontiguousarray(array[rows], self.types[name]) for name, array in self.arrays.items()}


def _arrays(given: Any, inputs: list[str]) -> dict[str, NDArray[Any]]:
    if isinstance(given, Mapping):
        return {name: _one_array(value) for name, value in given.items()}
    found = _read(given) if isinstance(given, str | os.PathLike) else np.asarray(given)
    if isinstance(found, np.ndarray):
        return {inputs[0]: found} if len(inputs) == 1 else {"(an array)": found}
    if len(found) == len(inputs) == 1:
        return {inputs[0]: next(iter(found.values()))}
    return {name: found[name] for name in inputs if name in found}


def _one_array(value: Any) -> NDArray[Any]:
    found = _read(value) if isinstance(value, str | os.PathLike) else np.asarray(value)
    if isinstance(found, np.ndarray):
        return found
    raise InvalidInputError(f"{os.fspath(value)} holds {len(found)} arrays; give one array for each input")


def _read(path: str | os.PathLike[str]) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """The array of an npy file, or those of an npz file; nothing is unpickled."""
    name = os.fspath(path)
    if Path(path).suffix.lower() not in (".npy", ".npz"):
        raise InvalidInputError(f"{name} is neither an npy nor an npz file; write calibration rows with numpy.save")
    try:
        if Path(path).suffix.lower() == ".npy":
            return np.load(name, mmap_mode="r", allow_pickle=False)
        return dict(read_arrays(path))
    except FileFormatError:
        raise
    except (ValueError, EOFError, KeyError) as error:
        raise FileFormatError(f"{name} is not a file of plain NumPy arrays ({error})") from error


def _checked(array: NDArray[Any], name: str, shape: list[int | None]) -> NDArray[Any]:
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"calibration is an array of {array.dtype}; expected numbers")
    wanted = f"({', '.join('N' if size is None or k == 0 else str(size) for k, size in enumerate(shape))})"
    fits = len(shape) == array.ndim and all(
        size is None or size == found for size, found in list(zip(shape, array.shape, strict=True))[1:]
    )
    if shape and not fits:
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
    return array
