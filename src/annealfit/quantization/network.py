"""quantize_network: all layers of an ONNX network, one after another, each with the inputs that it will see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError
from annealfit._support.files import StrPath, read_tensors, replacing, write_tensors
from annealfit._support.randomness import child_seed, seed_of
from annealfit._support.schema import Field, TensorFields, settings_of
from annealfit.quantization.calibration import Calibration
from annealfit.quantization.grids import Grid
from annealfit.quantization.moments import InputMoments, MomentSums
from annealfit.quantization.onnx_graph import GraphRun, OnnxGraph, WeightedLayer, find_layers
from annealfit.quantization.quantize import QuantizedLayer, methods_of, quantize_layer

KIND_OF_FILE = "quantized weights"
_FLOATS = ("<f4", "<f8", "<f2")  # types of weights

Report = Callable[[int, int, str], object]


@dataclass(frozen=True, eq=False)
class NetworkLayer:
    """A quantised layer of a network."""

    name: str
    operator: str
    weight: str  # the constant's name in the network
    weights: NDArray[Any]  # dequantised, with the shape and type of the constant
    bias: NDArray[Any] | None
    levels: NDArray[np.int16]  # (n_inputs, n_outputs)
    scales: NDArray[np.float32]  # (n_outputs,) or (n_groups, n_outputs)
    grid: Grid
    group_size: int | None
    is_transposed: bool
    errors: Mapping[str, float]  # of each method that was tried, relative
    error: float
    seconds: float = 0.0

    @property
    def bytes_before(self) -> int:
        """Bytes of the weights as they were."""
        return self.weights.nbytes

    @property
    def bytes_after(self) -> int:
        """Bytes of the packed levels and the scales."""
        return -(-self.levels.size * self.grid.storage_bits // 8) + self.scales.nbytes

    def describe(self) -> dict[str, Any]:
        """What the file of packed weights says about the layer."""
        grid = self.grid
        shape = list(self.levels.shape)
        return {
            "name": self.name,
            "operator": self.operator,
            "weight": self.weight,
            "shape": list(self.weights.shape),
            "dtype": self.weights.dtype.str,
            "levels": {"lowest": grid.lowest, "step": grid.step, "count": grid.count, "shape": shape},
            "group_size": self.group_size,
            "outputs_first": self.is_transposed,
            "errors": dict(self.errors),
        }


@dataclass(frozen=True, eq=False)
class QuantizedNetwork:
    """A network with low-bit weights: an ONNX model that computes with their values, and the integers themselves."""

    model: Any  # onnx.ModelProto
    layers: tuple[NetworkLayer, ...]
    bytes_before: int  # of all constants
    output_error: float  # relative squared error of the network's outputs on the calibration rows
    agreement: float | None  # share of these rows whose largest output is the same as before; None where it has none

    @property
    def bytes_after(self) -> int:
        """Bytes of all constants, those that were quantised packed."""
        return self.bytes_before + sum(layer.bytes_after - layer.bytes_before for layer in self.layers)

    def __iter__(self) -> Iterator[NetworkLayer]:
        return iter(self.layers)

    def save(self, path: StrPath) -> tuple[Path, Path]:
        """Write the ONNX model, and beside it, with the ending safetensors, the packed integers and scales."""
        target, beside = Path(path), packed_path(path)
        with replacing(target) as file:
            file.write(self.model.SerializeToString())
        tensors: dict[str, NDArray[Any]] = {}
        for layer in self.layers:
            tensors[f"{layer.name}.levels"] = layer.grid.pack(layer.levels)
            tensors[f"{layer.name}.scales"] = layer.scales
            if layer.bias is not None:
                tensors[f"{layer.name}.bias"] = layer.bias
        write_tensors(beside, KIND_OF_FILE, tensors, {"layers": [layer.describe() for layer in self.layers]})
        return target, beside


def packed_path(path: StrPath) -> Path:
    """The path of the integers of a network at this path."""
    target = Path(path)
    if target.suffix.lower() == ".safetensors":
        raise InvalidInputError(f"{target.name} ends in safetensors, which is for the integers; name an onnx file")
    return target.with_suffix(".safetensors")


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
    on_layer: Report | None = None,
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
        `.model` with dequantised weights, `.layers`, `.save(path)`.

    """
    original, network = OnnxGraph.read(model), OnnxGraph.read(model)
    rows = Calibration.of(calibration, original)
    if isinstance(keep, str):
        raise InvalidInputError(f"keep is {keep!r}; it must be a list of names: [{keep!r}]")
    layers = find_layers(network, list(keep))
    bits_of = _bits_of(layers, bits, levels)
    methods_of(method)  # refuses what is none before anything is run
    settings = {"method": method, "levels": levels, "group_size": group_size, "damping": damping}
    seed, done = seed_of(random_state), []
    for number, layer in enumerate(layers):
        if on_layer is not None:
            on_layer(number, len(layers), layer.name)
        began = time.perf_counter()
        settings |= {"bits": bits_of[layer.name], "random_state": child_seed(seed, number) >> 32}  # 32 bits at most
        done.append(_quantize(layer, network, _moments_of(layer, original, network, rows), settings, began))
    error, agreement = _compared(original, network, rows)
    size = sum(original.constant(name).nbytes for name in original.constants)
    return QuantizedNetwork(network.model, tuple(done), size, error, agreement)


