"""The problems of a training on chips: sizes, embeddings, costs, and coefficients against analog error.

The coefficients are those of the digits, whatever the number of classes: couplings come from the features and the
bits alone. Features of other images have other couplings, but bits spread them in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.classifier import AnnealedClassifier
from annealfit.datasets import load_dataset
from annealfit.features import RandomConvFeatures
from annealfit.hardware.analog_error import DeviceRanges, Resolution, resolve
from annealfit.hardware.feasibility import Device, Feasibility, Workload, assess
from annealfit.problem import QuadraticProblem

# A 3×3 kernel on 8×8 images and pooling by 2 leave 3×3 positions.
_FEATURES_OF_A_FILTER = 9
# A dense problem of more variables takes hundreds of megabytes, and is twenty times what any chip holds.
MOST_VARIABLES_LOOKED_AT = 4096


def make_workloads(
    features: Sequence[int], classes: Sequence[int], bits: Sequence[int], **settings: Any
) -> list[Workload]:
    """A workload for every combination; `settings` are those of `Workload` that all of them share.

    >>> [workload.variables for workload in make_workloads([18], [10], [1, 2, 3])]
    [19, 38, 57]
    """
    return [Workload(*numbers, **settings) for numbers in product(features, classes, bits)]


def study_hardware(
    devices: Sequence[Device],
    workloads: Sequence[Workload],
    seed: int = 42,
    coordinates: Sequence[str] = ("raw", "centred"),
) -> Iterator[Feasibility]:
    """Assess every workload on every device, one row after another as they are asked for.

    Every row has the coefficients in all these coordinates side by side; the embedding is the same.

    >>> from annealfit.hardware.feasibility import published_device
    >>> from annealfit.hardware.topologies import ideal_chip
    >>> rows = study_hardware([published_device(ideal_chip("Z12"))], make_workloads([18], [10], [3, 10]))
    >>> [(row.embeds, round(row.resolutions["raw"].share_below[0.015], 2)) for row in rows]
    [(True, 0.18), (False, 0.88)]
    """
    most_classes: dict[int, int] = {}
    for workload in workloads:
        most_classes[workload.variables] = max(workload.classes, most_classes.get(workload.variables, 0))
    for device in devices:
        for workload in workloads:
            if workload.variables <= device.chip.largest_clique:
                device.chip.tiles(workload.variables, most_classes[workload.variables])  # once; fewer are among them
            yield assess(workload, device, resolutions_of(workload, device.ranges, seed, coordinates))


def resolutions_of(
    workload: Workload, ranges: DeviceRanges, seed: int = 42, coordinates: Sequence[str] = ("raw", "centred")
) -> dict[str, Resolution]:
    """How much of the workload's problems a device of these ranges resolves; empty if they are too large to look at."""
    if workload.variables > MOST_VARIABLES_LOOKED_AT:
        return {}
    return {basis: _resolution(workload.features, workload.bits, ranges, seed, basis) for basis in coordinates}


def representative_problem(features: int, bits: int, seed: int = 42, coordinates: str = "raw") -> QuadraticProblem:
    """The first problem of a training on digits that has the largest gradient: of all classes' the largest fields.

    >>> representative_problem(features=18, bits=3).n_variables
    57
    """
    inputs, labels = _digits(math.ceil(features / _FEATURES_OF_A_FILTER), seed)
    problems = AnnealedClassifier(bits=bits, coordinates=coordinates, random_state=seed).problems(
        inputs[:, :features], labels
    )
    return max(problems, key=lambda problem: float(np.abs(problem.gradient).max()))


@cache  # devices mostly share their ranges
def _resolution(features: int, bits: int, ranges: DeviceRanges, seed: int, coordinates: str) -> Resolution:
    fields, couplings, _ = representative_problem(features, bits, seed, coordinates).to_ising()
    return resolve(fields, couplings, ranges)


@cache
def _digits(n_filters: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    data = load_dataset("digits", seed=seed)
    features = RandomConvFeatures(n_filters=n_filters, kernel_size=3, pool_size=2, random_state=seed)
    return features.fit_transform(data.X_train), data.y_train
