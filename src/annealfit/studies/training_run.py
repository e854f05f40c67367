"""Training runs: prepare a data set, fit a method on it, measure the result.

A single training, the paper's runs and the comparison of samplers all use the functions of this module.
"""

from __future__ import annotations

import copy
import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import confusion_matrix

import annealfit
from annealfit._support.randomness import seed_of
from annealfit.data.datasets import Dataset
from annealfit.data.features import RandomConvFeatures, RowScaler
from annealfit.data.rows import NpyTable, chunk_bounds
from annealfit.models import AnnealedClassifier, AnnealedConvNet
from annealfit.models.baselines import ADAM_RATE, SGD_RATE, solve_logistic, train_adam, train_sgd
from annealfit.models.conv_net import with_trained_layers
from annealfit.models.image_classifier import ImageClassifier
from annealfit.models.metrics import classification_metrics
from annealfit.studies.records import Record, RunSpec
from annealfit.training.objectives import HeadPoint, LinearHead
from annealfit.training.objectives.conv_net import HEAD
from annealfit.training.policies import uniform
from annealfit.training.trainer import Callback

OPTIMUM_TOL = 1e-5  # of the loss: within it a solution is certified to be the optimum


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set with the features (N, d) of both parts: arrays, or tables that are read in slices."""

    dataset: Dataset
    features: RandomConvFeatures | RowScaler | None  # fitted on the training part; None where rows are features
    X_train: Any
    X_test: Any

    @classmethod
    def of(cls, dataset: Dataset, features: RandomConvFeatures | RowScaler) -> Prepared:
        """Fit the features on the training part and compute those of both parts."""
        return cls(dataset, features, features.fit_transform(dataset.X_train), features.transform(dataset.X_test))

    @classmethod
    def on_disk(cls, dataset: Dataset, features: RandomConvFeatures, folder: Path) -> Prepared:
        """Write the features in single precision to files of a folder, chunk by chunk."""
        features.fit(dataset.X_train)
        parts = ("train", dataset.X_train), ("test", dataset.X_test)
        return cls(dataset, features, *(_write_features(features, X, folder / f"{name}.npy") for name, X in parts))

    @property
    def n_classes(self) -> int:
        """Classes of the data set, C."""
        return len(self.dataset.class_names)

    def head(self, regularization: float) -> LinearHead:
        """Return the objective of the training part."""
        return LinearHead.of_arrays(self.X_train, self.dataset.y_train, self.n_classes, regularization)


def _write_features(features: RandomConvFeatures, images: Any, path: Path) -> NpyTable:
    count = features.n_features_out_
    bounds = chunk_bounds(images, max(int(np.prod(images.shape[1:])), count))
    blocks = (features.transform(images[first:last]) for first, last in bounds)
    return NpyTable.write(path, (len(images), count), np.float32, blocks)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Weights of a trained head; seconds are those of the training alone, without loading or compiling."""

    weights: NDArray[np.float64]  # (d + 1, outputs), the biases in the last row
    history: Sequence[Mapping[str, object]]  # empty for a method without iterations
    seconds: float
    regularization: float
    stop_reason: str = ""
    features: RandomConvFeatures | None = None  # of a network, as its training left them
    filter_penalty: float = 0.0  # ½λΣ‖filters‖² of the layers that the network trains, a part of its loss

    @classmethod
    def of(cls, trained: AnnealedClassifier | AnnealedConvNet) -> Fitted:
        """Return what a fitted estimator learned."""
        weights = np.vstack([trained.coef_.T, trained.intercept_])
        seconds = trained.history_[-1]["seconds"]
        fitted = cls(weights, trained.history_, seconds, trained.regularization, trained.stop_reason_)
        return fitted.on(trained.features_, trained) if isinstance(trained, AnnealedConvNet) else fitted

    def on(self, features: RandomConvFeatures, net: AnnealedConvNet) -> Fitted:
        """Return the same head on these features of a network, measured by the network's loss."""
        squares = sum(float((features.filters_[layer] ** 2).sum()) for layer in net.trained_layers())
        return replace(self, features=features, filter_penalty=0.5 * net.regularization * squares)


def fit_annealed(prepared: Prepared, classifier: AnnealedClassifier) -> Fitted:
    """Train the classifier on the prepared features."""
    return Fitted.of(classifier.fit(prepared.X_train, prepared.dataset.y_train))


def fit_sgd(prepared: Prepared, regularization: float, seed: int) -> Fitted:
    """Train by the paper's SGD, from the uniform initial weights of the seed."""
    head = prepared.head(regularization)
    result = train_sgd(head, uniform(head, seed))
    return Fitted(result.weights, result.history, result.seconds, regularization)


