"""The rows of a layer on chips: whether the levels of an output's weights fit an annealer, and what they cost there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from annealfit._support.errors import InvalidInputError
from annealfit.data.datasets import load_dataset
from annealfit.data.features import RandomConvFeatures
from annealfit.hardware.feasibility import Device, Feasibility, Workload, assess
from annealfit.hardware.limits import DeviceRanges, Resolution, resolve
from annealfit.problems.problem import QuadraticProblem
from annealfit.quantization.quantize import layer_problems

LAYER = "layer"  # what the coefficients of a row are listed under
_FEATURES_OF_A_FILTER = 9
_MOST_INPUTS_LOOKED_AT = 2048


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
    for device in devices:
        for workload in workloads:
            looked_at = workload.features < _MOST_INPUTS_LOOKED_AT
            own = (
                {LAYER: row_resolution(workload.features + 1, workload.bits, device.ranges, seed)} if looked_at else {}
            )
            found = assess(workload, device, own)
            yield found if found.embeds else replace(found, remedy=_remedy(found))


def _remedy(row: Feasibility) -> str:
    if row.largest_clique < 2:
        return "use another chip"
    most, bits = row.largest_clique // row.bits, f"{row.bits} {'bit' if row.bits == 1 else 'bits'}"
    return (
        f"rows of at most {most} weights fit at {bits}; "
        "solve longer ones in blocks (quantize --blocks), or anneal on this computer"
    )


def representative_row(inputs: int, bits: int, seed: int = 42) -> QuadraticProblem:
    """A row of a layer with normal weights that reads features of the digits, all of them above 0.

    >>> representative_row(24, 1).n_variables
    24
    """
    data = load_dataset("digits", seed=seed)
    filters = RandomConvFeatures(n_filters=-(-2 * inputs // _FEATURES_OF_A_FILTER), random_state=seed)
    features = filters.fit_transform(data.X_train)
    live = np.flatnonzero(features.std(axis=0) > 0)[:inputs]
    weights = np.random.default_rng(seed).normal(size=(len(live), 1))
    return layer_problems(weights, features[:, live], bits=bits)[0]


@cache
def row_resolution(inputs: int, bits: int, ranges: DeviceRanges, seed: int = 42) -> Resolution:
    """How much of such a row a device of these ranges resolves."""
    fields, couplings, _ = representative_row(inputs, bits, seed).to_ising()
    return resolve(fields, couplings, ranges)
