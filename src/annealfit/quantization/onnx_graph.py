"""An ONNX network: its constants, the operators whose weights can be quantised, and runs of parts of it."""

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
    names_read,
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

_MOST_KEPT = 1 << 31  # bytes of tensors that a run keeps between its parts

Feed = Mapping[str, NDArray[Any]]


class OnnxGraph:
    """A network whose constants are all initializers, and can be exchanged; a copy of what it is made of.

    Nodes that only compute constants (Constant, Identity and Transpose of constants) are folded into initializers.
    Conv and Gemm without a bias are given one of zeros, which can be corrected.
    """

    def __init__(self, source: Any) -> None:
        self.name, model = name_of(source), read_network(source)
        self.n_bytes = model.ByteSize()  # as a file
        self.model = type(model).FromString(model.SerializeToString())
        self.graph = self.model.graph
        with damage_named(self.name):
            _fold_constants(self.graph)
            _add_biases(self.graph)
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        self.version = 0  # how often a constant was exchanged

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
        self.version += 1
        self.constants[name].CopyFrom(onnx_module().numpy_helper.from_array(np.ascontiguousarray(values), name))

    def reads(self, name: str) -> int:
        """How often a tensor is read, the network's outputs counted."""
        inside = sum(list(node.input).count(name) for node in self.graph.node)
        return inside + sum(value.name == name for value in self.graph.output)

    def runner(
        self, tensors: Sequence[str], fed: Mapping[str, np.dtype[Any]] | None = None
    ) -> Callable[[Feed], list[NDArray[Any]]]:
        """A function that computes these tensors, in order, for a batch of the network's inputs.

        `fed` are tensors that are not computed but among what is given, and their types.
        """
        types = types_of_inputs(self.model) | dict(fed or {})
        computed = [name for name in dict.fromkeys(tensors) if name not in types]
        session: Any = None
        if computed:
            part = self._part(computed, fed or {}).SerializeToString()
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

    def _part(self, tensors: Sequence[str], fed: Mapping[str, np.dtype[Any]]) -> Any:
        """The model that computes these tensors alone, and nothing that they do not need."""
        helper, model = onnx_module("onnx.helper"), type(self.model).FromString(self.model.SerializeToString())
        for place in reversed(range(len(model.graph.node))):
            if fed.keys() & model.graph.node[place].output:
                del model.graph.node[place]
        known = {value.name for value in model.graph.input}
        for name, dtype in fed.items():
            if name not in known:
                kind = helper.np_dtype_to_tensor_dtype(dtype)
                model.graph.input.append(helper.make_tensor_value_info(name, kind, None))
        reduce_to(model.graph, tensors)
        return model


class PartialRun:
    """A run of a network on batches of rows that goes from layer to layer: what the rest of it reads is kept."""

    def __init__(self, network: OnnxGraph, feeds: Sequence[Feed]) -> None:
        self.network, self._feeds, self._place = network, feeds, 0

    def rest(self, feed: Feed) -> Callable[[Feed], list[NDArray[Any]]]:
        """A function that computes the outputs from what `at` gives, such as this, with the present constants."""
        return self.network.runner([value.name for value in self.network.graph.output], self._types(feed))

    def at(self, tensor: str) -> Iterator[Feed]:
        """All that is read by the node that computes a tensor, and by those after it: batch by batch.

        Constants of nodes before it must not change any more. What would be too large to be kept is computed anew.
        """
        nodes = self.network.graph.node
        place = next(place for place, node in enumerate(nodes) if tensor in node.output)
        later = {name for node in nodes[place:] for name in names_read(node)}
        later.update(value.name for value in self.network.graph.output)
        made = [name for node in nodes[self._place : place] for name in node.output]
        names = [name for name in (*self._feeds[0], *made) if name in later]
        run, kept, size = self.network.runner(names, self._types(self._feeds[0])), list[Feed](), 0
        for feed in self._feeds:
            found = dict(zip(names, run(feed), strict=True))
            yield found
            size += sum(values.nbytes for values in found.values())
            kept = [*kept, found] if size <= _MOST_KEPT else []
        if len(kept) == len(self._feeds):
            self._feeds, self._place = kept, place

    def _types(self, feed: Feed) -> dict[str, np.dtype[Any]]:
        return {name: values.dtype for name, values in feed.items() if name not in self.network.inputs}


def _fold_constants(graph: Any) -> None:
    known = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        values = _folded(node, known)
        if values is not None:
            known[node.output[0]] = onnx_module().numpy_helper.from_array(values, node.output[0])
            graph.initializer.append(known[node.output[0]])
    prune(graph, [value.name for value in graph.output])


def _add_biases(graph: Any) -> None:
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm") and not any(node.input[2:]) and node.input[1] in constants:
            weights = constants[node.input[1]]
            outputs_last = node.op_type == "Gemm" and not attributes_of(node).get("transB", 0)
            dtype = onnx_module("onnx.helper").tensor_dtype_to_np_dtype(weights.data_type)
            zeros = np.zeros(weights.dims[-1 if outputs_last else 0], dtype)
            del node.input[2:]
            node.input.append(f"{node.output[0]}.bias")
            graph.initializer.append(onnx_module().numpy_helper.from_array(zeros, node.input[2]))


def _folded(node: Any, known: Mapping[str, Any]) -> NDArray[Any] | None:
    """What a node computes from constants alone, if it is of a simple kind."""
    to_array, attributes = onnx_module().numpy_helper.to_array, attributes_of(node)
    if node.op_type == "Constant" and "value" in attributes:
        return np.asarray(to_array(attributes["value"]))
    if node.op_type not in ("Identity", "Transpose") or any(name not in known for name in node.input):
        return None
    values = np.asarray(to_array(known[node.input[0]]))
    return np.transpose(values, attributes.get("perm")) if node.op_type == "Transpose" else values


def attributes_of(node: Any) -> dict[str, Any]:
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

    def channels_last(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """The node's outputs, or gradients at them, as (rows, positions…, outputs)."""
        return outputs if self.window is None else np.moveaxis(outputs, 1, -1)

    def places(self, shape: Sequence[int]) -> tuple[int, ...]:
        """How often the node is applied to inputs of a shape: rows of the network, and positions of each."""
        return tuple(shape[:-1]) if self.window is None else (shape[0], *self.window.places(shape))

    def rows(self, values: NDArray[Any], chosen: NDArray[np.bool_] | None = None) -> Iterator[list[NDArray[Any]]]:
        """The inputs at all places in a batch, or at chosen ones, some (n, n_inputs) at a time, for each group."""
        if self.window is None:
            rows = values.reshape(-1, values.shape[-1]) if chosen is None else values[chosen]
            step = max(1, NUMBERS_PER_CHUNK // rows.shape[1])
            yield from ([rows[first : first + step]] for first in range(0, len(rows), step))
            return
        for patches in self.window.patches(values, chosen):
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
    attributes, (source, weight, *added) = attributes_of(node), node.input
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
    attributes, (source, weight, *added) = attributes_of(node), node.input
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
