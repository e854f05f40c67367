"""quantize_network: all layers of an ONNX network, one after another, each with the inputs that it will see."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit._support.files import StrPath, check_regular, read_arrays, read_tensors, replacing
from annealfit._support.randomness import child_seed, seed_of
from annealfit._support.schema import Field, TensorFields, settings_of
from annealfit.data.features.onnx_files import damage_named, name_of, read_network
from annealfit.quantization.grids import Grid
from annealfit.quantization.methods import methods_of
from annealfit.quantization.moments import InputMoments, MomentSums
from annealfit.quantization.onnx_graph import Feed, OnnxGraph, WeightedNode, find_layers
from annealfit.quantization.packing import dequantized, pack_network, stored_bits, unpack_network
from annealfit.quantization.quantize import LayerInNetwork, QuantizedLayer, quantize_layers

KIND_OF_FILE = "quantized weights"
_FLOATS = ("<f4", "<f8", "<f2")  # types of weights

_ROWS_PER_BATCH = 64


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NetworkLayer(QuantizedLayer):
    """A quantised layer of a network; weights and bias have the shape and type of the network's constants."""

    name: str
    operator: str
    weight: str  # the constant's name in the network
    is_transposed: bool  # outputs come first in the constant

    @property
    def bytes_before(self) -> int:
        """Bytes of the weights as they were."""
        return self.weights.nbytes

    @property
    def bytes_after(self) -> int:
        """Bytes of levels and scales in the file."""
        return -(-self.levels.size * stored_bits(self.grid) // 8) + 4 * self.scales.size


@dataclass(frozen=True, eq=False)
class QuantizedNetwork:
    """A network with low-bit weights: as ONNX models with their values and with packed levels, and layer by layer."""

    model: Any  # onnx.ModelProto, with dequantised weights
    packed: Any  # the same network as it is written
    layers: tuple[NetworkLayer, ...]
    floats: Mapping[str, str]  # nodes whose weights stay float, and why
    bytes_before: int  # of the network as a file
    output_error: float  # relative squared error of the network's outputs on the calibration rows
    agreement: float | None  # share of these rows whose largest output is the same as before; None where it has none

    @property
    def bytes_after(self) -> int:
        """Bytes of the file that `save` writes."""
        return int(self.packed.ByteSize())

    def __iter__(self) -> Iterator[NetworkLayer]:
        return iter(self.layers)

    def save(self, path: StrPath) -> Path:
        """Write the packed network as an ONNX file."""
        if Path(path).suffix.lower() != ".onnx":
            raise InvalidInputError(f"{path} does not end in onnx, which is what is written")
        with replacing(path) as file:
            file.write(self.packed.SerializeToString())
        return Path(path)


def quantize_network(
    model: Any,
    calibration: Any,
    bits: int | Mapping[str, int] = 2,
    *,
    method: Any = "annealed",
    levels: str | Grid = "symmetric",
    group_size: int | None = None,
    damping: float = 0.0,
    keep: Sequence[str] = (),
    random_state: Any = 0,
    on_layer: Callable[[int, int, str], object] | None = None,
) -> QuantizedNetwork:
    """Quantise the weights of an ONNX network: of MatMul, Gemm and Conv, layer after layer.

    Every layer is given the inputs that the layers before it, quantised already, produce, and is to reproduce the
    outputs that it had in the network as it was. Everything else in the network stays as it is.

    Parameters
    ----------
    model : path, bytes or `onnx.ModelProto`
        The network.
    calibration : array, path of an npy or npz file, or a mapping of inputs' names to these
        What the network is shown: some hundred rows, better a thousand or more, as the network reads them.
    bits : int, or a mapping of layers' names to it
        A mapping has to name every layer that is not kept.
    method, levels, group_size, damping, random_state
        As in `quantize_layer`, for every layer.
    keep : sequence of str
        Names of nodes that stay as they are.
    on_layer : function or None
        Called before each layer with its number, how many there are, and its name.

    Returns
    -------
    QuantizedNetwork
        `.model` with dequantised weights, `.layers`, `.floats`, `.save(path)`. The written file is small, has the
        integers, and computes with exactly the same weights.

    """
    original, network = OnnxGraph(model), OnnxGraph(model)
    batches = _calibration_batches(calibration, original)
    nodes, floats = find_layers(network, keep)
    bits_of = _bits_of([node.name for node in nodes], bits, levels)
    methods_of(method)  # refuses what is none before anything is run
    settings = {"method": method, "levels": levels, "group_size": group_size, "damping": damping}
    seed, done = seed_of(random_state), list[NetworkLayer]()

    def put(node: WeightedNode, found: QuantizedLayer) -> None:
        done.append(_put(node, network, found))

    def layers() -> Iterator[LayerInNetwork]:
        for number, node in enumerate(nodes):
            if on_layer is not None:
                on_layer(number, len(nodes), node.name)
            own = {"bits": bits_of[node.name], "random_state": child_seed(seed, number) >> 32}  # 32 bits at most
            bias = None if node.bias is None else node.bias_factor * network.constant(node.bias).astype(float).ravel()
            yield LayerInNetwork(
                node.name,
                node.factor * node.matrix(network.constant(node.weight)).astype(float),
                bias,
                settings | own,
                moments=partial(_moments, node, original, network, batches),
                put=partial(put, node),
            )

    quantize_layers(layers())
    packed, large = pack_network(network.model, done)
    error, agreement = _compared(original, OnnxGraph(packed), batches)
    return QuantizedNetwork(network.model, packed, tuple(done), floats | large, original.n_bytes, error, agreement)


def _bits_of(names: Sequence[str], bits: Any, levels: str | Grid) -> Mapping[str, Any]:
    if not isinstance(bits, Mapping):
        Grid.of(bits, levels)  # refuses what is wrong
        return dict.fromkeys(names, bits)
    if set(bits) != set(names):
        raise InvalidInputError(f"bits are given for {sorted(bits)}; the layers to quantise are {sorted(names)}")
    return bits


def _moments(
    node: WeightedNode, original: OnnxGraph, network: OnnxGraph, batches: Sequence[Feed]
) -> list[InputMoments]:
    """The moments of what a node reads, now and before the layers below it were quantised: one for each group."""
    now, before = (graph.runner([node.source]) for graph in (network, original))
    sums = [MomentSums() for _ in range(node.n_groups)]
    for feed in batches:
        (seen,), (reference,) = now(feed), before(feed)
        for parts in zip(node.rows(seen), node.rows(reference), strict=True):
            for total, part, wanted in zip(sums, *parts, strict=True):
                total.add(part, wanted)
    return [total.moments() for total in sums]


def _put(node: WeightedNode, network: OnnxGraph, found: QuantizedLayer) -> NetworkLayer:
    """Put new weights and bias into the network: scales in single precision, and weights just those times levels."""
    scales, bias = (found.scales / node.factor).astype(np.float32), None
    values = dequantized(found.levels, scales, found.group_size)
    weights = node.constant(values).astype(network.constant(node.weight).dtype)
    network.set_constant(node.weight, weights)
    if node.bias is not None and found.bias is not None:
        old = network.constant(node.bias)
        bias = (found.bias / node.bias_factor).reshape(old.shape).astype(old.dtype)
        network.set_constant(node.bias, bias)
    own = {"name": node.name, "operator": node.operator, "weight": node.weight, "is_transposed": node.is_transposed}
    return NetworkLayer(**{**vars(found), **own, "weights": weights, "bias": bias, "scales": scales})


def _calibration_batches(given: Any, network: OnnxGraph) -> list[Feed]:
    """What the network is fed, in turn: of an array, an npy or npz file, or a mapping of inputs' names to these.

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
    step = fixed or (1 if whole else _ROWS_PER_BATCH)
    counts = {name: len(array) // (fixed or 1) for name, array in rows.items()}
    counts |= {name: len(array) for name, array in whole.items()}
    if len(set(counts.values())) != 1:
        raise InvalidInputError(
            f"calibration has different numbers of rows: {sorted(counts.values())} ({', '.join(counts)}); an input "
            "that is no rows, such as a state, is given as one whole input for each row"
        )
    if 0 in counts.values():
        raise InvalidInputError(f"the network reads {fixed} rows at a time, and calibration has fewer")
    count = min(counts.values()) * (fixed or 1)
    return [
        {name: array[first : first + step] for name, array in rows.items()}
        | {name: array[first // step] for name, array in whole.items()}
        | same
        for first in range(0, count, step)
    ]


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


def _compared(original: OnnxGraph, network: OnnxGraph, batches: Sequence[Feed]) -> tuple[float, float | None]:
    """The relative squared error of the outputs, and how often the largest one of a row stays the largest."""
    outputs = [value.name for value in original.graph.output]
    before, after = (graph.runner(outputs) for graph in (original, network))
    error, total, same, count = 0.0, 0.0, 0, 0
    for feed in batches:
        for was, now in zip(before(feed), after(feed), strict=True):
            if was.dtype.kind != "f":
                continue
            error += float(((now.astype(float) - was) ** 2).sum())
            total += float((was.astype(float) ** 2).sum())
            if was.ndim == 2 and was.shape[1] > 1:
                same += int((was.argmax(axis=1) == now.argmax(axis=1)).sum())
                count += len(was)
    return (error / total if total > 0 else 0.0), (same / count if count else None)


def read_packed_weights(path: StrPath) -> dict[str, NDArray[Any]]:
    """The weights of an ONNX file that `QuantizedNetwork.save` wrote, by their names in the network, dequantised.

    Safetensors files that annealfit 0.2.0 wrote beside networks are read, too.
    """
    if Path(path).suffix.lower() != ".safetensors":
        model = read_network(path)
        with damage_named(name_of(path)):
            return {name: weights for name, (_, _, weights) in unpack_network(model).items()}
    tensors, content = read_tensors(path, KIND_OF_FILE)
    return dict(_unpacked(described, tensors) for described in content["layers"].items())


def _unpacked(described: Field, tensors: TensorFields) -> tuple[str, NDArray[Any]]:
    levels, name = described["levels"], described["name"].text()
    with settings_of(levels):
        grid = Grid(*(levels[key].value for key in ("lowest", "step", "count")))
    shape = tuple(length.whole(minimum=1) for length in levels["shape"].items(most=2))
    size = described.get("group_size")
    group_size = None if size is None else size.whole(minimum=1)
    groups = () if group_size is None else (-(-shape[0] // group_size),)
    scales = tensors.real(f"{name}.scales", (*groups, shape[-1]))
    packed = tensors.whole(f"{name}.levels", (None,), maximum=255).astype(np.uint8)
    matrix = dequantized(grid.unpack(packed, shape), scales, group_size)
    with settings_of(described):
        values = (matrix.T if described["outputs_first"].flag() else matrix).reshape(
            [length.whole(minimum=1) for length in described["shape"].items()]
        )
        return described["weight"].text(), values.astype(described["dtype"].one_of(_FLOATS))
