"""Chips by name, with defects, or from the properties of a solver."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from annealfit._support.errors import FileFormatError, InvalidInputError, check_number, choose, require
from annealfit._support.files import read_json
from annealfit.hardware.chip import EXTRA, Chip

if TYPE_CHECKING:
    import networkx


# The family of graphs and the shape of ideal chips.
TOPOLOGIES: dict[str, tuple[str, tuple[int, ...]]] = {
    "P16": ("pegasus", (16,)),  # Advantage
    "Z12": ("zephyr", (12, 4)),  # Advantage2
    "Z15": ("zephyr", (15, 4)),  # Advantage2 as first announced; no such QPU is listed
}
# Qubits of an ideal chip by its shape; numbers that are left out have their usual value.
_QUBITS: dict[str, Callable[..., int]] = {
    "pegasus": lambda m: 24 * m * (m - 1),
    "zephyr": lambda m, t=4: 4 * t * m * (2 * m + 1),
    "chimera": lambda m, n=None, t=4: 2 * m * (n or m) * t,
}
MOST_QUBITS = 100_000  # ten times the largest chip announced


@cache  # so that embeddings are searched for once in a process
def ideal_chip(name: str) -> Chip:
    """Return the chip on which every qubit and coupler works; `name` is one of `TOPOLOGIES`."""
    return Chip(name, _graph(*TOPOLOGIES[choose("topology", name, TOPOLOGIES)]))


def chip_with_defects(name: str, defect_rate: float, seed: int = 0) -> Chip:
    """Return a chip of which each qubit is missing with this probability."""
    check_number("defect rate", defect_rate, minimum=0, maximum=0.5)
    ideal = ideal_chip(name)
    if defect_rate == 0:
        return ideal
    missing = np.random.default_rng(seed).random(len(ideal.graph)) < defect_rate
    graph = ideal.graph.copy()
    graph.remove_nodes_from([qubit for qubit, gone in zip(ideal.graph.nodes, missing.tolist(), strict=True) if gone])
    return Chip(f"{name}, {defect_rate:.1%} defects", graph)


def chip_of_solver(properties: Mapping[str, Any], name: str = "solver") -> Chip:
    """Return the chip that a solver's `properties` describe: its topology, working qubits and couplers."""
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


def read_properties(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Read a solver's properties from a JSON file: `json.dump(DWaveSampler().properties, file)` writes one."""
    properties = read_json(path, "a JSON file of solver properties").value
    if not isinstance(properties, Mapping):
        raise FileFormatError(f"{os.fspath(path)} holds no mapping of solver properties")
    return properties


def _graph(
    family: str, shape: tuple[int, ...], qubits: list[int] | None = None, couplers: list[list[int]] | None = None
) -> networkx.Graph:
    """Return the graph of a chip with these qubits and couplers, or with all of them; refuse a shape that is none."""
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in shape)
    try:
        n_qubits = _QUBITS[choose("topology type", family, _QUBITS)](*shape) if whole else 0
    except TypeError:  # too few numbers, or too many
        n_qubits = 0
    if not 0 < n_qubits <= MOST_QUBITS:
        raise InvalidInputError(
            f"the shape of a {family} chip is {str(shape)[:80]}; it must be whole numbers that make at most "
            f"{MOST_QUBITS:,} qubits"
        )
    make = getattr(require("dwave.graphs", extra=EXTRA, purpose="the graph of a chip"), f"{family}_graph")
    edges = None if couplers is None else [tuple(coupler) for coupler in couplers]
    # Checked, because a qubit that the family does not have aborts the process in the search for embeddings.
    return make(*shape, node_list=qubits, edge_list=edges, check_node_list=True, check_edge_list=True)
