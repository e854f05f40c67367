"""The gradients and ranges of the catalogue's instances, as a training leaves them; only of those not on record yet.

python tools/instance_gradients.py ["PATTERN" …]

The sampler of the training is handed problems whose numbers are rounded: what is a tie (the bias of a class that is as
frequent as the others) is then a tie on every machine, and not decided by the last bit.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from annealfit._support.files import replacing
from annealfit._support.threads import blas_threads
from annealfit.problems.curvature import Curvature
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import Problems, QuadraticProblem
from annealfit.samplers import LevelAnnealer, Sampler, Samples
from annealfit.studies.instances import (
    COEFFICIENT_BITS,
    GRADIENTS_FILE,
    LATE,
    RANGE_BITS,
    Instance,
    make_classifier_of,
    round_to_grid,
    select_instances,
    training_features,
)
from annealfit.studies.sampler_study import take_problems


@lru_cache(maxsize=4)
def round_curvature(curvature: Curvature) -> Curvature:
    """The curvature on the grid; all classes and iterations of a training share theirs."""
    return Curvature(round_to_grid(curvature.matrix, COEFFICIENT_BITS))


def round_problem(problem: QuadraticProblem) -> QuadraticProblem:
    """The problem with its numbers on the grid."""
    encoding = Encoding(problem.encoding.bits, float(round_to_grid(problem.encoding.range, RANGE_BITS)))
    return QuadraticProblem(
        round_curvature(problem.shared_curvature), round_to_grid(problem.gradient, COEFFICIENT_BITS), encoding
    )


@dataclass(frozen=True)
class GridSampler(Sampler):
    """Another sampler, which is handed the problems with their numbers on the grid."""

    child: Sampler

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """Round the problems, and let the other sampler solve them."""
        return self.child.solve([round_problem(problem) for problem in problems], seeds)


@lru_cache(maxsize=2)
def trained(of: Instance) -> dict[str, Problems]:
    """The problems of all classes at each stage of the default training."""
    X, y, _ = training_features(of.features)
    classifier = make_classifier_of(of).set_params(sampler=GridSampler(LevelAnnealer()))
    with blas_threads(0):
        return {taken.name: taken.problems for taken in take_problems(classifier, X, y, late=LATE)}


def main(patterns: list[str]) -> None:
    """Train, and store what is new."""
    with np.load(GRADIENTS_FILE) as archive:
        stored = dict(archive)
    for instance in select_instances(patterns):
        if instance.name not in stored:
            common = Instance(instance.features, instance.bits, instance.coordinates, "first", 0)
            problem = round_problem(trained(common)[instance.stage][instance.class_index])
            stored[instance.name] = np.append(problem.gradient, problem.encoding.range)
            print(instance.name)
    with replacing(GRADIENTS_FILE) as file:
        np.savez_compressed(file, allow_pickle=False, **stored)


if __name__ == "__main__":
    main(sys.argv[1:])