def fit_optimum(prepared: Prepared, regularization: float) -> Fitted:
    """Solve logistic regression; ended by "tolerance", its loss is certified to be the least there is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the certificate decides
        result = solve_logistic(prepared.X_train, prepared.dataset.y_train, regularization)
    point = prepared.head(regularization).at(result.weights)
    certified = point.exact_loss - point.lower_bound() <= OPTIMUM_TOL * point.exact_loss
    reason = "tolerance" if certified else "stalled"
    return Fitted(result.weights, result.history, result.seconds, regularization, reason)


def fit_network(dataset: Dataset, net: AnnealedConvNet) -> Fitted:
    """Train the network by annealing."""
    return Fitted.of(net.fit(dataset.X_train, dataset.y_train))


def fit_frozen_network(dataset: Dataset, net: AnnealedConvNet) -> Fitted:
    """Train the head alone by annealing, on the filters that the network starts from."""
    head, settings = AnnealedClassifier(), net.get_params(deep=False)
    head.set_params(**{name: settings[name] for name in head.get_params(deep=False) if name in settings})
    features = net.first_features(dataset.X_train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the record says how far it came
        head.set_params(checkpoint=None).fit(features.transform(dataset.X_train), dataset.y_train)
    return Fitted.of(head).on(features, net)


def fit_network_by_adam(dataset: Dataset, net: AnnealedConvNet) -> Fitted:
    """Train the network's loss by Adam, from the weights that annealing starts from.

    It takes about 2,000 steps: up to 100 epochs on few images, at least 5 on many.
    """
    batch_size = 50
    blank = clone(net).set_params(checkpoint=None)
    loss, weights = blank.loss_and_start(dataset.X_train, dataset.y_train)
    epochs = int(np.clip(2000 * batch_size / len(loss.images), 5, 100))
    result = train_adam(loss, weights, epochs=epochs, batch_size=batch_size, seed=seed_of(net.random_state))
    features = with_trained_layers(blank.first_features(dataset.X_train), result.weights)
    return Fitted(result.weights[HEAD], result.history, result.seconds, net.regularization).on(features, net)


def measure(prepared: Prepared, method: str, fitted: Fitted, spec: RunSpec | None = None) -> Record:
    """Return the record of a method: loss, the six metrics on both parts, history, answers to sample images."""
    dataset, n_classes = prepared.dataset, prepared.n_classes
    at_end = prepared.head(fitted.regularization).at(fitted.weights)
    on_test = LinearHead.of_arrays(prepared.X_test, dataset.y_test, n_classes, 0.0).at(fitted.weights)
    predicted, samples = _predict(on_test), {}
    if len(dataset.X_test.shape) >= 3:  # images: the first of each class
        labels, places = np.unique(dataset.y_test, return_index=True)
        features = np.concatenate([prepared.X_test[place : place + 1] for place in places.tolist()])
        head = LinearHead.of_arrays(features.astype(np.float64), labels, n_classes, 0.0)
        (probabilities,) = map(head.at(fitted.weights).distribution, head.rows.chunks())
        samples["sample_images"], samples["sample_labels"] = dataset.X_test[places], labels.astype(np.int64)
        samples["sample_probabilities"] = np.ascontiguousarray(probabilities.T)
    columns = {name: [row[name] for row in fitted.history] for name in (fitted.history[0] if fitted.history else ())}
    return record_of_predictions(
        dataset,
        method,
        predicted,
        spec=spec,
        loss=at_end.loss + fitted.filter_penalty,
        cross_entropy=at_end.cross_entropy,
        seconds=fitted.seconds,
        stop_reason=fitted.stop_reason,
        train=classification_metrics(dataset.y_train, _predict(at_end)),
        # A missing number is NaN.
        history={name: np.array([np.nan if v is None else v for v in column]) for name, column in columns.items()},
        **samples,
    )


def record_of_predictions(dataset: Dataset, method: str, predicted: NDArray[Any], **more: Any) -> Record:
    """Return the record of what was predicted for the test part."""
    return Record(
        method,
        class_names=dataset.class_names,
        test=classification_metrics(dataset.y_test, predicted),
        confusion=confusion_matrix(dataset.y_test, predicted, labels=range(len(dataset.class_names))).astype(np.int64),
        environment=environment(),
        **more,
    )


def _predict(point: HeadPoint) -> NDArray[np.intp]:
    return np.concatenate([point.distribution(chunk).argmax(axis=0) for chunk in point.head.rows.chunks()])


def measure_network(dataset: Dataset, method: str, fitted: Fitted, spec: RunSpec | None = None) -> Record:
    """Return the record of a trained network."""
    features = fitted.features
    assert features is not None, "a network has features of its own"
    prepared = Prepared(dataset, features, features.transform(dataset.X_train), features.transform(dataset.X_test))
    return measure(prepared, method, fitted, spec)


def environment() -> dict[str, str]:
    """Return versions and machine; nothing that identifies a person."""
    return {
        "annealfit": annealfit.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
    }


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A finished training: the model, and the record of every method on the same features."""

    dataset: Dataset
    model: ImageClassifier | AnnealedClassifier  # the latter takes rows of features
    records: tuple[Record, ...]  # the annealed classifier first
    initial_filters: list[NDArray[np.float64]] | None = None  # of a network: (filters, channels, k, k) of every layer

    @property
    def classifier(self) -> AnnealedClassifier:
        """The classifier in the model."""
        return self.model.classifier if isinstance(self.model, ImageClassifier) else self.model


