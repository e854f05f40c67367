"""A device to rehearse on: dwave-system's mock, with the limits, analog noise, billing and faults it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import dimod
import numpy as np
from dwave.cloud.api.exceptions import ResourceLimitsExceededError
from dwave.samplers import SimulatedAnnealingSampler
from dwave.system.testing import MockDWaveSampler

from annealfit._support.description import NEUTRAL, TYPE, describe
from annealfit._support.errors import InvalidInputError, check_number, choose
from annealfit._support.randomness import child_seed
from annealfit.hardware.feasibility import DURATION_LIMIT_SECONDS
from annealfit.hardware.limits import (
    COUPLING_ERROR,
    FIELD_ERROR,
    PER_GROUP,
    PER_QUBIT,
    PUBLISHED,
    CouplingLimit,
    access_seconds,
    coupling_limits,
    published_timing,
)
from annealfit.hardware.topologies import TOPOLOGIES, chip_with_defects

# Published analog control error, the upper ends: standard deviations on h in ±4 and J in ±1.
FIELD_NOISE, COUPLING_NOISE = FIELD_ERROR[1], COUPLING_ERROR[1]
# An anneal is played by Metropolis sweeps down to about a QPU's effective temperature, in units of its coefficients.
SWEEPS, BETA_RANGE = 100, (0.1, 10.0)
_BROKEN_SHARE = 0.5  # of the qubits read at random by the fault `broken_chains`
_ROUNDING = 1e-9  # by which a coefficient scaled to the limit may miss it

FAULTS = ("timeout", "connection", "refused", "broken_chains", "fewer_reads")


class MockQPU(MockDWaveSampler):
    """A QPU on this computer: same interface, graph, limits and billing as D-Wave's, and its usual troubles.

    Submitted coefficients are checked against the device's ranges, then disturbed by Gaussian analog error, drawn
    afresh at every call; energies are those of the problem that was asked for. `faults` is the share of calls that
    go wrong: a number spread evenly over `FAULTS`, or a mapping from their names. What was injected is kept in
    `injected`. The n-th call of a device with a seed is always the same, whatever happened to the others.

    >>> device = MockQPU("Z12")
    >>> first, second = device.edgelist[0]
    >>> answer = device.sample_ising({first: 1.0}, {(first, second): -1.0}, num_reads=10)
    >>> answer.first.sample == {first: -1, second: -1}, answer.info["timing"]["qpu_access_time"] > 15_000
    (True, True)
    """

    def __init__(
        self,
        topology: str = "P16",
        *,
        defects: float = 0.0,
        field_noise: float = FIELD_NOISE,
        coupling_noise: float = COUPLING_NOISE,
        faults: float | Mapping[str, float] = 0.0,
        num_sweeps: int = SWEEPS,
        seed: int = 0,
    ) -> None:
        check_number("field_noise", field_noise, minimum=0)
        check_number("coupling_noise", coupling_noise, minimum=0)
        self.fault_rates = _fault_rates(faults)
        graph = chip_with_defects(topology, defects, seed).graph
        shape = TOPOLOGIES[topology]
        super().__init__(
            nodelist=sorted(graph.nodes),
            edgelist=sorted(tuple(sorted(edge)) for edge in graph.edges),
            topology_type=shape.family,
            topology_shape=list(shape.shape),
            properties={
                "chip_id": _describe(topology, defects, field_noise, coupling_noise, num_sweeps),
                "problem_timing_data": published_timing(),
                "problem_run_duration_range": [0.0, DURATION_LIMIT_SECONDS * 1e6],
            },
            parameter_warnings=False,
            substitute_sampler=SimulatedAnnealingSampler(),
        )
        if shape.family == "zephyr":  # an Advantage2 limits groups of couplers, an Advantage those of a qubit
            del self.properties[PER_QUBIT]
            self.properties[PER_GROUP] = list(PUBLISHED[PER_GROUP])
        self.field_noise, self.coupling_noise = float(field_noise), float(coupling_noise)
        self.num_sweeps, self.seed = num_sweeps, seed
        self.calls = 0
        self.injected: list[str] = []
        self._chip = {
            "topology": topology,
            "defects": float(defects),
            "field_noise": self.field_noise,
            "coupling_noise": self.coupling_noise,
            "num_sweeps": num_sweeps,
        }
        self._description = f"MockQPU({topology!r}, defects={defects}, faults={faults!r}, seed={seed})"

    def __repr__(self) -> str:
        return self._description

    def describe(self) -> dict[str, Any]:
        """The chip as plain data: topology, defects and noise; apart, as its chance, faults and seed."""
        return {TYPE: "MockQPU", **self._chip, NEUTRAL: {"faults": describe(self.fault_rates), "seed": self.seed}}

    def sample(self, bqm: dimod.BinaryQuadraticModel, **parameters: Any) -> dimod.SampleSet:
        """One call of the device, as `DWaveSampler.sample`."""
        self.calls += 1
        generator = np.random.default_rng(child_seed(self.seed, self.calls))
        num_reads = parameters.get("num_reads", 1)
        seconds = self._check(bqm, parameters)
        fault = self._draw_fault(generator)
        if fault in _RAISED:
            raise _RAISED[fault]()
        programmed = self._disturb(self._scale(bqm, parameters), generator)
        self.substitute_kwargs = {
            "num_sweeps": self.num_sweeps,
            "beta_range": BETA_RANGE,
            "seed": int(generator.integers(2**31)),
        }
        kept = max(num_reads // 2, 1) if fault == "fewer_reads" else num_reads
        answer = super().sample(programmed, num_reads=kept, answer_mode="raw")
        states = answer.record.sample
        if fault == "broken_chains":
            flipped = generator.random(states.shape) < _BROKEN_SHARE
            states = np.where(flipped, -states, states)
        info = {"problem_id": answer.info["problem_id"], "timing": self._timing(seconds)}
        return dimod.SampleSet.from_samples_bqm((states, answer.variables), bqm.spin, info=info)

    def _draw_fault(self, generator: np.random.Generator) -> str | None:
        draw = generator.random()
        for fault, rate in self.fault_rates.items():
            if draw < rate:
                self.injected.append(fault)
                return fault
            draw -= rate
        return None

    def _check(self, bqm: dimod.BinaryQuadraticModel, parameters: Mapping[str, Any]) -> float:
        """Refuse what the device refuses; returns the seconds that the call occupies it."""
        unknown = sorted(set(parameters) - set(self.parameters))
        if unknown:
            raise ValueError(f"{', '.join(unknown)} is not a parameter of this solver")
        fewest, most = self.properties["num_reads_range"]
        num_reads = parameters.get("num_reads", 1)
        if not fewest <= num_reads <= most:
            raise ValueError(f"num_reads is {num_reads}; it must be between {fewest} and {most}")
        shortest, longest = self.properties["annealing_time_range"]
        annealing_time = parameters.get("annealing_time", self.properties["default_annealing_time"])
        if not shortest <= annealing_time <= longest:
            raise ValueError(f"annealing_time is {annealing_time}; it must be between {shortest} and {longest}")
        answer_mode = parameters.get("answer_mode", "histogram")
        if answer_mode not in ("histogram", "raw"):
            raise ValueError(f"answer_mode is {answer_mode!r}; it must be histogram or raw")
        timing = self.properties["problem_timing_data"]
        timed = {name: value for name, value in parameters.items() if name != "num_reads"}
        seconds = access_seconds(timing, len(bqm.variables), num_reads, **timed)
        limit = self.properties["problem_run_duration_range"][1] * 1e-6
        if seconds > limit:
            raise ValueError(f"the call would take {seconds:.3f} s; the limit is {limit:g} s: ask for fewer reads")
        if not parameters.get("auto_scale", True):
            self._check_ranges(bqm.spin)
        return seconds

    def _check_ranges(self, spins: dimod.BinaryQuadraticModel) -> None:
        vectors = spins.to_numpy_vectors(variable_order=list(spins.variables))
        for name, biases, limits in (
            ("h", vectors.linear_biases, self.properties["h_range"]),
            ("J", vectors.quadratic.biases, self.properties["extended_j_range"]),
            *(
                (f"the sum of the couplings of one {_SUMMED[limit.name]}", totals, (limit.low, limit.high))
                for limit, totals in self._totals(spins)
            ),
        ):
            low, high = limits
            beyond = biases[(biases < low - _ROUNDING) | (biases > high + _ROUNDING)]
            if len(beyond):
                raise ValueError(f"{name} is {beyond[0]:g}; this solver takes {low:g} to {high:g}")

    def _totals(self, spins: dimod.BinaryQuadraticModel) -> list[tuple[CouplingLimit, np.ndarray]]:
        """What the couplings add up to, by limit: of every qubit, or of every group of couplers."""
        found = []
        for limit in coupling_limits(self.properties):
            defects = self._chip["defects"]
            group_of = _group_of_coupler(limit, self._chip["topology"], defects, self.seed if defects else 0)
            totals = np.zeros(1 + max(group_of.values(), default=0))
            for first, second, bias in spins.iter_quadratic():
                if (first, second) not in group_of:
                    raise dimod.exceptions.BinaryQuadraticModelStructureError(
                        f"{first} and {second} are not coupled on this chip: embed the problem first"
                    )
                totals[group_of[first, second]] += bias
                totals[group_of[second, first]] += bias
            found.append((limit, totals))
        return found

    def _scale(self, bqm: dimod.BinaryQuadraticModel, parameters: Mapping[str, Any]) -> dimod.BinaryQuadraticModel:
        spins = bqm.spin.copy()
        if parameters.get("auto_scale", True):
            spins.normalize(self.properties["h_range"], self.properties["extended_j_range"])
            spins.scale(1 / max(1.0, *(limit.excess(totals) for limit, totals in self._totals(spins)), 0.0))
        return spins

    def _disturb(self, spins: dimod.BinaryQuadraticModel, generator: np.random.Generator) -> dimod.BinaryQuadraticModel:
        order = list(spins.variables)
        linear, (rows, columns, biases), offset = spins.to_numpy_vectors(variable_order=order)
        return dimod.BinaryQuadraticModel.from_numpy_vectors(
            linear + generator.normal(0, self.field_noise, len(linear)),
            (rows, columns, biases + generator.normal(0, self.coupling_noise, len(biases))),
            offset,
            dimod.SPIN,
            variable_order=order,
        )

    def _timing(self, seconds: float) -> dict[str, float]:
        data = self.properties["problem_timing_data"]
        programming = data["typical_programming_time"] + data["default_programming_thermalization"]
        return {
            "qpu_access_time": seconds * 1e6,
            "qpu_programming_time": programming,
            "qpu_sampling_time": seconds * 1e6 - programming,
        }


def _describe(topology: str, defects: float, field_noise: float, coupling_noise: float, num_sweeps: int) -> str:
    """The device by what is unusual about it: a checkpoint tells devices apart by this."""
    usual = {"defects": 0.0, "field_noise": FIELD_NOISE, "coupling_noise": COUPLING_NOISE, "num_sweeps": SWEEPS}
    given = {"defects": defects, "field_noise": field_noise, "coupling_noise": coupling_noise, "num_sweeps": num_sweeps}
    return ", ".join([f"mock {topology}", *(f"{name}={given[name]:g}" for name in usual if given[name] != usual[name])])


_SUMMED = {PER_QUBIT: "qubit", PER_GROUP: "group"}


@cache  # devices of one seed have one chip
def _group_of_coupler(limit: CouplingLimit, topology: str, defects: float, seed: int) -> dict[tuple[int, int], int]:
    """The number of the group that a coupler belongs to at its second qubit."""
    groups = limit.groups(chip_with_defects(topology, defects, seed).graph)
    return {coupler: number for number, group in enumerate(groups) for coupler in group}


def _fault_rates(faults: float | Mapping[str, float]) -> dict[str, float]:
    if not isinstance(faults, Mapping):
        check_number("faults", faults, minimum=0, maximum=1)
    rates = dict(faults) if isinstance(faults, Mapping) else {name: faults / len(FAULTS) for name in FAULTS}
    for name, rate in rates.items():
        choose("fault", name, FAULTS)
        check_number(f"the rate of {name}", rate, minimum=0, maximum=1)
    if sum(rates.values()) > 1 + _ROUNDING:
        raise InvalidInputError(f"the rates of faults add up to {sum(rates.values()):g}; at most all calls can fail")
    return rates


_RAISED: dict[str | None, Callable[[], Exception]] = {
    "timeout": lambda: TimeoutError("no answer within the time limit"),
    "connection": lambda: ConnectionError("connection to the solver lost"),
    "refused": lambda: ResourceLimitsExceededError("problem not accepted: the solver's queue is full"),
}
