"""Chips by name, with defects, or from the properties of a solver."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from annealfit._support.errors import FileFormatError, InvalidInputError, check_number, choose, require
from annealfit._support.files import check_regular
from annealfit.hardware.chip import Chip
from annealfit.hardware.embeddings import EXTRA

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True)
class Topology:
    """A family of graphs and the size of the chip."""

    family: str
    shape: tuple[int, ...]
    note: str


TOPOLOGIES: dict[str, Topology] = {
    "P16": Topology("pegasus", (16,), "Pegasus, the graph of Advantage"),
    "Z12": Topology("zephyr", (12, 4), "Zephyr, the graph of Advantage2"),
    "Z15": Topology("zephyr", (15, 4), "Zephyr of the size first announced; no such QPU is listed"),
}


def ideal_chip(name: str) -> Chip:
    """A chip on which every qubit and coupler works; `name` is one of `TOPOLOGIES`."""
    return _ideal_chip(choose("topology", name, TOPOLOGIES))


@cache  # so that embeddings are found once in a process
def _ideal_chip(name: str) -> Chip:
    topology = TOPOLOGIES[name]
    return Chip(name, _graph(topology.family, topology.shape))


def chip_with_defects(name: str, defect_rate: float, seed: int = 0) -> Chip:
    """A chip of which each qubit is missing with this probability.

    >>> chip_with_defects("P16", 0.01).largest_clique < ideal_chip("P16").largest_clique
    True
    """
    check_number("defect rate", defect_rate, minimum=0, maximum=0.5)
    ideal = ideal_chip(name)
    if defect_rate == 0:
        return ideal
    missing = np.random.default_rng(seed).random(len(ideal.graph)) < defect_rate
    graph = ideal.graph.copy()
    graph.remove_nodes_from([qubit for qubit, gone in zip(ideal.graph.nodes, missing.tolist(), strict=True) if gone])
    return Chip(f"{name}, {defect_rate:.1%} defects", graph)


def chip_of_solver(properties: Mapping[str, Any], name: str = "solver") -> Chip:
    """The chip that a solver's `properties` describe: its topology, working qubits and couplers."""
    try:
        topology = properties["topology"]
        graph = _graph(topology["type"], tuple(topology["shape"]), properties["qubits"], properties["couplers"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} does not describe a chip ({type(error).__name__}: {error}); it needs topology "
            "(type pegasus, zephyr or chimera, and shape), qubits and couplers, as DWaveSampler().properties has them"
        ) from error
    if len(graph) == 0:
        raise InvalidInputError(f"{name} has no working qubit")
    return Chip(str(properties.get("chip_id", name)), graph)


def read_chip(path: str | os.PathLike[str]) -> Chip:
    """The chip in a JSON file of solver properties."""
    return chip_of_solver(read_properties(path), Path(path).name)


def read_properties(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """A solver's properties from a JSON file: `json.dump(DWaveSampler().properties, file)` writes one."""
    check_regular(path)
    try:
        properties = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{os.fspath(path)} is not a JSON file of solver properties: {error}") from error
    if not isinstance(properties, Mapping):
        raise FileFormatError(f"{os.fspath(path)} holds no mapping of solver properties")
    return properties


# Qubits of an ideal chip by its shape; what is left out has its usual value.
_QUBITS: dict[str, Callable[..., int]] = {
    "pegasus": lambda m: 24 * m * (m - 1),
    "zephyr": lambda m, t=4: 4 * t * m * (2 * m + 1),
    "chimera": lambda m, n=None, t=4: 2 * m * (n or m) * t,
}
MOST_QUBITS = 100_000  # ten times the largest chip announced


def _check_shape(family: str, shape: tuple[int, ...]) -> None:
    """Raise unless the shape is that of a chip which can be looked at in seconds."""
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in shape)
    try:
        qubits = _QUBITS[choose("topology type", family, _QUBITS)](*shape) if whole else -1
    except TypeError:  # too few numbers, or too many
        qubits = -1
    if not 0 < qubits <= MOST_QUBITS:
        raise InvalidInputError(
            f"the shape of a {family} chip is {str(shape)[:80]}; it must be whole numbers that make at most "
            f"{MOST_QUBITS:,} qubits"
        )


def _graph(
    family: str,
    shape: tuple[int, ...],
    qubits: list[int] | None = None,
    couplers: list[list[int]] | None = None,
) -> networkx.Graph:
    _check_shape(family, shape)
    graphs = require("dwave.graphs", extra=EXTRA, purpose="the graph of a chip")
    makers = {"pegasus": graphs.pegasus_graph, "zephyr": graphs.zephyr_graph, "chimera": graphs.chimera_graph}
    maker = makers[choose("topology type", family, makers)]
    if qubits is None:
        return maker(*shape)
    # Checked, because a qubit that the family has not makes the search for embeddings end the whole process.
    return maker(
        *shape,
        node_list=qubits,
        edge_list=[tuple(coupler) for coupler in couplers or ()],
        check_node_list=True,
        check_edge_list=True,
    )
