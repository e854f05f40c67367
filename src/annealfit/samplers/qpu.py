"""QPUSampler: problems solved on a D-Wave annealer, or on a mock of one."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from annealfit.errors import InvalidInputError, SamplerError, check_number, require
from annealfit.hardware.analog_error import CHAIN_PREFACTOR, COUPLING_ERROR, DeviceRanges, share_below
from annealfit.hardware.chip import EXTRA, Chip, Embedding, longest_chain, qubits_of
from annealfit.problem import QuadraticProblem
from annealfit.randomness import child_seed
from annealfit.samplers.base import Sampler, Samples
from annealfit.samplers.device_access import CallFailedError, DeviceAccess, Receipt
from annealfit.samplers.preflight import Preflight
from annealfit.samplers.programming import Program, side_by_side

# Every read by itself, since means and shares are taken over reads; and a name to find the calls by at D-Wave.
_USUAL_PARAMETERS = {"answer_mode": "raw", "label": "annealfit"}
# More broken chains than this are worth a word in the history: majority votes are then half guesses.
MANY_BROKEN_CHAINS = 0.25
# With more of the couplings than this below the analog error, bits are wasted.
UNRESOLVED_SHARE = 0.5
# Blocks of about this size need the fewest calls: ten of them fit a chip at once, with short chains.
BLOCK_VARIABLES = 40


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
    >>> from annealfit.encoding import Encoding
    >>> from annealfit.samplers import MockQPU
    >>> problem = QuadraticProblem([[2.0, 0.5], [0.5, 1.0]], [1.0, -1.0], Encoding(bits=2, range=0.5))
    >>> with QPUSampler(MockQPU("Z12"), num_reads=20) as sampler:
    ...     answer = sampler.sample(problem)
    >>> answer.best_energy, round(sampler.access_seconds, 2)
    (-1.5, 0.02)

    """

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
        self.parameters = parameters
        self._opened = device is None
        self.device = _connect() if device is None else device
        try:
            _check_device(self.device, parameters)
            properties = self.device.properties
            self._access = DeviceAccess(
                properties,
                parameters,
                max_access_seconds=max_access_seconds,
                retries=int(retries),
                backoff_seconds=float(backoff_seconds),
                timeout_seconds=float(timeout_seconds),
            )
        except Exception:
            self.close()
            raise
        self.chip = Chip(str(properties.get("chip_id", "solver")), self.device.to_networkx_graph())
        self.ranges = DeviceRanges.of(properties)
        known = {name: value for name, value in _USUAL_PARAMETERS.items() if name in self.device.parameters}
        self._device_parameters = {**known, **parameters}
        self._composites: dict[tuple[int, int], tuple[Any, int]] = {}
        self._warned = False

    def __repr__(self) -> str:
        settings = {
            "num_reads": self.num_reads,
            "chain_prefactor": self.chain_prefactor,
            "spin_reversals": self.spin_reversals,
            "polish": self.polish,
            **self.parameters,
        }
        return f"QPUSampler({self.chip.name!r}, {', '.join(f'{name}={value!r}' for name, value in settings.items())})"

    def __getstate__(self) -> dict[str, Any]:
        if self.max_access_seconds is not None:
            raise SamplerError(
                "a QPUSampler with a budget is not copied to other processes, each of which would spend it anew; "
                "run in one process (n_jobs=1)"
            )
        return {**self.__dict__, "_composites": {}}  # made again where they are needed

    def close(self) -> None:
        """Close the connection, if it was this sampler that opened it."""
        if self._opened:
            self.device.close()

    @property
    def access_seconds(self) -> float:
        """QPU access time that this sampler has used so far."""
        return self._access.spent_seconds

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """A tile a problem. Those of a call that failed in spite of retries come back as `Samples.failed`."""
        return self._solve(problems, seeds, self.chain_prefactor)

    def summarise(self, answers: Sequence[Samples]) -> dict[str, float | str]:
        """Calls, access time, share of broken chains, the device's own energy, and every fault of the iteration."""
        receipts = {id(answer.info["receipt"]): answer.info["receipt"] for answer in answers if answer.info}.values()
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
        tiles = [self._tiles(problems[call[0]], len(call)) for call in self._calls(problems)]
        calls = [(qubits_of(tile), reads) for tile in tiles for reads in self._reads(qubits_of(tile))]
        return Preflight(
            calls=len(calls),
            qubits=max(n_qubits for n_qubits, _ in calls),
            longest_chain=max(longest_chain(embedding) for tile in tiles for embedding in tile),
            access_seconds=sum(self._access.estimate(n_qubits, reads) for n_qubits, reads in calls),
            unresolved_share=max(
                _unresolved_share(Program.of([problems[i] for i in call], self.ranges, self.chain_prefactor))
                for call in self._calls(problems)
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
            answers = self._solve(problems, seeds, float(prefactor))
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

    def _solve(
        self, problems: Sequence[QuadraticProblem], seeds: Sequence[int], chain_prefactor: float
    ) -> list[Samples]:
        receipt = Receipt()
        answers: dict[int, Samples] = {}
        for positions in self._calls(problems):
            program = Program.of([problems[position] for position in positions], self.ranges, chain_prefactor)
            self._warn_of_noise(program)
            try:
                solved = self._run(program, seeds[positions[0]], receipt)
            except SamplerError as error:  # the budget, or what no retry can help: the next solve will meet it again
                if not answers:
                    raise
                solved = [Samples.failed(problem, str(error), {"receipt": receipt}) for problem in program.problems]
            answers.update(zip(positions, solved, strict=True))  # what was paid for is used, whatever comes next
        return [answers[position] for position in range(len(problems))]

    def _calls(self, problems: Sequence[QuadraticProblem]) -> list[list[int]]:
        """Positions of the problems that go out together: of one size, and as many as there are tiles."""
        of_size: dict[int, list[int]] = {}
        for position, problem in enumerate(problems):
            of_size.setdefault(problem.n_variables, []).append(position)
        calls = []
        for positions in of_size.values():
            together = len(self._tiles(problems[positions[0]], len(positions)))
            calls += [positions[start : start + together] for start in range(0, len(positions), together)]
        return calls

    def _tiles(self, problem: QuadraticProblem, at_most: int) -> Sequence[Embedding]:
        size, n_parameters = problem.n_variables, problem.n_parameters
        if self.chip.clique(size) is None:
            largest = self.chip.largest_clique
            block = min(largest, BLOCK_VARIABLES)
            fewer_bits = f"use at most bits={largest // n_parameters}, or " if largest >= n_parameters else ""
            parameters, bits = f"{n_parameters} parameters", problem.encoding.bits
            raise SamplerError(
                f"{size} variables ({parameters} of {bits} {'bit' if bits == 1 else 'bits'}) do not embed on "
                f"{self.chip.name}: its largest clique is {largest}; {fewer_bits}solve in blocks: "
                f"BlockSampler(sampler, max_variables={block}), or train --blocks {block}"
            )
        return self.chip.tiles(size, at_most)

    def _warn_of_noise(self, program: Program) -> None:
        if self._warned:
            return
        share = _unresolved_share(program)
        if share > UNRESOLVED_SHARE:
            self._warned = True
            warnings.warn(
                f"{share:.0%} of the couplings are below the device's analog error ({COUPLING_ERROR[1]} of its range), "
                f"so most of their {program.problems[0].encoding.bits} bits are noise; use fewer bits (2 or 3 do, with "
                "an adaptive range), or standardise the features (StandardScaler)",
                stacklevel=2,
            )

    def _run(self, program: Program, seed: int, receipt: Receipt) -> list[Samples]:
        """The answers of one program, from one call or several; reads of a call that failed are missing."""
        composite, n_qubits = self._composite(program.problems[0], len(program.problems))
        parts: list[list[Any]] = []
        failure = ""
        for number, reads in enumerate(self._reads(n_qubits)):
            flips = np.random.default_rng(child_seed(seed, number)).random((1, len(program.model.variables))) < 0.5

            def submit(reads: int = reads, flips: Any = flips) -> Any:
                return composite.sample(
                    program.model,
                    srts=flips if self.spin_reversals else np.zeros_like(flips),
                    chain_strength=program.chain_strengths,
                    num_reads=reads,
                    auto_scale=False,
                    **self._device_parameters,
                )

            try:
                sampleset = self._access.call(submit, n_qubits, reads, receipt)
                parts.append(_read(program, sampleset, reads, receipt))
            except CallFailedError as error:
                failure = str(error)
            except SamplerError as error:
                if not parts:
                    raise
                receipt.faults.append(f"reads left out: {error}")
                break
        if not parts:
            return [Samples.failed(problem, failure, {"receipt": receipt}) for problem in program.problems]
        return [
            self._answer(problem, np.concatenate(bits), {**programmed, "receipt": receipt})
            for problem, programmed, *bits in zip(program.problems, program.describe(), *parts, strict=True)
        ]

    def _answer(self, problem: QuadraticProblem, bits: Any, info: dict[str, Any]) -> Samples:
        raw = Samples.of(problem, bits)
        info["raw_energy"] = raw.best_energy
        if not self.polish:
            return Samples(raw.bits, raw.energies, info)
        descent = require("dwave.samplers", extra=EXTRA, purpose="polishing reads").SteepestDescentSampler()
        polished = descent.sample(problem.to_bqm(), initial_states=(bits, list(range(problem.n_variables))))
        order = np.argsort(np.fromiter(polished.variables, dtype=np.int64))
        return Samples.of(problem, polished.record.sample[:, order], info)

    def _composite(self, problem: QuadraticProblem, count: int) -> tuple[Any, int]:
        """The embedding of so many problems of this size, and the qubits it takes."""
        key = problem.n_variables, count
        if key not in self._composites:
            system = require("dwave.system", extra=EXTRA, purpose="embedding problems on a QPU")
            gauges = require("dwave.preprocessing.composites", extra=EXTRA, purpose="spin-reversal transforms")
            tiles = self._tiles(problem, count)
            fixed = system.FixedEmbeddingComposite(self.device, side_by_side(tiles))
            # Above the embedding, so that a chain is flipped as a whole and stays ferromagnetic: only then may it use
            # the extended range of couplings.
            self._composites[key] = gauges.SpinReversalTransformComposite(fixed), qubits_of(tiles)
        return self._composites[key]

    def _reads(self, n_qubits: int) -> list[int]:
        """The reads of each call: divided among the gauges, and by the limits of a call."""
        gauges = max(self.spin_reversals, 1)
        shares = [self.num_reads // gauges + (gauge < self.num_reads % gauges) for gauge in range(gauges)]
        return [reads for share in shares for reads in self._access.divide(share, n_qubits)]


def _unresolved_share(program: Program) -> float:
    """The share of the couplings below the analog error, in the problem where it is largest."""
    return max(
        share_below(problem.to_ising()[1], scale, COUPLING_ERROR[1])
        for problem, scale in zip(program.problems, program.scales, strict=True)
    )


def _read(program: Program, sampleset: Any, asked: int, receipt: Receipt) -> list[Any]:
    """The bits of every problem; what is short or broken goes on the receipt."""
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
    return program.read(sampleset)


def _connect() -> Any:
    system = require("dwave.system", extra=EXTRA, purpose="running on a QPU")
    try:
        return system.DWaveSampler()
    except Exception as error:
        raise SamplerError(
            f"no connection to a D-Wave solver ({type(error).__name__}: {error}); set up access with "
            "`dwave config create`, or rehearse with QPUSampler(MockQPU())"
        ) from error


def _check_device(device: Any, parameters: dict[str, Any]) -> None:
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
            f"{', '.join(_settings())}; the solver takes {', '.join(sorted(device.parameters))}"
        )


def _settings() -> list[str]:
    named = inspect.signature(QPUSampler).parameters.values()
    return [parameter.name for parameter in named if parameter.kind is parameter.KEYWORD_ONLY]
