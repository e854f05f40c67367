"""One training of a network's filters, with the same network frozen and trained by Adam beside it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from annealfit.baselines import ADAM_RATE, train_adam
from annealfit.classifier import AnnealedConvNet
from annealfit.classifier.conv_net import with_trained_layers
from annealfit.datasets import Dataset
from annealfit.experiments.measure import Fitted, fitted_classifier, measure
from annealfit.experiments.prepared import Prepared
from annealfit.experiments.records import Record
from annealfit.experiments.spec import RunSpec
from annealfit.experiments.training_run import TrainingRun
from annealfit.features import RandomConvFeatures
from annealfit.image_classifier import ImageClassifier
from annealfit.objectives.conv_net import HEAD
from annealfit.randomness import seed_of
from annealfit.training.loop import Callback

# Adam takes about so many steps: on few images many epochs, on many images a few.
ADAM_STEPS, ADAM_BATCH = 2000, 50
FEWEST_EPOCHS, MOST_EPOCHS = 5, 100


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """Features as a method left them, and the head on them."""

    features: RandomConvFeatures
    fitted: Fitted


@dataclass(frozen=True, eq=False)
class NetworkRun(TrainingRun):
    """A finished training of filters: what they were before it is kept too."""

    initial_filters: list[NDArray[np.float64]]  # (filters, channels, k, k) of every layer


def run_network_training(dataset: Dataset, net: AnnealedConvNet, callbacks: Sequence[Callback] = ()) -> NetworkRun:
    """Fit `net`, then the same network with its filters frozen, and by Adam from the same weights.

    All three have the same loss: the filters' penalty counts for the frozen network too. Ctrl-C ends the training and
    keeps what was learnt, if anything was.
    """
    net.set_params(callbacks=[*(net.callbacks or ()), *callbacks])
    try:
        trained = fit_network(dataset, net)
    except KeyboardInterrupt:
        if not getattr(net, "history_", None):
            raise
        trained = _of_net(net)
    net.set_params(callbacks=None)
    found = {
        f"QUBO {net.bits}-bit": trained,
        "Frozen filters": fit_frozen_network(dataset, net),
        f"Adam (rate {ADAM_RATE})": fit_network_by_adam(dataset, net),
    }
    records = tuple(measure_network(dataset, method, network) for method, network in found.items())
    features, head = (step for _, step in net.to_pipeline().steps)
    model = ImageClassifier(features, head, dataset.class_names, dataset.preparation)
    return NetworkRun(dataset, model, records, net.initial_filters_)


def fit_network(dataset: Dataset, net: AnnealedConvNet) -> FittedNetwork:
    """Train the network by annealing."""
    net.fit(dataset.X_train, dataset.y_train)
    return _of_net(net)


def _of_net(net: AnnealedConvNet) -> FittedNetwork:
    return FittedNetwork(net.features_, fitted_classifier(net, _filter_penalty(net, net.features_)))


def fit_frozen_network(dataset: Dataset, net: AnnealedConvNet) -> FittedNetwork:
    """The head alone, by annealing, on the filters that the network starts from."""
    frozen = clone(net).set_params(trainable=(), checkpoint=None, resume=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # how far it came is in its record
        frozen.fit(dataset.X_train, dataset.y_train)
    return FittedNetwork(frozen.features_, fitted_classifier(frozen, _filter_penalty(net, frozen.features_)))


def fit_network_by_adam(dataset: Dataset, net: AnnealedConvNet) -> FittedNetwork:
    """Adam on the network's loss, from the weights that its training starts from."""
    blank = clone(net).set_params(checkpoint=None, resume=False)
    loss, weights = blank.loss_and_start(dataset.X_train, dataset.y_train)
    epochs = int(np.clip(ADAM_STEPS * ADAM_BATCH / len(loss.images), FEWEST_EPOCHS, MOST_EPOCHS))
    result = train_adam(loss, weights, epochs=epochs, batch_size=ADAM_BATCH, seed=seed_of(net.random_state))
    features = with_trained_layers(blank.first_features(dataset.X_train), result.weights)
    penalty = _filter_penalty(net, features)
    return FittedNetwork(
        features, Fitted(result.weights[HEAD], result.history, result.seconds, net.regularization, "", penalty)
    )


def measure_network(dataset: Dataset, method: str, network: FittedNetwork, spec: RunSpec | None = None) -> Record:
    """The record of a network that was trained in some way."""
    features = network.features
    prepared = Prepared(dataset, features, features.transform(dataset.X_train), features.transform(dataset.X_test))
    return measure(prepared, method, network.fitted, spec)


def _filter_penalty(net: AnnealedConvNet, features: RandomConvFeatures) -> float:
    """`½λΣ‖filters‖²` of the layers that the network trains."""
    squares = [float((features.filters_[layer] ** 2).sum()) for layer in net.trained_layers()]
    return 0.5 * net.regularization * sum(squares)
