"""Whether the problems of a training fit a device, and what solving them there costs.

A class's problem has `n = (d+1)·K` variables, all coupled, so it fits where a clique of n variables embeds. As many
classes as there are disjoint embeddings go into one call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from annealfit._support.errors import check_number
from annealfit.hardware.chip import Chip, longest_chain, qubits_of
from annealfit.hardware.limits import Device, Resolution, published_timing
from annealfit.problems.encoding import MAX_BITS


@dataclass(frozen=True)
class Workload:
    """A training, or the rows of a layer, on a device: the size of the problems, and how each is annealed."""

    features: int
    classes: int
    bits: int
    reads: int = 100
    iterations: int = 200
    annealing_microseconds: float | None = None  # None is the device's default
    bias: int = 1  # parameters beside the features; 0 for a row of a layer

    def __post_init__(self) -> None:
        check_number("features", self.features, Integral, minimum=1, remedy="the paper's is 18")
        check_number("classes", self.classes, Integral, minimum=1, remedy="digits has 10")
        check_number("bits", self.bits, Integral, minimum=1, maximum=MAX_BITS, remedy="2 or 3 do")
        check_number("reads", self.reads, Integral, minimum=1)
        check_number("iterations", self.iterations, Integral, minimum=1)
        if self.annealing_microseconds is not None:
            check_number("annealing time", self.annealing_microseconds, above=0)

    @property
    def parameters(self) -> int:
        """The parameters of one problem, `d+1`."""
        return self.features + self.bias

    @property
    def variables(self) -> int:
        """The variables of one problem, `(d+1)·K`."""
        return self.parameters * self.bits


def published_device(chip: Chip) -> Device:
    """Return the chip with the timing and limits that D-Wave publishes for Advantage."""
    return Device(chip, published_timing())


@dataclass(frozen=True)
class Placement:
    """The embeddings of the problems on the chip."""

    shortest_chain: int
    longest_chain: int
    qubits_of_a_class: int
    classes_at_once: int
    qubits_of_a_call: int


@dataclass(frozen=True)
class Cost:
    """The calls and access time of a training, every call counted as the fullest."""

    reads_of_a_call: int
    calls_of_an_iteration: int
    access_seconds_of_a_call: float
    calls: int
    access_seconds: float


@dataclass(frozen=True)
class Feasibility:
    """The answer for one workload on one chip."""

    chip: str
    qubits: int  # of the chip
    couplers: int
    largest_clique: int
    features: int
    classes: int
    bits: int
    variables: int
    couplings: int
    most_bits: int  # that fit the chip; 0 if not even one bit per parameter does
    embeds: bool
    placement: Placement | None
    cost: Cost | None
    resolutions: Mapping[str, Resolution]  # by coordinates; empty where no coefficients were given


def assess(workload: Workload, device: Device, resolutions: Mapping[str, Resolution] | None = None) -> Feasibility:
    """Return whether the workload's problems fit the device, where they are placed and what the training costs.

    >>> from annealfit.hardware.topologies import ideal_chip
    >>> row = assess(Workload(features=18, classes=10, bits=2), published_device(ideal_chip("P16")))
    >>> row.variables, row.placement.longest_chain, row.placement.classes_at_once, row.cost.calls, row.most_bits
    (38, 5, 10, 200, 9)
    """
    chip, graph, size = device.chip, device.chip.graph, workload.variables
    if workload.annealing_microseconds is not None:
        shortest, longest = device.annealing_microseconds
        name = f"annealing time in µs on {chip.name}"
        check_number(name, workload.annealing_microseconds, minimum=shortest, maximum=longest)
    placement = _place(workload, chip) if size <= chip.largest_clique else None
    return Feasibility(
        chip=chip.name,
        qubits=len(graph),
        couplers=graph.number_of_edges(),
        largest_clique=chip.largest_clique,
        features=workload.features,
        classes=workload.classes,
        bits=workload.bits,
        variables=size,
        couplings=math.comb(size, 2),
        most_bits=min(chip.largest_clique // workload.parameters, MAX_BITS),
        embeds=placement is not None,
        placement=placement,
        cost=_estimate(workload, device, placement) if placement else None,
        resolutions=resolutions or {},
    )


def _place(workload: Workload, chip: Chip) -> Placement | None:
    embedding, tiles = chip.clique(workload.variables), chip.tiles(workload.variables, workload.classes)
    if embedding is None:
        return None
    return Placement(
        shortest_chain=min(map(len, embedding.values())),
        longest_chain=longest_chain(embedding),
        qubits_of_a_class=qubits_of([embedding]),
        classes_at_once=len(tiles),
        qubits_of_a_call=qubits_of(tiles),
    )


def _estimate(workload: Workload, device: Device, placement: Placement) -> Cost:
    time, qubits = workload.annealing_microseconds, placement.qubits_of_a_call
    parameters: dict[str, Any] = {} if time is None else {"annealing_time": time}
    parts = device.reads_of_calls(workload.reads, qubits, **parameters)
    seconds = device.access_seconds(qubits, parts[0], **parameters)
    calls_of_an_iteration = math.ceil(workload.classes / placement.classes_at_once) * len(parts)
    calls = calls_of_an_iteration * workload.iterations
    return Cost(parts[0], calls_of_an_iteration, seconds, calls, calls * seconds)
