"""Runs: prepare a data set, fit a method on it, measure the result; in processes or on a Dask cluster, stored at once.

A single training, the paper's runs and the comparison of samplers all use the functions of this module.
"""

from __future__ import annotations

import copy
import os
import platform
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import confusion_matrix

import annealfit
from annealfit._support.errors import AnnealfitError, require
from annealfit._support.files import remove_leftovers
from annealfit._support.randomness import seed_of
from annealfit._support.threads import blas_threads
from annealfit.data.datasets import Dataset, DataWarning, load_dataset
from annealfit.data.features import RandomConvFeatures, RowScaler
from annealfit.data.rows import NpyTable, chunk_bounds
from annealfit.models import AnnealedClassifier, AnnealedConvNet
from annealfit.models.baselines import ADAM_RATE, SGD_RATE, Fitted, solve_logistic, train_adam, train_sgd
from annealfit.models.conv_net import with_trained_layers
from annealfit.models.image_classifier import ImageClassifier
from annealfit.models.metrics import classification_metrics
from annealfit.studies import records
from annealfit.studies.records import Record, RunSpec, Store
from annealfit.training.objectives import HeadPoint, LinearHead
from annealfit.training.objectives.conv_net import HEAD
from annealfit.training.policies import uniform
from annealfit.training.trainer import Callback, is_interrupt

REGULARIZATION = 1e-3  # the paper's λ, for every method of its runs
_SIZES: dict[str, Any] = {"n_filters": 2, "kernel_size": 3, "pool_size": 2}  # of the paper's network
_LIMIT = np.sqrt(6 / 11)  # of the weights of the published bank, and of random ones in its place
_PARENT_CHECK_SECONDS = 0.5
OPTIMUM_TOL = 1e-5  # of the loss: within it a solution is certified to be the optimum


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set with the features (N, d) of both parts: arrays, or tables that are read in slices."""

    dataset: Dataset
    features: RandomConvFeatures | RowScaler | None  # fitted on the training part; None where rows are features
    X_train: Any
    X_test: Any

    @classmethod
    def of(cls, dataset: Dataset, features: RandomConvFeatures | RowScaler | None, *, fit: bool = True) -> Prepared:
        """Compute the features of both parts; with `fit` they are fitted on the training part first."""
        if features is None:
            return cls(dataset, None, dataset.X_train, dataset.X_test)
        X_train = features.fit_transform(dataset.X_train) if fit else features.transform(dataset.X_train)
        return cls(dataset, features, X_train, features.transform(dataset.X_test))

    @classmethod
    def on_disk(cls, dataset: Dataset, features: RandomConvFeatures, folder: Path) -> Prepared:
        """Write the features in single precision to files of a folder, chunk by chunk."""
        count, tables = features.fit(dataset.X_train).n_features_out_, []
        for name, images in (("train", dataset.X_train), ("test", dataset.X_test)):
            bounds = chunk_bounds(images, max(int(np.prod(images.shape[1:])), count))
            blocks = (features.transform(images[first:last]) for first, last in bounds)
            tables.append(NpyTable.write(folder / f"{name}.npy", (len(images), count), np.float32, blocks))
        return cls(dataset, features, *tables)

    @property
    def y_train(self) -> NDArray[np.intp]:
        """Labels of the training part."""
        return self.dataset.y_train

    @property
    def n_classes(self) -> int:
        """Classes of the data set, C."""
        return len(self.dataset.class_names)

    def head(self, regularization: float) -> LinearHead:
        """Return the objective of the training part."""
        return LinearHead.of_arrays(self.X_train, self.y_train, self.n_classes, regularization)


def learned(trained: AnnealedClassifier | AnnealedConvNet) -> Fitted:
    """Return what a fitted estimator learned."""
    weights, seconds = np.vstack([trained.coef_.T, trained.intercept_]), trained.history_[-1]["seconds"]
    fitted = Fitted(weights, trained.history_, seconds, trained.regularization, trained.stop_reason_)
    return _on_network(fitted, trained.features_, trained) if isinstance(trained, AnnealedConvNet) else fitted


def _on_network(fitted: Fitted, features: RandomConvFeatures, net: AnnealedConvNet) -> Fitted:
    """Return a head on these features of a network, measured by the network's loss."""
    squares = sum(float((features.filters_[layer] ** 2).sum()) for layer in net.trained_layers())
    return replace(fitted, features=features, filter_penalty=0.5 * net.regularization * squares)


