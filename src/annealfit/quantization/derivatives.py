"""Derivatives of an ONNX network: the backward rules of its operators, as a second network that onnxruntime runs.

`Derivatives` runs a network forward, keeping the tensors that the rules read, and then backward from gradients at its
outputs to tensors inside it. A rule takes a node's inputs, its outputs and the gradients at these as `Symbol` objects,
on which arithmetic adds nodes to the backward network, and returns the gradient at each input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import pi, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.data.features.onnx_files import onnx_module, open_session
from annealfit.quantization.onnx_graph import Feed, OnnxGraph, attributes_of

_OPSET, _IR = 18, 8  # of the backward network: ScatterElements can add

Shape = tuple[int, ...]


class Tape:
    """A network in the making: nodes, constants, and the tensors of another network that it reads."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.reads = dict[str, np.dtype[Any]]()  # in the order in which they are first read

    def op(self, operator: str, *operands: Any, **attributes: Any) -> Symbol:
        """Add a node with one output, which is returned."""
        made = f"t{len(self.nodes)}"
        self.nodes.append(self.node(operator, operands, [made], **attributes))
        return Symbol(self, made)

    def node(self, operator: str, operands: Sequence[Any], made: Sequence[str], **attributes: Any) -> Any:
        """Make a node; operands are symbols, constants, or None."""
        read = ["" if one is None else one.name if isinstance(one, Symbol) else self.constant(one) for one in operands]
        return onnx_module("onnx.helper").make_node(operator, read, made, **attributes)

    def constant(self, values: Any) -> str:
        """The name of a new constant; numbers are in single precision."""
        array = np.asarray(values, np.float32) if isinstance(values, float) else np.asarray(values)
        name = f"c{len(self.constants)}"
        self.constants.append(onnx_module().numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def read(self, name: str, dtype: np.dtype[Any]) -> Symbol:
        """A tensor that is given when the network is run."""
        self.reads[name] = dtype
        return Symbol(self, f"in:{name}")

    def session(self, outputs: Mapping[str, Symbol]) -> Callable[[Mapping[str, NDArray[Any]]], dict[str, NDArray[Any]]]:
        """A function of the tensors that are read, which computes the outputs."""
        names = [symbol.name for symbol in outputs.values()]
        reads = {f"in:{name}": dtype for name, dtype in self.reads.items()}
        session = _session_of(self.nodes, reads, names, self.constants, _OPSET)

        def run(given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            feed = {f"in:{name}": np.asarray(given[name]) for name in self.reads}
            return dict(zip(outputs, session.run(names, feed), strict=True))

        return run


def _session_of(
    nodes: Sequence[Any], inputs: Mapping[str, np.dtype[Any]], outputs: Sequence[str], constants: Any, opset: int
) -> Any:
    helper = onnx_module("onnx.helper")
    types = {name: helper.np_dtype_to_tensor_dtype(dtype) for name, dtype in inputs.items()}
    read = [helper.make_tensor_value_info(name, kind, None) for name, kind in types.items()]
    made = [onnx_module().ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "backward", read, made, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR)
    return open_session(model.SerializeToString())


class Symbol:
    """A tensor of a network in the making."""

    def __init__(self, tape: Tape, name: str) -> None:
        self.tape, self.name = tape, name

    def op(self, operator: str, *operands: Any, **attributes: Any) -> Symbol:
        """A node whose first input is this tensor."""
        return self.tape.op(operator, self, *operands, **attributes)

    def __add__(self, other: Any) -> Symbol:
        return self.op("Add", other)

    def __sub__(self, other: Any) -> Symbol:
        return self.op("Sub", other)

    def __rsub__(self, other: Any) -> Symbol:
        return self.tape.op("Sub", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return self.op("Mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Symbol:
        return self.op("Div", other)

    def __neg__(self) -> Symbol:
        return self.op("Neg")

    def shaped(self, shape: Sequence[int]) -> Symbol:
        """With another shape."""
        return self.op("Reshape", np.array(shape, np.int64))

    def summed(self, axes: Sequence[int]) -> Symbol:
        """Summed over axes, which stay as axes of length 1."""
        return self.op("ReduceSum", np.array(axes, np.int64))

    def number(self, condition: str, other: Any) -> Symbol:
        """1.0 where a comparison with another tensor holds, else 0.0."""
        return self.op(condition, other).op("Cast", to=onnx_module().TensorProto.FLOAT)

    def like(self, before: Shape, after: Shape) -> Symbol:
        """The gradient at a tensor of a shape that was broadcast to another one."""
        extra = len(before) - len(after)
        axes = [k for k, size in enumerate(before) if k < extra or after[k - extra] != size]
        found = self.summed(axes) if axes else self
        return found.shaped(after) if extra else found


class At:
    """A node of the forward network, as its backward rule sees it."""

    def __init__(self, node: Any, values: Mapping[str, NDArray[Any]], tape: Tape, opset: int, is_needed: Any) -> None:
        self.node, self.tape, self.opset, self.attributes = node, tape, opset, attributes_of(node)
        self._values, self._is_needed = values, is_needed

    def needs(self, place: int) -> bool:
        """Whether the gradient at an input is asked for."""
        return place < len(self.node.input) and self._is_needed(self.node.input[place])

    def x(self, place: int = 0) -> Symbol:
        """An input."""
        return self._read(self.node.input[place])

    def y(self) -> Symbol:
        """The first output."""
        return self._read(self.node.output[0])

    def _read(self, name: str) -> Symbol:
        dtype = self._values[name].dtype
        found = self.tape.read(name, dtype)
        is_other = dtype.kind == "f" and dtype != np.float32
        return found.op("Cast", to=onnx_module().TensorProto.FLOAT) if is_other else found

    def value(self, place: int) -> Any:
        """An input that does not depend on the rows, such as axes, as an array; None where there is none."""
        name = self.node.input[place] if place < len(self.node.input) else ""
        return self._values[name] if name else None

    def shape(self, place: int = 0) -> Shape:
        """Of an input."""
        return self._values[self.node.input[place]].shape

    @property
    def out(self) -> Shape:
        """The shape of the first output."""
        return self._values[self.node.output[0]].shape

    def axes(self, default: Sequence[int]) -> list[int]:
        """The axes that a reduction names as an attribute or as its second input, not below 0."""
        given = self.attributes.get("axes", self.value(1))
        found = default if given is None or not len(given) else given
        return [int(axis) % len(self.shape()) for axis in found]


Rule = Callable[..., Sequence[Symbol | None]]  # of an `At` and the gradients at the outputs, to those at the inputs
RULES: dict[str, Rule] = {}


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, function))
        return function

    return register


# Of one input x and the output y: the derivative, element by element.
_ELEMENTWISE: dict[str, Callable[[At], Any]] = {
    "Relu": lambda at: at.y().number("Greater", 0.0),
    "LeakyRelu": lambda at: _steps(at.x().number("Greater", 0.0), at.attributes.get("alpha", 0.01)),
    "Clip": lambda at: at.x().number("Equal", at.y()),
    "Sigmoid": lambda at: at.y() * (1.0 - at.y()),
    "HardSigmoid": lambda at: (
        at.y().number("Greater", 0.0) * at.y().number("Less", 1.0) * float(at.attributes.get("alpha", 0.2))
    ),
    "Tanh": lambda at: 1.0 - at.y() * at.y(),
    "Exp": lambda at: at.y(),
    "Log": lambda at: at.x().op("Reciprocal"),
    "Sqrt": lambda at: (2.0 * at.y()).op("Reciprocal"),
    "Reciprocal": lambda at: -(at.y() * at.y()),
    "Erf": lambda at: (-(at.x() * at.x())).op("Exp") * (2 / sqrt(pi)),
    "Abs": lambda at: at.x().op("Sign"),
    "Neg": lambda at: -1.0,
    "Softplus": lambda at: at.x().op("Sigmoid"),
    "Pow": lambda at: at.x().op("Pow", _exponent(at) - 1.0) * _exponent(at),
}


def _steps(is_above: Symbol, below: float) -> Symbol:
    return is_above * (1.0 - below) + float(below)


def _exponent(at: At) -> NDArray[Any]:
    return np.asarray(at.value(1), np.float32)


@rule(*_ELEMENTWISE)
def _elementwise(at: At, g: Symbol) -> list[Symbol]:
    return [g * _ELEMENTWISE[at.node.op_type](at)]


@rule("Identity", "Cast", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshaped(at: At, g: Symbol) -> list[Symbol]:
    return [g.shaped(at.shape())]


@rule("Transpose")
def _transposed(at: At, g: Symbol) -> list[Symbol]:
    order = at.attributes.get("perm", list(range(len(at.out)))[::-1])
    return [g.op("Transpose", perm=np.argsort(order).tolist())]


@rule("Add", "Sum", "Sub", "Mul", "Div", "Max", "Min", "Mean")
def _broadcast(at: At, g: Symbol) -> list[Symbol | None]:
    operator, count = at.node.op_type, len(at.node.input)

    def own(place: int) -> Symbol:
        if operator in ("Max", "Min"):
            return g * at.x(place).number("Equal", at.y())
        if operator == "Mul":
            return g * at.x(1 - place)
        if operator == "Div":
            return -(g * at.y() / at.x(1)) if place else g / at.x(1)
        if operator == "Mean":
            return g * (1.0 / count)
        return -g if operator == "Sub" and place else g

    return [own(place).like(at.out, at.shape(place)) if at.needs(place) else None for place in range(count)]


@rule("Where")
def _where(at: At, g: Symbol) -> list[Symbol | None]:
    chosen = at.x(0).op("Cast", to=onnx_module().TensorProto.FLOAT)
    return [None, *((g * part).like(at.out, at.shape(k)) for k, part in ((1, chosen), (2, 1.0 - chosen)))]


@rule("Expand")
def _expanded(at: At, g: Symbol) -> list[Symbol]:
    return [g.like(at.out, at.shape())]


@rule("Concat")
def _joined(at: At, g: Symbol) -> list[Symbol | None]:
    axis, end, found = at.attributes["axis"] % len(at.out), 0, list[Symbol | None]()
    for place in range(len(at.node.input)):
        first, end = end, end + at.shape(place)[axis]
        limits = (np.array([number], np.int64) for number in (first, end, axis))
        found.append(g.op("Slice", *limits) if at.needs(place) else None)
    return found


@rule("Slice", "Gather", "Split", "Resize", "Pad", "Tile", "DepthToSpace", "SpaceToDepth", "Upsample")
def _moved(at: At, *gradients: Symbol | None) -> list[Symbol]:
    """Operators that copy entries: what is copied from where is seen by running them on the entries' numbers."""
    size, found = prod(at.shape()), list[Symbol]()
    numbers = np.arange(1, size + 1, dtype=np.float64 if at.node.op_type in _OF_FLOATS else np.int32)
    sources = _run_node(at, numbers.reshape(at.shape()))
    for g, source in zip(gradients, sources, strict=True):
        if g is not None:
            zeros, flat = np.zeros(size + 1, np.float32), source.astype(np.int64).ravel()  # 0 is what is padded
            added = at.tape.op("ScatterElements", zeros, flat, g.shaped([-1]), axis=0, reduction="add")
            limits = (np.array([number], np.int64) for number in (1, size + 1))
            found.append(added.op("Slice", *limits))
    return [reduce(Symbol.__add__, found).shaped(at.shape())]


_OF_FLOATS = ("DepthToSpace", "SpaceToDepth")  # which the runtime has for no whole numbers


def _run_node(at: At, values: NDArray[Any]) -> list[NDArray[Any]]:
    """The outputs of a node whose first input is exchanged."""
    given = {name: at.value(place) for place, name in enumerate(at.node.input) if place and name}
    if at.node.op_type == "Pad" and "".join(at.node.input[2:3]) != "":
        given[at.node.input[2]] = np.zeros((), values.dtype)
    onnx = onnx_module()
    node = onnx.NodeProto.FromString(at.node.SerializeToString())
    node.input[0] = "numbers"
    constants = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in given.items()]
    session = _session_of([node], {"numbers": values.dtype}, node.output, constants, at.opset)
    return [np.asarray(one) for one in session.run(None, {"numbers": values})]


@rule("ReduceSum", "ReduceMean", "ReduceMax", "GlobalAveragePool", "GlobalMaxPool")
def _reduced(at: At, g: Symbol) -> list[Symbol]:
    shape, operator = at.shape(), at.node.op_type
    is_pool = operator.startswith("Global")
    axes = list(range(2, len(shape))) if is_pool else at.axes(range(len(shape)))
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    g = g.shaped(kept)
    if operator in ("ReduceMax", "GlobalMaxPool"):
        is_largest = at.x().number("Equal", at.y().shaped(kept))
        return [is_largest * (g / is_largest.summed(axes))]
    if operator != "ReduceSum":
        g = g * (1.0 / prod(shape[axis] for axis in axes))
    return [g.op("Expand", np.array(shape, np.int64))]


@rule("Softmax", "LogSoftmax")
def _softmax(at: At, g: Symbol) -> list[Symbol]:
    axis = at.attributes.get("axis", 1 if at.opset < 13 else -1) % len(at.out)
    axes = [axis] if at.opset >= 13 else list(range(axis, len(at.out)))
    if at.node.op_type == "LogSoftmax":
        return [g - at.y().op("Exp") * g.summed(axes)]
    return [at.y() * (g - (g * at.y()).summed(axes))]


@rule("BatchNormalization")
def _normalized(at: At, g: Symbol) -> list[Symbol]:
    scale, variance = at.value(1), at.value(4)
    factor = scale / np.sqrt(variance + at.attributes.get("epsilon", 1e-5))
    return [g * factor.astype(np.float32).reshape(-1, *[1] * (len(at.out) - 2))]


@rule("LayerNormalization")
def _layer_normalized(at: At, g: Symbol) -> list[Symbol]:
    x, shape = at.x(), at.shape()
    axes = list(range(at.attributes.get("axis", -1) % len(shape), len(shape)))
    share = 1.0 / prod(shape[axis] for axis in axes)
    centred = x - x.summed(axes) * share
    spread = ((centred * centred).summed(axes) * share + float(at.attributes.get("epsilon", 1e-5))).op("Sqrt")
    unit, g = centred / spread, g * at.x(1)
    return [(g - g.summed(axes) * share - unit * ((g * unit).summed(axes) * share)) / spread]


@rule("MatMul")
def _product(at: At, g: Symbol) -> list[Symbol | None]:
    def turned(place: int) -> Symbol:
        axes = list(range(len(at.shape(place))))
        return at.x(place).op("Transpose", perm=[*axes[:-2], axes[-1], axes[-2]])

    def shape_of(place: int) -> Shape:  # of a product of stacks of matrices
        return (*at.out[:-2], *at.shape(place)[-2:])

    first = g.op("MatMul", turned(1)).like(shape_of(0), at.shape(0)) if at.needs(0) else None
    second = turned(0).op("MatMul", g).like(shape_of(1), at.shape(1)) if at.needs(1) else None
    return [first, second]


@rule("Gemm")
def _general_product(at: At, g: Symbol) -> list[Symbol | None]:
    alpha, beta = (float(at.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    turned = [bool(at.attributes.get(name, 0)) for name in ("transA", "transB")]
    first = second = added = None
    if at.needs(0):
        left, right = (at.x(1), g) if turned[0] else (g, at.x(1))
        first = left.op("Gemm", right, transA=int(turned[0] and turned[1]), transB=int(turned[0] or not turned[1]))
        first = first * alpha
    if at.needs(1):
        left, right = (g, at.x(0)) if turned[1] else (at.x(0), g)
        second = left.op("Gemm", right, transA=int(turned[1] or not turned[0]), transB=int(turned[0] and turned[1]))
        second = second * alpha
    if at.needs(2):
        added = (g * beta).like(at.out, at.shape(2))
    return [first, second, added]


def _window(at: At, kernel: Shape, images: Shape, places: Shape) -> dict[str, Any]:
    """Strides, dilations, and pads as they are, of a convolution or pooling of images of a shape to so many places."""
    axes = len(kernel)
    strides, dilations = (list(at.attributes.get(name, [1] * axes)) for name in ("strides", "dilations"))
    pads = list(at.attributes.get("pads", [0] * 2 * axes))
    automatic = at.attributes.get("auto_pad", b"NOTSET").decode()
    if automatic.startswith("SAME"):
        needed = [
            max((place - 1) * stride + (width - 1) * dilation + 1 - size, 0)
            for size, place, stride, width, dilation in zip(images, places, strides, kernel, dilations, strict=True)
        ]
        less, more = [zeros // 2 for zeros in needed], [-(-zeros // 2) for zeros in needed]
        pads = less + more if automatic == "SAME_UPPER" else more + less
    return {"strides": strides, "dilations": dilations, "pads": pads}


def _spread(g: Symbol, filters: Any, kernel: Shape, images: Shape, places: Shape, group: int, window: Any) -> Symbol:
    """The gradient at the images of a convolution."""
    pads, axes, rest = list(window["pads"]), len(kernel), list[int]()
    for k, (size, place, stride, width, dilation) in enumerate(
        zip(images, places, window["strides"], kernel, window["dilations"], strict=True)
    ):
        left = size - ((place - 1) * stride + (width - 1) * dilation + 1 - pads[k] - pads[k + axes])
        pads[k + axes] += max(-left, 0)
        rest.append(max(left, 0))
    return g.op("ConvTranspose", filters, group=group, output_padding=rest, **{**window, "pads": pads})


@rule("Conv")
def _convolution(at: At, g: Symbol) -> list[Symbol | None]:
    kernel, images, places = at.shape(1)[2:], at.shape()[2:], at.out[2:]
    window, group = _window(at, kernel, images, places), at.attributes.get("group", 1)
    first = _spread(g, at.x(1), kernel, images, places, group, window) if at.needs(0) else None
    bias = g.summed([0, *range(2, len(at.out))]).shaped(at.shape(2)) if at.needs(2) else None
    return [first, None, bias]


@rule("ConvTranspose")
def _transposed_convolution(at: At, g: Symbol) -> list[Symbol | None]:
    window = _window(at, at.shape(1)[2:], at.out[2:], at.shape()[2:])
    first = g.op("Conv", at.x(1), group=at.attributes.get("group", 1), **window) if at.needs(0) else None
    bias = g.summed([0, *range(2, len(at.out))]).shaped(at.shape(2)) if at.needs(2) else None
    return [first, None, bias]


@rule("AveragePool")
def _mean_pooled(at: At, g: Symbol) -> list[Symbol]:
    kernel, images, places = tuple(at.attributes["kernel_shape"]), at.shape()[2:], at.out[2:]
    window, channels = _window(at, kernel, images, places), at.out[1]
    # The share of every window that counts.
    is_whole = bool(at.attributes.get("count_include_pad", 0))
    inside, pads = np.ones((1, 1, *places)), window["pads"]
    for axis, (size, place, stride, width, dilation) in enumerate(
        zip(images, places, window["strides"], kernel, window["dilations"], strict=True)
    ):
        before, after = (pads[axis], pads[axis + len(kernel)]) if is_whole else (0, 0)
        spots = np.arange(place)[:, None] * stride - pads[axis] + np.arange(width) * dilation
        share = ((spots >= -before) & (spots < size + after)).mean(axis=1)
        inside = inside * share.reshape([-1 if k == axis + 2 else 1 for k in range(inside.ndim)])
    filters = np.full((channels, 1, *kernel), 1 / prod(kernel), np.float32)
    return [_spread(g / inside.astype(np.float32), filters, kernel, images, places, channels, window)]


@rule("MaxPool")
def _max_pooled(at: At, g: Symbol) -> list[Symbol]:
    size, tape, names = prod(at.shape()), at.tape, [f"{kind}{len(at.tape.nodes)}" for kind in ("pooled", "place")]
    known = {name: value for name, value in at.attributes.items() if name != "storage_order"}
    tape.nodes.append(tape.node("MaxPool", [at.x()], names, **known))
    places, zeros = Symbol(tape, names[1]).shaped([-1]), np.zeros(size, np.float32)
    added = tape.op("ScatterElements", zeros, places, g.shaped([-1]), axis=0, reduction="add")
    return [added.shaped(at.shape())]


class Derivatives:
    """A network that is run forward, and backward to the tensors `wanted`: outputs of nodes, or constants.

    `unknown` has those that the rules do not reach, each with the operator that has no rule.
    """

    def __init__(self, network: OnnxGraph, wanted: Sequence[str]) -> None:
        self.network, self.wanted = network, list(wanted)
        self.outputs = [value.name for value in network.graph.output]
        self.unknown = dict[str, str]()
        self._backwards = dict[tuple[Any, ...], tuple[list[str], Any]]()  # by the shapes of what is fed
        self._run: tuple[list[str], int, Any] | None = None

    def forward(self, feed: Feed) -> dict[str, NDArray[Any]]:
        """The network's outputs, the wanted tensors, and all else that `backward` needs."""
        names, _ = self._prepared(feed)
        if self._run is None or self._run[0] != names or self._run[1] != self.network.version:
            self._run = names, self.network.version, self.network.runner(names)
        return dict(zip(names, self._run[2](feed), strict=True))

    def backward(self, feed: Feed, values: Mapping[str, NDArray[Any]], gradients: Mapping[str, Any]) -> dict[str, Any]:
        """The gradients at the wanted tensors of a function with these gradients at the outputs."""
        run = self._prepared(feed)[1]
        given = {_gradient_of(name): np.asarray(gradient, np.float32) for name, gradient in gradients.items()}
        constants = {name: self.network.constant(name) for name in self.network.constants}
        return run({**constants, **feed, **values, **given})

    def _prepared(self, feed: Feed) -> tuple[list[str], Any]:
        """What is computed forward, and the backward run, for rows of these shapes."""
        key = tuple((name, np.shape(values)) for name, values in feed.items())
        if key not in self._backwards:
            graph, constants = self.network.graph, self.network.constants
            computed = [name for node in graph.node for name in node.output if name]
            values = dict(zip(computed, self.network.runner(computed)(feed), strict=True))
            tape, ends = self._backward({**values, **feed, **{name: self.network.constant(name) for name in constants}})
            needed = {*tape.reads, *self.outputs, *self.wanted}
            names = [name for name in computed if name in needed]
            self._backwards[key] = names, tape.session(ends)
        return self._backwards[key]

    def _backward(self, values: Mapping[str, NDArray[Any]]) -> tuple[Tape, dict[str, Symbol]]:
        """The backward network for tensors of these shapes and types, and its outputs."""
        moving = set(self.wanted)  # and whatever depends on these
        for node in self.network.graph.node:
            if moving.intersection(node.input):
                moving.update(name for name in node.output if name and values[name].dtype.kind == "f")
        opset = next(one.version for one in self.network.model.opset_import if one.domain in ("", "ai.onnx"))
        tape, blocked = Tape(), dict[str, str]()
        parts: dict[str, list[Symbol]] = {
            name: [tape.read(_gradient_of(name), np.dtype(np.float32))] for name in self.outputs if name in moving
        }
        for node in reversed(self.network.graph.node):
            if not moving.intersection(node.input):
                continue
            reason = next((blocked[name] for name in node.output if name in blocked), None)
            made = [reduce(Symbol.__add__, parts[name]) if name in parts else None for name in node.output]
            if reason is None and not any(made):
                continue
            known = RULES.get(node.op_type)
            if reason is not None or known is None or (made[0] is None and node.op_type != "Split"):
                blocked.update((name, reason or node.op_type) for name in node.input if name in moving)
                continue
            at = At(node, values, tape, opset, moving.__contains__)
            gradients = known(at, *made) if node.op_type == "Split" else known(at, made[0])
            for name, gradient in zip(node.input, gradients, strict=False):
                if gradient is not None and name in moving:
                    parts.setdefault(name, []).append(gradient)
        self.unknown |= {name: blocked[name] for name in self.wanted if name in blocked}
        reached = [name for name in self.wanted if name in parts and name not in blocked]
        return tape, {name: reduce(Symbol.__add__, parts[name]) for name in reached}


def _gradient_of(name: str) -> str:
    return f"gradient of {name}"
