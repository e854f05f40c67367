"""An ONNX network: its constants, the operators whose weights can be quantised, and runs that show inner tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit.data.features.onnx_files import (
    as_type,
    damage_named,
    first_line,
    name_of,
    onnx_module,
    open_session,
    prune,
    read_network,
    reduce_to,
    types_of_inputs,
)
from annealfit.quantization.moments import NUMBERS_PER_CHUNK, Padding, Window

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

_MOST_KEPT = 1 << 28  # bytes of an inner tensor

Feed = Mapping[str, NDArray[Any]]


class OnnxGraph:
    """A network whose constants are all initializers, and can be exchanged; a copy of what it is made of.

    Nodes that only compute constants (Constant, Identity and Transpose of constants) are folded into initializers.
    """

    def __init__(self, source: Any) -> None:
        self.name, model = name_of(source), read_network(source)
        self.n_bytes = model.ByteSize()  # as a file
        self.model = type(model).FromString(model.SerializeToString())
        self.graph = self.model.graph
        with damage_named(self.name):
            _fold_constants(self.graph)
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}

    @property
    def inputs(self) -> dict[str, Any]:
        """The types of what has to be fed, by name; old files list constants among the inputs, too."""
        return {one.name: one.type.tensor_type for one in self.graph.input if one.name not in self.constants}

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

    def can_feed(self, tensor: str) -> bool:
        """Whether a tensor is the only output of a node, so that a `runner` can be fed with it."""
        return any(list(node.output) == [tensor] for node in self.graph.node)

    def runner(self, tensors: Sequence[str], fed: str | None = None) -> Callable[[Feed], list[NDArray[Any]]]:
        """A function that computes these tensors, in order, for a batch of the network's inputs.

        `fed` is a tensor in single precision that is not computed, but among what is given.
        """
        types = types_of_inputs(self.model)
        computed = [name for name in dict.fromkeys(tensors) if name not in types and name != fed]
        session: Any = None
        if computed:
            part = self._part(computed, fed).SerializeToString()
            with self._explained():
                session = open_session(part)

        def run(feed: Feed) -> list[NDArray[Any]]:
            found = {name: as_type(values, types.get(name, values.dtype), name) for name, values in feed.items()}
            if computed:
                with self._explained():
                    read = {value.name: found[value.name] for value in session.get_inputs()}
                    found.update(zip(computed, session.run(computed, read), strict=True))
            return [np.asarray(found[name]) for name in tensors]

        return run

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the runtime's errors have no common base but this
            raise InvalidInputError(f"onnxruntime cannot run {self.name}: {first_line(error)}") from error

    def _part(self, tensors: Sequence[str], fed: str | None) -> Any:
        """The model that computes these tensors alone, and nothing that they do not need."""
        model = type(self.model).FromString(self.model.SerializeToString())
        if fed is not None:
            model.graph.node.remove(next(node for node in model.graph.node if fed in node.output))
            kind = onnx_module().TensorProto.FLOAT
            model.graph.input.append(onnx_module("onnx.helper").make_tensor_value_info(fed, kind, None))
        reduce_to(model.graph, tensors)
        return model


@dataclass(frozen=True, eq=False)
class Shown:
    """A network and what it is fed: its inputs, and maybe an inner tensor that need not be computed anew."""

    network: OnnxGraph
    feeds: Sequence[Feed]
    fed: str | None = None

    def runner(self, tensors: Sequence[str]) -> Callable[[Feed], list[NDArray[Any]]]:
        """A function that computes these tensors for one of the feeds."""
        return self.network.runner(tensors, self.fed)

    def at(self, tensor: str) -> Shown:
        """The same with a tensor computed, once for all; without it if it is too large to be kept, or cannot be fed."""
        run, total, feeds = self.runner([tensor]), 0, list[Feed]()
        for feed in self.feeds if self.network.can_feed(tensor) else ():
            (values,) = run(feed)
            total += values.nbytes
            if values.dtype != np.float32 or total > _MOST_KEPT:
                break
            feeds.append({**feed, tensor: values})
        return Shown(self.network, feeds, tensor) if len(feeds) == len(self.feeds) else self

    def first(self, count: int) -> Shown:
        """The first rows, if the network reads any number of rows."""
        plain, left = [{name: feed[name] for name in self.network.inputs} for feed in self.feeds], count
        feeds = list[Feed]()
        for feed in plain:
            if left <= 0:
                break
            feeds.append(first_rows(feed, self.network, left))
            left -= max((len(values) for values in feed.values() if values.ndim), default=1)
        return self if left >= 0 else Shown(self.network, feeds)


def first_rows(feed: Feed, network: OnnxGraph, count: int) -> Feed:
    """The first rows of a feed, if the network reads any number of rows."""
    lengths = {len(values) if values.ndim else 0 for values in feed.values()}
    fixed = any(kind.shape.dim and kind.shape.dim[0].dim_value > 0 for kind in network.inputs.values())
    if fixed or len(lengths) > 1:
        return feed
    return {name: values[:count] for name, values in feed.items()}


def _fold_constants(graph: Any) -> None:
    known = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        values = _folded(node, known)
        if values is not None:
            known[node.output[0]] = onnx_module().numpy_helper.from_array(values, node.output[0])
            graph.initializer.append(known[node.output[0]])
    prune(graph, [value.name for value in graph.output])


def _folded(node: Any, known: Mapping[str, Any]) -> NDArray[Any] | None:
    """What a node computes from constants alone, if it is of a simple kind."""
    to_array, attributes = onnx_module().numpy_helper.to_array, _attributes_of(node)
    if node.op_type == "Constant" and "value" in attributes:
        return np.asarray(to_array(attributes["value"]))
    if node.op_type not in ("Identity", "Transpose") or any(name not in known for name in node.input):
        return None
    values = np.asarray(to_array(known[node.input[0]]))
    return np.transpose(values, attributes.get("perm")) if node.op_type == "Transpose" else values


def _attributes_of(node: Any) -> dict[str, Any]:
    """A node's attributes by name."""
    value_of = onnx_module("onnx.helper").get_attribute_value
    return {attribute.name: value_of(attribute) for attribute in node.attribute}


