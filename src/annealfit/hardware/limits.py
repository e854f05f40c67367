"""A device: its chip, the access time of its calls, its ranges of coefficients, their analog error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, SamplerError, require
from annealfit.hardware.chip import EXTRA, Chip, Embedding
from annealfit.hardware.topologies import chip_of_solver

if TYPE_CHECKING:
    import networkx

MICROSECOND = 1e-6
# Solver properties of Advantage, assumed where a solver does not publish its own.
PUBLISHED: dict[str, tuple[float, float]] = {
    "h_range": (-4.0, 4.0),
    "j_range": (-1.0, 1.0),
    "extended_j_range": (-2.0, 1.0),
    "problem_run_duration_range": (0.0, 1_000_000.0),
    "num_reads_range": (1, 10_000),
    "annealing_time_range": (0.5, 2000.0),
}
PER_QUBIT, PER_GROUP = "per_qubit_coupling_range", "per_group_coupling_range"

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


@dataclass(frozen=True)
class DeviceRanges:
    """The largest field, coupling and chain strength of a device; chains may use its extended coupling range."""

    field: float = 4.0
    coupling: float = 1.0
    chain: float = 2.0


ADVANTAGE = DeviceRanges()


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
    given = [(name, properties[name]) for name in (PER_QUBIT, PER_GROUP) if properties.get(name) is not None]
    for name, (low, high) in given:
        if not low < 0 < high:
            raise SamplerError(f"the solver's {name} is {[low, high]}; it has to go from below 0 to above 0")
    return tuple(CouplingLimit(name, float(low), float(high)) for name, (low, high) in given)


@dataclass(frozen=True, eq=False)
class Device:
    """A chip and what its solver publishes; `assumed` names the properties for which Advantage's values stand."""

    chip: Chip
    timing: Mapping[str, Any]  # problem_timing_data
    ranges: DeviceRanges = ADVANTAGE
    duration_limit_seconds: float = PUBLISHED["problem_run_duration_range"][1] * MICROSECOND
    reads_limit: int = int(PUBLISHED["num_reads_range"][1])
    annealing_microseconds: tuple[float, float] = PUBLISHED["annealing_time_range"]
    coupling_limits: tuple[CouplingLimit, ...] = ()
    assumed: tuple[str, ...] = ()

    def access_seconds(self, n_qubits: int, reads: int, **parameters: Any) -> float:
        """Estimate the QPU access time of one call."""
        solver = require("dwave.cloud.solver", extra=EXTRA, purpose="estimating QPU access time")
        # D-Wave's own model. Of its solver it reads this property only: no connection is needed.
        timing = SimpleNamespace(properties={"problem_timing_data": self.timing})
        try:
            return MICROSECOND * float(
                solver.StructuredSolver.estimate_qpu_access_time(timing, n_qubits, reads, **parameters)
            )
        except (KeyError, ValueError, TypeError) as error:
            raise SamplerError(f"the solver's problem_timing_data gives no estimate of access time: {error}") from error

    def reads_of_calls(self, reads: int, n_qubits: int, least_calls: int = 1, **parameters: Any) -> list[int]:
        """Divide reads evenly among as few calls as the device's limits allow, and at least so many."""
        none, one = (self.access_seconds(n_qubits, count, **parameters) for count in (0, 1))
        most = min(int((self.duration_limit_seconds - none) / (one - none)), self.reads_limit)
        if most < 1:
            raise SamplerError(
                f"one read on {self.chip.name} takes longer than a call may, {self.duration_limit_seconds:g} s; "
                "lower annealing_time or the thermalization times"
            )
        calls = max(math.ceil(reads / most), least_calls)
        return [reads // calls + (call < reads % calls) for call in range(calls)]


def device_of_solver(properties: Mapping[str, Any], name: str = "solver", graph: networkx.Graph = None) -> Device:
    """Return the device that a solver's properties describe; Advantage's values are assumed for missing properties."""
    chip = chip_of_solver(properties, name) if graph is None else Chip(str(properties.get("chip_id", name)), graph)
    given = {key: value for key, value in properties.items() if value is not None}
    known = {**PUBLISHED, **given}
    try:
        (shortest, longest), chain = known["annealing_time_range"], known["extended_j_range"][0]
        return Device(
            chip,
            timing=dict(known.get("problem_timing_data") or published_timing()),
            ranges=DeviceRanges(min(map(abs, known["h_range"])), min(map(abs, known["j_range"])), -chain),
            duration_limit_seconds=known["problem_run_duration_range"][1] * MICROSECOND,
            reads_limit=int(known["num_reads_range"][1]),
            annealing_microseconds=(float(shortest), float(longest)),
            coupling_limits=coupling_limits(given),
            assumed=tuple(key for key in ("problem_timing_data", *PUBLISHED) if key not in given),
        )
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise InvalidInputError(
            f"the limits in {name} cannot be read ({type(error).__name__}: {error}); "
            "write it anew from DWaveSampler().properties"
        ) from error


def torque_compensation(couplings: NDArray[np.float64], prefactor: float = CHAIN_PREFACTOR) -> float:
    """Return the chain strength of uniform torque compensation, `prefactor · rms(J) · √(mean degree)`.

    `couplings` is strictly upper triangular, as `problem.to_ising()` gives it. Without couplings the strength is 1.
    """
    size, count = len(couplings), int(np.count_nonzero(couplings))
    if count == 0:
        return 1.0
    return float(prefactor * np.sqrt((couplings**2).sum() / count) * np.sqrt(2 * count / size))


@dataclass(frozen=True, eq=False)
class TileLimit:
    """A limit of the sums of couplings for a problem on one tile.

    A group of couplers has some between chains and some within. A coupling is spread over the couplers between its two
    chains, so that each has at most the largest coupling; a spin reversal changes its sign, but never a chain's.
    """

    limit: CouplingLimit
    between: NDArray[np.intp]  # by group
    within: NDArray[np.intp]

    @classmethod
    def of(cls, limit: CouplingLimit, tile: Embedding, graph: networkx.Graph) -> TileLimit:
        """Return the limit on a tile of this chip's graph."""
        variable_of = {qubit: variable for variable, chain in tile.items() for qubit in chain}
        groups = list(limit.groups(graph.subgraph(variable_of)))
        within = np.array([sum(variable_of[p] == variable_of[q] for p, q in group) for group in groups], dtype=np.intp)
        return cls(limit, np.array(list(map(len, groups)), dtype=np.intp) - within, within)

    def excess(self, largest_coupling: float, chain_strength: float) -> float:
        """Return how many times the range the sums take at most."""
        reach, chains = largest_coupling * self.between, chain_strength * self.within
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
    scale = max(*scales, *(limit.excess(largest_coupling, chain) for limit in limits))
    sizes = sizes[sizes > _ROUNDING * largest_coupling]
    return Resolution(
        scale,
        couplings=len(sizes),
        largest_coupling=largest_coupling / scale,
        chain_strength=chain / scale,
        span_of_couplings=float(np.log2(largest_coupling / sizes.min())) if len(sizes) else 0.0,
        share_below={error: float((sizes < error * scale).mean()) if len(sizes) else 0.0 for error in ERROR_LEVELS},
    )