def _bits_of(layers: Sequence[WeightedLayer], bits: Any, levels: str | Grid) -> dict[str, Any]:
    if not isinstance(bits, Mapping):
        if not isinstance(levels, Grid):
            Grid.of(bits, levels)  # refuses what is wrong
        return dict.fromkeys((layer.name for layer in layers), bits)
    names = {layer.name for layer in layers}
    if set(bits) != names:
        raise InvalidInputError(f"bits are given for {sorted(bits)}; the layers to quantise are {sorted(names)}")
    return dict(bits)


def _moments_of(layer: WeightedLayer, original: OnnxGraph, network: OnnxGraph, rows: Calibration) -> list[InputMoments]:
    """The moments of the layer's inputs now and before the layers below it were quantised: one for each group."""
    now, before = (GraphRun(graph, [layer.source]) for graph in (network, original))
    sums = [MomentSums() for _ in range(layer.n_groups)]
    for feed in rows.batches():
        (seen,), (reference,) = now(feed), before(feed)
        for parts, wanted in zip(layer.rows(seen), layer.rows(reference), strict=True):
            for total, part, other in zip(sums, parts, wanted, strict=True):
                total.add(part, other)
    return [total.moments() for total in sums]


def _quantize(
    layer: WeightedLayer, network: OnnxGraph, moments: Sequence[InputMoments], settings: Mapping[str, Any], began: float
) -> NetworkLayer:
    """Quantise one layer, group by group, and put its new weights and bias into the network.

    Scales are in single precision, and the weights are just those scales times the levels.
    """
    constant, count = network.constant(layer.weight), layer.n_groups
    bias = None if layer.bias is None else network.constant(layer.bias)
    matrices = np.split(layer.factor * layer.matrix(constant).astype(float), count, axis=1)
    biases: Sequence[Any] = [None] * count
    if bias is not None:
        biases = np.split(layer.bias_factor * bias.astype(float).ravel(), count)
    parts = [
        quantize_layer(weights, inputs=own, bias=own_bias, **settings)
        for weights, own, own_bias in zip(matrices, moments, biases, strict=True)
    ]
    first, levels = parts[0], np.hstack([part.levels for part in parts])
    scales = (np.concatenate([part.scales for part in parts], axis=-1) / layer.factor).astype(np.float32)
    weights = layer.constant(_dequantized(levels, scales, first.group_size)).astype(constant.dtype)
    network.set_constant(layer.weight, weights)
    if layer.bias is not None and bias is not None:
        joined = np.concatenate([part.bias for part in parts]) / layer.bias_factor
        bias = joined.reshape(bias.shape).astype(bias.dtype)
        network.set_constant(layer.bias, bias)
    return NetworkLayer(
        layer.name,
        layer.operator,
        layer.weight,
        weights,
        bias,
        levels,
        scales,
        first.grid,
        first.group_size,
        layer.is_transposed,
        {name: _mean(parts, [part.errors[name] for part in parts]) for name in first.errors},
        _mean(parts, [part.error for part in parts]),
        time.perf_counter() - began,
    )


def _mean(parts: Sequence[QuantizedLayer], errors: Sequence[float]) -> float:
    """The mean error of the groups of a layer, each weighted by its power."""
    total = sum(part.power for part in parts)
    return sum(error * part.power for error, part in zip(errors, parts, strict=True)) / total if total > 0 else 0.0


def _dequantized(levels: NDArray[Any], scales: NDArray[Any], group_size: int | None) -> Array:
    """Weights (n_inputs, n_outputs) of levels and scales."""
    spread = scales if group_size is None else np.repeat(scales, group_size, axis=0)[: len(levels)]
    return spread.astype(np.float64) * levels


def _compared(original: OnnxGraph, network: OnnxGraph, rows: Calibration) -> tuple[float, float | None]:
    """The relative squared error of the outputs, and how often the largest one of a row stays the largest."""
    outputs = [value.name for value in original.graph.output]
    before, after = (GraphRun(graph, outputs) for graph in (original, network))
    error, total, same, count = 0.0, 0.0, 0, 0
    for feed in rows.batches():
        for was, now in zip(before(feed), after(feed), strict=True):
            if was.dtype.kind == "f":
                error += float(((now.astype(float) - was) ** 2).sum())
                total += float((was.astype(float) ** 2).sum())
            if was.dtype.kind == "f" and was.ndim == 2 and was.shape[1] > 1:
                same += int((was.argmax(axis=1) == now.argmax(axis=1)).sum())
                count += len(was)
    return (error / total if total > 0 else 0.0), (same / count if count else None)


def read_packed_weights(path: StrPath) -> dict[str, NDArray[Any]]:
    """The weights of a file that `QuantizedNetwork.save` wrote, by their names in the network, dequantised."""
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
    matrix = _dequantized(grid.unpack(packed, shape), scales, group_size)
    with settings_of(described):
        values = (matrix.T if described["outputs_first"].flag() else matrix).reshape(
            [length.whole(minimum=1) for length in described["shape"].items()]
        )
        return described["weight"].text(), values.astype(described["dtype"].one_of(_FLOATS))
