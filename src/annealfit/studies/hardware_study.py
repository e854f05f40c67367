"""Problems of a training, of filters, or of a layer's rows on chips: embeddings, costs, coefficients, analog error.

The coefficients are those of the digits, whatever the number of classes: couplings come from the features and the
bits alone. Features of other images have other couplings, but bits spread them in the same way. A filter's problem is
that of a class with k²·channels features, with couplings of its own; a row of a layer is a class without a bias.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, check_number
from annealfit.data.datasets import load_dataset
from annealfit.data.features import RandomConvFeatures
from annealfit.hardware.feasibility import Feasibility, Workload, assess
from annealfit.hardware.limits import Device, DeviceRanges, Resolution, resolve
from annealfit.models import AnnealedClassifier, AnnealedConvNet
from annealfit.problems.problem import Problems, QuadraticProblem
from annealfit.quantization.quantize import layer_problems
from annealfit.training import FilterMethod, Method

_FEATURES_OF_A_FILTER = 9  # a 3×3 kernel on 8×8 images and pooling by 2 leave 3×3 positions
# A dense problem of more variables takes hundreds of megabytes, and is twenty times what any chip holds.
MOST_VARIABLES_LOOKED_AT = 4096

Examples = Mapping[str, Callable[[int, int], QuadraticProblem]]  # by name, the problem of so many features and bits


def study_hardware(
    devices: Sequence[Device], workloads: Sequence[Workload], examples: Examples | None = None
) -> Iterator[Feasibility]:
    """Assess every workload on every device, lazily, with the coefficients of `examples`: by default of a training."""
    examples = class_examples() if examples is None else examples
    resolve_once = cache(partial(_resolve, examples))  # most devices have the same ranges
    for device, workload in product(devices, workloads):
        if workload.variables <= device.chip.largest_clique:
            same = (other.classes for other in workloads if other.variables == workload.variables)
            device.chip.tiles(workload.variables, max(same))  # once; fewer are among them
        large = workload.variables > MOST_VARIABLES_LOOKED_AT
        found = {} if large else resolve_once(workload.features, workload.bits, device.ranges)
        yield assess(workload, device, found)


def _resolve(examples: Examples, features: int, bits: int, ranges: DeviceRanges) -> dict[str, Resolution]:
    problems = {name: make(features, bits) for name, make in examples.items()}
    return {name: resolve(*problem.to_ising()[:2], ranges) for name, problem in problems.items()}


def class_examples(coordinates: Sequence[str] = ("raw", "centred"), seed: int = 42) -> Examples:
    """The problems of a class, by coordinates."""
    return {basis: partial(representative_problem, seed=seed, coordinates=basis) for basis in coordinates}


def representative_problem(features: int, bits: int, seed: int = 42, coordinates: str = "raw") -> QuadraticProblem:
    """The problem with the largest fields among the first ones of a training on digits."""
    inputs, labels = _digits(math.ceil(features / _FEATURES_OF_A_FILTER), seed)
    classifier = AnnealedClassifier(bits=bits, method=Method(coordinates=coordinates), random_state=seed)
    return _with_largest_fields(classifier.problems(inputs[:, :features], labels))


def filter_examples(kernel: int, channels: int, seed: int = 42) -> tuple[int, Examples]:
    """Features of a filter, and its problem, in raw coordinates; several channels are those of a layer before it."""
    check_number("kernel", kernel, Integral, minimum=1, maximum=5, remedy="the digits have 8×8 pixels")
    check_number("channels", channels, Integral, minimum=1, remedy="a grey image has 1")

    def example(_: int, bits: int) -> QuadraticProblem:
        n_filters, kernels, pools = (4, kernel, 2) if channels == 1 else ([channels, 4], [3, kernel], [1, 2])
        net = AnnealedConvNet(n_filters, kernels, pools, bits=bits, random_state=seed)
        data = load_dataset("digits", seed=seed)
        # The last layer is the first to be trained after the head.
        return _with_largest_fields(net.problems(data.X_train, data.y_train, after=FilterMethod().head_steps))

    return kernel**2 * channels, {"raw": example}


def parse_layer(text: str) -> tuple[int, int]:
    """Inputs and outputs of a layer, as people write them.

    >>> parse_layer("180x64"), parse_layer("784×128")
    ((180, 64), (784, 128))
    """
    found = re.fullmatch(r"\s*(\d{1,9})\s*[x×*]\s*(\d{1,9})\s*", text)
    if found is None or min(map(int, found.groups())) < 1:
        raise InvalidInputError(f"--layer is {text!r}; write inputs and outputs, both at least 1, as 180x64")
    return int(found[1]), int(found[2])


def row_example(inputs: int, bits: int, seed: int = 42) -> QuadraticProblem:
    """A row of a layer with normal weights that reads features of the digits, none of them constant."""
    features, _ = _digits(-(-2 * inputs // _FEATURES_OF_A_FILTER), seed)
    live = np.flatnonzero(features.std(axis=0) > 0)[:inputs]
    weights = np.random.default_rng(seed).normal(size=(len(live), 1))
    return layer_problems(weights, features[:, live], bits=bits)[0]


def _with_largest_fields(problems: Problems) -> QuadraticProblem:
    return max(problems, key=lambda problem: float(np.abs(problem.gradient).max()))


@cache
def _digits(n_filters: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Features (N, 9·n_filters) and labels of the digits."""
    data = load_dataset("digits", seed=seed)
    features = RandomConvFeatures(n_filters=n_filters, kernel_size=3, pool_size=2, random_state=seed)
    return features.fit_transform(data.X_train), data.y_train
