"""The family's models as ONNX operators, on the graph of `annealfit.models.onnx_export`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from annealfit._support.errors import InvalidInputError
from annealfit.models.family.boltzmann import AnnealedRBM, bit_weights
from annealfit.models.family.boosting import QBoostClassifier, SavedTree
from annealfit.models.family.codes import CodingTransformer
from annealfit.models.family.factorization import BinaryMatrixFactorization
from annealfit.models.family.ridge import QUBORidge, QUBORidgeClassifier
from annealfit.models.family.sparse_coding import BinarySparseCoding
from annealfit.models.family.svm import QUBOSVC
from annealfit.samplers import GreedyDescent

if TYPE_CHECKING:
    from annealfit.models.onnx_export import Graph

MOST_STEPS = 100  # of a descent, per parameter, as in the compiled one
ROUNDING = 1e-12  # of the terms of a gain, likewise


def _ridge(graph: Graph, model: QUBORidge, value: str) -> None:
    sizes = np.shape(model.intercept_)
    graph.output(graph.reshape(graph.linear(value, model.coef_, model.intercept_), *sizes), "variable", *sizes)


def _support_vectors(graph: Graph, model: QUBOSVC, value: str) -> None:
    """`Σ_s a_s K(x, x_s) + b`; squared distances are `‖x‖² − 2x·x_s + ‖x_s‖²`, as in scikit-learn."""
    value, vectors = graph.cast(value, graph.double), model.support_vectors_
    kernel = graph.add("MatMul", value, vectors.T)
    if model.kernel == "rbf":
        squares = graph.add("MatMul", graph.add("Mul", value, value), np.ones((vectors.shape[1], 1)))
        distances = graph.add("Sub", squares, graph.add("Mul", kernel, np.float64(2.0)))
        distances = graph.add("Add", distances, np.vecdot(vectors, vectors))
        distances = graph.add("Max", distances, np.float64(0.0))
        kernel = graph.add("Exp", graph.add("Mul", distances, np.float64(-model.gamma_)))
    graph.scores(graph.linear(kernel, model.dual_coef_, model.intercept_), model.classes_)


def _boosted(graph: Graph, model: QBoostClassifier, value: str) -> None:
    """The votes are a `TreeEnsembleRegressor`, whose target t is the prediction of tree t."""
    columns: dict[str, Any] = {}
    for number, learner in enumerate(model.estimators_):
        tree = SavedTree.of(learner)
        size, leaves = len(tree.votes), np.flatnonzero(tree.children_left < 0)
        # Rows are compared in single precision: rounded down, a threshold parts them as before.
        thresholds = tree.threshold.astype(np.float32)
        thresholds = np.where(thresholds > tree.threshold, np.nextafter(thresholds, np.float32(-np.inf)), thresholds)
        for name, values in {
            "nodes_treeids": [number] * size,
            "nodes_nodeids": range(size),
            "nodes_featureids": np.maximum(tree.feature, 0).tolist(),
            "nodes_modes": ["LEAF" if left < 0 else "BRANCH_LEQ" for left in tree.children_left],
            "nodes_values": thresholds.tolist(),
            "nodes_truenodeids": np.maximum(tree.children_left, 0).tolist(),
            "nodes_falsenodeids": np.maximum(tree.children_right, 0).tolist(),
            "target_treeids": [number] * len(leaves),
            "target_nodeids": leaves.tolist(),
            "target_ids": [number] * len(leaves),
            "target_weights": tree.votes[leaves].astype(float).tolist(),
        }.items():
            columns.setdefault(name, []).extend(values)
    columns |= {"n_targets": len(model.estimators_), "aggregate_function": "SUM", "post_transform": "NONE"}
    votes = graph.add("TreeEnsembleRegressor", graph.cast(value, graph.float), domain="ai.onnx.ml", **columns)
    graph.scores(graph.linear(votes, model.weights_, model.intercept_), model.classes_)


def _hidden_fields(graph: Graph, model: AnnealedRBM, value: str) -> str:
    value = graph.add("Sub", graph.cast(value, graph.double), np.float64(model.offset_))
    value = graph.add("Clip", graph.add("Div", value, np.float64(model.scale_)), np.float64(0.0), np.float64(1.0))
    return graph.linear(value, model.components_, model.intercept_hidden_)


def _expected_levels(graph: Graph, model: AnnealedRBM, value: str) -> str:
    fields, parts = _hidden_fields(graph, model, value), []
    for weight in bit_weights(model._levels):
        mean = graph.add("Sigmoid", graph.add("Mul", fields, np.float64(weight)))
        parts.append(graph.add("Mul", mean, np.float64(weight)))
    return graph.add("Sum", *parts)


def _boltzmann(graph: Graph, model: AnnealedRBM, value: str) -> None:
    """Minus the free energies of rows with each label: sums of `log(1 + eˣ) = max(x, 0) + log(1 + e⁻|ˣ|)`."""
    size, n_classes = model.label_components_.shape
    fields = graph.add("Add", graph.reshape(_hidden_fields(graph, model, value), 1, size), model.label_components_.T)
    parts = []
    for weight in bit_weights(model._levels):
        field = graph.add("Mul", fields, np.float64(weight))
        rest = graph.add("Exp", graph.add("Neg", graph.add("Abs", field)))
        parts.append(graph.add("Max", field, np.float64(0.0)))
        parts.append(graph.add("Log", graph.add("Add", rest, np.float64(1.0))))
    energies = graph.reshape(graph.add("MatMul", graph.add("Sum", *parts), np.ones((size, 1))), n_classes)
    energies = graph.add("Add", energies, model.label_intercept_)
    graph.probabilities(_of_the_second(graph, energies, n_classes), model.classes_)


def _of_the_second(graph: Graph, scores: str, n_classes: int) -> str:
    """Of two classes, by how much the score of the second is larger, (N, 1)."""
    return graph.add("MatMul", scores, np.array([[-1.0], [1.0]])) if n_classes == 2 else scores


def _codes(graph: Graph, model: CodingTransformer, rows: str, penalty: float) -> str:
    """Codes (N, M) of rows (N, D): the descent of `GreedyDescent`, of all rows at once."""
    if model.sampler not in (None, "greedy", GreedyDescent()):
        raise InvalidInputError(f"codes by {model.sampler!r} cannot be written as ONNX, only those of GreedyDescent()")
    dictionary, top = model.components_, float(2 ** int(model.bits) - 1)
    curvature = dictionary @ dictionary.T / top**2  # per step between two levels
    squares = curvature.diagonal()

    def step(inner: Graph, levels: str, slopes: str) -> tuple[str, str, str]:
        """Move the parameter that gains most to its best level; slopes are half the change of the energy per level."""
        best = inner.add("Sub", levels, inner.add("Div", slopes, np.where(squares > 0, squares, 1.0)))
        best = inner.add("Clip", inner.add("Round", best), np.float64(0.0), np.float64(top))
        change = inner.add("Sub", best, levels)
        linear = inner.add("Mul", inner.add("Mul", change, slopes), np.float64(2.0))
        own = inner.add("Mul", inner.add("Mul", change, change), squares)
        gains = inner.add(
            "Sum", linear, own, inner.add("Mul", inner.add("Sum", inner.add("Abs", linear), own), ROUNDING)
        )
        place = inner.add("ArgMin", gains, kind=inner.whole, axis=1, keepdims=1)
        chosen = inner.add("Equal", place, np.arange(len(squares))[None], kind=inner.flag)
        moves = inner.add("And", chosen, inner.add("Less", gains, np.float64(0.0), kind=inner.flag))
        moves = inner.add("Mul", change, inner.cast(moves, inner.double))
        going = inner.cast(inner.add("ReduceMax", inner.add("Abs", moves), keepdims=0), inner.flag)
        return going, inner.add("Add", levels, moves), inner.add("Add", slopes, inner.add("MatMul", moves, curvature))

    slopes = graph.add("Sub", np.full(len(squares), penalty / 2 / top), graph.add("MatMul", rows, dictionary.T / top))
    levels = graph.loop(step, MOST_STEPS * len(squares), graph.add("Sub", slopes, slopes), slopes)
    return graph.add("Div", levels, np.float64(top))


def _factors(graph: Graph, model: BinaryMatrixFactorization, value: str) -> str:
    return _codes(graph, model, graph.cast(value, graph.double), 0.0)


def _factorized(graph: Graph, model: BinaryMatrixFactorization, value: str) -> None:
    scores = graph.linear(_factors(graph, model, value), model.label_components_.T, model.intercept_)
    graph.scores(_of_the_second(graph, scores, len(model.classes_)), model.classes_)


def _patch_codes(graph: Graph, model: BinarySparseCoding, value: str) -> str:
    places = model._patches(np.arange(float(model.n_features_in_))[None])
    cells, size = places.shape[1:3], places.shape[3] * places.shape[4]
    rows = graph.add("Gather", graph.cast(value, graph.double), places.reshape(-1).astype(int), axis=1)
    rows = graph.reshape(rows, size)
    if model.patch_size is not None:
        rows = graph.add("MatMul", rows, np.eye(size) - 1 / size)  # without the mean
    codes = _codes(graph, model, rows, model.penalty_)
    if model.pool is not None:
        sums = model._pooled(np.eye(cells[0] * cells[1]).reshape(-1, *cells, 1)).reshape(cells[0] * cells[1], -1).T
        codes = graph.add("MatMul", sums, graph.reshape(codes, sums.shape[1], len(model.components_)))
    return graph.reshape(codes, model._n_features_out)


FEATURES: dict[type, Callable[[Graph, Any, str], str]] = {
    AnnealedRBM: _expected_levels,
    BinaryMatrixFactorization: _factors,
    BinarySparseCoding: _patch_codes,
}
MODELS: dict[type, Callable[[Graph, Any, str], None]] = {
    AnnealedRBM: _boltzmann,
    BinaryMatrixFactorization: _factorized,
    QBoostClassifier: _boosted,
    QUBORidge: _ridge,
    QUBORidgeClassifier: lambda graph, model, value: graph.scores(
        graph.linear(value, model.coef_, model.intercept_), model.classes_
    ),
    QUBOSVC: _support_vectors,
}
