"""What a device's ranges, coupling sums, analog error and timing allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import SamplerError, require
from annealfit.hardware.embeddings import EXTRA, Embedding

if TYPE_CHECKING:
    import networkx

_MICROSECONDS = 1e-6


def published_timing() -> dict[str, Any]:
    """The `problem_timing_data` of an Advantage system, as dwave-cloud-client ships it (of August 2022)."""
    mocks = require("dwave.cloud.testing.mocks", extra=EXTRA, purpose="estimating QPU access time")
    return mocks.qpu_problem_timing_data("advantage")


def access_seconds(timing: Mapping[str, Any], n_qubits: int, num_reads: int, **parameters: Any) -> float:
    """Estimated QPU access time of one call; `timing` is a solver's property `problem_timing_data`.

    >>> round(access_seconds(published_timing(), n_qubits=1780, num_reads=100), 4)
    0.0427
    """
    solver = require("dwave.cloud.solver", extra=EXTRA, purpose="estimating QPU access time")
    # D-Wave's own model, which reads nothing of its solver but these properties: no connection is needed.
    properties = SimpleNamespace(properties={"problem_timing_data": timing})
    try:
        microseconds = solver.StructuredSolver.estimate_qpu_access_time(properties, n_qubits, num_reads, **parameters)
    except (KeyError, ValueError, TypeError) as error:
        raise SamplerError(f"the solver's problem_timing_data gives no estimate of access time: {error}") from error
    return float(microseconds) * _MICROSECONDS


def most_reads(timing: Mapping[str, Any], duration_limit_seconds: float, n_qubits: int, **parameters: Any) -> int:
    """The most reads of one call that stay within the solver's limit of a call's duration; 0 if not even one does."""
    none = access_seconds(timing, n_qubits, 0, **parameters)
    one = access_seconds(timing, n_qubits, 1, **parameters) - none
    return max(int((duration_limit_seconds - none) / one), 0)


# Published standard deviations, from and to, of fields in ±4 and of couplings in ±1 ("Errors and Error Correction" in
# D-Wave's documentation). They vary along the anneal, and were measured on a D-Wave 2X; it has none newer.
FIELD_ERROR = (0.01, 0.025)
COUPLING_ERROR = (0.01, 0.015)
# The levels at which a problem is looked at: the least error, the most of couplings, the most of all.
ERROR_LEVELS = (COUPLING_ERROR[0], COUPLING_ERROR[1], FIELD_ERROR[1])
# Multiple of uniform torque compensation. The usual 1.414 is meant for couplings of random sign; those of a Gram matrix
# mostly share theirs, and pull at a chain together: with it a fifth of the chains broke at 2 bits (docs/qpu.md).
CHAIN_PREFACTOR = 2.0
# Couplings below this share of the largest are what rounding leaves of those that cancel, as a centred bias's do.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class DeviceRanges:
    """The largest field, coupling and chain strength of a device; chains may use its extended coupling range."""

    field: float = 4.0
    coupling: float = 1.0
    chain: float = 2.0

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> DeviceRanges:
        """The ranges that a solver's properties publish; the smaller side of each counts."""
        coupling = min(map(abs, properties["j_range"]))
        return cls(
            field=min(map(abs, properties["h_range"])),
            coupling=coupling,
            chain=-properties.get("extended_j_range", [-coupling])[0],
        )


ADVANTAGE = DeviceRanges()


def torque_compensation(couplings: NDArray[np.float64], prefactor: float = CHAIN_PREFACTOR) -> float:
    """Chain strength by uniform torque compensation: `prefactor · rms(J) · √(mean degree)`; 1 without couplings.

    `couplings` is strictly upper triangular, as `problem.to_ising()` gives it.

    >>> torque_compensation(np.array([[0.0, 1.0], [0.0, 0.0]]), prefactor=2.0)
    2.0
    """
    size, count = len(couplings), int(np.count_nonzero(couplings))
    if count == 0:
        return 1.0
    return float(prefactor * np.sqrt((couplings**2).sum() / count) * np.sqrt(2 * count / size))


def device_scale(
    fields: NDArray[np.float64],
    couplings: NDArray[np.float64],
    chain_strength: float,
    ranges: DeviceRanges = ADVANTAGE,
) -> float:
    """The number by which coefficients and chain strength have to be divided to fill the device's ranges."""
    return float(
        max(
            np.abs(fields).max() / ranges.field,
            np.abs(couplings).max() / ranges.coupling,
            chain_strength / ranges.chain,
        )
    )


def share_below(couplings: NDArray[np.float64], scale: float, error: float) -> float:
    """The share of the couplings that are smaller than the error once divided by the scale; 0 if there are none.

    Couplings of 0 do not count: nothing has to be resolved there.

    >>> share_below(np.array([[0.0, 8.0, 0.1], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), scale=8.0, error=0.02)
    0.5
    """
    sizes = _sizes(couplings)
    return float((sizes < error * scale).mean()) if len(sizes) else 0.0


def span(couplings: NDArray[np.float64]) -> float:
    """The largest coupling over the smallest that is not 0; 1 if there are none.

    >>> span(np.array([[0.0, 8.0, -0.5], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    16.0
    """
    sizes = _sizes(couplings)
    return float(sizes.max() / sizes.min()) if len(sizes) else 1.0


@dataclass(frozen=True)
class Resolution:
    """What a device's ranges and error make of a problem."""

    scale: float  # by which its coefficients are divided
    couplings: int  # that are not 0
    largest_coupling: float  # once divided: where it is below the range, chains or fields decide the scale
    chain_strength: float  # likewise
    span_of_couplings: float  # as a power of two
    share_below: dict[float, float]  # of the couplings, by error level


def resolve(
    fields: NDArray[np.float64],
    couplings: NDArray[np.float64],
    ranges: DeviceRanges = ADVANTAGE,
    chain_prefactor: float = CHAIN_PREFACTOR,
) -> Resolution:
    """How much of the problem the device resolves beside chains of the usual strength.

    >>> resolution = resolve(np.ones(3), np.triu(np.array([[0.0, 8.0, -0.1]] * 3), 1))
    >>> resolution.share_below[0.025]
    0.6666666666666666
    """
    chain = torque_compensation(couplings, chain_prefactor)
    scale = device_scale(fields, couplings, chain, ranges)
    sizes = _sizes(couplings)
    return Resolution(
        scale,
        couplings=len(sizes),
        largest_coupling=float(sizes.max(initial=0.0) / scale),
        chain_strength=chain / scale,
        span_of_couplings=float(np.log2(span(couplings))),
        share_below={error: share_below(couplings, scale, error) for error in ERROR_LEVELS},
    )


def _sizes(couplings: NDArray[np.float64]) -> NDArray[np.float64]:
    sizes = np.abs(couplings[couplings != 0])
    return sizes[sizes > _ROUNDING * sizes.max(initial=0.0)]


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
    shares: Any  # scipy.sparse.csr_array (groups, pairs of variables in the order of `numpy.triu_indices(n, 1)`)
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
        from scipy.sparse import csr_array  # here: the command line's help does not wait for SciPy

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
