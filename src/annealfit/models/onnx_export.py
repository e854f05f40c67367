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
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import check_is_fitted

from annealfit._support.errors import InvalidInputError
from annealfit._support.files import StrPath, replacing
from annealfit.data.convolution import with_channels
from annealfit.data.features import OnnxFeatures, RandomConvFeatures, RowScaler
from annealfit.data.features.onnx_files import onnx_module, open_session, with_opset
from annealfit.models import AnnealedClassifier, AnnealedConvNet, QBoostClassifier, QUBORidge, QUBORidgeClassifier
from annealfit.models.family.svm import QUBOSVC
from annealfit.models.image_classifier import ImageClassifier

_OPSET, _TREE_OPSET, _IR_VERSION = 13, 1, 8
_LOST_DIGITS = 1e-3  # of a standard deviation, or of logits: more changes probabilities that people look at
_INPUT, _LABEL, _PROBABILITIES, _SCORES, _VALUES = "X", "label", "probabilities", "scores", "variable"


def to_onnx(model: Any, path: StrPath) -> None:
    """Write a fitted model as an ONNX file, whose answers are those of `predict` and `predict_proba`.

    Takes the classifiers of this package, `QUBORidge`, pipelines of them after scikit-learn's `StandardScaler`,
    `MinMaxScaler` or `MaxAbsScaler`, `RowScaler`, `RandomConvFeatures` or `OnnxFeatures`, these features alone, and
    an `ImageClassifier`. The input `X` is in single precision, in the shape of the rows or images of `fit`. Outputs are
    named as by skl2onnx: `label` (N,) and `probabilities` (N, C); models without probabilities have `scores`, their
    `decision_function`; regressions and features have `variable`. Probabilities agree with those of the same
    rows within 1e-6, after convolutions 2e-6, unless logits are huge. Columns far from 0, as times in seconds, lose
    digits in single precision; a warning names one where it matters. Needs the extra `onnx`.

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
    steps = _steps_of(model)
    for step in steps:
        if type(step) not in _FEATURES | _MODELS:
            known = ", ".join(sorted(kind.__name__ for kind in _FEATURES | _MODELS))
            raise InvalidInputError(f"{type(step).__name__} cannot be written as ONNX; steps that can: {known}")
        check_is_fitted(step)
    if not steps or any(type(step) in _MODELS for step in steps[:-1]):
        raise InvalidInputError(f"{model!r} cannot be written as ONNX; pass a model, or features and then a model")
    _warn_of_lost_digits(steps[0])
    graph = _Graph(_input_shape(steps[0]))
    value = _INPUT
    for step in steps[: -1 if type(steps[-1]) in _MODELS else None]:
        value = _FEATURES[type(step)](graph, step, value)
    if type(steps[-1]) in _MODELS:
        _MODELS[type(steps[-1])](graph, steps[-1], value)
    else:
        graph.output(value, _VALUES)
    content = graph.model().SerializeToString()
    open_session(content)  # what onnxruntime refuses is not written
    with replacing(path) as file:
        file.write(content)


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


class _Graph:
    """An ONNX graph in the making; values are known by name, and their element types are kept."""

    def __init__(self, input_shape: Sequence[int]) -> None:
        self._helper, self._types = onnx_module("onnx.helper"), onnx_module().TensorProto
        self.float, self.double = self._types.FLOAT, self._types.DOUBLE
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._networks: list[Any] = []
        self._inputs = [self._helper.make_tensor_value_info(_INPUT, self.float, [None, *input_shape])]
        self._outputs: list[Any] = []
        self._type_of = {_INPUT: self.float}

    def add(self, operator: str, *inputs: Any, into: str | None = None, kind: Any = None, **attributes: Any) -> str:
        """Append an operator; arrays among the inputs become constants. The result has the type of the first input."""
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        made = into or f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(operator, names, [made], name=f"{made}_node", **attributes))
        self._type_of[made] = self._type_of[names[0]] if kind is None else kind
        return made

    def constant(self, values: Any) -> str:
        array = np.ascontiguousarray(values)
        name = f"constant_{len(self._constants)}"
        self._constants[name] = onnx_module().numpy_helper.from_array(array, name)
        self._type_of[name] = self._constants[name].data_type
        return name

    def cast(self, value: str, kind: Any) -> str:
        """Convert a value to an element type, unless it has it."""
        return value if self._type_of[value] == kind else self.add("Cast", value, kind=kind, to=kind)

    def reshape(self, value: str, *shape: int) -> str:
        return self.add("Reshape", value, np.array([-1, *shape]))

    def output(self, value: str, name: str, *sizes: int) -> None:
        """Make a value an output; sizes are those after the rows, unknown ones left out."""
        self.add("Identity", value, into=name)
        shape = [None, *sizes]
        self._outputs.append(self._helper.make_tensor_value_info(name, self._type_of[name], shape))

    def labels(self, scores: str, classes: NDArray[Any]) -> str:
        """Output the class with the largest score, and return the scores (N, C).

        A single score is that of the second of two classes, and is completed by 0 for the first.
        """
        if len(classes) == 2:
            scores = self.add("Concat", self.add("Sub", scores, scores), scores, axis=1)
        place = self.add("ArgMax", scores, kind=self._types.INT64, axis=1, keepdims=0)
        self.output(self.add("Gather", self.constant(_storable(classes)), place), _LABEL)
        return scores

    def network(self, network: Any, value: str, feeds: str, output: str, kind: Any) -> str:
        """Append a whole network that reads a value as its input `feeds`; returns its output."""
        if self._networks:
            raise InvalidInputError("two ONNX networks cannot be written as one file; join them before")
        network = onnx_module("onnx.compose").add_prefix(with_opset(network, _OPSET), "network_")
        self._networks.append(network)
        self.add("Identity", value, into=f"network_{feeds}")
        self._nodes += network.graph.node
        self._constants |= {tensor.name: tensor for tensor in network.graph.initializer}
        self._type_of[f"network_{output}"] = kind
        return f"network_{output}"

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


def _scaled(graph: _Graph, step: Any, value: str) -> str:
    """`(x − mean) / scale`, or a part of it."""
    value = graph.cast(value, graph.double)
    if hasattr(step, "mean_") and getattr(step, "with_mean", True):
        value = graph.add("Sub", value, step.mean_)
    return graph.add("Div", value, step.scale_) if getattr(step, "with_std", True) else value


def _min_max(graph: _Graph, step: MinMaxScaler, value: str) -> str:
    value = graph.add("Mul", graph.cast(value, graph.double), step.scale_)
    value = graph.add("Add", value, step.min_)
    return graph.add("Clip", value, *map(np.float64, step.feature_range)) if step.clip else value


def _convolutions(graph: _Graph, features: RandomConvFeatures, value: str) -> str:
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


def _network(graph: _Graph, features: OnnxFeatures, value: str) -> str:
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


def _linear(graph: _Graph, model: Any, value: str) -> str:
    """`x @ coef.T + intercept`, (N, outputs)."""
    coef = np.atleast_2d(model.coef_).T
    return graph.add("Gemm", graph.cast(value, graph.double), coef, np.atleast_1d(model.intercept_))


def _classifier(graph: _Graph, model: AnnealedClassifier | AnnealedConvNet, value: str) -> None:
    if isinstance(model, AnnealedConvNet):
        value = _convolutions(graph, model.features_, value)
    logits = graph.labels(_linear(graph, model, value), model.classes_)
    graph.output(graph.add("Softmax", logits, axis=1), _PROBABILITIES, len(model.classes_))


def _scored(graph: _Graph, model: Any, scores: str) -> None:
    graph.labels(scores, model.classes_)
    n_classes = len(model.classes_)
    flat = () if n_classes == 2 else (n_classes,)
    graph.output(graph.reshape(scores, *flat), _SCORES, *flat)


def _ridge(graph: _Graph, model: QUBORidge, value: str) -> None:
    sizes = np.shape(model.intercept_)
    graph.output(graph.reshape(_linear(graph, model, value), *sizes), _VALUES, *sizes)


def _support_vectors(graph: _Graph, model: QUBOSVC, value: str) -> None:
    """`Σ_s a_s K(x, x_s) + b`; squared distances are `‖x‖² − 2x·x_s + ‖x_s‖²`, as in scikit-learn."""
    value, vectors = graph.cast(value, graph.double), model.support_vectors_
    kernel = graph.add("MatMul", value, vectors.T)
    if model.kernel == "rbf":
        squares = graph.add("MatMul", graph.add("Mul", value, value), np.ones((vectors.shape[1], 1)))
        distances = graph.add("Sub", squares, graph.add("Mul", kernel, np.float64(2.0)))
        distances = graph.add("Add", distances, np.vecdot(vectors, vectors))
        distances = graph.add("Max", distances, np.float64(0.0))
        kernel = graph.add("Exp", graph.add("Mul", distances, np.float64(-model.gamma_)))
    _scored(graph, model, graph.add("Gemm", kernel, model.dual_coef_.T, model.intercept_))


def _boosted(graph: _Graph, model: QBoostClassifier, value: str) -> None:
    for learner in model.estimators_:
        if type(learner) is not DecisionTreeClassifier:
            kind = type(learner).__name__
            raise InvalidInputError(f"QBoostClassifier of {kind} cannot be written as ONNX, only of decision trees")
    attributes = _tree_attributes(model.estimators_)
    votes = graph.add("TreeEnsembleRegressor", graph.cast(value, graph.float), domain="ai.onnx.ml", **attributes)
    votes = graph.cast(votes, graph.double)
    _scored(graph, model, graph.add("Gemm", votes, model.weights_.T, model.intercept_))


def _tree_attributes(learners: Sequence[DecisionTreeClassifier]) -> dict[str, Any]:
    """Attributes of a `TreeEnsembleRegressor` whose target t is the prediction of tree t."""
    trees: list[dict[str, Any]] = []
    for number, learner in enumerate(learners):
        tree = learner.tree_
        leaves = np.flatnonzero(tree.children_left < 0)
        predicted = learner.classes_[tree.value[leaves, 0].argmax(axis=1)]
        # Rows are compared in single precision: rounded down, a threshold parts them as before.
        thresholds = tree.threshold.astype(np.float32)
        thresholds = np.where(thresholds > tree.threshold, np.nextafter(thresholds, np.float32(-np.inf)), thresholds)
        trees.append(
            {
                "nodes_treeids": [number] * tree.node_count,
                "nodes_nodeids": range(tree.node_count),
                "nodes_featureids": np.maximum(tree.feature, 0).tolist(),
                "nodes_modes": ["LEAF" if left < 0 else "BRANCH_LEQ" for left in tree.children_left],
                "nodes_values": thresholds.tolist(),
                "nodes_truenodeids": np.maximum(tree.children_left, 0).tolist(),
                "nodes_falsenodeids": np.maximum(tree.children_right, 0).tolist(),
                "target_treeids": [number] * len(leaves),
                "target_nodeids": leaves.tolist(),
                "target_ids": [number] * len(leaves),
                "target_weights": predicted.astype(float).tolist(),
            }
        )
    columns = {name: [value for tree in trees for value in tree[name]] for name in trees[0]}
    return {**columns, "n_targets": len(learners), "aggregate_function": "SUM", "post_transform": "NONE"}


def _storable(classes: NDArray[Any]) -> NDArray[Any]:
    """Labels in a type that ONNX has: whole numbers in 64 bits, text, true and false, fractions."""
    if classes.dtype.kind in "iu" and (not len(classes) or classes.max() <= np.iinfo(np.int64).max):
        return classes.astype(np.int64)
    if classes.dtype.kind == "U" or all(isinstance(label, str) for label in classes):
        return classes.astype(object)
    if classes.dtype.kind == "b" or classes.dtype in (np.float32, np.float64):
        return classes
    raise InvalidInputError(f"labels of the type {classes.dtype} cannot be stored in ONNX; use text or whole numbers")


_FEATURES: dict[type, Callable[[_Graph, Any, str], str]] = {
    StandardScaler: _scaled,
    MaxAbsScaler: _scaled,
    RowScaler: _scaled,
    MinMaxScaler: _min_max,
    RandomConvFeatures: _convolutions,
    OnnxFeatures: _network,
}
_MODELS: dict[type, Callable[[_Graph, Any, str], None]] = {
    AnnealedClassifier: _classifier,
    AnnealedConvNet: _classifier,
    QBoostClassifier: _boosted,
    QUBORidge: _ridge,
    QUBORidgeClassifier: lambda graph, model, value: _scored(graph, model, _linear(graph, model, value)),
    QUBOSVC: _support_vectors,
}
