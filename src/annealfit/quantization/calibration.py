"""What a network is shown: rows for each of its inputs, from arrays or files, checked and cut into batches."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit._support.files import check_regular, read_arrays
from annealfit.quantization.onnx_graph import Feed, OnnxGraph

_ROWS_PER_BATCH, _BATCH_BYTES = 64, 1 << 28  # at most; bytes of all tensors inside the network
_LEAST_ROWS = 20  # of which some are held out


def batches_of(given: Any, network: OnnxGraph, apart: int = 0) -> tuple[list[Feed], list[Feed]]:
    """What the network is fed, in turn: of an array, an npy or npz file, or a mapping of inputs' names to these.

    Every `apart`-th row, or run of a fixed number of rows, goes into the second list, if there are enough. Batches are
    such that all tensors inside the network can be kept for one.

    Arrays have rows, as the network reads them. One with an axis more has a whole input for each run (the state of a
    recurrent network, say), and then rows are run one by one. A single number is the same in all runs. A network that
    reads a fixed number of rows at a time is not fed the rest that does not fill it.
    """
    shapes = {name: _shape_of(kind) for name, kind in network.inputs.items()}
    arrays = _arrays(given, list(shapes))
    if set(arrays) != set(shapes):
        raise InvalidInputError(
            f"the network has the inputs {list(shapes)} and the calibration {list(arrays)}; give each one's rows"
        )
    for name, shape in shapes.items():
        _check(arrays[name], name, shape)
    axes = {name: array.ndim if (shape := shapes[name]) is None else len(shape) for name, array in arrays.items()}
    same = {name: array for name, array in arrays.items() if array.ndim == 0}
    whole = {name: array for name, array in arrays.items() if array.ndim > axes[name]}
    rows = {name: array for name, array in arrays.items() if name not in whole | same}
    fixed = min((shape[0] for name in rows if (shape := shapes[name]) and shape[0]), default=None)
    step = fixed or 1
    counts = {name: len(array) // (fixed or 1) for name, array in rows.items()}
    counts |= {name: len(array) for name, array in whole.items()}
    if len(set(counts.values())) != 1:
        raise InvalidInputError(
            f"calibration has different numbers of rows: {sorted(counts.values())} ({', '.join(counts)}); an input "
            "that is no rows, such as a state, is given as one whole input for each row"
        )
    if 0 in counts.values():
        raise InvalidInputError(f"the network reads {fixed} rows at a time, and calibration has fewer")
    runs = np.arange(min(counts.values()))
    is_apart = (runs % apart == apart - 1) & (len(runs) >= _LEAST_ROWS) if apart else np.zeros(len(runs), dtype=bool)

    def feeds(chosen: NDArray[np.intp]) -> list[Feed]:
        places = (chosen[:, None] * (fixed or 1) + np.arange(fixed or 1)).ravel()
        return [
            {name: array[places[first : first + step]] for name, array in rows.items()}
            | {name: array[places[first] // step] for name, array in whole.items()}
            | same
            for first in range(0, len(places), step)
        ]

    if not (fixed or whole):
        size = sum(values.nbytes for values in all_tensors(network, feeds(runs[:1])[0]).values())
        step = int(np.clip(_BATCH_BYTES // size, 1, _ROWS_PER_BATCH))
    return feeds(runs[~is_apart]), feeds(runs[is_apart])


def all_tensors(network: OnnxGraph, feed: Feed) -> dict[str, NDArray[Any]]:
    """Everything that a network computes from a batch."""
    names = [name for node in network.graph.node for name in node.output if name]
    return dict(zip(names, network.runner(names)(feed), strict=True))


def rows_of(feed: Feed) -> int:
    """How many rows a batch has."""
    return max((len(values) for values in feed.values() if values.ndim), default=1)


def _shape_of(kind: Any) -> list[int | None] | None:
    """The lengths of an input's axes, None where any will do; None where the network does not say how many axes."""
    return [dim.dim_value if dim.dim_value > 0 else None for dim in kind.shape.dim] if kind.HasField("shape") else None


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
    check_regular(given)
    try:
        return np.load(name, mmap_mode="r", allow_pickle=False) if suffix == ".npy" else dict(read_arrays(given))
    except FileFormatError:
        raise
    except (ValueError, EOFError, KeyError) as error:
        raise FileFormatError(f"{name} is not a file of plain NumPy arrays ({error})") from error


def _check(array: NDArray[Any], name: str, shape: Sequence[int | None] | None) -> None:
    """Refuse what an input of this shape cannot read."""
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"calibration is an array of {array.dtype}; expected numbers")
    is_rows = shape is None or (array.ndim == len(shape) and _fits(array.shape[1:], shape[1:]))
    if shape is not None and not is_rows and not _fits(array.shape[1:], shape):
        wanted = f"({', '.join('N' if size is None or k == 0 else str(size) for k, size in enumerate(shape))})"
        hint = "one row for each image, as the network reads it"
        fixed = [size for size in shape[1:] if size is not None]
        if len(fixed) == len(shape) - 1 and array.ndim and np.prod(fixed) == np.prod(array.shape[1:]):
            hint = f"reshape it: X.reshape(-1, {', '.join(map(str, fixed))})"
        raise InvalidInputError(
            f"calibration has shape {array.shape}; the network's input {name!r} is {wanted}: {hint}"
        )
    if array.size == 0:
        raise InvalidInputError("calibration has no rows; some hundred are needed, better a thousand or more")
    parts = [array[first : first + 1024] for first in range(0, len(array), 1024)] if array.ndim else [array]
    if array.dtype.kind == "f" and not all(np.isfinite(part).all() for part in parts):
        raise InvalidInputError("calibration holds NaN or infinity")


def _fits(found: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(found) == len(wanted) and all(size in (None, own) for own, size in zip(found, wanted, strict=True))
