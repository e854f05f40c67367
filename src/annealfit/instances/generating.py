"""From a name to the problem: the same coefficients, bit for bit, wherever it is made.

Sums over images differ in their last bits from one machine to the next. So an instance is the training's problem with
its numbers rounded to a grid that such differences do not reach: curvature and gradient to 2⁻³⁰ of the largest, the
range to 2⁻²⁰. On that grid every sum that an export takes is exact, and so the same everywhere.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit.classifier import AnnealedClassifier
from annealfit.datasets import load_dataset
from annealfit.encoding import Encoding
from annealfit.experiments.prepared import Prepared
from annealfit.experiments.sampler_study import take_problems
from annealfit.features import RandomConvFeatures
from annealfit.instances.catalogue import LATE, SEED, ImageFeatures, Instance
from annealfit.problem import QuadraticProblem
from annealfit.problems import Problems
from annealfit.threads import blas_threads

COEFFICIENT_BITS, RANGE_BITS = 30, 20


def make_problem(instance: Instance) -> QuadraticProblem:
    """The problem of an instance, made from the data set's images; trainings that are asked for in turn are shared."""
    problems = _trained(instance.features, instance.bits, instance.coordinates)[instance.stage]
    problem = problems[instance.class_index]
    encoding = Encoding(problem.encoding.bits, float(round_to_grid(problem.encoding.range, RANGE_BITS)))
    return QuadraticProblem(
        round_to_grid(problem.curvature, COEFFICIENT_BITS),
        round_to_grid(problem.gradient, COEFFICIENT_BITS),
        encoding,
    )


def class_name(instance: Instance) -> str:
    """What the class is called in its data set."""
    return _prepared(instance.features).dataset.class_names[instance.class_index]


def round_to_grid(values: ArrayLike, bits: int) -> NDArray[np.float64]:
    """Values rounded to multiples of a power of two, such that the largest needs at most this many bits.

    >>> round_to_grid([0.9, 0.3, 0.01], 4).tolist()
    [0.875, 0.3125, 0.0]
    """
    given = np.asarray(values, dtype=np.float64)
    _, exponent = np.frexp(np.abs(given).max())
    return np.ldexp(np.rint(np.ldexp(given, bits - exponent)), exponent - bits)


@lru_cache(maxsize=1)
def _prepared(features: ImageFeatures) -> Prepared:
    convolution = RandomConvFeatures(
        n_filters=features.filters, kernel_size=features.kernel, pool_size=features.pool, random_state=SEED
    )
    dataset = load_dataset(features.dataset, seed=SEED, size=features.image_size)
    return Prepared.of(dataset, convolution)


@lru_cache(maxsize=2)
def _trained(features: ImageFeatures, bits: int, coordinates: str) -> dict[str, Problems]:
    """The problems of all classes at each stage of the default training."""
    prepared = _prepared(features)
    classifier = AnnealedClassifier(bits=bits, coordinates=coordinates, random_state=SEED)
    with blas_threads(0):
        sets = take_problems(classifier, prepared.X_train, prepared.dataset.y_train, late=LATE)
    return {taken.name: taken.problems for taken in sets}
