"""What several commands begin with: images and their features, and the classifier of a preset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import annealfit
from annealfit._support.errors import InvalidInputError
from annealfit.cli.options import Preset
from annealfit.data.datasets import load_dataset

if TYPE_CHECKING:
    from annealfit.data.datasets import Dataset
    from annealfit.models import AnnealedClassifier, AnnealedConvNet
    from annealfit.studies import Prepared, TrainingRun
    from annealfit.training.loop import Callback


@dataclass(frozen=True, eq=False)
class Job:
    """A training that is about to begin: of a head, or of a whole network."""

    dataset: Dataset
    classifier: AnnealedClassifier | AnnealedConvNet
    X_train: Any  # features, or images; or rows of a cluster, which bring their labels
    y_train: Any
    features: dict[str, Any] | None  # how they are made, as the configuration tells it
    run: Callable[[Sequence[Callback]], TrainingRun]
    notes: Callable[[TrainingRun], list[str]] = lambda run: []  # what else there is to tell afterwards


def prepare(
    dataset: str, filters: int, kernel: int, pool: int, standardize: str, size: int, download: bool, seed: int
) -> Prepared:
    """The images of a data set and their random convolution features, all decided by the seed."""
    features = annealfit.RandomConvFeatures(
        n_filters=filters, kernel_size=kernel, pool_size=pool, standardize=standardize, random_state=seed
    )
    return annealfit.studies.Prepared.of(load_dataset(dataset, seed=seed, size=size, download=download), features)


def make_classifier(preset: Preset, bits: int | None, max_iter: int | None, seed: int) -> AnnealedClassifier:
    """The classifier of a preset; None takes the preset's own bits or iterations."""
    if preset == Preset.annealfit:
        classifier = annealfit.AnnealedClassifier()
        if bits is not None:
            classifier.set_params(bits=bits)
    else:
        classifier = annealfit.AnnealedClassifier.from_paper(20 if bits is None else bits, preset=preset)
    if max_iter is not None:
        classifier.set_params(max_iter=max_iter)
    return classifier.set_params(random_state=seed)


def network_job(dataset: Dataset, sizes: dict[str, Any], net: AnnealedConvNet) -> Job:
    """The training of a network of these sizes, filters and all."""
    net.set_params(**sizes)
    annealfit.RandomConvFeatures(**sizes).fit(dataset.X_train[:2])  # layers that do not fit the images fail here

    def run(callbacks: Sequence[Callback]) -> TrainingRun:
        from annealfit.studies.training_run import run_network_training

        return run_network_training(dataset, net, callbacks)

    features = {**sizes, "random_state": net.random_state}
    return Job(dataset, net, dataset.X_train, dataset.y_train, features, run)


def make_network(preset: Preset, bits: int | None, max_iter: int | None, seed: int) -> AnnealedConvNet:
    """The network whose filters are trained; the paper's presets have none."""
    if preset != Preset.annealfit:
        raise InvalidInputError(
            f"--train-filters goes with the preset annealfit, not with {preset}: the paper's filters stay as drawn"
        )
    given = {"bits": bits, "max_iter": max_iter}
    net = annealfit.AnnealedConvNet(random_state=seed)
    return net.set_params(**{name: value for name, value in given.items() if value is not None})
