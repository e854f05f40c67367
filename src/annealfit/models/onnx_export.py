"""Fitted models as ONNX files: features, scalers and a classifier as one graph of standard operators.

Rows are given in single precision, as is usual in ONNX. Scalers and linear layers compute in double precision, and
convolutions in single precision, the only one that onnxruntime has for them.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from annealfit._support.errors import InvalidInputError
from annealfit._support.files import StrPath, replacing
from annealfit.data.convolution import with_channels
from annealfit.data.features import OnnxFeatures, RandomConvFeatures, RowScaler
from annealfit.data.features.onnx_files import onnx_module, open_session, with_opset
from annealfit.models import AnnealedClassifier, AnnealedConvNet
from annealfit.models.family import onnx_graphs as family
from annealfit.models.image_classifier import ImageClassifier

_OPSET, _TREE_OPSET, _IR_VERSION = 13, 1, 8
_LOST_DIGITS = 1e-3  # of a standard deviation, or of logits: more changes probabilities that people look at
_INPUT, _LABEL, _PROBABILITIES, _SCORES, _VALUES = "X", "label", "probabilities", "scores", "variable"


def to_onnx(model: Any, path: StrPath) -> None:
    """Write a fitted model as an ONNX file, whose answers are those of `predict` and `predict_proba`.

    Takes the estimators of this package, pipelines of them after scikit-learn's `StandardScaler`, `MinMaxScaler` or
    `MaxAbsScaler`, `RowScaler`, `RandomConvFeatures` or `OnnxFeatures`, these features alone, and an `ImageClassifier`
    (`register_skl2onnx` is for other steps). The input `X` is in single precision, in the shape of the rows or images
    of `fit`, for `BinarySparseCoding` flat rows. Outputs are named as by skl2onnx: `label` (N,) and `probabilities`
    (N, C); models without probabilities have `scores`, their `decision_function`; regressions and features have
    `variable`. Codes are found by a loop that descends as `GreedyDescent` does. Probabilities agree with those of the
    same rows within 1e-6, after convolutions 2e-6, unless logits are huge. Columns far from 0, as times in seconds,
    lose digits in single precision; a warning names one where it matters. Needs the extra `onnx`.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> import tempfile, onnxruntime
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), AnnealedClassifier(max_iter=20, random_state=0)).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_onnx(model, f"{folder}/iris.onnx")
    ...     session = onnxruntime.InferenceSession(f"{folder}/iris.onnx")
    >>> label, probabilities = session.run(None, {"X": X.astype("float32")})
    >>> bool((label == model.predict(X)).all()), probabilities.shape
    (True, (150, 3))
    """
    content = graph_of(model).model().SerializeToString()
    _warn_of_lost_digits(_steps_of(model)[0])
    open_session(content)  # what onnxruntime refuses is not written
    with replacing(path) as file:
        file.write(content)


def graph_of(model: Any, kind: Any = None, prefix: str = "") -> Graph:
    """Return the graph of a fitted model or pipeline, of inputs of an element type; None is single precision.

    All names in it begin with the prefix.
    """
    steps = _steps_of(model)
    for step in steps:
        if type(step) not in _FEATURES | _MODELS:
            known = ", ".join(sorted(kind.__name__ for kind in _FEATURES | _MODELS))
            raise InvalidInputError(f"{type(step).__name__} cannot be written as ONNX; steps that can: {known}")
        check_is_fitted(step)
    if not steps or any(type(step) not in _FEATURES for step in steps[:-1]):
        raise InvalidInputError(f"{model!r} cannot be written as ONNX; pass a model, or features and then a model")
    graph = Graph(_input_shape(steps[0]), kind, prefix)
    value = graph.input
    for step in steps[:-1]:
        value = _FEATURES[type(step)](graph, step, value)
    last = type(steps[-1])
    if last in _MODELS and (last not in _FEATURES or hasattr(steps[-1], "classes_")):
        _MODELS[last](graph, steps[-1], value)
    else:
        graph.output(_FEATURES[last](graph, steps[-1], value), _VALUES, None)
    return graph


def _warn_of_lost_digits(first: Any) -> None:
    """Warn where single precision loses what tells rows apart, as far as a scaler or a classifier knows the rows."""
    limits, what = np.finfo(np.float32), "column {}, in units of its spread,"
    if isinstance(first, AnnealedClassifier):  # its biases undo what its weights make of columns far from 0
        centres, spreads, what = abs(first.intercept_).max(keepdims=True), np.ones(1), "the logits"
    elif isinstance(first, MinMaxScaler):
        centres, spreads = (first.data_min_ + first.data_max_) / 2, first.data_range_
    elif isinstance(first, StandardScaler | RowScaler) and first.mean_ is not None and first.scale_ is not None:
        centres, spreads = first.mean_, np.where(first.scale_ == 1.0, 0.0, first.scale_)  # 1 for constants
    else:
        return
    with np.errstate(all="ignore"):
        sizes = abs(centres) + spreads
        lost = np.where((sizes > limits.tiny) & (sizes < limits.max), limits.eps * sizes / spreads, np.inf)
    lost[spreads == 0] = 0.0  # a constant has no weight
    if lost.max() > _LOST_DIGITS:
        warnings.warn(
            f"the file takes rows in single precision, which changes {what.format(lost.argmax())} by up to "
            f"{lost.max():.2g}; subtract a number from such columns, as the first date from dates, or divide them by "
            "one, and fit again",
            stacklevel=3,
        )


def _steps_of(model: Any) -> list[Any]:
    if isinstance(model, ImageClassifier):
        named = copy.copy(model.classifier)
        named.classes_ = np.array(model.class_names, dtype=object)[model.classifier.classes_]
        return [model.features, named]
    if not isinstance(model, Pipeline):
        return [model]
    return [part for _, step in model.steps if step not in (None, "passthrough") for part in _steps_of(step)]


def _input_shape(step: Any) -> tuple[int, ...]:
    features = getattr(step, "features_", step)  # those of a network
    return tuple(getattr(features, "input_shape_", None) or (step.n_features_in_,))


class Graph:
    """An ONNX graph in the making; values are known by name, and their element types are kept."""

    def __init__(self, input_shape: Sequence[int], kind: Any = None, prefix: str = "") -> None:
        self._helper, self._types = onnx_module("onnx.helper"), onnx_module().TensorProto
        self.float, self.double = self._types.FLOAT, self._types.DOUBLE
        self.whole, self.flag = self._types.INT64, self._types.BOOL
        self._nodes: list[Any] = []
        self._prefix, self.input = prefix, f"{prefix}{_INPUT}"
        self._constants: dict[str, Any] = {}
        self._networks: list[Any] = []
        self._type_of = {self.input: kind or self.float}
        self._inputs = [self._helper.make_tensor_value_info(self.input, kind or self.float, [None, *input_shape])]
        self._outputs: list[Any] = []

    def add(self, operator: str, *inputs: Any, into: str | None = None, kind: Any = None, **attributes: Any) -> str:
        """Append an operator; arrays among the inputs become constants. The result has the type of the first input."""
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        made = into or f"{self._prefix}{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(operator, names, [made], name=f"{made}_node", **attributes))
        self._type_of[made] = self._type_of[names[0]] if kind is None else kind
        return made

    def constant(self, values: Any) -> str:
        """Return the name of an array as a value."""
        array = np.asarray(values, order="C")
        name = f"{self._prefix}constant_{len(self._constants)}"
        self._constants[name] = onnx_module().numpy_helper.from_array(array, name)
        self._type_of[name] = self._constants[name].data_type
        return name

    def cast(self, value: str, kind: Any) -> str:
        """Convert a value to an element type, unless it has it."""
        return value if self._type_of[value] == kind else self.add("Cast", value, kind=kind, to=kind)

    def reshape(self, value: str, *shape: int) -> str:
        """Give a value the shape (N, …)."""
        return self.add("Reshape", value, np.array([-1, *shape]))

    def output(self, value: str, name: str, *sizes: int | None) -> None:
        """Make a value an output; sizes are those after the rows, None where unknown."""
        name = self.add("Identity", value, into=f"{self._prefix}{name}")
        shape = [None, *sizes]
        self._outputs.append(self._helper.make_tensor_value_info(name, self._type_of[name], shape))

    def labels(self, scores: str, classes: NDArray[Any]) -> str:
        """Output the class with the largest score, and return the scores (N, C).

        A single score is that of the second of two classes, and is completed by 0 for the first.
        """
        if len(classes) == 2:
            scores = self.add("Concat", self.add("Sub", scores, scores), scores, axis=1)
        place = self.add("ArgMax", scores, kind=self.whole, axis=1, keepdims=0)
        self.output(self.add("Gather", self.constant(_storable(classes)), place), _LABEL)
        return scores

    def linear(self, value: str, coef: NDArray[Any], intercept: NDArray[Any]) -> str:
        """`x @ coef.T + intercept`, (N, outputs), in double precision."""
        return self.add("Gemm", self.cast(value, self.double), np.atleast_2d(coef).T, np.atleast_1d(intercept))

    def probabilities(self, scores: str, classes: NDArray[Any]) -> None:
        """Output label and probabilities: the softmax of scores, as `labels` takes them."""
        self.output(self.add("Softmax", self.labels(scores, classes), axis=1), _PROBABILITIES, len(classes))

    def scores(self, scores: str, classes: NDArray[Any]) -> None:
        """Output label and scores as a `decision_function` returns them."""
        self.labels(scores, classes)
        sizes = () if len(classes) == 2 else (len(classes),)
        self.output(self.reshape(scores, *sizes), _SCORES, *sizes)

    def loop(self, step: Callable[..., tuple[str, ...]], most: int, *states: str) -> str:
        """Repeat a step on matrices until its first result is false, at most so often; returns the first matrix.

        `step` takes a graph and the matrices, and returns whether to go on, and the next matrices.
        """
        inner, name = copy.copy(self), f"{self._prefix}loop_{len(self._nodes)}"
        inner._nodes, inner._prefix = [], f"{name}_"
        kinds, info = [self._type_of[state] for state in states], self._helper.make_tensor_value_info
        given = [f"{name}_given_{number}" for number in range(len(states))]
        self._type_of |= dict(zip(given, kinds, strict=True))
        going, *found = step(inner, *given)
        matrices = [
            [info(each, kind, [None, None]) for each, kind in zip(names, kinds, strict=True)]
            for names in (given, found)
        ]
        counters = [info(f"{name}_count", self.whole, []), info(f"{name}_going", self.flag, [])]
        body = self._helper.make_graph(
            inner._nodes, name, counters + matrices[0], [info(going, self.flag, []), *matrices[1]]
        )
        limits = self.constant(np.int64(most)), self.constant(np.bool_(True))
        made = [name, *(f"{name}_{number}" for number in range(1, len(states)))]
        self._nodes.append(self._helper.make_node("Loop", [*limits, *states], made, name=f"{name}_node", body=body))
        self._type_of[name] = kinds[0]
        return name

    def network(self, network: Any, value: str, feeds: str, output: str, kind: Any) -> str:
        """Append a whole network that reads a value as its input `feeds`; returns its output."""
        if self._networks:
            raise InvalidInputError("two ONNX networks cannot be written as one file; join them before")
        prefix = f"{self._prefix}network_"
        network = onnx_module("onnx.compose").add_prefix(with_opset(network, _OPSET), prefix)
        self._networks.append(network)
        self.add("Identity", value, into=f"{prefix}{feeds}")
        self._nodes += network.graph.node
        self._constants |= {tensor.name: tensor for tensor in network.graph.initializer}
        self._type_of[f"{prefix}{output}"] = kind
        return f"{prefix}{output}"

    def model(self) -> Any:
        """Return the finished model, checked."""
        make_opset, versions = self._helper.make_opsetid, {"": _OPSET, "ai.onnx.ml": _TREE_OPSET}
        for network in self._networks:
            versions |= {"" if one.domain == "ai.onnx" else one.domain: one.version for one in network.opset_import}
        used = {node.domain for node in self._nodes}
        graph = self._helper.make_graph(
            self._nodes, "annealfit", self._inputs, self._outputs, list(self._constants.values())
        )
        model = self._helper.make_model(
            graph,
            functions=[function for network in self._networks for function in network.functions],
            opset_imports=[make_opset(name, version) for name, version in versions.items() if name in used],
            ir_version=max([_IR_VERSION, *(network.ir_version for network in self._networks)]),
            producer_name="annealfit",
        )
        onnx_module("onnx.checker").check_model(model)
        return model


def _scaled(graph: Graph, step: Any, value: str) -> str:
    """`(x − mean) / scale`, or a part of it."""
    value = graph.cast(value, graph.double)
    if hasattr(step, "mean_") and getattr(step, "with_mean", True):
        value = graph.add("Sub", value, step.mean_)
    return graph.add("Div", value, step.scale_) if getattr(step, "with_std", True) else value


def _min_max(graph: Graph, step: MinMaxScaler, value: str) -> str:
    value = graph.add("Mul", graph.cast(value, graph.double), step.scale_)
    value = graph.add("Add", value, step.min_)
    return graph.add("Clip", value, *map(np.float64, step.feature_range)) if step.clip else value


def _convolutions(graph: Graph, features: RandomConvFeatures, value: str) -> str:
    shape = features.image_shape_
    if features.pixel_scaler_ is not None:
        value = _scaled(graph, features.pixel_scaler_, graph.reshape(value, math.prod(shape)))
    value = graph.reshape(graph.cast(value, graph.float), *shape)
    value = graph.add("Transpose", value, perm=[0, 3, 1, 2])
    for filters, biases, (_, _, pool) in zip(features.filters_, features.biases_, features.layers(), strict=True):
        value = graph.add("Conv", value, filters.astype(np.float32), biases.astype(np.float32))
        value = graph.add("MaxPool", graph.add("Relu", value), kernel_shape=[pool] * 2, strides=[pool] * 2)
    value = graph.reshape(value, features.n_features_out_)
    return value if features.feature_scaler_ is None else _scaled(graph, features.feature_scaler_, value)


def _network(graph: Graph, features: OnnxFeatures, value: str) -> str:
    """Append the network, and what `OnnxFeatures` does to images before it."""
    network = onnx_module().load_model_from_string(features.model_)
    constants = {tensor.name for tensor in network.graph.initializer}
    entry, *others = (one for one in network.graph.input if one.name not in constants)
    sizes = entry.type.tensor_type.shape.dim
    if others or (sizes and sizes[0].HasField("dim_value")):
        raise InvalidInputError(
            "OnnxFeatures of a network with several inputs, or a fixed number of rows, cannot be written as ONNX; "
            "export the network with one input and any number of rows"
        )
    shape = tuple(features.image_shape_ if features.image_shape is not None else features.input_shape_)
    if len(shape) == 2 and len(sizes) == 4:
        shape = with_channels(shape)
    value = graph.reshape(graph.cast(value, graph.float), *shape)
    for operator, numbers, neutral in (("Sub", features.mean, 0), ("Div", features.std, 1)):
        if np.any(np.asarray(numbers) != neutral):
            value = graph.add(operator, value, np.asarray(numbers, dtype=np.float32))
    if len(shape) == 3 and features.channels_first:
        value = graph.add("Transpose", value, perm=[0, 3, 1, 2])
    value = graph.cast(value, entry.type.tensor_type.elem_type)
    kind = onnx_module("onnx.helper").np_dtype_to_tensor_dtype(np.dtype(features.dtype_))
    value = graph.network(network, value, entry.name, features.output_, kind)
    return graph.reshape(value, features.n_features_out_)


def _classifier(graph: Graph, model: AnnealedClassifier | AnnealedConvNet, value: str) -> None:
    if isinstance(model, AnnealedConvNet):
        value = _convolutions(graph, model.features_, value)
    graph.probabilities(graph.linear(value, model.coef_, model.intercept_), model.classes_)


def _storable(classes: NDArray[Any]) -> NDArray[Any]:
    """Labels in a type that ONNX has: whole numbers in 64 bits, text, true and false, fractions."""
    if classes.dtype.kind in "iu" and (not len(classes) or classes.max() <= np.iinfo(np.int64).max):
        return classes.astype(np.int64)
    if classes.dtype.kind == "U" or all(isinstance(label, str) for label in classes):
        return classes.astype(object)
    if classes.dtype.kind == "b" or classes.dtype in (np.float32, np.float64):
        return classes
    raise InvalidInputError(f"labels of the type {classes.dtype} cannot be stored in ONNX; use text or whole numbers")


_FEATURES: dict[type, Callable[[Graph, Any, str], str]] = {
    StandardScaler: _scaled,
    MaxAbsScaler: _scaled,
    RowScaler: _scaled,
    MinMaxScaler: _min_max,
    RandomConvFeatures: _convolutions,
    OnnxFeatures: _network,
    **family.FEATURES,
}
_MODELS: dict[type, Callable[[Graph, Any, str], None]] = {
    AnnealedClassifier: _classifier,
    AnnealedConvNet: _classifier,
    **family.MODELS,
}
OWN_STEPS = [kind for kind in _FEATURES | _MODELS if kind.__module__.startswith("annealfit.")]
