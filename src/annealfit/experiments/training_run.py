"""One training on one data set, with the classical baselines on the same features beside it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from annealfit.baselines import SGD_RATE
from annealfit.classifier import AnnealedClassifier
from annealfit.datasets import Dataset
from annealfit.experiments.measure import fit_optimum, fit_sgd, fitted_classifier, measure
from annealfit.experiments.prepared import Prepared
from annealfit.experiments.records import Record
from annealfit.features import RandomConvFeatures
from annealfit.image_classifier import ImageClassifier
from annealfit.randomness import seed_of
from annealfit.training.loop import Callback


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A finished run: the model, and every method's record on the same features."""

    dataset: Dataset
    model: ImageClassifier | AnnealedClassifier  # the latter takes rows of features
    records: tuple[Record, ...]  # the annealed classifier first

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
    """Fit `classifier`, then, as `baselines`, SGD and logistic regression beside it.

    `rows` are the training features and labels somewhere else, as on a cluster; else they are the prepared ones.

    SGD starts from the uniform initial weights of the classifier's seed and takes as many steps as the
    paper's classical baseline, 1000. Ctrl-C ends the training and keeps what was learnt, if anything was.
    """
    classifier.set_params(callbacks=[*(classifier.callbacks or ()), *callbacks])
    try:
        classifier.fit(*(rows or (prepared.X_train, prepared.dataset.y_train)))
    except KeyboardInterrupt:
        if not getattr(classifier, "history_", None):
            raise
    classifier.set_params(callbacks=None)
    regularization, seed = classifier.regularization, seed_of(classifier.random_state)
    fitted = {f"QUBO {classifier.bits}-bit": fitted_classifier(classifier)}
    if baselines:
        fitted[f"SGD (rate {SGD_RATE})"] = fit_sgd(prepared, regularization, seed)
        fitted["Logistic optimum"] = fit_optimum(prepared, regularization)
    records = tuple(measure(prepared, method, found) for method, found in fitted.items())
    return TrainingRun(prepared.dataset, _model(prepared, classifier), records)


def _model(prepared: Prepared, classifier: AnnealedClassifier) -> ImageClassifier | AnnealedClassifier:
    """What takes the data as they come: images with their features, or rows, whose scaling moves into the weights."""
    features, dataset = prepared.features, prepared.dataset
    if isinstance(features, RandomConvFeatures):
        return ImageClassifier(features, classifier, dataset.class_names, dataset.preparation)
    model = copy.copy(classifier)
    if features is not None:  # w·(x − μ)/σ + b = (w/σ)·x + (b − (w/σ)·μ)
        model.coef_ = classifier.coef_ / features.scale_
        model.intercept_ = classifier.intercept_ - model.coef_ @ features.mean_
    names = dataset.class_names
    labels = np.array([int(name) for name in names] if all(map(_is_whole_number, names)) else names)
    model.classes_ = labels[classifier.classes_]
    return model


def _is_whole_number(name: str) -> bool:
    return name.removeprefix("-").isdecimal() and str(int(name)) == name
