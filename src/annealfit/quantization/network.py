"""quantize_network: all layers of an ONNX network, one after another, each with the inputs that it will see."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit._support.randomness import child_seed, seed_of
from annealfit.quantization.calibration import Calibration
from annealfit.quantization.grids import Grid
from annealfit.quantization.methods import methods_of
from annealfit.quantization.moments import InputMoments, MomentSums
from annealfit.quantization.network_results import NetworkLayer, QuantizedNetwork
from annealfit.quantization.onnx_graph import GraphRun, OnnxGraph
from annealfit.quantization.onnx_layers import WeightedLayer, find_layers
from annealfit.quantization.quantize import quantize_layer

Report = Callable[[int, int, str], object]


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
    layers = find_layers(network, _names(keep))
    bits_of = _bits_of(layers, bits, levels)
    methods_of(method)  # refuses what is none before anything is run
    settings = {"method": method, "levels": levels, "group_size": group_size, "damping": damping}
    seed, done = seed_of(random_state), []
    for number, layer in enumerate(layers):
        if on_layer is not None:
            on_layer(number, len(layers), layer.name)
        began = time.perf_counter()
        settings |= {"bits": bits_of[layer.name], "random_state": child_seed(seed, number) >> 32}  # 32 bits at most
        part = _quantize(layer, network, _moments_of(layer, original, network, rows), settings)
        done.append(part.after(time.perf_counter() - began))
    error, agreement = _compared(original, network, rows)
    return QuantizedNetwork(network.model, tuple(done), _parameter_bytes(original), error, agreement)


def _names(keep: Any) -> Sequence[str]:
    if isinstance(keep, str):
        raise InvalidInputError(f"keep is {keep!r}; it must be a list of names: [{keep!r}]")
    return list(keep)


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
    """What the layer sees, and what it saw before the layers below it were quantised: one for each group."""
    now, before = (GraphRun(graph, [layer.source]) for graph in (network, original))
    sums = [MomentSums() for _ in range(layer.n_groups)]
    for feed in rows.batches():
        (seen,), (reference,) = now(feed), before(feed)
        for parts, wanted in zip(layer.rows(seen), layer.rows(reference), strict=True):
            for total, part, other in zip(sums, parts, wanted, strict=True):
                total.add(part, other)
    return [total.moments() for total in sums]


def _quantize(
    layer: WeightedLayer, network: OnnxGraph, moments: Sequence[InputMoments], settings: Mapping[str, Any]
) -> NetworkLayer:
    """Quantise one layer and put its new weights and bias into the network."""
    constant = network.constant(layer.weight)
    assert constant is not None, "layers have constant weights"
    matrix = layer.factor * layer.matrix(constant).astype(float)
    given = None if layer.bias is None else network.constant(layer.bias)
    biases: list[Any] = [None] * layer.n_groups
    if given is not None:
        biases = np.split(layer.bias_factor * given.astype(float).ravel(), layer.n_groups)
    parts = [
        quantize_layer(weights, inputs=own, bias=bias, **settings)
        for weights, own, bias in zip(np.split(matrix, layer.n_groups, axis=1), moments, biases, strict=True)
    ]
    result = NetworkLayer.of(layer, constant, given, parts)
    network.set_constant(layer.weight, result.weights)
    if layer.bias is not None and result.bias is not None:
        network.set_constant(layer.bias, result.bias)
    return result


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


def _parameter_bytes(network: OnnxGraph) -> int:
    return sum(_bytes(network.constant(name)) for name in network.constants)


def _bytes(values: NDArray[Any] | None) -> int:
    return 0 if values is None else values.nbytes
