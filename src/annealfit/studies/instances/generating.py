"""From a name to the problem: the same coefficients, bit for bit, wherever it is made.

An instance is the training's problem: the curvature, which is computed from the images, and a gradient and a range,
which are on record (`gradients.npz`, made by tools/instance_gradients.py), so that a later version that trains
otherwise does not change what was published. Sums over images differ in their last bits from one machine to the next,
so all numbers are rounded to a grid that such differences do not reach: curvature and gradient to 2⁻³⁰ of the largest,
the range to 2⁻²⁰. On that grid every sum that an export takes is exact, and so the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.threads import blas_threads
from annealfit.data.datasets import load_dataset
from annealfit.data.datasets.images import ImagePreparation
from annealfit.data.datasets.local_files import data_directory, read_local
from annealfit.data.features import RandomConvFeatures
from annealfit.models import AnnealedClassifier
from annealfit.problems.coordinates import CentredCoordinates
from annealfit.problems.curvature import Curvature
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem
from annealfit.studies.instances.catalogue import SEED, ImageFeatures, Instance

COEFFICIENT_BITS, RANGE_BITS = 30, 20
GRADIENTS_FILE = Path(__file__).with_name("gradients.npz")
LEADING = 100  # images of each class


def make_problem(instance: Instance) -> QuadraticProblem:
    """The problem of an instance, made from the data set's images."""
    *gradient, update_range = _gradients()[instance.name]
    metric = _curvature(instance.features, instance.coordinates)
    return QuadraticProblem(metric, np.array(gradient), Encoding(instance.bits, float(update_range)))


def class_name(instance: Instance) -> str:
    """What the class is called in its data set."""
    return training_features(instance.features).class_names[instance.class_index]


def round_to_grid(values: ArrayLike, bits: int) -> NDArray[np.float64]:
    """Values rounded to multiples of a power of two, such that the largest needs at most this many bits.

    >>> round_to_grid([0.9, 0.3, 0.01], 4).tolist()
    [0.875, 0.3125, 0.0]
    """
    given = np.asarray(values, dtype=np.float64)
    _, exponent = np.frexp(np.abs(given).max())
    return np.ldexp(np.rint(np.ldexp(given, bits - exponent)), exponent - bits)


@lru_cache(maxsize=4)
def rounded_metric(metric: Curvature) -> Curvature:
    """The curvature on the grid; all classes and iterations of a training share theirs."""
    return Curvature(round_to_grid(metric.matrix, COEFFICIENT_BITS))


@dataclass(frozen=True, eq=False)
class TrainingFeatures:
    """What the training sees."""

    X: NDArray[np.float64]  # (N, d)
    y: NDArray[np.intp]
    class_names: tuple[str, ...]


@lru_cache(maxsize=1)
def training_features(features: ImageFeatures) -> TrainingFeatures:
    """The features of the images that an instance is made from, and their labels."""
    choose_images = {"drawn": _drawn_images, "leading": _leading_images}[features.images]
    images, labels, class_names = choose_images(features)
    convolution = RandomConvFeatures(
        n_filters=features.filters, kernel_size=features.kernel, pool_size=features.pool, random_state=SEED
    )
    return TrainingFeatures(convolution.fit_transform(images), labels, class_names)


_Images = tuple[NDArray[np.float64], NDArray[np.intp], tuple[str, ...]]


def _drawn_images(features: ImageFeatures) -> _Images:
    dataset = load_dataset(features.dataset, seed=SEED, size=features.image_size)
    return dataset.X_train, dataset.y_train, dataset.class_names


def _leading_images(features: ImageFeatures) -> _Images:
    parts = read_local(features.dataset, data_directory()).parts
    part, preparation = parts.test or parts.train, ImagePreparation((features.image_size,) * 2)
    by_class = [np.flatnonzero(part.labels == label)[:LEADING] for label in range(len(parts.class_names))]
    chosen = np.sort(np.concatenate(by_class))
    images = np.concatenate([preparation(stack) for stack in part.pick(chosen)])
    return images, part.labels[chosen], parts.class_names


def make_classifier_of(instance: Instance) -> AnnealedClassifier:
    """The classifier whose training the instance is of."""
    # The library keeps the unit of the bias that it was made with: what has a name and a digest does not change.
    centred = CentredCoordinates(bias_unit=1.0)
    return AnnealedClassifier(
        bits=instance.bits,
        regularization=1e-3,
        curvature="bound",
        coordinates=centred if instance.coordinates == "centred" else instance.coordinates,
        random_state=SEED,
    )


@lru_cache(maxsize=2)
def _curvature(features: ImageFeatures, coordinates: str) -> Curvature:
    """That of all classes, bits and iterations: it does not change in the course of a training."""
    seen = training_features(features)
    classifier = make_classifier_of(Instance(features, 1, coordinates, "first", 0))
    with blas_threads(0):
        return rounded_metric(classifier.problems(seen.X, seen.y).metrics[0])


@cache
def _gradients() -> dict[str, NDArray[np.float64]]:
    """By name: the gradient (D), and the range after it."""
    with np.load(GRADIENTS_FILE, allow_pickle=False) as archive:
        return dict(archive)
