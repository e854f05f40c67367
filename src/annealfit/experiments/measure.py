"""Fit, and measure: one way for a single training, for the paper's runs and for the comparison of samplers."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

import annealfit
from annealfit.baselines import BaselineResult, solve_logistic, train_sgd
from annealfit.classifier import AnnealedClassifier, AnnealedConvNet
from annealfit.experiments.prepared import Prepared
from annealfit.experiments.records import Record
from annealfit.experiments.spec import RunSpec
from annealfit.metrics import classification_metrics
from annealfit.objectives import HeadPoint, LinearHead
from annealfit.training import HistoryRow
from annealfit.training.initialization import uniform


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a method ended with; seconds are those of the training alone, without loading or compiling."""

    weights: NDArray[np.float64]  # (D, outputs), the biases in the last row
    history: Sequence[HistoryRow]  # empty where nothing iterates
    seconds: float
    regularization: float
    stop_reason: str = ""
    filter_penalty: float = 0.0  # what the filters add to the loss, where they are trained


def fit_annealed(prepared: Prepared, classifier: AnnealedClassifier) -> Fitted:
    """Train the classifier on the prepared features."""
    classifier.fit(prepared.X_train, prepared.dataset.y_train)
    return fitted_classifier(classifier)


def fitted_classifier(classifier: AnnealedClassifier | AnnealedConvNet, filter_penalty: float = 0.0) -> Fitted:
    """What a trained classifier ended with."""
    return Fitted(
        np.vstack([classifier.coef_.T, classifier.intercept_]),
        classifier.history_,
        classifier.history_[-1]["seconds"],
        classifier.regularization,
        classifier.stop_reason_,
        filter_penalty,
    )


def fit_sgd(prepared: Prepared, regularization: float, seed: int) -> Fitted:
    """The paper's classical baseline, from the uniform initial weights of the seed."""
    head = prepared.head(regularization)
    return _of_baseline(train_sgd(head, uniform(head, seed)), regularization)


def fit_optimum(prepared: Prepared, regularization: float) -> Fitted:
    """Logistic regression: the least loss there is."""
    return _of_baseline(solve_logistic(prepared.X_train, prepared.dataset.y_train, regularization), regularization)


def _of_baseline(result: BaselineResult, regularization: float) -> Fitted:
    return Fitted(result.weights, result.history, result.seconds, regularization)


def measure(prepared: Prepared, method: str, fitted: Fitted, spec: RunSpec | None = None) -> Record:
    """The record of a method: its loss, the six metrics on both parts, its history, and answers to sample images."""
    dataset = prepared.dataset
    at_end = prepared.head(fitted.regularization).at(fitted.weights)
    on_test = prepared.test_head().at(fitted.weights)
    predicted = _predicted(on_test)
    images, labels, probabilities = _samples(prepared, on_test)
    return Record(
        method=method,
        spec=spec,
        class_names=dataset.class_names,
        loss=at_end.loss + fitted.filter_penalty,
        cross_entropy=at_end.cross_entropy,
        seconds=fitted.seconds,
        stop_reason=fitted.stop_reason,
        train=classification_metrics(dataset.y_train, _predicted(at_end)),
        test=classification_metrics(dataset.y_test, predicted),
        confusion=confusion_matrix(dataset.y_test, predicted, labels=np.arange(prepared.n_classes)).astype(np.int64),
        history=columns_of(fitted.history),
        sample_images=images,
        sample_labels=labels,
        sample_probabilities=probabilities,
        environment=environment(),
    )


def _predicted(point: HeadPoint) -> NDArray[np.intp]:
    """The label of every row, (N,), chunk by chunk."""
    distributions = point.distributions
    return np.concatenate([distributions(chunk).argmax(axis=0) for chunk in point.head.rows.chunks()])


def _samples(
    prepared: Prepared, on_test: HeadPoint
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """The first test image of each class, its label, and probabilities (samples, C); none where there are no images."""
    dataset = prepared.dataset
    if len(dataset.X_test.shape) < 3:
        return np.zeros((0, 0, 0)), np.zeros(0, np.int64), np.zeros((0, 0))
    _, samples = np.unique(dataset.y_test, return_index=True)
    features = np.concatenate([prepared.X_test[position : position + 1] for position in samples.tolist()])
    labels = dataset.y_test[samples]
    head = LinearHead.of_arrays(np.asarray(features, dtype=np.float64), labels, prepared.n_classes, 0.0)
    (chunk,) = head.rows.chunks()
    probabilities = np.ascontiguousarray(head.at(on_test.weights).distributions(chunk).T)
    return dataset.X_test[samples], labels.astype(np.int64), probabilities


def columns_of(history: Sequence[HistoryRow]) -> dict[str, NDArray[Any]]:
    """The history column by column; numbers that are not there are NaN."""
    rows = cast(Sequence[dict[str, Any]], history)
    return {
        name: np.array([np.nan if row[name] is None else row[name] for row in rows])
        for name in (rows[0] if rows else ())
    }


def environment() -> dict[str, str]:
    """Versions and machine, for the reader of a record; nothing that identifies a person."""
    return {
        "annealfit": annealfit.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
    }
