"""From a name to the problem: the same coefficients, bit for bit, wherever it is made.

Sums over images differ in their last bits from one machine to the next. So an instance is the training's problem with
its numbers rounded to a grid that such differences do not reach: curvature and gradient to 2⁻³⁰ of the largest, the
range to 2⁻²⁰. On that grid every sum that an export takes is exact, and so the same everywhere. The sampler of the
training that leads to late problems is handed rounded ones too: what is a tie (the bias of a class that is as frequent
as the others) is then a tie on every machine, and not decided by the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit.classifier import AnnealedClassifier
from annealfit.datasets import load_dataset
from annealfit.datasets.images import ImagePreparation
from annealfit.datasets.local_files import data_directory, read_local
from annealfit.encoding import Encoding
from annealfit.experiments.sampler_study import take_problems
from annealfit.features import RandomConvFeatures
from annealfit.instances.catalogue import LATE, SEED, ImageFeatures, Instance
from annealfit.metric import Metric
from annealfit.problem import QuadraticProblem
from annealfit.problems import Problems
from annealfit.samplers.catalogue import default_sampler
from annealfit.samplers.protocol import Sampler, Samples
from annealfit.threads import blas_threads

COEFFICIENT_BITS, RANGE_BITS = 30, 20
LEADING = 100  # images of each class


def make_problem(instance: Instance) -> QuadraticProblem:
    """The problem of an instance, made from the data set's images; trainings that are asked for in turn are shared."""
    problems = _trained(instance.features, instance.bits, instance.coordinates)[instance.stage]
    return round_problem(problems[instance.class_index])


def round_problem(problem: QuadraticProblem) -> QuadraticProblem:
    """The problem with its numbers on the grid."""
    encoding = Encoding(problem.encoding.bits, float(round_to_grid(problem.encoding.range, RANGE_BITS)))
    gradient = round_to_grid(problem.gradient, COEFFICIENT_BITS)
    return QuadraticProblem(_rounded_metric(problem.metric), gradient, encoding)


def class_name(instance: Instance) -> str:
    """What the class is called in its data set."""
    return _features(instance.features).class_names[instance.class_index]


def round_to_grid(values: ArrayLike, bits: int) -> NDArray[np.float64]:
    """Values rounded to multiples of a power of two, such that the largest needs at most this many bits.

    >>> round_to_grid([0.9, 0.3, 0.01], 4).tolist()
    [0.875, 0.3125, 0.0]
    """
    given = np.asarray(values, dtype=np.float64)
    _, exponent = np.frexp(np.abs(given).max())
    return np.ldexp(np.rint(np.ldexp(given, bits - exponent)), exponent - bits)


@dataclass(frozen=True)
class GridSampler(Sampler):
    """Another sampler, which is handed the problems with their numbers on the grid."""

    child: Sampler

    def prepare(self) -> None:
        """Prepare the other sampler."""
        self.child.prepare()

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """Round the problems, and let the other sampler solve them."""
        return self.child.solve([round_problem(problem) for problem in problems], seeds)


@lru_cache(maxsize=4)  # all classes and iterations of a training share theirs
def _rounded_metric(metric: Metric) -> Metric:
    return Metric(round_to_grid(metric.matrix, COEFFICIENT_BITS))


@dataclass(frozen=True, eq=False)
class TrainingFeatures:
    """What the training sees."""

    X: NDArray[np.float64]  # (N, d)
    y: NDArray[np.intp]
    class_names: tuple[str, ...]


@lru_cache(maxsize=1)
def _features(features: ImageFeatures) -> TrainingFeatures:
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


@lru_cache(maxsize=2)
def _trained(features: ImageFeatures, bits: int, coordinates: str) -> dict[str, Problems]:
    """The problems of all classes at each stage of the default training."""
    prepared = _features(features)
    sampler = GridSampler(default_sampler())
    classifier = AnnealedClassifier(bits=bits, coordinates=coordinates, sampler=sampler, random_state=SEED)
    with blas_threads(0):
        sets = take_problems(classifier, prepared.X, prepared.y, late=LATE)
    return {taken.name: taken.problems for taken in sets}
