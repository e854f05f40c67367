"""The layers of an ONNX network whose weights can be quantised, and what of it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit.quantization.onnx_graph import OnnxGraph, attributes_of
from annealfit.quantization.patches import Padding, Window

SUPPORTED = ("MatMul", "Gemm", "Conv")
# Constants of these scale, shift or choose values one by one; they are not weights of a layer, and stay.
_ELEMENTWISE = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Min", "Max", "Sum", "Mean", "Where", "Clip", "PRelu", "Cast"),
        *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Not"),
        *("BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization"),
        *("Concat", "Expand", "Pad", "Reshape", "Resize", "Slice", "Squeeze", "Tile", "Unsqueeze"),
        *("QuantizeLinear", "DequantizeLinear"),
    )
)
_WITH_GRAPHS = frozenset({"If", "Loop", "Scan"})


@dataclass(frozen=True, eq=False)
class WeightedLayer:
    """A node with weights: `outputs = rows @ matrix + bias`, for each group of its outputs.

    `matrix` (n_inputs, n_outputs) is the form in which weights are quantised; groups are those of a convolution whose
    filters see some of the channels each.
    """

    name: str
    operator: str
    source: str  # the tensor it reads
    weight: str  # the constant
    bias: str | None  # the constant, where there is one that is its own
    shape: tuple[int, ...]  # of the constant
    is_transposed: bool  # outputs come first in the constant
    factor: float = 1.0  # what products are multiplied by, and
    bias_factor: float = 1.0  # biases: Gemm's alpha and beta
    n_groups: int = 1
    window: Window | None = None  # of a convolution

    def matrix(self, constant: NDArray[Any]) -> NDArray[Any]:
        """The weights (n_inputs, n_outputs)."""
        return constant.reshape(len(constant), -1).T if self.is_transposed else constant

    def constant(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """The inverse of `matrix`."""
        return (matrix.T if self.is_transposed else matrix).reshape(self.shape)

    def rows(self, values: NDArray[Any]) -> Iterator[list[NDArray[Any]]]:
        """What the layer sees in a batch of its inputs, some rows (n, n_inputs) at a time: a list of groups."""
        if self.window is None:
            yield [values.reshape(-1, values.shape[-1])]
            return
        for part in self.window.chunks(values):
            yield [self.window.patches(group) for group in np.split(values[part], self.n_groups, axis=1)]


def find_layers(network: OnnxGraph, keep: Sequence[str] = ()) -> list[WeightedLayer]:
    """All layers with weights, in the order in which they are computed, but those to keep as they are.

    Operators whose weights are of another kind are named in the error, unless they are kept.
    """
    layers, others = [], []
    unknown = set(keep)
    for node in network.graph.node:
        name = node.name or node.output[0]
        if name in keep:
            unknown.discard(name)
            continue
        maker = _MAKERS.get(node.op_type)
        found = maker(network, node, name) if maker else _reason(network, node)
        if isinstance(found, WeightedLayer):
            layers.append(found)
        elif found:
            others.append((name, f"{node.op_type} {name!r}{found}"))
    if unknown:
        known = ", ".join(repr(layer.name) for layer in layers) or "none"
        raise InvalidInputError(f"keep names {sorted(unknown)}, which the network does not have; its layers: {known}")
    if others:
        raise InvalidInputError(
            f"the network has weights that cannot be quantised: {'; '.join(text for _, text in others)}. Supported are "
            f"{', '.join(SUPPORTED)}; keep=[{', '.join(repr(name) for name, _ in others)}] leaves these as they are"
        )
    if not layers:
        operators = ", ".join(sorted({node.op_type for node in network.graph.node})) or "no operators"
        raise InvalidInputError(
            f"the network has no weights to quantise: it has {operators}, and none of {', '.join(SUPPORTED)} "
            "with constant weights"
        )
    return layers


_Found = WeightedLayer | str | None  # a layer, why it is none although it has weights, or nothing of interest


def _reason(network: OnnxGraph, node: Any) -> _Found:
    """Why an operator that is none of ours cannot be passed over."""
    if node.op_type in _WITH_GRAPHS:
        return " (a graph inside the graph)"
    if node.op_type in _ELEMENTWISE:
        return None
    constants = [network.constant(name) for name in node.input]
    return _has_weights(constants)


def _has_weights(constants: Sequence[NDArray[Any] | None]) -> str | None:
    shapes = [values.shape for values in constants if values is not None and values.dtype.kind == "f"]
    matrices = [shape for shape in shapes if sum(size > 1 for size in shape) >= 2]
    return f" (weights {'×'.join(map(str, matrices[0]))})" if matrices else None


def _matmul(network: OnnxGraph, node: Any, name: str) -> _Found:
    source, weight = node.input[:2]
    matrix = network.constant(weight)
    if matrix is None:
        return " (constants on the left)" if network.constant(source) is not None else None
    if matrix.ndim != 2 or network.constant(source) is not None:
        return f" (weights with {matrix.ndim} axes)"
    if problem := _unusable(network, weight, matrix):
        return problem
    bias = _added_bias(network, node, matrix.shape[1])
    return WeightedLayer(name, "MatMul", source, weight, bias, matrix.shape, is_transposed=False)


def _gemm(network: OnnxGraph, node: Any, name: str) -> _Found:
    attributes, matrix = attributes_of(node), network.constant(node.input[1])
    if matrix is None:
        return None
    if attributes.get("transA", 0):
        return " (transA=1)"
    if attributes.get("alpha", 1.0) == 0:
        return " (alpha=0)"
    if problem := _unusable(network, node.input[1], matrix):
        return problem
    transposed = bool(attributes.get("transB", 0))
    outputs, beta = matrix.shape[0 if transposed else 1], float(attributes.get("beta", 1.0))
    return WeightedLayer(
        name,
        "Gemm",
        node.input[0],
        node.input[1],
        _own_bias(network, node.input[2] if len(node.input) > 2 and beta else "", outputs),
        matrix.shape,
        is_transposed=transposed,
        factor=float(attributes.get("alpha", 1.0)),
        bias_factor=beta,
    )


def _conv(network: OnnxGraph, node: Any, name: str) -> _Found:
    attributes, filters = attributes_of(node), network.constant(node.input[1])
    if filters is None:
        return None
    axes = filters.ndim - 2
    if problem := _unusable(network, node.input[1], filters):
        return problem
    pads = attributes.get("pads", [0] * (2 * axes))
    padding: Padding = tuple(zip(pads[:axes], pads[axes:], strict=True))
    automatic = attributes.get("auto_pad", b"NOTSET").decode()
    if automatic != "NOTSET":
        padding = {"SAME_UPPER": "after", "SAME_LOWER": "before"}.get(automatic, ((0, 0),) * axes)
    window = Window(
        kernel=filters.shape[2:],
        strides=tuple(attributes.get("strides", [1] * axes)),
        padding=padding,
        dilations=tuple(attributes.get("dilations", [1] * axes)),
    )
    return WeightedLayer(
        name,
        "Conv",
        node.input[0],
        node.input[1],
        _own_bias(network, node.input[2] if len(node.input) > 2 else "", len(filters)),
        filters.shape,
        is_transposed=True,
        n_groups=int(attributes.get("group", 1)),
        window=window,
    )


def _unusable(network: OnnxGraph, weight: str, values: NDArray[Any]) -> str | None:
    if values.dtype.kind != "f":
        return f" (weights of the type {values.dtype})"
    if network.reads(weight) > 1:
        return f" (its weights {weight!r} are those of other nodes as well)"
    return None


def _own_bias(network: OnnxGraph, name: str, outputs: int) -> str | None:
    """The name of a constant with a number for each output that nothing else reads; None where there is none."""
    values = network.constant(name) if name else None
    if values is None or values.dtype.kind != "f" or network.reads(name) > 1:
        return None
    return name if values.size == outputs and values.shape[-1:] == (outputs,) else None


def _added_bias(network: OnnxGraph, node: Any, outputs: int) -> str | None:
    """The constant that an Add after a MatMul adds, if nothing else reads the product."""
    product = node.output[0]
    readers = network.consumers(product)
    if len(readers) != 1 or readers[0].op_type != "Add" or network.reads(product) > 1:
        return None
    (other,) = [name for name in readers[0].input if name != product] or [""]
    return _own_bias(network, other, outputs)


_MAKERS: dict[str, Callable[[OnnxGraph, Any, str], _Found]] = {"MatMul": _matmul, "Gemm": _gemm, "Conv": _conv}
