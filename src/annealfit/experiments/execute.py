"""Carry out one run: load, extract features, train, measure."""

from __future__ import annotations

import platform
import time
import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import confusion_matrix
from threadpoolctl import threadpool_limits

import annealfit
from annealfit.baselines import solve_logistic, train_sgd
from annealfit.datasets import DataWarning, load_dataset
from annealfit.experiments.records import Record
from annealfit.experiments.spec import CLASSICAL, OPTIMUM, RunSpec
from annealfit.features import RandomConvFeatures
from annealfit.metrics import classification_metrics
from annealfit.surrogate import TrainingSet, evaluate, softmax
from annealfit.surrogate.gram import augment
from annealfit.training.state import uniform_weights

REGULARIZATION = 1e-3  # the paper's λ, for every method


def execute(spec: RunSpec, data_dir: str | None = None) -> Record:
    """The record of a run; an error becomes a record too, so that the other runs go on.

    Linear algebra is kept to one thread: runs are what is done in parallel, and a sum's last bits must not depend
    on how many processors a worker has.
    """
    try:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # how far a run came is in its record
            return _execute(spec, data_dir)
    except Exception as error:
        return Record(spec, error=f"{type(error).__name__}: {error}", environment=environment())


def _execute(spec: RunSpec, data_dir: str | None) -> Record:
    prepared = _prepare(spec.dataset, spec.seed, data_dir)
    data, test = prepared["train"], prepared["test_features"]
    started = time.perf_counter()
    if spec.method == CLASSICAL:
        result = train_sgd(data, uniform_weights(data.n_parameters, data.n_classes, spec.seed))
        weights, history = result.weights, result.history
    elif spec.method == OPTIMUM:
        weights, history = solve_logistic(data).weights, []
    else:
        classifier = spec.classifier()
        classifier.fit(data.features[:, :-1], data.labels)
        weights, history = np.vstack([classifier.coef_.T, classifier.intercept_]), classifier.history_
    seconds = time.perf_counter() - started
    at_end = evaluate(data, weights)
    test_probabilities = softmax((augment(test) @ weights).T).T
    predicted = test_probabilities.argmax(axis=1)
    labels, samples = prepared["test_labels"], prepared["samples"]
    return Record(
        spec=spec,
        class_names=prepared["class_names"],
        loss=at_end.loss,
        cross_entropy=at_end.cross_entropy,
        seconds=seconds,
        train=classification_metrics(data.labels, at_end.probabilities.argmax(axis=0)),
        test=classification_metrics(labels, predicted),
        confusion=confusion_matrix(labels, predicted, labels=np.arange(data.n_classes)).astype(np.int64),
        history=_columns(history),
        sample_images=prepared["test_images"][samples],
        sample_labels=labels[samples].astype(np.int64),
        sample_probabilities=test_probabilities[samples],
        environment=environment(),
    )


@lru_cache(maxsize=8)  # the methods of one data set and seed share images and features
def _prepare(dataset: str, seed: int, data_dir: str | None) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the command line says it once, for all runs
        images = load_dataset(dataset, seed=seed, data_dir=data_dir)
    features = RandomConvFeatures(n_filters=2, kernel_size=3, pool_size=2, random_state=seed).fit(images.X_train)
    _, first_of_each_class = np.unique(images.y_test, return_index=True)
    return {
        "train": TrainingSet.build(
            features.transform(images.X_train), images.y_train, len(images.class_names), REGULARIZATION
        ),
        "test_features": features.transform(images.X_test),
        "test_labels": images.y_test,
        "test_images": images.X_test,
        "samples": first_of_each_class,
        "class_names": images.class_names,
    }


def _columns(history: list[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    # Texts are why a sampler failed, which the native one, the only one here, does not.
    names = [name for name, value in (history[0] if history else {}).items() if not isinstance(value, str)]
    return {name: np.array([row[name] for row in history]) for name in names}


def environment() -> dict[str, str]:
    """Versions and machine, for the reader of a record; nothing that identifies a person."""
    return {
        "annealfit": annealfit.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
    }
