"""What the couplings of one qubit may add up to, and by how much a problem has to be scaled down for it.

An Advantage publishes `per_qubit_coupling_range`: the couplings of a qubit may add up to that much and no more. On an
Advantage2 it is `per_group_coupling_range`, for each of two groups into which the couplers of a qubit fall
(`dwave.system.coupling_groups`). A device refuses a program beyond them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from annealfit.errors import SamplerError, require
from annealfit.hardware.embeddings import EXTRA, Embedding

if TYPE_CHECKING:
    import networkx

PER_QUBIT, PER_GROUP = "per_qubit_coupling_range", "per_group_coupling_range"
# What D-Wave's documentation gives for Advantage and Advantage2.
PUBLISHED = {PER_QUBIT: (-18.0, 15.0), PER_GROUP: (-13.0, 10.0)}


@dataclass(frozen=True)
class CouplingLimit:
    """A range, and the solver's property that says so: which sums have to be in it."""

    name: str
    low: float
    high: float

    def groups(self, graph: networkx.Graph) -> Iterator[list[tuple[int, int]]]:
        """The couplers of a graph that are summed, at every qubit; the qubit is the second of each."""
        if self.name == PER_QUBIT:
            yield from ([(other, qubit) for other in graph[qubit]] for qubit in graph)
            return
        system = require("dwave.system.coupling_groups", extra=EXTRA, purpose="the limits of an Advantage2's couplings")
        yield from system.coupling_groups(graph)  # none unless the graph is a Zephyr

    def excess(self, totals: NDArray[np.float64]) -> float:
        """How many times the range these sums take: above 1 they are refused."""
        return float(max(totals.max(initial=0.0) / self.high, totals.min(initial=0.0) / self.low))


def coupling_limits(properties: Mapping[str, Any]) -> tuple[CouplingLimit, ...]:
    """The limits that a solver's properties publish: of qubits, of groups, both or none.

    >>> coupling_limits({"per_group_coupling_range": [-13.0, 10.0]})
    (CouplingLimit(name='per_group_coupling_range', low=-13.0, high=10.0),)
    """
    found = []
    for name in (PER_QUBIT, PER_GROUP):
        if properties.get(name) is None:
            continue
        low, high = map(float, properties[name])
        if not low < 0 < high:
            raise SamplerError(f"the solver's {name} is {properties[name]!r}; it has to go from below 0 to above 0")
        found.append(CouplingLimit(name, low, high))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class TileLimit:
    """A limit as a problem on one tile meets it.

    A coupling is spread evenly over the couplers between two chains, as `dwave.embedding.embed_bqm` does, so group g
    gets the share `shares[g, p]` of pair p, and has `chain_couplers[g]` within chains.
    """

    limit: CouplingLimit
    shares: csr_array  # (groups, pairs of variables in the order of `numpy.triu_indices(n, 1)`)
    chain_couplers: NDArray[np.float64]

    @classmethod
    def of(cls, limit: CouplingLimit, tile: Embedding, graph: networkx.Graph) -> TileLimit:
        """The groups of a tile on the graph of a chip."""
        variable_of = {qubit: variable for variable, chain in tile.items() for qubit in chain}
        rows, pairs, chain_couplers = [], [], []
        for row, group in enumerate(limit.groups(graph.subgraph(variable_of))):
            ends = [sorted((variable_of[p], variable_of[q])) for p, q in group]
            between = [pair for pair in ends if pair[0] != pair[1]]
            rows += [row] * len(between)
            pairs += between
            chain_couplers.append(len(ends) - len(between))
        size = len(tile)
        first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        columns = first * size - first * (first + 1) // 2 + second - first - 1
        shape = len(chain_couplers), size * (size - 1) // 2
        counts = csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)  # those there twice are added up
        couplers = counts.sum(axis=0) / 2  # every one is in a group of each of its two qubits
        shares = csr_array(counts.multiply(1 / np.maximum(couplers, 1)[None, :]))
        return cls(limit, shares, np.array(chain_couplers, dtype=float))

    def excess(self, couplings: NDArray[np.float64], chain_strength: float) -> float:
        """How many times the range the sums take at most, whatever spins are reversed.

        `couplings` are those of all pairs. A reversal turns the sign of couplings, but never of a chain's.
        """
        reach = self.shares @ np.abs(couplings)
        chains = chain_strength * self.chain_couplers
        return self.limit.excess(np.concatenate([reach - chains, -reach - chains]))
