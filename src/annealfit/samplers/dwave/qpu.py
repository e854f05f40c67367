"""QPUSampler: problems solved on a D-Wave annealer, or on a mock of one."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from annealfit._support.description import describe
from annealfit._support.errors import InvalidInputError, SamplerError, check_number, require
from annealfit._support.randomness import child_seed
from annealfit.hardware.chip import Chip
from annealfit.hardware.embeddings import EXTRA, longest_chain, qubits_of
from annealfit.hardware.limits import CHAIN_PREFACTOR, COUPLING_ERROR, DeviceRanges
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers.dwave.call_queue import Call, CallFailedError, CallQueue, DeviceAccess
from annealfit.samplers.dwave.programming import Program, Tiles
from annealfit.samplers.protocol import Preflight, Receipt, Sampler, Samples

# Every read by itself, since means and shares are taken over reads; and a name to find the calls by at D-Wave.
_USUAL_PARAMETERS = {"answer_mode": "raw", "label": "annealfit"}
# With more of the couplings than this below the analog error, bits are wasted.
UNRESOLVED_SHARE = 0.5


class QPUSampler(Sampler):
    """All problems of an iteration side by side on one chip, in one call where they fit, else in as few as possible.

    Parameters
    ----------
    device : dimod sampler or None
        A `DWaveSampler`, or `annealfit.samplers.MockQPU` to rehearse. None connects to the solver that D-Wave's own
        configuration names (`dwave config create`); credentials never pass through annealfit.
    num_reads : int
        Reads in all; more than a call may take go out in several.
    chain_prefactor : float
        Multiple of uniform torque compensation that couples the qubits of a chain; see `sweep_chain_prefactors`.
    spin_reversals : int
        Random gauges among which the reads are divided, a call each; one costs nothing, 0 programs the problem as is.
    polish : bool
        Descend from every read to a local minimum. What the device itself found stays on record (`raw_energy`).
    max_access_seconds : float or None
        QPU access time that this sampler may use in all. A call that is estimated to exceed it is not made.
    retries, backoff_seconds : int, float
        Tries after a call that failed for a passing reason, and the pause before the first, doubled for each next one.
    timeout_seconds : float
        How long to wait for an answer.
    **parameters
        Handed to the device, and checked against those that it declares (`annealing_time=50`, say).

    Examples
    --------
    >>> from annealfit.problems.encoding import Encoding
    >>> from annealfit.samplers import MockQPU
    >>> problem = QuadraticProblem([[2.0, 0.5], [0.5, 1.0]], [1.0, -1.0], Encoding(bits=2, range=0.5))
    >>> with QPUSampler(MockQPU("Z12"), num_reads=20) as sampler:
    ...     answer = sampler.sample(problem)
    >>> answer.best_energy, round(sampler.access_seconds, 2)
    (-1.5, 0.02)

    """

    # What a call may cost and how often it is tried says nothing about the answers that come.
    neutral_settings: ClassVar[frozenset[str]] = frozenset(
        {"max_access_seconds", "retries", "backoff_seconds", "timeout_seconds"}
    )

    def __init__(
        self,
        device: Any = None,
        *,
        num_reads: int = 100,
        chain_prefactor: float = CHAIN_PREFACTOR,
        spin_reversals: int = 1,
        polish: bool = False,
        max_access_seconds: float | None = None,
        retries: int = 3,
        backoff_seconds: float = 1.0,
        timeout_seconds: float = 300.0,
        **parameters: Any,
    ) -> None:
        check_number("num_reads", num_reads, Integral, minimum=1)
        check_number("chain_prefactor", chain_prefactor, above=0)
        check_number("spin_reversals", spin_reversals, Integral, minimum=0, maximum=num_reads)
        check_number("retries", retries, Integral, minimum=0)
        check_number("backoff_seconds", backoff_seconds, minimum=0)
        check_number("timeout_seconds", timeout_seconds, above=0)
        if max_access_seconds is not None:
            check_number("max_access_seconds", max_access_seconds, above=0)
        self.num_reads, self.chain_prefactor = int(num_reads), float(chain_prefactor)
        self.spin_reversals, self.polish = int(spin_reversals), polish
        self.max_access_seconds = max_access_seconds
        self.retries, self.backoff_seconds = int(retries), float(backoff_seconds)
        self.timeout_seconds = float(timeout_seconds)
        self.parameters = parameters
        self._opened = device is None
        self.device = connect() if device is None else device
        try:
            check_device(self.device, parameters, self._setting_names()[1:])
            properties = self.device.properties
            self._access = DeviceAccess(
                properties,
                parameters,
                max_access_seconds=max_access_seconds,
                retries=self.retries,
                backoff_seconds=self.backoff_seconds,
                timeout_seconds=self.timeout_seconds,
            )
        except Exception:
            self.close()
            raise
        self.chip = Chip(str(properties.get("chip_id", "solver")), self.device.to_networkx_graph())
        self.ranges = DeviceRanges.of(properties)
        self._tiles = Tiles(self.device, self.chip)
        known = {name: value for name, value in _USUAL_PARAMETERS.items() if name in self.device.parameters}
        self._device_parameters = {**known, **parameters}
        self._warned = False

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name: the sampler's own, then those that are handed to the device."""
        return {**super().get_params(deep), **self.parameters}

    def describe(self) -> dict[str, Any]:
        """Settings and chip as plain data; not what a call may cost, how it is repeated, or whose account pays."""
        chip = describe(self.device) if callable(getattr(self.device, "describe", None)) else self.chip.name
        return {**super().describe(), "device": chip}

    def __repr__(self) -> str:
        settings = {name: value for name, value in self.get_params(deep=False).items() if name != "device"}
        told = (f"{name}={value!r}" for name, value in settings.items() if name not in self.neutral_settings)
        return f"QPUSampler({self.chip.name!r}, {', '.join(told)})"

    def _remade(self, settings: dict[str, Any], changed: dict[str, Any]) -> QPUSampler:
        remade = QPUSampler(**settings)  # the same device; what it takes is checked there
        remade._opened = self._opened and remade.device is self.device
        remade._access.ledger = self._access.ledger  # what was spent stays spent
        if remade.device is self.device:
            remade.chip, remade._tiles = self.chip, self._tiles  # what was embedded stays embedded
        return remade

    def __getstate__(self) -> dict[str, Any]:
        if self.max_access_seconds is not None:
            raise SamplerError(
                "a QPUSampler with a budget is not copied to other processes, each of which would spend it anew; "
                "run in one process (n_jobs=1)"
            )
        return self.__dict__

    def __copy__(self) -> QPUSampler:
        copied = object.__new__(QPUSampler)
        copied.__dict__.update(self.__dict__)  # in this process: device and budget are shared
        return copied

    def close(self) -> None:
        """Close the connection, if it was this sampler that opened it."""
        if self._opened:
            self.device.close()

    def restore_usage(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Count what the training had used before it was interrupted, in another process say, against the budget."""
        used = sum(float(row.get("access_seconds", 0.0)) for row in history)
        self._access.ledger.seconds = max(self._access.ledger.seconds, used)

    @property
    def access_seconds(self) -> float:
        """QPU access time that this sampler has used so far."""
        return self._access.ledger.seconds

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """A tile per problem. Those of a call that failed in spite of retries come back as `Samples.failed`."""
        receipt = Receipt()
        runs = [self._plan(positions, problems, seeds[positions[0]]) for positions in self._tiles.calls(problems)]
        calls = [call for run in runs for call in run.calls]
        CallQueue(self._access, receipt).carry_out(calls)
        # The budget, or what no retry can help: the next solve will meet it again. What was paid for is used first.
        lasting = [call.failure for call in calls if isinstance(call.failure, SamplerError)]
        if len(lasting) == len(calls) and not receipt.access_seconds:
            raise lasting[0]
        answers: dict[int, Samples] = {}
        for run in runs:
            answers.update(zip(run.positions, run.answers(receipt, self.polish), strict=True))
        return [answers[position] for position in range(len(problems))]

    def summarise(self, answers: Sequence[Samples]) -> dict[str, float | str]:
        """Calls, access time, share of broken chains, the device's own energy, and every fault of the iteration."""
        receipts = list(dict.fromkeys(answer.info["receipt"] for answer in answers if answer.info))  # each call once
        total = Receipt(breaks=[entry for receipt in receipts for entry in receipt.breaks])
        return {
            "calls": sum(receipt.calls for receipt in receipts),
            "access_seconds": float(sum(receipt.access_seconds for receipt in receipts)),
            "chain_breaks": total.chain_breaks,
            "raw_energy": float(sum(answer.info.get("raw_energy", 0.0) for answer in answers)),
            "fault_count": sum(len(receipt.faults) for receipt in receipts),
            "faults": "; ".join(fault for receipt in receipts for fault in receipt.faults),
        }

    def preflight(self, problems: Sequence[QuadraticProblem]) -> Preflight:
        """What one solve of these problems would take, without submitting anything."""
        tiles = [self._tiles.embeddings(problems[call[0]], len(call)) for call in self._tiles.calls(problems)]
        calls = [(qubits_of(tile), reads) for tile in tiles for reads in self._reads(qubits_of(tile))]
        return Preflight(
            calls=len(calls),
            qubits=max(n_qubits for n_qubits, _ in calls),
            longest_chain=max(longest_chain(embedding) for tile in tiles for embedding in tile),
            access_seconds=sum(self._access.estimate(n_qubits, reads) for n_qubits, reads in calls),
            unresolved_share=max(
                self._program([problems[i] for i in call]).unresolved_share() for call in self._tiles.calls(problems)
            ),
        )

    def sweep_chain_prefactors(
        self, problems: Sequence[QuadraticProblem], prefactors: Sequence[float], seed: int = 0
    ) -> list[dict[str, float]]:
        """Solve the problems once with each prefactor: a row each of energies, broken chains, access time.

        The sampler's own prefactor stays; the budget counts.
        """
        seeds = [child_seed(seed, position) for position in range(len(problems))]
        rows = []
        for prefactor in prefactors:
            check_number("chain prefactor", prefactor, above=0)
            swept = copy(self)
            swept.chain_prefactor = float(prefactor)
            answers = swept.solve(problems, seeds)
            summary = self.summarise(answers)
            solved = [answer for answer in answers if answer.failure is None]
            rows.append(
                {
                    "chain_prefactor": float(prefactor),
                    "energy": float(sum(answer.best_energy for answer in solved)),
                    "mean_energy": float(sum(answer.energies.mean() for answer in solved)),
                    "chain_breaks": float(summary["chain_breaks"]),
                    "access_seconds": float(summary["access_seconds"]),
                    "solved": float(len(solved)),
                }
            )
        return rows

    def _warn_of_noise(self, program: Program) -> None:
        if self._warned:
            return
        share = program.unresolved_share()
        if share > UNRESOLVED_SHARE:
            self._warned = True
            bits = program.problems[0].encoding.bits
            fewer = f"use fewer than {bits} bits (1 or 2 do), or " if bits > 1 else ""
            warnings.warn(
                f"{share:.0%} of the couplings are below the device's analog error ({COUPLING_ERROR[1]} of its range): "
                f"it cannot tell them from noise; {fewer}standardise the features (StandardScaler)",
                stacklevel=2,
            )

    def _plan(self, positions: list[int], problems: Sequence[QuadraticProblem], seed: int) -> Run:
        """The program of these problems and its calls, each with a gauge of its own."""
        program = self._program([problems[position] for position in positions])
        self._warn_of_noise(program)
        composite, n_qubits = self._tiles.composite(program.problems[0], len(program.problems))
        calls = []
        for number, reads in enumerate(self._reads(n_qubits)):
            flips = np.random.default_rng(child_seed(seed, number)).random((1, len(program.model.variables))) < 0.5
            submit = partial(
                composite.sample,
                program.model,
                srts=flips if self.spin_reversals else np.zeros_like(flips),
                chain_strength=program.chain_strengths,
                num_reads=reads,
                auto_scale=False,
                **self._device_parameters,
            )
            calls.append(Call(submit, reads, self._access.estimate(n_qubits, reads)))
        return Run(positions, program, calls)

    def _program(self, problems: list[QuadraticProblem]) -> Program:
        limits = self._tiles.limits(problems[0], len(problems))
        return Program.of(problems, self.ranges, self.chain_prefactor, limits)

    def _reads(self, n_qubits: int) -> list[int]:
        """The reads of each call: divided among the gauges, and by the limits of a call."""
        gauges = max(self.spin_reversals, 1)
        shares = [self.num_reads // gauges + (gauge < self.num_reads % gauges) for gauge in range(gauges)]
        return [reads for share in shares for reads in self._access.divide(share, n_qubits)]


# More broken chains than this are worth a word in the history: majority votes are then half guesses.
MANY_BROKEN_CHAINS = 0.25


@dataclass(frozen=True, eq=False)
class Run:
    """Some problems of a solve, their program, and a call for every share of the reads."""

    positions: list[int]  # of the problems in the solve
    program: Program
    calls: list[Call]

    def answers(self, receipt: Receipt, polish: bool) -> list[Samples]:
        """An answer per problem; reads of a call that failed are missing, and without any the problems failed."""
        parts: list[list[Any]] = []
        failure, left_out = "", ""
        for call in self.calls:
            try:
                if call.failure is not None:
                    raise call.failure
                note_quality(call.answer, call.reads, receipt)
                parts.append(self.program.read(call.answer))
            except CallFailedError as error:
                failure = str(error)
            except SamplerError as error:
                left_out = left_out or str(error)
        if not parts:
            reason = left_out or failure
            return [Samples.failed(problem, reason, {"receipt": receipt}) for problem in self.program.problems]
        if left_out:
            receipt.faults.append(f"reads left out: {left_out}")
        return [
            _answer(problem, np.concatenate(bits), {**programmed, "receipt": receipt}, polish)
            for problem, programmed, *bits in zip(self.program.problems, self.program.describe(), *parts, strict=True)
        ]


def note_quality(sampleset: Any, asked: int, receipt: Receipt) -> None:
    """Write on the receipt what is short or broken in an answer; an answer without reads is a failure."""
    occurrences = sampleset.record.num_occurrences
    reads = int(occurrences.sum())
    if reads == 0:
        receipt.faults.append("fewer reads than asked: none")
        raise CallFailedError("the device returned no reads")
    if reads < asked:
        receipt.faults.append(f"fewer reads than asked: {reads} of {asked}")
    share = float(np.average(sampleset.record.chain_break_fraction, weights=occurrences))
    receipt.breaks.append((share, reads))
    if share > MANY_BROKEN_CHAINS:
        receipt.faults.append(f"broken chains: {share:.0%}")


def _answer(problem: QuadraticProblem, bits: Any, info: dict[str, Any], polish: bool) -> Samples:
    raw = Samples.of(problem, bits)
    info["raw_energy"] = raw.best_energy
    if not polish:
        return Samples(raw.bits, raw.energies, info)
    descent = require("dwave.samplers", extra=EXTRA, purpose="polishing reads").SteepestDescentSampler()
    polished = descent.sample(problem.to_bqm(), initial_states=(bits, list(range(problem.n_variables))))
    order = np.argsort(np.fromiter(polished.variables, dtype=np.int64))
    return Samples.of(problem, polished.record.sample[:, order], info)


def connect() -> Any:
    """The solver that D-Wave's configuration names; credentials never pass through annealfit."""
    system = require("dwave.system", extra=EXTRA, purpose="running on a QPU")
    try:
        return system.DWaveSampler()
    except Exception as error:
        raise SamplerError(
            f"no connection to a D-Wave solver ({type(error).__name__}: {error}); set up access with "
            "`dwave config create`, or rehearse with QPUSampler(MockQPU())"
        ) from error


def check_device(device: Any, parameters: Mapping[str, Any], settings: Iterable[str]) -> None:
    """Raise unless this is a QPU that takes these parameters; `settings` are the sampler's own, for the message."""
    if not callable(getattr(device, "to_networkx_graph", None)):
        raise InvalidInputError(
            f"{device!r} is not a QPU: pass a DWaveSampler or a MockQPU; for other dimod samplers there is DimodSampler"
        )
    if "auto_scale" in parameters:
        raise InvalidInputError("auto_scale is not a choice here: every problem is scaled to the range by itself")
    if "annealing_time" in parameters:
        shortest, longest = device.properties.get("annealing_time_range", (0, np.inf))
        check_number("annealing_time", parameters["annealing_time"], minimum=shortest, maximum=longest)
    unknown = sorted(set(parameters) - set(device.parameters))
    if unknown:
        raise InvalidInputError(
            f"neither QPUSampler nor the solver has a setting {', '.join(unknown)}; QPUSampler has "
            f"{', '.join(settings)}; the solver takes {', '.join(sorted(device.parameters))}"
        )
