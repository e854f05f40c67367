"""The problems of a training on chips: sizes, embeddings, costs, and coefficients against analog error.

The coefficients are those of the digits, whatever the number of classes: couplings come from the features and the
bits alone. Features of other images have other couplings, but bits spread them in the same way. A filter's problem is
a class's of k²·channels features, with couplings of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import check_number
from annealfit.data.datasets import load_dataset
from annealfit.data.features import RandomConvFeatures
from annealfit.hardware.feasibility import Device, Feasibility, Workload, assess
from annealfit.hardware.limits import DeviceRanges, Resolution, resolve
from annealfit.models import AnnealedClassifier, AnnealedConvNet
from annealfit.problems.problem import QuadraticProblem

# A 3×3 kernel on 8×8 images and pooling by 2 leave 3×3 positions.
_FEATURES_OF_A_FILTER = 9
# A dense problem of more variables takes hundreds of megabytes, and is twenty times what any chip holds.
MOST_VARIABLES_LOOKED_AT = 4096


@dataclass(frozen=True)
class FilterSize:
    """What decides the size of a filter's problem.

    >>> FilterSize(kernel=5, channels=1).features
    25
    """

    kernel: int
    channels: int

    def __post_init__(self) -> None:
        check_number("kernel", self.kernel, Integral, minimum=1, maximum=5, remedy="the digits have 8×8 pixels")
        check_number("channels", self.channels, Integral, minimum=1, remedy="a grey image has 1")

    @property
    def features(self) -> int:
        """Its parameters, without the bias."""
        return self.kernel**2 * self.channels


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
    filters: FilterSize | None = None,
) -> Iterator[Feasibility]:
    """Assess every workload on every device, one row after another as they are asked for.

    Every row has the coefficients in all these coordinates side by side; the embedding is the same. Where the problems
    are those of filters, these are in raw coordinates.

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
            found = (
                resolutions_of(workload, device.ranges, seed, coordinates)
                if filters is None
                else {"raw": _filter_resolution(filters, workload.bits, device.ranges, seed)}
            )
            yield assess(workload, device, found)


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


def representative_filter_problem(size: FilterSize, bits: int, seed: int = 42) -> QuadraticProblem:
    """The first problem of a filter in a training on digits, of all filters' the one with the largest fields.

    Several channels are those of a layer before it.

    >>> representative_filter_problem(FilterSize(kernel=5, channels=1), bits=3).n_variables
    78
    """
    layers = [(4, size.kernel, 2)] if size.channels == 1 else [(size.channels, 3, 1), (4, size.kernel, 2)]
    n_filters, kernels, pools = (list(sizes) for sizes in zip(*layers, strict=True))
    net = AnnealedConvNet(n_filters, kernels, pools, bits=bits, random_state=seed)
    data = load_dataset("digits", seed=seed)
    problems = net.problems(data.X_train, data.y_train, after=net.head_steps)  # the last layer's turn comes first
    return max(problems, key=lambda problem: float(np.abs(problem.gradient).max()))


@cache
def _filter_resolution(size: FilterSize, bits: int, ranges: DeviceRanges, seed: int) -> Resolution:
    fields, couplings, _ = representative_filter_problem(size, bits, seed).to_ising()
    return resolve(fields, couplings, ranges)


@cache  # devices mostly share their ranges
def _resolution(features: int, bits: int, ranges: DeviceRanges, seed: int, coordinates: str) -> Resolution:
    fields, couplings, _ = representative_problem(features, bits, seed, coordinates).to_ising()
    return resolve(fields, couplings, ranges)


@cache
def _digits(n_filters: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    data = load_dataset("digits", seed=seed)
    features = RandomConvFeatures(n_filters=n_filters, kernel_size=3, pool_size=2, random_state=seed)
    return features.fit_transform(data.X_train), data.y_train
