"""Problems of a training, or rows of a layer, on chips: sizes, embeddings, costs, coefficients against analog error.

The coefficients are those of the digits, whatever the number of classes: couplings come from the features and the
bits alone. Features of other images have other couplings, but bits spread them in the same way. A filter's problem is
that of a class with k²·channels features, with couplings of its own; a row of a layer is a class without a bias.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, check_number
from annealfit.data.datasets import load_dataset
from annealfit.data.features import RandomConvFeatures
from annealfit.hardware.feasibility import Device, Feasibility, Workload, assess
from annealfit.hardware.limits import DeviceRanges, Resolution, resolve
from annealfit.models import AnnealedClassifier, AnnealedConvNet
from annealfit.problems.problem import Problems, QuadraticProblem
from annealfit.quantization.quantize import layer_problems
from annealfit.training import FilterMethod, Method

_FEATURES_OF_A_FILTER = 9  # a 3×3 kernel on 8×8 images and pooling by 2 leave 3×3 positions
# A dense problem of more variables takes hundreds of megabytes, and is twenty times what any chip holds.
MOST_VARIABLES_LOOKED_AT = 4096
LAYER = "layer"  # what the coefficients of a row are listed under
_MOST_INPUTS = 2048  # of a row whose coefficients are computed


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
    """A workload for every combination; `settings` are other fields of `Workload`.

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
    """Assess every workload on every device, lazily; problems of filters are in raw coordinates.

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
            if filters is None:
                found = resolutions_of(workload, device.ranges, seed, coordinates)
            else:
                found = {"raw": _resolution(representative_filter_problem, device.ranges, filters, workload.bits, seed)}
            yield assess(workload, device, found)


def resolutions_of(
    workload: Workload, ranges: DeviceRanges, seed: int = 42, coordinates: Sequence[str] = ("raw", "centred")
) -> dict[str, Resolution]:
    """How much of the workload's problems a device of these ranges resolves; empty for more than 4096 variables."""
    if workload.variables > MOST_VARIABLES_LOOKED_AT:
        return {}
    sizes = workload.features, workload.bits, seed
    return {basis: _resolution(representative_problem, ranges, *sizes, basis) for basis in coordinates}


def representative_problem(features: int, bits: int, seed: int = 42, coordinates: str = "raw") -> QuadraticProblem:
    """The problem with the largest fields among the first ones of a training on digits."""
    inputs, labels = _digits(math.ceil(features / _FEATURES_OF_A_FILTER), seed)
    classifier = AnnealedClassifier(bits=bits, method=Method(coordinates=coordinates), random_state=seed)
    return _with_largest_fields(classifier.problems(inputs[:, :features], labels))


def representative_filter_problem(size: FilterSize, bits: int, seed: int = 42) -> QuadraticProblem:
    """The same of filters; several channels are those of a layer before it.

    >>> representative_filter_problem(FilterSize(kernel=5, channels=1), bits=3).n_variables
    78
    """
    layers = [(4, size.kernel, 2)] if size.channels == 1 else [(size.channels, 3, 1), (4, size.kernel, 2)]
    n_filters, kernels, pools = (list(sizes) for sizes in zip(*layers, strict=True))
    net = AnnealedConvNet(n_filters, kernels, pools, bits=bits, random_state=seed)
    data = load_dataset("digits", seed=seed)
    # The last layer is the first to be trained after the head.
    return _with_largest_fields(net.problems(data.X_train, data.y_train, after=FilterMethod().head_steps))


def _with_largest_fields(problems: Problems) -> QuadraticProblem:
    return max(problems, key=lambda problem: float(np.abs(problem.gradient).max()))


@cache  # most devices have the same ranges
def _resolution(make_problem: Callable[..., QuadraticProblem], ranges: DeviceRanges, *sizes: Any) -> Resolution:
    fields, couplings, _ = make_problem(*sizes).to_ising()
    return resolve(fields, couplings, ranges)


@cache
def _digits(n_filters: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Features (N, 9·n_filters) and labels of the digits."""
    data = load_dataset("digits", seed=seed)
    features = RandomConvFeatures(n_filters=n_filters, kernel_size=3, pool_size=2, random_state=seed)
    return features.fit_transform(data.X_train), data.y_train


def parse_layer(text: str) -> tuple[int, int]:
    """Inputs and outputs of a layer, as people write them.

    >>> parse_layer("180x64"), parse_layer("784×128")
    ((180, 64), (784, 128))
    """
    found = re.fullmatch(r"\s*(\d{1,9})\s*[x×*]\s*(\d{1,9})\s*", text)
    if found is None or min(map(int, found.groups())) < 1:
        raise InvalidInputError(f"--layer is {text!r}; write inputs and outputs, both at least 1, as 180x64")
    return int(found[1]), int(found[2])


def row_workload(inputs: int, outputs: int, bits: int, reads: int, annealing_microseconds: float | None) -> Workload:
    """The rows of a layer as a workload: every output one problem of `inputs · bits` variables, sampled once.

    >>> row_workload(180, 64, 1, 100, None).variables
    180
    """
    if inputs < 2:
        raise InvalidInputError("a layer of one input has nothing to choose; a row needs at least 2 inputs")
    # A training's problem has a bias beside its features; a row of a layer has none.
    return Workload(inputs - 1, outputs, bits, reads, 1, annealing_microseconds)


def study_layer(devices: Sequence[Device], workloads: Sequence[Workload], seed: int = 42) -> Iterator[Feasibility]:
    """Assess the rows on every device, with coefficients like those of a layer that reads features of digits."""
    for device, workload in product(devices, workloads):
        inputs, bits = workload.features + 1, workload.bits
        own = {}
        if inputs <= _MOST_INPUTS:
            own = {LAYER: _resolution(representative_row, device.ranges, inputs, bits, seed)}
        found = assess(workload, device, own)
        if found.embeds:
            yield found
        elif found.largest_clique < 2:
            yield replace(found, remedy="use another chip")
        else:
            most = f"{found.largest_clique // bits} weights fit at {bits} {'bit' if bits == 1 else 'bits'}"
            longer = "solve longer ones in blocks (quantize --blocks), or anneal on this computer"
            yield replace(found, remedy=f"rows of at most {most}; {longer}")


def representative_row(inputs: int, bits: int, seed: int = 42) -> QuadraticProblem:
    """A row of a layer with normal weights that reads features of the digits, none of them constant."""
    features, _ = _digits(-(-2 * inputs // _FEATURES_OF_A_FILTER), seed)
    live = np.flatnonzero(features.std(axis=0) > 0)[:inputs]
    weights = np.random.default_rng(seed).normal(size=(len(live), 1))
    return layer_problems(weights, features[:, live], bits=bits)[0]