def run_training(
    prepared: Prepared,
    classifier: AnnealedClassifier,
    callbacks: Sequence[Callback] = (),
    *,
    baselines: bool = True,
    rows: tuple[Any, Any] | None = None,
) -> TrainingRun:
    """Fit `classifier`, and with `baselines` SGD and logistic regression on the same features.

    `rows` are training features and labels elsewhere, as on a cluster. Ctrl-C ends the training, keeping its result.
    """
    _fit_interruptibly(classifier, rows or (prepared.X_train, prepared.dataset.y_train), callbacks)
    regularization, seed = classifier.regularization, seed_of(classifier.random_state)
    fitted = {f"QUBO {classifier.bits}-bit": Fitted.of(classifier)}
    if baselines:
        fitted[f"SGD (rate {SGD_RATE})"] = fit_sgd(prepared, regularization, seed)
        optimum = fit_optimum(prepared, regularization)
        fitted["Logistic optimum" if optimum.stop_reason == "tolerance" else "Logistic regression, stalled"] = optimum
    records = tuple(measure(prepared, method, found) for method, found in fitted.items())
    return TrainingRun(prepared.dataset, _model(prepared, classifier), records)


def run_network_training(
    dataset: Dataset, net: AnnealedConvNet, callbacks: Sequence[Callback] = (), *, baselines: bool = True
) -> TrainingRun:
    """Fit `net`, then with `baselines` the same network with its filters frozen, and by Adam from the same weights.

    All three have the same loss: the penalty of the filters counts for the frozen network too. Ctrl-C ends the
    training and keeps its result so far.
    """
    _fit_interruptibly(net, (dataset.X_train, dataset.y_train), callbacks)
    fitted = {f"QUBO {net.bits}-bit": Fitted.of(net)}
    if baselines:
        fitted["Frozen filters"] = fit_frozen_network(dataset, net)
        fitted[f"Adam (rate {ADAM_RATE})"] = fit_network_by_adam(dataset, net)
    records = tuple(measure_network(dataset, method, found) for method, found in fitted.items())
    features, head = (step for _, step in net.to_pipeline().steps)
    model = ImageClassifier(features, head, dataset.class_names, dataset.preparation)
    return TrainingRun(dataset, model, records, net.initial_filters_)


def _fit_interruptibly(estimator: Any, rows: tuple[Any, Any], callbacks: Sequence[Callback]) -> None:
    estimator.set_params(callbacks=[*(estimator.callbacks or ()), *callbacks])
    try:
        estimator.fit(*rows)
    except KeyboardInterrupt:
        if not getattr(estimator, "history_", None):
            raise
    estimator.set_params(callbacks=None)


def _model(prepared: Prepared, classifier: AnnealedClassifier) -> ImageClassifier | AnnealedClassifier:
    """A model that takes images, or rows as they were given: scaling of rows moves into the weights."""
    features, names = prepared.features, prepared.dataset.class_names
    if isinstance(features, RandomConvFeatures):
        return ImageClassifier(features, classifier, names, prepared.dataset.preparation)
    model = copy.copy(classifier)
    if features is not None:  # w·(x − μ)/σ + b = (w/σ)·x + (b − (w/σ)·μ)
        model.coef_ = classifier.coef_ / features.scale_
        model.intercept_ = classifier.intercept_ - model.coef_ @ features.mean_
    are_numbers = all(name.removeprefix("-").isdecimal() and str(int(name)) == name for name in names)
    labels = np.array([int(name) for name in names] if are_numbers else names)
    model.classes_ = labels[classifier.classes_]
    return model
