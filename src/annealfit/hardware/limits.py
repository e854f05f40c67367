"""Limits of a device: access time of a call, ranges of coefficients, analog error, sums of couplings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import SamplerError, require
from annealfit.hardware.chip import EXTRA, Embedding

if TYPE_CHECKING:
    import networkx

MICROSECOND = 1e-6
DURATION_LIMIT_SECONDS = 1.0  # of a call: what current QPUs publish as problem_run_duration_range

# Published standard deviations, from and to, of fields in ±4 and of couplings in ±1 ("Errors and Error Correction" in
# D-Wave's documentation). They vary along the anneal and were measured on a D-Wave 2X; there are none newer.
FIELD_ERROR = (0.01, 0.025)
COUPLING_ERROR = (0.01, 0.015)
ERROR_LEVELS = (COUPLING_ERROR[0], COUPLING_ERROR[1], FIELD_ERROR[1])
# Multiple of uniform torque compensation. The usual 1.414 is meant for couplings of random sign; those of a Gram matrix
# mostly share theirs and pull a chain in one direction: with it a fifth of the chains broke at 2 bits.
CHAIN_PREFACTOR = 2.0
# Couplings below this share of the largest are rounding errors of couplings that cancel, as those of a centred bias do.
_ROUNDING = 1e-12


def published_timing() -> dict[str, Any]:
    """Return the `problem_timing_data` of an Advantage system that dwave-cloud-client ships (of August 2022)."""
    mocks = require("dwave.cloud.testing.mocks", extra=EXTRA, purpose="estimating QPU access time")
    return mocks.qpu_problem_timing_data("advantage")


def access_seconds(timing: Mapping[str, Any], n_qubits: int, num_reads: int, **parameters: Any) -> float:
    """Estimate the QPU access time of one call; `timing` is a solver's property `problem_timing_data`."""
    solver = require("dwave.cloud.solver", extra=EXTRA, purpose="estimating QPU access time")
    # D-Wave's own model. Of its solver it reads these properties only: no connection is needed.
    properties = SimpleNamespace(properties={"problem_timing_data": timing})
    try:
        microseconds = solver.StructuredSolver.estimate_qpu_access_time(properties, n_qubits, num_reads, **parameters)
    except (KeyError, ValueError, TypeError) as error:
        raise SamplerError(f"the solver's problem_timing_data gives no estimate of access time: {error}") from error
    return float(microseconds) * MICROSECOND


def most_reads(timing: Mapping[str, Any], duration_limit_seconds: float, n_qubits: int, **parameters: Any) -> int:
    """Return the most reads of one call within the solver's limit of duration; 0 if not even one is."""
    none = access_seconds(timing, n_qubits, 0, **parameters)
    one = access_seconds(timing, n_qubits, 1, **parameters) - none
    return max(int((duration_limit_seconds - none) / one), 0)


@dataclass(frozen=True)
class DeviceRanges:
    """The largest field, coupling and chain strength of a device; chains may use its extended coupling range."""

    field: float = 4.0
    coupling: float = 1.0
    chain: float = 2.0

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> DeviceRanges:
        """Return the ranges that a solver's properties publish; the smaller side of each counts."""
        coupling = min(map(abs, properties["j_range"]))
        chain = -properties.get("extended_j_range", [-coupling])[0]
        return cls(min(map(abs, properties["h_range"])), coupling, chain)


ADVANTAGE = DeviceRanges()


def torque_compensation(couplings: NDArray[np.float64], prefactor: float = CHAIN_PREFACTOR) -> float:
    """Return the chain strength of uniform torque compensation, `prefactor · rms(J) · √(mean degree)`.

    `couplings` is strictly upper triangular, as `problem.to_ising()` gives it. Without couplings the strength is 1.
    """
    size, count = len(couplings), int(np.count_nonzero(couplings))
    if count == 0:
        return 1.0
    return float(prefactor * np.sqrt((couplings**2).sum() / count) * np.sqrt(2 * count / size))


PER_QUBIT, PER_GROUP = "per_qubit_coupling_range", "per_group_coupling_range"


