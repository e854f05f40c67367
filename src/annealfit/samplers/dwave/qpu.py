"""QPUSampler: quadratic problems → scaled program on tiles of a chip → calls of the device → samples."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from annealfit._support.description import constructor_arguments, describe
from annealfit._support.errors import InvalidInputError, SamplerError, check_number, require
from annealfit._support.randomness import child_seed
from annealfit.hardware.chip import EXTRA, Chip, Embedding, longest_chain, qubits_of
from annealfit.hardware.limits import (
    CHAIN_PREFACTOR,
    COUPLING_ERROR,
    Device,
    Resolution,
    TileLimit,
    device_of_solver,
    resolve,
)
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers.dwave.call_queue import Call, CallFailedError, CallQueue, Ledger, Receipt
from annealfit.samplers.protocol import Preflight, Sampler, Samples

if TYPE_CHECKING:
    import dimod

# Every read by itself, since means and shares are taken over reads; and a name to find the calls by at D-Wave.
_USUAL_PARAMETERS = {"answer_mode": "raw", "label": "annealfit"}
UNRESOLVED_SHARE = 0.5  # of the couplings below the analog error: with more of them bits are wasted
MANY_BROKEN_CHAINS = 0.25  # share that is noted in the history: majority votes are then half guesses
BLOCK_VARIABLES = 40  # blocks of about this size need the fewest calls: ten fit a chip at once, with short chains


class QPUSampler(Sampler):
    """All problems of an iteration side by side on one chip, in one call where they fit, else in as few as possible.

    Parameters
    ----------
    device : dimod sampler or None
        A `DWaveSampler`, or `annealfit.samplers.MockQPU` to rehearse. None connects to the solver that D-Wave's own
        configuration names (`dwave config create`); credentials never pass through annealfit.
    num_reads : int
        Reads of every problem; reads beyond the limit of a call go out in several calls.
    chain_prefactor : float
        Multiple of uniform torque compensation that couples the qubits of a chain.
    spin_reversals : int
        Random gauges among which the reads are divided, a call each; one costs nothing, 0 programs the problem as is.
    polish : bool
        Descend from every read to a local minimum. The energy of the device's best read is recorded (`raw_energy`).
    max_access_seconds : float or None
        QPU access time that this sampler may use in total. A call that is estimated to exceed it is not made.
    retries, backoff_seconds : int, float
        Retries of a call that failed for a transient reason, and the pause before the first one, doubled for each next.
    timeout_seconds : float
        How long to wait for an answer. A call that is late counts as paid for, and is not made again.
    **parameters
        Passed to the device, and checked against the parameters that it declares (`annealing_time=50`, say).

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

    # Cost and retries of a call do not change its answer.
    neutral_settings: ClassVar[frozenset[str]] = frozenset(
        {"max_access_seconds", "retries", "backoff_seconds", "timeout_seconds"}
    )
    further_settings: ClassVar[str] = "parameters"

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
        timeout_seconds: float = 1200.0,
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
        self.max_access_seconds, self.retries = max_access_seconds, int(retries)
        self.backoff_seconds, self.timeout_seconds = float(backoff_seconds), float(timeout_seconds)
        self.parameters = parameters
        self._opened = device is None
        self.device = connect() if device is None else device
        try:
            self._limits = self._checked_device()
        except Exception:
            self.close()
            raise
        self._tiles: dict[tuple[int, int], list[tuple[Embedding, list[TileLimit]]]] = {}  # by size and number
        self._ledger = Ledger()
        self._warned = False

    def _checked_device(self) -> Device:
        """Return the limits of the device; raise unless it is a QPU that takes the parameters."""
        if not callable(getattr(self.device, "to_networkx_graph", None)):
            raise InvalidInputError(
                f"{self.device!r} is not a QPU: pass a DWaveSampler or a MockQPU; for other dimod samplers there is "
                "DimodSampler"
            )
        if "auto_scale" in self.parameters:
            raise InvalidInputError("auto_scale is not a choice here: every problem is scaled to the range by itself")
        if unknown := sorted(set(self.parameters) - set(self.device.parameters)):
            raise InvalidInputError(
                f"neither QPUSampler nor the solver has a setting {', '.join(unknown)}; QPUSampler has "
                f"{', '.join(constructor_arguments(QPUSampler)[1:])}; "
                f"the solver takes {', '.join(sorted(self.device.parameters))}"
            )
        found = device_of_solver(self.device.properties, graph=self.device.to_networkx_graph())
        if found.assumed:
            raise SamplerError(f"the solver publishes no {', '.join(found.assumed)}, so its calls cannot be planned")
        if "annealing_time" in self.parameters:
            shortest, longest = found.annealing_microseconds
            check_number("annealing_time", self.parameters["annealing_time"], minimum=shortest, maximum=longest)
        return found

    @property
    def chip(self) -> Chip:
        """The working qubits and couplers of the device."""
        return self._limits.chip

    def describe(self) -> dict[str, Any]:
        """Settings and chip as plain data, without credentials."""
        chip = describe(self.device) if callable(getattr(self.device, "describe", None)) else self.chip.name
        return {**super().describe(), "device": chip}

    def __repr__(self) -> str:
        settings = {name: value for name, value in self.get_params(deep=False).items() if name != "device"}
        shown = (f"{name}={value!r}" for name, value in settings.items() if name not in self.neutral_settings)
        return f"QPUSampler({self.chip.name!r}, {', '.join(shown)})"

    def _remade(self, settings: dict[str, Any], changed: dict[str, Any]) -> QPUSampler:
        remade = super()._remade(settings, changed)
        remade._ledger = self._ledger  # what was spent stays spent
        if remade.device is self.device:
            remade._opened = self._opened
            remade._limits, remade._tiles = self._limits, self._tiles  # what was embedded stays embedded
        return remade

    def __getstate__(self) -> dict[str, Any]:
        if self.max_access_seconds is not None:
            raise SamplerError(
                "a QPUSampler with a budget is not copied to other processes, each of which would spend it anew; "
                "run in one process (n_jobs=1)"
            )
        return self.__dict__

    def close(self) -> None:
        """Close the connection, if this sampler opened it."""
        if self._opened:
            self.device.close()

    def restore_usage(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Count the access time of an interrupted training against the budget."""
        used = sum(float(row.get("access_seconds", 0.0)) for row in history)
        self._ledger.seconds = max(self._ledger.seconds, used)

    @property
    def access_seconds(self) -> float:
        """QPU access time that this sampler has used so far."""
        return self._ledger.seconds

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """Solve every problem on a tile. Problems of a call that failed in spite of retries are `Samples.failed`."""
        receipt, batches = Receipt(), self._batches(problems)
        programs = [self._program([problems[position] for position in batch]) for batch in batches]
        calls = [self._calls(*pair) for pair in zip(programs, (seeds[batch[0]] for batch in batches), strict=True)]
        every = [call for own in calls for call in own]
        settings = self.max_access_seconds, self.retries, self.backoff_seconds, self.timeout_seconds
        CallQueue(self._ledger, receipt, *settings).carry_out(every)
        # A spent budget, or an error that no retry can help, is raised in the next solve if answers were paid for.
        lasting = [call.failure for call in every if isinstance(call.failure, SamplerError)]
        if len(lasting) == len(every) and not receipt.access_seconds:
            raise lasting[0]
        answers: dict[int, Samples] = {}
        for batch, program, own in zip(batches, programs, calls, strict=True):
            answers.update(zip(batch, self._answers(program, own, receipt), strict=True))
        return [answers[position] for position in range(len(problems))]

    def summarise(self, answers: Sequence[Samples]) -> dict[str, float | str]:
        """Return calls, access time, share of broken chains, the energy before polishing, and every fault."""
        receipts = list(dict.fromkeys(answer.info["receipt"] for answer in answers if answer.info))  # each call once
        breaks = [entry for receipt in receipts for entry in receipt.breaks]
        reads = sum(count for _, count in breaks)
        return {
            "calls": sum(receipt.calls for receipt in receipts),
            "access_seconds": float(sum(receipt.access_seconds for receipt in receipts)),
            "chain_breaks": sum(share * count for share, count in breaks) / reads if reads else 0.0,
            "raw_energy": float(sum(answer.info.get("raw_energy", 0.0) for answer in answers)),
            "fault_count": sum(len(receipt.faults) for receipt in receipts),
            "faults": "; ".join(fault for receipt in receipts for fault in receipt.faults),
        }

    def preflight(self, problems: Sequence[QuadraticProblem]) -> Preflight:
        """The cost of one solve of these problems, without submitting anything."""
        programs = [self._program([problems[position] for position in batch]) for batch in self._batches(problems)]
        calls = [(program.n_qubits, reads) for program in programs for reads in self._reads(program)]
        return Preflight(
            calls=len(calls),
            qubits=max(program.n_qubits for program in programs),
            longest_chain=max(longest_chain(program.embedding) for program in programs),
            access_seconds=sum(self._limits.access_seconds(*call, **self.parameters) for call in calls),
            unresolved_share=max(program.unresolved_share for program in programs),
        )

    def _batches(self, problems: Sequence[QuadraticProblem]) -> list[list[int]]:
        """Return the positions of problems that go out together: of one size, and as many as there are tiles."""
        of_size: dict[int, list[int]] = {}
        for position, problem in enumerate(problems):
            of_size.setdefault(problem.n_variables, []).append(position)
        batches = []
        for size, positions in of_size.items():
            together = len(self.chip.tiles(size, len(positions)))
            if together == 0:
                raise SamplerError(_too_large(problems[positions[0]], self.chip))
            batches += [positions[start : start + together] for start in range(0, len(positions), together)]
        return batches

    def _program(self, problems: Sequence[QuadraticProblem]) -> Program:
        """Place problems of one size on tiles, and scale each by itself: a small update still gets the whole range."""
        size, count = key = problems[0].n_variables, len(problems)
        if key not in self._tiles:
            limits = self._limits.coupling_limits
            tiles = self.chip.tiles(size, count)
            self._tiles[key] = [(tile, [TileLimit.of(one, tile, self.chip.graph) for one in limits]) for tile in tiles]
        chosen, linear, quadratic, resolutions = self._tiles[key], [], [], []
        for problem, (_, of_tile) in zip(problems, chosen, strict=True):
            fields, couplings, _ = problem.to_ising()
            resolution = resolve(fields, couplings, self._limits.ranges, self.chain_prefactor, of_tile)
            linear.append(fields / resolution.scale)
            quadratic.append(couplings / resolution.scale)
            resolutions.append(resolution)
        chains = [tile[variable] for tile, _ in chosen for variable in range(size)]
        return Program(problems, resolutions, np.array(linear), np.array(quadratic), dict(enumerate(chains)))

    def _calls(self, program: Program, seed: int) -> list[Call]:
        """Return the calls of a program, each in a random gauge of its own."""
        self._warn_of_noise(program)
        calls = []
        for number, reads in enumerate(self._reads(program)):
            flips = np.random.default_rng(child_seed(seed, number)).random(len(program.embedding)) < 0.5
            signs = np.where(flips, -1, 1) if self.spin_reversals else np.ones(len(flips), dtype=int)
            seconds = self._limits.access_seconds(program.n_qubits, reads, **self.parameters)
            calls.append(Call(partial(self._submit, program, signs, reads), reads, seconds))
        return calls

    def _submit(self, program: Program, signs: NDArray[np.int_], reads: int) -> Any:
        """Submit a program in a gauge; return its sample set, which undoes gauge and chains once it is resolved."""
        dimod = require("dimod", extra=EXTRA, purpose="programming a QPU")
        embedding = require("dwave.embedding", extra=EXTRA, purpose="embedding problems on a QPU")
        model = program.model(signs)
        # A chain is flipped as a whole and stays ferromagnetic: only then may it use the extended range of couplings.
        embedded = embedding.embed_bqm(model, program.embedding, self.device.adjacency, program.chain_strengths)
        usual = {name: value for name, value in _USUAL_PARAMETERS.items() if name in self.device.parameters}
        answer = self.device.sample(embedded, num_reads=reads, auto_scale=False, **{**usual, **self.parameters})

        def unembed(answer: Any) -> Any:
            found = embedding.unembed_sampleset(answer, program.embedding, model, chain_break_fraction=True)
            found.record.sample[:] *= signs.astype(np.int8)
            return found

        return dimod.SampleSet.from_future(answer, unembed)

    def _reads(self, program: Program) -> list[int]:
        """Return the reads of each call: divided among the gauges, and by the limits of a call."""
        least = max(self.spin_reversals, 1)
        return self._limits.reads_of_calls(self.num_reads, program.n_qubits, least, **self.parameters)

    def _answers(self, program: Program, calls: Sequence[Call], receipt: Receipt) -> list[Samples]:
        """Return an answer per problem from the reads of the calls that succeeded; without any the problems failed."""
        parts: list[NDArray[np.uint8]] = []
        failures: list[CallFailedError | SamplerError] = []
        for call in calls:
            try:
                parts.append(_bits_of(call, receipt))
            except (CallFailedError, SamplerError) as error:
                failures.append(error)
        lasting = next((str(error) for error in failures if isinstance(error, SamplerError)), "")
        if not parts:
            reason = lasting or str(failures[-1])
            return [Samples.failed(problem, reason, {"receipt": receipt}) for problem in program.problems]
        if lasting:
            receipt.faults.append(f"reads left out: {lasting}")
        answers = []
        bits = np.split(np.concatenate(parts), len(program.problems), axis=1)
        for problem, scaled, own in zip(program.problems, program.resolutions, bits, strict=True):
            info = {"coefficient_scale": scaled.scale, "chain_strength": scaled.chain_strength, "receipt": receipt}
            answer = Samples.of(problem, own, info)
            info["raw_energy"] = answer.best_energy
            if self.polish:
                samplers = require("dwave.samplers", extra=EXTRA, purpose="polishing reads")
                order = list(range(problem.n_variables))
                found = samplers.SteepestDescentSampler().sample(problem.to_bqm(), initial_states=(own, order))
                answer = Samples.of(problem, found.samples(sorted_by=None)[:, order], info)
            answers.append(answer)
        return answers

    def _warn_of_noise(self, program: Program) -> None:
        if self._warned or program.unresolved_share <= UNRESOLVED_SHARE:
            return
        self._warned = True
        bits = program.problems[0].encoding.bits
        fewer = f"use fewer than {bits} bits (1 or 2 do), or " if bits > 1 else ""
        warnings.warn(
            f"{program.unresolved_share:.0%} of the couplings are below the device's analog error "
            f"({COUPLING_ERROR[1]} of its range): it cannot tell them from noise; {fewer}standardise the features "
            "(StandardScaler)",
            stacklevel=2,
        )


@dataclass(frozen=True, eq=False)
class Program:
    """Problems of n variables each, placed and scaled: variable `t·n + i` of the program is variable i of problem t."""

    problems: Sequence[QuadraticProblem]
    resolutions: Sequence[Resolution]  # how each problem was scaled
    fields: NDArray[np.float64]  # (problems, n)
    couplings: NDArray[np.float64]  # (problems, n, n), above the diagonal
    embedding: Embedding  # of all variables

    def model(self, signs: NDArray[np.int_]) -> dimod.BinaryQuadraticModel:
        """Return the model in spins, of which those with the sign −1 are reversed."""
        dimod = require("dimod", extra=EXTRA, purpose="programming a QPU")
        count, size = self.fields.shape
        rows, columns = np.triu_indices(size, 1)
        shifts = size * np.arange(count)[:, None]
        first, second = (rows + shifts).ravel(), (columns + shifts).ravel()
        biases = self.couplings[:, rows, columns].ravel() * signs[first] * signs[second]
        fields = self.fields.ravel() * signs
        return dimod.BinaryQuadraticModel.from_numpy_vectors(fields, (first, second, biases), 0.0, dimod.SPIN)

    @property
    def chain_strengths(self) -> dict[int, float]:
        """The chain strength of every variable."""
        strengths = [resolution.chain_strength for resolution in self.resolutions]
        return dict(enumerate(np.repeat(strengths, self.fields.shape[1]).tolist()))

    @property
    def n_qubits(self) -> int:
        """The number of qubits of all chains."""
        return qubits_of([self.embedding])

    @property
    def unresolved_share(self) -> float:
        """The share of the couplings below the analog error, in the problem where it is largest."""
        return max(resolution.share_below[COUPLING_ERROR[1]] for resolution in self.resolutions)

    def coefficients(self, signs: NDArray[np.int_]) -> tuple[NDArray[np.float64], tuple[NDArray[Any], ...]]:
        """Return fields, and the first, second and value of all couplings, of spins that are multiplied by signs."""
        count, size = self.fields.shape
        rows, columns = np.triu_indices(size, 1)
        shifts = size * np.arange(count)[:, None]
        first, second = (rows + shifts).ravel(), (columns + shifts).ravel()
        biases = self.couplings[:, rows, columns].ravel() * signs[first] * signs[second]
        return self.fields.ravel() * signs, (first, second, biases)


def _bits_of(call: Call, receipt: Receipt) -> NDArray[np.uint8]:
    """Return the bits (reads, variables) that a call brought; missing reads and broken chains go on the receipt."""
    if call.failure is not None:
        raise call.failure
    record = call.answer.record
    reads = int(record.num_occurrences.sum())
    if reads < call.reads:
        receipt.faults.append(f"fewer reads than asked: {f'{reads} of {call.reads}' if reads else 'none'}")
    if reads == 0:
        raise CallFailedError("the device returned no reads")
    share = float(np.average(record.chain_break_fraction, weights=record.num_occurrences))
    receipt.breaks.append((share, reads))
    if share > MANY_BROKEN_CHAINS:
        receipt.faults.append(f"broken chains: {share:.0%}")
    return np.repeat((record.sample > 0).astype(np.uint8), record.num_occurrences, axis=0)


def _too_large(problem: QuadraticProblem, chip: Chip) -> str:
    largest, n_parameters, bits = chip.largest_clique, problem.n_parameters, problem.encoding.bits
    block = min(largest, BLOCK_VARIABLES)
    fewer_bits = f"use at most bits={largest // n_parameters}, or " if largest >= n_parameters else ""
    return (
        f"{problem.n_variables} variables ({n_parameters} parameters of {bits} {'bit' if bits == 1 else 'bits'}) "
        f"do not embed on {chip.name}: its largest clique is {largest}; {fewer_bits}solve in blocks: "
        f"BlockSampler(sampler, max_variables={block}), or --blocks {block}"
    )


def connect() -> Any:
    """Connect to the solver that D-Wave's configuration names; credentials never pass through annealfit."""
    system = require("dwave.system", extra=EXTRA, purpose="running on a QPU")
    try:
        return system.DWaveSampler()
    except Exception as error:
        raise SamplerError(
            f"no connection to a D-Wave solver ({type(error).__name__}: {error}); set up access with "
            "`dwave config create`, or rehearse with QPUSampler(MockQPU())"
        ) from error
