"""MockQPU: dwave-system's mock device with the limits, analog noise, billing and faults that it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import dimod
import numpy as np
from dwave.cloud.api.exceptions import ResourceLimitsExceededError
from dwave.samplers import SimulatedAnnealingSampler
from dwave.system.testing import MockDWaveSampler
from numpy.typing import NDArray

from annealfit._support.description import NEUTRAL, TYPE
from annealfit._support.errors import InvalidInputError, check_number, choose
from annealfit._support.randomness import child_seed
from annealfit.hardware.chip import Chip
from annealfit.hardware.limits import (
    COUPLING_ERROR,
    FIELD_ERROR,
    MICROSECOND,
    PER_GROUP,
    PER_QUBIT,
    PUBLISHED,
    CouplingLimit,
    Device,
    coupling_limits,
    published_timing,
)
from annealfit.hardware.topologies import TOPOLOGIES, chip_with_defects

# Published analog control error, the upper ends: standard deviations on h in ±4 and J in ±1.
FIELD_NOISE, COUPLING_NOISE = FIELD_ERROR[1], COUPLING_ERROR[1]
# Metropolis sweeps down to about a QPU's effective temperature, in units of its coefficients, stand for an anneal.
SWEEPS, BETA_RANGE = 100, (0.1, 10.0)
_BROKEN_SHARE = 0.5  # of the qubits that the fault `broken_chains` reads at random
_ROUNDING = 1e-9  # tolerance of a coefficient that was scaled to the limit

FAULTS = ("timeout", "connection", "refused", "broken_chains", "fewer_reads")
_RAISED: dict[str | None, Callable[[], Exception]] = {
    "timeout": lambda: TimeoutError("no answer within the time limit"),
    "connection": lambda: ConnectionError("connection to the solver lost"),
    "refused": lambda: ResourceLimitsExceededError("problem not accepted: the solver's queue is full"),
}


class MockQPU(MockDWaveSampler):
    """A QPU on this computer: interface, graph, limits and billing of D-Wave's, analog error and faults.

    Submitted coefficients are checked against the device's ranges, then disturbed by Gaussian analog error, drawn
    anew at every call; energies are those of the submitted problem. `faults` is the share of calls that fail: a number
    spread evenly over `FAULTS`, or a mapping from their names. The faults that occurred are listed in `injected`. The
    n-th call of a device with a seed is always the same, whatever happened to the others.

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
        chip = chip_with_defects(topology, defects, seed)
        family, shape = TOPOLOGIES[topology]
        self.field_noise, self.coupling_noise = float(field_noise), float(coupling_noise)
        self.num_sweeps, self.seed = num_sweeps, seed
        self.calls = 0
        self.injected: list[str] = []
        noise = {"field_noise": self.field_noise, "coupling_noise": self.coupling_noise}
        self._settings = {"topology": topology, "defects": float(defects), **noise, "num_sweeps": num_sweeps}
        super().__init__(
            nodelist=sorted(chip.graph.nodes),
            edgelist=sorted(tuple(sorted(edge)) for edge in chip.graph.edges),
            topology_type=family,
            topology_shape=list(shape),
            properties={
                "chip_id": f"mock {chip.name}",
                "problem_timing_data": published_timing(),
                "problem_run_duration_range": list(PUBLISHED["problem_run_duration_range"]),
            },
            parameter_warnings=False,
            substitute_sampler=SimulatedAnnealingSampler(),
        )
        if family == "zephyr":  # Advantage2 limits groups of couplers (D-Wave's documentation), Advantage each qubit's
            del self.properties[PER_QUBIT]
            self.properties[PER_GROUP] = [-13.0, 10.0]
        self._device = Device(chip, self.properties["problem_timing_data"])

    def __repr__(self) -> str:
        settings = {**self._settings, "faults": self.fault_rates, "seed": self.seed}
        return f"MockQPU({', '.join(f'{name}={value!r}' for name, value in settings.items())})"

    def describe(self) -> dict[str, Any]:
        """The chip as plain data: topology, defects and noise; faults and seed apart, as neutral settings."""
        return {TYPE: "MockQPU", **self._settings, NEUTRAL: {"faults": self.fault_rates, "seed": self.seed}}

    def sample(self, bqm: dimod.BinaryQuadraticModel, **parameters: Any) -> dimod.SampleSet:
        """One call of the device, as `DWaveSampler.sample`."""
        self.calls += 1
        generator = np.random.default_rng(child_seed(self.seed, self.calls))
        seconds = self._check(bqm, parameters)
        rates = [*self.fault_rates.values()]
        fault = generator.choice(np.array([*self.fault_rates, None]), p=[*rates, max(1 - sum(rates), 0.0)])
        if fault is not None:
            self.injected.append(fault)
        if fault in _RAISED:
            raise _RAISED[fault]()
        programmed = self._disturb(self._scale(bqm, parameters), generator)
        seed = int(generator.integers(2**31))
        self.substitute_kwargs = {"num_sweeps": self.num_sweeps, "beta_range": BETA_RANGE, "seed": seed}
        reads = parameters.get("num_reads", 1)
        if fault == "fewer_reads":
            reads = max(reads // 2, 1)
        answer = super().sample(programmed, num_reads=reads, answer_mode="raw")
        states = answer.record.sample
        if fault == "broken_chains":
            states = np.where(generator.random(states.shape) < _BROKEN_SHARE, -states, states)
        info = {"problem_id": answer.info["problem_id"], "timing": {"qpu_access_time": seconds / MICROSECOND}}
        return dimod.SampleSet.from_samples_bqm((states, answer.variables), bqm.spin, info=info)

    def _check(self, bqm: dimod.BinaryQuadraticModel, parameters: Mapping[str, Any]) -> float:
        """Raise for a call that the device refuses; return the seconds of access time that it takes."""
        unknown = sorted(set(parameters) - set(self.parameters))
        if unknown:
            raise InvalidInputError(f"{', '.join(unknown)} is not a parameter of this solver")
        for name, usual in (("num_reads", 1), ("annealing_time", self.properties["default_annealing_time"])):
            least, most = self.properties[f"{name}_range"]
            check_number(name, parameters.get(name, usual), minimum=least, maximum=most)
        choose("answer_mode", parameters.get("answer_mode", "histogram"), ("histogram", "raw"))
        timed = {name: value for name, value in parameters.items() if name != "num_reads"}
        seconds = self._device.access_seconds(len(bqm.variables), parameters.get("num_reads", 1), **timed)
        limit = self.properties["problem_run_duration_range"][1] * MICROSECOND
        check_number("seconds of the call", seconds, maximum=limit, remedy="ask for fewer reads")
        if not parameters.get("auto_scale", True):
            self._check_ranges(bqm.spin)
        return seconds

    def _check_ranges(self, spins: dimod.BinaryQuadraticModel) -> None:
        vectors = spins.to_numpy_vectors()
        checked = [
            ("h", vectors.linear_biases, self.properties["h_range"]),
            ("J", vectors.quadratic.biases, self.properties["extended_j_range"]),
        ]
        for limit, totals in self._totals(spins):
            what = "qubit" if limit.name == PER_QUBIT else "group"
            checked.append((f"the sum of the couplings of one {what}", totals, (limit.low, limit.high)))
        for name, values, (low, high) in checked:
            beyond = values[(values < low - _ROUNDING) | (values > high + _ROUNDING)]
            if len(beyond):
                raise InvalidInputError(f"{name} is {beyond[0]:g}; this solver takes {low:g} to {high:g}")

    def _totals(self, spins: dimod.BinaryQuadraticModel) -> Iterator[tuple[CouplingLimit, NDArray[np.float64]]]:
        """Yield every limit of sums of couplings with the sums of all qubits, or of all groups of couplers."""
        for limit in coupling_limits(self.properties):
            group_of = _group_of_coupler(limit, self._device.chip)
            totals = np.zeros(1 + max(group_of.values(), default=0))
            for first, second, bias in spins.iter_quadratic():
                for coupler in ((first, second), (second, first)):
                    totals[group_of.get(coupler, 0)] += bias  # one that the chip does not have is refused by its class
            yield limit, totals

    def _scale(self, bqm: dimod.BinaryQuadraticModel, parameters: Mapping[str, Any]) -> dimod.BinaryQuadraticModel:
        spins = bqm.spin.copy()
        if parameters.get("auto_scale", True):
            spins.normalize(self.properties["h_range"], self.properties["extended_j_range"])
            spins.scale(1 / max([1.0, *(limit.excess(totals) for limit, totals in self._totals(spins))]))
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


@lru_cache(maxsize=4)
def _group_of_coupler(limit: CouplingLimit, chip: Chip) -> dict[tuple[int, int], int]:
    """Return the number of the group that a coupler belongs to at its second qubit."""
    return {coupler: number for number, group in enumerate(limit.groups(chip.graph)) for coupler in group}


def _fault_rates(faults: float | Mapping[str, float]) -> dict[str, float]:
    if not isinstance(faults, Mapping):
        check_number("faults", faults, minimum=0, maximum=1)
        return {name: faults / len(FAULTS) for name in FAULTS}
    for name, rate in faults.items():
        choose("fault", name, FAULTS)
        check_number(f"the rate of {name}", rate, minimum=0, maximum=1)
    if sum(faults.values()) > 1 + _ROUNDING:
        raise InvalidInputError(f"the rates of faults add up to {sum(faults.values()):g}; at most all calls can fail")
    return dict(faults)