@dataclass(frozen=True)
class CouplingLimit:
    """The range of the sums of couplings that a solver's property `name` publishes."""

    name: str
    low: float
    high: float

    def groups(self, graph: networkx.Graph) -> Iterator[list[tuple[int, int]]]:
        """Yield the couplers that are summed, for every qubit of the graph; the qubit is the second of each coupler."""
        if self.name == PER_QUBIT:
            yield from ([(other, qubit) for other in graph[qubit]] for qubit in graph)
            return
        system = require("dwave.system.coupling_groups", extra=EXTRA, purpose="the limits of an Advantage2's couplings")
        yield from system.coupling_groups(graph)  # none unless the graph is a Zephyr

    def excess(self, totals: NDArray[np.float64]) -> float:
        """Return how many times the range these sums take: above 1 the device refuses them."""
        return float(max(totals.max(initial=0.0) / self.high, totals.min(initial=0.0) / self.low))


def coupling_limits(properties: Mapping[str, Any]) -> tuple[CouplingLimit, ...]:
    """Return the limits that a solver's properties publish: of qubits, of groups, both or none."""
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
    """A limit of the sums of couplings for a problem on one tile.

    A coupling is spread evenly over the couplers between two chains, as `dwave.embedding.embed_bqm` does: group g
    gets the share `shares[g, p]` of pair p, and has `chain_couplers[g]` couplers within chains.
    """

    limit: CouplingLimit
    shares: Any  # scipy.sparse.csr_array (groups, pairs of variables in the order of `numpy.triu_indices(n, 1)`)
    chain_couplers: NDArray[np.float64]

    @classmethod
    def of(cls, limit: CouplingLimit, tile: Embedding, graph: networkx.Graph) -> TileLimit:
        """Return the limit on a tile of this chip's graph."""
        from scipy.sparse import csr_array  # here: the command line's help does not wait for SciPy

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
        counts = csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)  # repeated entries are added up
        couplers = counts.sum(axis=0) / 2  # a coupler is in a group of each of its two qubits
        shares = csr_array(counts.multiply(1 / np.maximum(couplers, 1)[None, :]))
        return cls(limit, shares, np.array(chain_couplers, dtype=float))

    def excess(self, couplings: NDArray[np.float64], chain_strength: float) -> float:
        """Return how many times the range the sums take at most, over all spin reversals.

        `couplings` are those of all pairs. A reversal changes the sign of couplings, but never of a chain's.
        """
        reach = self.shares @ np.abs(couplings)
        chains = chain_strength * self.chain_couplers
        return self.limit.excess(np.concatenate([reach - chains, -reach - chains]))


@dataclass(frozen=True)
class Resolution:
    """A problem scaled to a device's ranges, against the analog error."""

    scale: float  # divisor of the coefficients
    couplings: int  # number of couplings that are not 0
    largest_coupling: float  # after scaling; below the range where chains or fields decide the scale
    chain_strength: float  # after scaling
    span_of_couplings: float  # log2 of the largest coupling over the smallest
    share_below: dict[float, float]  # of the couplings, by error level: the device cannot tell them from noise


def resolve(
    fields: NDArray[np.float64],
    couplings: NDArray[np.float64],
    ranges: DeviceRanges = ADVANTAGE,
    chain_prefactor: float = CHAIN_PREFACTOR,
    limits: Iterable[TileLimit] = (),
) -> Resolution:
    """Return how a problem is scaled to fill a device's ranges beside its chains, and how much of it is resolved.

    Fields, couplings and chains stay within the ranges, and sums of couplings within the limits of the tile.
    """
    chain = torque_compensation(couplings, chain_prefactor)
    sizes = np.abs(couplings[couplings != 0])
    largest_field, largest_coupling = float(np.abs(fields).max()), float(sizes.max(initial=0.0))
    scales = [largest_field / ranges.field, largest_coupling / ranges.coupling, chain / ranges.chain]
    pairs = couplings[np.triu_indices(len(couplings), 1)]
    scale = max(*scales, *(limit.excess(pairs, chain) for limit in limits))
    sizes = sizes[sizes > _ROUNDING * largest_coupling]
    return Resolution(
        scale,
        couplings=len(sizes),
        largest_coupling=largest_coupling / scale,
        chain_strength=chain / scale,
        span_of_couplings=float(np.log2(largest_coupling / sizes.min())) if len(sizes) else 0.0,
        share_below={error: float((sizes < error * scale).mean()) if len(sizes) else 0.0 for error in ERROR_LEVELS},
    )
