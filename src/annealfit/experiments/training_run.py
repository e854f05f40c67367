"""One training on one data set, with the classical baselines on the same features beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.baselines import SGD_RATE, BaselineResult, solve_logistic, train_sgd
from annealfit.classifier import AnnealedClassifier
from annealfit.datasets import Dataset
from annealfit.encoding import Encoding
from annealfit.features import RandomConvFeatures
from annealfit.image_classifier import ImageClassifier
from annealfit.metrics import classification_metrics, per_class_recall
from annealfit.problem import QuadraticProblem
from annealfit.randomness import seed_of
from annealfit.samplers import SimulatedAnnealer
from annealfit.surrogate import TrainingSet, evaluate, softmax
from annealfit.surrogate.gram import augment
from annealfit.training.loop import Callback
from annealfit.training.state import uniform_weights


@dataclass(frozen=True, eq=False)
class MethodResult:
    """What one method reached."""

    method: str
    loss: float
    cross_entropy: float
    train: dict[str, float]  # the six metrics
    test: dict[str, float]
    test_recall: NDArray[np.float64]  # per class
    test_probabilities: NDArray[np.float64]  # (N_test, C)
    seconds: float
    history: list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A finished run: the model, and every method's results on the same features."""

    dataset: Dataset
    model: ImageClassifier
    methods: tuple[MethodResult, ...]  # the annealed classifier first


def run_training(
    dataset: Dataset,
    features: RandomConvFeatures,
    classifier: AnnealedClassifier,
    callbacks: Sequence[Callback] = (),
) -> TrainingRun:
    """Fit `features` and `classifier` on the data set, then SGD and logistic regression beside it.

    SGD starts from the uniform initial weights of the classifier's seed and takes as many steps as the
    paper's classical baseline, 1000.
    """
    X_train, X_test = (
        features.fit_transform(dataset.X_train),
        features.transform(dataset.X_test),
    )
    _compile_kernels()
    classifier.set_params(callbacks=[*(classifier.callbacks or ()), *callbacks])
    classifier.fit(X_train, dataset.y_train)
    classifier.set_params(callbacks=None)
    n_classes = len(classifier.classes_)
    data = TrainingSet.build(X_train, dataset.y_train, n_classes, classifier.regularization)
    augmented_test = augment(X_test)

    def result(method: str, baseline: BaselineResult) -> MethodResult:
        at_end = evaluate(data, baseline.weights)
        test_logits = augmented_test @ baseline.weights
        predicted = test_logits.argmax(axis=1)
        return MethodResult(
            method=method,
            loss=at_end.loss,
            cross_entropy=at_end.cross_entropy,
            train=classification_metrics(dataset.y_train, at_end.probabilities.argmax(axis=0)),
            test=classification_metrics(dataset.y_test, predicted),
            test_recall=per_class_recall(dataset.y_test, predicted, np.arange(n_classes)),
            test_probabilities=softmax(test_logits.T).T,
            seconds=baseline.seconds,
            history=baseline.history,
        )

    annealed = BaselineResult(
        np.vstack([classifier.coef_.T, classifier.intercept_]),
        classifier.history_,
        classifier.history_[-1]["seconds"] if classifier.history_ else 0.0,
    )
    start = uniform_weights(data.n_parameters, n_classes, seed_of(classifier.random_state))
    methods = (
        result(f"QUBO {classifier.bits}-bit", annealed),
        result(f"SGD (rate {SGD_RATE})", train_sgd(data, start)),
        result("Logistic optimum", solve_logistic(data)),
    )
    model = ImageClassifier(features, classifier, dataset.class_names)
    return TrainingRun(dataset, model, methods)


def _compile_kernels() -> None:
    """Use the compiled code once, so that the clock measures training and not the compiler."""
    problem = QuadraticProblem(np.eye(1), np.zeros(1), Encoding(bits=1, range=1.0))
    SimulatedAnnealer(num_sweeps=1).sample(problem)
    problem.lower_bound()
