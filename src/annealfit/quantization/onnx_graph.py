"""An ONNX network: its constants, the layers whose weights can be quantised, and runs that show tensors in between."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError, require
from annealfit.quantization.moments import Padding, Window

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


def onnx_module(name: str = "onnx") -> Any:
    """Onnx or onnxruntime, imported when a network is read."""
    return require(name, extra="onnx", purpose="a network in ONNX")


class OnnxGraph:
    """A network whose constants are all initializers, and can be exchanged; a copy of the model it is made of.

    Nodes that only compute constants (Constant, Identity and Transpose of constants) are folded into initializers.
    """

    def __init__(self, model: Any) -> None:
        self.model = type(model).FromString(model.SerializeToString())
        self.graph = self.model.graph
        self._fold_constants()
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}

    @classmethod
    def read(cls, source: Any) -> OnnxGraph:
        """The network in a file, in bytes, or in an `onnx.ModelProto`; what is not one is refused."""
        onnx = onnx_module()
        if isinstance(source, onnx.ModelProto):
            return cls(source)
        if not isinstance(source, bytes | str | os.PathLike):
            raise InvalidInputError(f"{source!r} is no network: pass the path of an ONNX file, or an ONNX model")
        if not isinstance(source, bytes) and Path(source).is_dir():
            raise FileFormatError(f"{os.fspath(source)} is a folder; name an ONNX file in it")
        try:
            model = onnx.load_model_from_string(source) if isinstance(source, bytes) else onnx.load(os.fspath(source))
            if not model.ir_version or not model.graph.node:
                raise ValueError("it has no operators")
        except FileNotFoundError:
            raise
        except Exception as error:  # protobuf's, onnx's and the file system's have nothing in common
            name = "the bytes" if isinstance(source, bytes) else os.fspath(source)
            reason = _first_line(error) or type(error).__name__
            raise FileFormatError(f"{name}: not an ONNX network, or a damaged one ({reason})") from error
        return cls(model)

    @property
    def inputs(self) -> list[Any]:
        """What has to be fed; old files list constants among the inputs, too."""
        return [value for value in self.graph.input if value.name not in self.constants]

    def constant(self, name: str) -> Any:
        """The constant of this name as an array; None if there is none."""
        tensor = self.constants.get(name)
        return None if tensor is None else np.asarray(onnx_module().numpy_helper.to_array(tensor))

    def set_constant(self, name: str, values: NDArray[Any]) -> None:
        """Exchange a constant for one of the same shape and type."""
        self.constants[name].CopyFrom(onnx_module().numpy_helper.from_array(np.ascontiguousarray(values), name))

    def reads(self, name: str) -> int:
        """How often a tensor is read, the network's outputs counted."""
        inside = sum(list(node.input).count(name) for node in self.graph.node)
        return inside + sum(value.name == name for value in self.graph.output)

    def part(self, outputs: Sequence[str]) -> Any:
        """The model that computes these tensors alone, and nothing that they do not need."""
        needed, nodes = set(outputs), []
        for node in reversed(self.graph.node):
            if needed.intersection(node.output):
                nodes.append(node)
                needed.update(_names_read(node))
        model = type(self.model).FromString(self.model.SerializeToString())
        _replace(model.graph, "node", reversed(nodes))
        _replace(model.graph, "input", [value for value in self.graph.input if value.name in needed])
        _replace(model.graph, "initializer", [self.constants[name] for name in self.constants if name in needed])
        _replace(model.graph, "output", [onnx_module().ValueInfoProto(name=name) for name in outputs])
        return model

    def _fold_constants(self) -> None:
        graph = self.graph
        known, left = {tensor.name: tensor for tensor in graph.initializer}, []
        for node in graph.node:
            values = _folded(node, known)
            if values is None:
                left.append(node)
            else:
                known[node.output[0]] = onnx_module().numpy_helper.from_array(values, node.output[0])
        _replace(graph, "node", left)
        read = {name for node in graph.node for name in _names_read(node)} | {value.name for value in graph.output}
        _replace(graph, "initializer", [tensor for name, tensor in known.items() if name in read])


def _replace(graph: Any, field: str, messages: Iterable[Any]) -> None:
    """Set a repeated field to these messages, which may be the graph's own."""
    copies = [type(message).FromString(message.SerializeToString()) for message in messages]
    graph.ClearField(field)
    getattr(graph, field).extend(copies)


def _folded(node: Any, known: Mapping[str, Any]) -> NDArray[Any] | None:
    """What a node computes from constants alone, if it is of a simple kind."""
    to_array, attributes = onnx_module().numpy_helper.to_array, attributes_of(node)
    if node.op_type == "Constant" and "value" in attributes:
        return np.asarray(to_array(attributes["value"]))
    if node.op_type not in ("Identity", "Transpose") or any(name not in known for name in node.input):
        return None
    values = np.asarray(to_array(known[node.input[0]]))
    return np.transpose(values, attributes.get("perm")) if node.op_type == "Transpose" else values


def _names_read(node: Any) -> Iterable[str]:
    """What a node reads, what the graphs inside it (of If, Loop, Scan) read included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for inner in graph.node:
                yield from _names_read(inner)
            yield from (value.name for value in graph.output)


def attributes_of(node: Any) -> dict[str, Any]:
    """A node's attributes by name."""
    value_of = onnx_module("onnx.helper").get_attribute_value
    return {attribute.name: value_of(attribute) for attribute in node.attribute}


class GraphRun:
    """Computes some tensors of a network for batches of its inputs."""

    def __init__(self, network: OnnxGraph, tensors: Sequence[str]) -> None:
        fed = {value.name for value in network.inputs}
        self._tensors = list(tensors)
        self._computed = [name for name in dict.fromkeys(tensors) if name not in fed]
        if not self._computed:
            return
        runtime = onnx_module("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # warnings are about what is left out, which is on purpose
        model = network.part(self._computed).SerializeToString()
        with _explained():
            self._session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._read = {value.name for value in self._session.get_inputs()}

    def __call__(self, feed: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The tensors, in the order they were asked for."""
        found = dict(feed)
        if self._computed:
            with _explained():
                own = {name: values for name, values in feed.items() if name in self._read}
                found.update(zip(self._computed, self._session.run(self._computed, own), strict=True))
        return [np.asarray(found[name]) for name in self._tensors]


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the runtime's errors have no common base but this
        raise InvalidInputError(f"onnxruntime cannot run the network: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


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
        """The layer's inputs in a batch, some rows (n, n_inputs) at a time: a list of groups."""
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
    """Why an operator that is not supported cannot be ignored."""
    if node.op_type in _WITH_GRAPHS:
        return " (a graph inside the graph)"
    if node.op_type in _ELEMENTWISE:
        return None
    constants = [network.constant(name) for name in node.input if name in network.constants]
    shapes = [values.shape for values in constants if values.dtype.kind == "f"]
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
    readers = [other for other in network.graph.node if product in other.input]
    if len(readers) != 1 or readers[0].op_type != "Add" or network.reads(product) > 1:
        return None
    (other,) = [name for name in readers[0].input if name != product] or [""]
    return _own_bias(network, other, outputs)


_MAKERS: dict[str, Callable[[OnnxGraph, Any, str], _Found]] = {"MatMul": _matmul, "Gemm": _gemm, "Conv": _conv}