def fit_sgd(prepared: Prepared, regularization: float, seed: int) -> Fitted:
    """Train by the paper's SGD, from the uniform initial weights of the seed."""
    head = prepared.head(regularization)
    return train_sgd(head, uniform(head, seed))


def fit_optimum(prepared: Prepared, regularization: float) -> Fitted:
    """Solve logistic regression; ended by "tolerance", its loss is certified to be the least there is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the certificate decides
        result = solve_logistic(prepared.X_train, prepared.y_train, regularization)
    point = prepared.head(regularization).at(result.weights)
    certified = point.exact_loss - point.lower_bound() <= OPTIMUM_TOL * point.exact_loss
    return replace(result, stop_reason="tolerance" if certified else "stalled")


def fit_frozen_network(dataset: Dataset, net: AnnealedConvNet) -> Fitted:
    """Train the head alone by annealing, on the filters that the network starts from."""
    head, settings = AnnealedClassifier(), net.get_params(deep=False)
    head.set_params(**{name: settings[name] for name in head.get_params(deep=False) if name in settings})
    features = net.first_features(dataset.X_train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the record says how far it came
        head.set_params(checkpoint=None).fit(features.transform(dataset.X_train), dataset.y_train)
    return _on_network(learned(head), features, net)


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
    return _on_network(replace(result, weights=result.weights[HEAD]), features, net)


def measure(data: Prepared | Dataset, method: str, fitted: Fitted, spec: RunSpec | None = None) -> Record:
    """Return the record of a method: loss, the six metrics on both parts, history, answers to sample images.

    The features of a data set are those that a network has trained.
    """
    if isinstance(data, Dataset):
        assert fitted.features is not None, "a network has features of its own"
        data = Prepared.of(data, fitted.features, fit=False)
    dataset, n_classes, samples = data.dataset, data.n_classes, {}
    at_end = data.head(fitted.regularization).at(fitted.weights)
    on_test = LinearHead.of_arrays(data.X_test, dataset.y_test, n_classes, 0.0).at(fitted.weights)
    if len(dataset.X_test.shape) >= 3:  # images: the first of each class
        labels, places = np.unique(dataset.y_test, return_index=True)
        features = np.concatenate([data.X_test[place : place + 1] for place in places.tolist()])
        head = LinearHead.of_arrays(features.astype(np.float64), labels, n_classes, 0.0)
        (probabilities,) = map(head.at(fitted.weights).distribution, head.rows.chunks())
        samples["sample_images"], samples["sample_labels"] = dataset.X_test[places], labels.astype(np.int64)
        samples["sample_probabilities"] = np.ascontiguousarray(probabilities.T)
    # A missing number is NaN.
    numbers = [{name: np.nan if value is None else value for name, value in row.items()} for row in fitted.history]
    return record_of_predictions(
        dataset,
        method,
        _predict(on_test),
        spec=spec,
        loss=at_end.loss + fitted.filter_penalty,
        cross_entropy=at_end.cross_entropy,
        seconds=fitted.seconds,
        stop_reason=fitted.stop_reason,
        train=classification_metrics(dataset.y_train, _predict(at_end)),
        history={name: np.array([row[name] for row in numbers]) for name in (numbers[0] if numbers else ())},
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
    data: Prepared | Dataset,
    estimator: AnnealedClassifier | AnnealedConvNet,
    callbacks: Sequence[Callback] = (),
    *,
    baselines: bool = True,
    rows: tuple[Any, Any] | None = None,
) -> TrainingRun:
    """Fit a classifier on features, or a network on images; Ctrl-C ends the training, keeping its result.

    `baselines` are SGD and logistic regression on the same features, or the same network with its filters frozen, and
    trained by Adam from the same weights; all have the same loss: the penalty of the filters counts for frozen ones
    too. `rows` are training features and labels elsewhere, as on a cluster.
    """
    dataset = data if isinstance(data, Dataset) else data.dataset
    estimator.set_params(callbacks=[*(estimator.callbacks or ()), *callbacks])
    try:
        estimator.fit(*(rows or (data.X_train, data.y_train)))
    except KeyboardInterrupt:
        if not getattr(estimator, "history_", None):
            raise
    estimator.set_params(callbacks=None)
    fitted = {f"QUBO {estimator.bits}-bit": learned(estimator)}
    if baselines and isinstance(estimator, AnnealedConvNet):
        fitted["Frozen filters"] = fit_frozen_network(dataset, estimator)
        fitted[f"Adam (rate {ADAM_RATE})"] = fit_network_by_adam(dataset, estimator)
    elif baselines:
        assert isinstance(data, Prepared), "a classifier is trained on features"
        regularization = estimator.regularization
        fitted[f"SGD (rate {SGD_RATE})"] = fit_sgd(data, regularization, seed_of(estimator.random_state))
        optimum = fit_optimum(data, regularization)
        fitted["Logistic optimum" if optimum.stop_reason == "tolerance" else "Logistic regression, stalled"] = optimum
    records = tuple(measure(data, method, found) for method, found in fitted.items())
    return TrainingRun(dataset, _model(data, estimator), records, getattr(estimator, "initial_filters_", None))


def _model(data: Prepared | Dataset, estimator: Any) -> ImageClassifier | AnnealedClassifier:
    """A model that takes images, or rows as they were given: scaling of rows moves into the weights."""
    if isinstance(data, Dataset):
        features, classifier = (step for _, step in estimator.to_pipeline().steps)
        return ImageClassifier(features, classifier, data.class_names, data.preparation)
    features, names = data.features, data.dataset.class_names
    if isinstance(features, RandomConvFeatures):
        return ImageClassifier(features, estimator, names, data.dataset.preparation)
    model = copy.copy(estimator)
    if features is not None:  # w·(x − μ)/σ + b = (w/σ)·x + (b − (w/σ)·μ)
        model.coef_ = estimator.coef_ / features.scale_
        model.intercept_ = estimator.intercept_ - model.coef_ @ features.mean_
    digits = [name.removeprefix("-") for name in names]
    are_numbers = all(own.isdecimal() and len(own) < 19 and str(int(own)) == own for own in digits)
    model.classes_ = np.array([int(name) for name in names] if are_numbers else names)[estimator.classes_]
    if data.dataset.feature_names:
        model.feature_names_in_ = np.array(data.dataset.feature_names, dtype=object)
    return model


def execute(spec: RunSpec) -> Record:
    """Return the record of a run; an error becomes a record too, so that the other runs go on.

    Linear algebra uses one thread: runs are what is parallel, and the last bits of a sum must not depend on the number
    of processors.
    """
    from annealfit.studies import family  # which measures with this module

    try:
        with blas_threads(0), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the record says how far a run came
            if spec.model is not None:
                return family.train(spec, _load(spec.baseline))
            prepared = _prepare(spec.baseline)
            data = prepared.dataset
            net = AnnealedConvNet(**_SIZES, regularization=REGULARIZATION, random_state=spec.seed)
            fits: dict[str, Callable[[], Fitted]] = {
                records.CLASSICAL: lambda: fit_sgd(prepared, REGULARIZATION, spec.seed),
                records.OPTIMUM: lambda: fit_optimum(prepared, REGULARIZATION),
                "qubo": lambda: learned(spec.classifier().fit(prepared.X_train, data.y_train)),
                records.FROZEN_NETWORK: lambda: fit_frozen_network(data, net),
                records.TRAINED_NETWORK: lambda: learned(net.fit(data.X_train, data.y_train)),
                records.ADAM_NETWORK: lambda: fit_network_by_adam(data, net),
            }
            fitted = fits[spec.method]()
            record = measure(prepared if fitted.features is None else data, spec.label, fitted, spec)
            return replace(record, history={}) if spec.is_reading else record  # of hundreds, whose recalls are enough
    except Exception as error:
        if is_interrupt(error):  # not a fault of the run
            raise KeyboardInterrupt from error
        told = f"{type(error).__name__}: {error}"
        return Record(spec.label, spec, error=told, environment=environment())


@lru_cache(maxsize=4)  # runs on the same images and filters follow each other
def _load(baseline: RunSpec) -> Dataset:
    how: Any = {"resize": baseline.resize, "color": baseline.dataset == "cifar10"} if baseline.resize else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the command line says it once, for all runs
        data = load_dataset(baseline.dataset, seed=baseline.seed, images=baseline.images, **how)
    parts = [part.mean(axis=3) if part.ndim == 4 else part for part in (data.X_train, data.X_test)]  # grey by the mean
    X_train, X_test = (part.swapaxes(1, 2) if baseline.transposed else part for part in parts)
    return replace(data, X_train=X_train, X_test=X_test)


@lru_cache(maxsize=4)
def _prepare(baseline: RunSpec) -> Prepared:
    data = _load(replace(baseline, bank=None))
    if baseline.images == "stated" and baseline.resize is None:
        return Prepared.of(data, RandomConvFeatures(**_SIZES, random_state=baseline.seed))
    features = RandomConvFeatures(**_SIZES, filters="published").fit(data.X_train)
    if baseline.bank is not None:
        drawn = np.random.RandomState(baseline.bank).uniform(-_LIMIT, _LIMIT, features.filters_[0].shape)
        features = features.with_filters([drawn], features.biases_)
    return Prepared.of(data, features, fit=False)


class LostWorkerError(AnnealfitError, RuntimeError):
    """A worker process ended before its runs were done."""


def on_this_machine(specs: Sequence[RunSpec], n_jobs: int = -1) -> Iterator[Record]:
    """Execute runs in `n_jobs` processes; −1 is one per processor."""
    settings = {"backend": "loky", "initializer": _end_with_parent, "initargs": (os.getpid(),)}
    jobs = Parallel(n_jobs, return_as="generator_unordered", batch_size=1, **settings)
    try:
        yield from map(execute, specs) if n_jobs == 1 else jobs(delayed(execute)(spec) for spec in specs)
    except BrokenExecutor as error:
        raise LostWorkerError(
            "a worker process was ended from outside, by the system if memory ran out; what is done is stored: "
            "start it again to go on, with fewer --jobs if memory is short"
        ) from error


def _end_with_parent(parent: int) -> None:
    """End this worker once its parent is gone: a killed parent cannot stop its workers."""

    def watch() -> None:
        while os.getppid() == parent:  # the system gives an orphan another parent
            time.sleep(_PARENT_CHECK_SECONDS)
        os._exit(1)

    if os.name == "posix" and os.getpid() != parent:
        threading.Thread(target=watch, name="annealfit-parent-watch", daemon=True).start()


def on_dask(specs: Sequence[RunSpec], address: str) -> Iterator[Record]:
    """Execute runs on the workers of a Dask cluster, which need annealfit and the files of the data sets."""
    distributed = require("distributed", extra="dask", purpose="running on a Dask cluster")
    lost = distributed.KilledWorker, distributed.client.FutureCancelledError, distributed.comm.CommClosedError
    with distributed.Client(address, set_as_default=False) as client:
        # The scheduler gives the runs of a lost worker to another one.
        futures = [client.submit(execute, spec, key=f"annealfit-{spec.id}", retries=3) for spec in specs]
        try:
            for future in distributed.as_completed(futures, loop=client.loop):
                yield future.result()
        except lost as error:
            raise LostWorkerError(
                f"the Dask cluster at {address} lost what it was working on ({type(error).__name__}: {error}); "
                "what is done is stored: start it again to go on"
            ) from error


@dataclass(frozen=True)
class Tally:
    """How many runs had a record already, were done now, and failed."""

    already: int
    done: int
    failed: int


def run_all(
    specs: Sequence[RunSpec],
    store: Store,
    backend: Callable[[Sequence[RunSpec]], Iterable[Record]] = on_this_machine,
    on_record: Callable[[Record], None] = lambda record: None,
) -> Tally:
    """Carry out the runs that have no record without an error, and store each record at once.

    It can be killed at any moment and started again; two processes on one folder only do some work twice.
    """
    remove_leftovers(store.folder / "records")
    store.ask(specs)
    todo = [spec for spec in specs if not store.is_done(spec)]
    failed = 0
    # Runs of one data set and seed stay together: a worker keeps the images for the next method.
    for record in backend(sorted(todo, key=lambda spec: repr(spec.baseline))) if todo else ():
        store.save(record)
        failed += record.error is not None
        on_record(record)
    return Tally(already=len(specs) - len(todo), done=len(todo) - failed, failed=failed)
