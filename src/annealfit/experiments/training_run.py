"""One training on one data set, with the classical baselines on the same features beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from annealfit.baselines import SGD_RATE
from annealfit.classifier import AnnealedClassifier
from annealfit.datasets import Dataset
from annealfit.experiments.measure import fit_optimum, fit_sgd, fitted_classifier, measure
from annealfit.experiments.prepared import Prepared
from annealfit.experiments.records import Record
from annealfit.image_classifier import ImageClassifier
from annealfit.randomness import seed_of
from annealfit.training.loop import Callback


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A finished run: the model, and every method's record on the same features."""

    dataset: Dataset
    model: ImageClassifier
    records: tuple[Record, ...]  # the annealed classifier first


def run_training(prepared: Prepared, classifier: AnnealedClassifier, callbacks: Sequence[Callback] = ()) -> TrainingRun:
    """Fit `classifier`, then SGD and logistic regression beside it.

    SGD starts from the uniform initial weights of the classifier's seed and takes as many steps as the
    paper's classical baseline, 1000. Ctrl-C ends the training and keeps what was learnt, if anything was.
    """
    classifier.set_params(callbacks=[*(classifier.callbacks or ()), *callbacks])
    try:
        classifier.fit(prepared.X_train, prepared.dataset.y_train)
    except KeyboardInterrupt:
        if not getattr(classifier, "history_", None):
            raise
    classifier.set_params(callbacks=None)
    regularization, seed = classifier.regularization, seed_of(classifier.random_state)
    fitted = {
        f"QUBO {classifier.bits}-bit": fitted_classifier(classifier),
        f"SGD (rate {SGD_RATE})": fit_sgd(prepared, regularization, seed),
        "Logistic optimum": fit_optimum(prepared, regularization),
    }
    records = tuple(measure(prepared, method, found) for method, found in fitted.items())
    model = ImageClassifier(prepared.features, classifier, prepared.dataset.class_names, prepared.dataset.preparation)
    return TrainingRun(prepared.dataset, model, records)