@dataclass(frozen=True, eq=False)
class WeightedNode:
    """A node with weights: `outputs = rows @ matrix + bias`, for each group of its outputs.

    `matrix` (n_inputs, n_outputs) is the form in which weights are quantised; groups are those of a convolution whose
    filters see some of the channels each.
    """

    name: str
    operator: str
    source: str  # the tensor it reads
    output: str  # the tensor it computes
    weight: str  # the constant
    bias: str | None  # the constant, where there is one that is its own
    shape: tuple[int, ...]  # of the constant
    is_transposed: bool  # outputs come first in the constant
    factor: float = 1.0  # what products are multiplied by, and
    bias_factor: float = 1.0  # biases: Gemm's alpha and beta
    n_groups: int = 1
    window: Window | None = None  # of a convolution

    @property
    def n_outputs(self) -> int:
        """Outputs, or channels of them, of all groups."""
        return self.shape[0 if self.is_transposed else 1]

    @property
    def n_inputs(self) -> int:
        """Inputs of an output."""
        return prod(self.shape) // self.n_outputs

    def matrix(self, constant: NDArray[Any]) -> NDArray[Any]:
        """The weights (n_inputs, n_outputs)."""
        return constant.reshape(len(constant), -1).T if self.is_transposed else constant

    def constant(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """The inverse of `matrix`."""
        return (matrix.T if self.is_transposed else matrix).reshape(self.shape)

    def rows(self, values: NDArray[Any], share: float = 1.0) -> Iterator[list[NDArray[Any]]]:
        """The node's inputs in a batch, or a share of them, some rows (n, n_inputs) at a time: a list of groups."""
        if self.window is None:
            rows = values.reshape(-1, values.shape[-1])
            if share < 1:
                rows = rows[np.random.default_rng(0).random(len(rows)) < share]
            step = max(1, NUMBERS_PER_CHUNK // rows.shape[1])
            yield from ([rows[first : first + step]] for first in range(0, len(rows), step))
            return
        for patches in self.window.patches(values, share):
            yield np.split(patches, self.n_groups, axis=1)


def find_layers(network: OnnxGraph, keep: Sequence[str] = ()) -> tuple[list[WeightedNode], dict[str, str]]:
    """All nodes with weights, in the order in which they are computed; and the names of those that stay float, and why.

    The latter are those to keep, and operators that are not supported.
    """
    if isinstance(keep, str):
        raise InvalidInputError(f"keep is {keep!r}; it must be a list of names: [{keep!r}]")
    layers, floats, unknown = [], {}, set(keep)
    for node in network.graph.node:
        name = node.name or node.output[0]
        with damage_named(network.name):
            found = OPERATORS.get(node.op_type, _reason)(network, node, name)
        if name in keep:
            unknown.discard(name)
            floats[name] = f"{node.op_type}, kept"
        elif isinstance(found, WeightedNode):
            layers.append(found)
        elif found:
            floats[name] = f"{node.op_type}, {found}"
    if unknown:
        known = ", ".join(repr(layer.name) for layer in layers) or "none"
        raise InvalidInputError(f"keep names {sorted(unknown)}, which the network does not have; its layers: {known}")
    if not layers:
        supported = f"none of {', '.join(OPERATORS)} with constant weights"
        operators = ", ".join(sorted({node.op_type for node in network.graph.node}))
        others = "; ".join(f"{name!r} ({reason})" for name, reason in floats.items())
        raise InvalidInputError(
            f"the network has no weights to quantise: {others or f'it has {operators}, and {supported}'}"
        )
    return layers, floats


_Found = WeightedNode | str | None  # a layer, why it is none although it has weights, or nothing of interest


def _reason(network: OnnxGraph, node: Any, name: str) -> _Found:
    """Why an operator that is not supported cannot be ignored."""
    if node.op_type in _WITH_GRAPHS:
        return "a graph inside the graph"
    if node.op_type in _ELEMENTWISE:
        return None
    constants = [network.constant(name) for name in node.input if name in network.constants]
    shapes = [values.shape for values in constants if values.dtype.kind == "f"]
    matrices = [shape for shape in shapes if sum(size > 1 for size in shape) >= 2]
    return f"weights {'×'.join(map(str, matrices[0]))}" if matrices else None


def _product(network: OnnxGraph, node: Any, name: str) -> _Found:
    """MatMul, or Gemm: `alpha · rows @ matrix + beta · bias`."""
    attributes, (source, weight, *added) = _attributes_of(node), node.input
    matrix, fed = network.constant(weight), network.constant(source) is None
    if matrix is None:
        return None if fed else "constants on the left"
    if matrix.ndim != 2 or not fed:
        return f"weights with {matrix.ndim} axes"
    for attribute, refused in (("transA", 1), ("alpha", 0)):
        if attributes.get(attribute) == refused:
            return f"{attribute}={refused}"
    if problem := _unusable(network, weight, matrix):
        return problem
    transposed, beta = bool(attributes.get("transB", 0)), float(attributes.get("beta", 1.0))
    bias = _added_to(network, node) if node.op_type == "MatMul" else added[0] if added and beta else ""
    return WeightedNode(
        name,
        node.op_type,
        source,
        node.output[0],
        weight,
        _own_bias(network, bias, matrix.shape[0 if transposed else 1]),
        matrix.shape,
        is_transposed=transposed,
        factor=float(attributes.get("alpha", 1.0)),
        bias_factor=beta,
    )


def _convolution(network: OnnxGraph, node: Any, name: str) -> _Found:
    attributes, (source, weight, *added) = _attributes_of(node), node.input
    filters = network.constant(weight)
    if filters is None:
        return None
    if problem := _unusable(network, weight, filters):
        return problem
    axes = filters.ndim - 2
    pads = attributes.get("pads", [0] * (2 * axes))
    padding: Padding = tuple(zip(pads[:axes], pads[axes:], strict=True))
    automatic = attributes.get("auto_pad", b"NOTSET").decode()
    if automatic != "NOTSET":
        padding = {"SAME_UPPER": "after", "SAME_LOWER": "before"}.get(automatic, ((0, 0),) * axes)
    return WeightedNode(
        name,
        "Conv",
        source,
        node.output[0],
        weight,
        _own_bias(network, added[0] if added else "", len(filters)),
        filters.shape,
        is_transposed=True,
        n_groups=int(attributes.get("group", 1)),
        window=Window(
            kernel=filters.shape[2:],
            strides=tuple(attributes.get("strides", [1] * axes)),
            padding=padding,
            dilations=tuple(attributes.get("dilations", [1] * axes)),
        ),
    )


def _unusable(network: OnnxGraph, weight: str, values: NDArray[Any]) -> str | None:
    if values.dtype.kind != "f":
        return f"weights of the type {values.dtype}"
    if network.reads(weight) > 1:
        return f"its weights {weight!r} are those of other nodes as well"
    return None


def _own_bias(network: OnnxGraph, name: str, outputs: int) -> str | None:
    """The name of a constant with a number for each output that nothing else reads; None where there is none."""
    values = network.constant(name) if name else None
    if values is None or values.dtype.kind != "f" or network.reads(name) > 1:
        return None
    return name if values.size == outputs and values.shape[-1:] == (outputs,) else None


def _added_to(network: OnnxGraph, node: Any) -> str:
    """What an Add adds to a node's output, if nothing else reads that; or nothing."""
    output = node.output[0]
    readers = [other for other in network.graph.node if output in other.input]
    if len(readers) != 1 or readers[0].op_type != "Add" or network.reads(output) > 1:
        return ""
    return next((name for name in readers[0].input if name != output), "")


OPERATORS: dict[str, Callable[[OnnxGraph, Any, str], _Found]] = {
    "MatMul": _product,
    "Gemm": _product,
    "Conv": _convolution,
}
