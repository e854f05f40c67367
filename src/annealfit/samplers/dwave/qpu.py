"""QPUSampler: quadratic problems → scaled program on tiles of a chip → calls of the device → samples."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from annealfit._support.description import describe
from annealfit._support.errors import InvalidInputError, SamplerError, check_number, require
from annealfit._support.randomness import child_seed
from annealfit.hardware.chip import EXTRA, Chip, Embedding, longest_chain, qubits_of
from annealfit.hardware.limits import (
    CHAIN_PREFACTOR,
    COUPLING_ERROR,
    DeviceRanges,
    Resolution,
    TileLimit,
    coupling_limits,
    resolve,
)
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers.dwave.call_queue import Call, CallFailedError, CallQueue, DeviceAccess, Receipt
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
            check_device(self.device, parameters, self._setting_names()[1:])
            properties = self.device.properties
            self._access = DeviceAccess(
                properties, parameters, max_access_seconds, self.retries, self.backoff_seconds, self.timeout_seconds
            )
        except Exception:
            self.close()
            raise
        self.chip = Chip(str(properties.get("chip_id", "solver")), self.device.to_networkx_graph())
        self.ranges = DeviceRanges.of(properties)
        self._tiles: dict[tuple[int, int], Tiles] = {}  # by variables of a problem and number of problems
        known = {name: value for name, value in _USUAL_PARAMETERS.items() if name in self.device.parameters}
        self._device_parameters = {**known, **parameters}
        self._warned = False

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name: the sampler's own, then those that are passed to the device."""
        return {**super().get_params(deep), **self.parameters}

    def describe(self) -> dict[str, Any]:
        """Settings and chip as plain data, without credentials."""
        chip = describe(self.device) if callable(getattr(self.device, "describe", None)) else self.chip.name
        return {**super().describe(), "device": chip}

    def __repr__(self) -> str:
        settings = {name: value for name, value in self.get_params(deep=False).items() if name != "device"}
        shown = (f"{name}={value!r}" for name, value in settings.items() if name not in self.neutral_settings)
        return f"QPUSampler({self.chip.name!r}, {', '.join(shown)})"

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
        return {**self.__dict__, "_tiles": {}}  # composites are made again

    def __copy__(self) -> QPUSampler:
        copied = object.__new__(QPUSampler)
        copied.__dict__.update(self.__dict__)  # in this process: device and budget are shared
        return copied

    def close(self) -> None:
        """Close the connection, if this sampler opened it."""
        if self._opened:
            self.device.close()

    def restore_usage(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Count the access time of an interrupted training against the budget."""
        used = sum(float(row.get("access_seconds", 0.0)) for row in history)
        self._access.ledger.seconds = max(self._access.ledger.seconds, used)

    @property
    def access_seconds(self) -> float:
        """QPU access time that this sampler has used so far."""
        return self._access.ledger.seconds

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """Solve every problem on a tile. Problems of a call that failed in spite of retries are `Samples.failed`."""
        receipt = Receipt()
        runs = [self._plan(problems, positions, seeds[positions[0]]) for positions in self._batches(problems)]
        calls = [call for run in runs for call in run.calls]
        CallQueue(self._access, receipt).carry_out(calls)
        # A spent budget, or an error that no retry can help, is raised in the next solve if answers were paid for.
        lasting = [call.failure for call in calls if isinstance(call.failure, SamplerError)]
        if len(lasting) == len(calls) and not receipt.access_seconds:
            raise lasting[0]
        answers: dict[int, Samples] = {}
        for run in runs:
            answers.update(zip(run.positions, run.answers(receipt, self.polish), strict=True))
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
        batches = [[problems[position] for position in positions] for positions in self._batches(problems)]
        tiles = [self._tiles_of(batch) for batch in batches]
        calls = [(tile.n_qubits, reads) for tile in tiles for reads in self._reads(tile.n_qubits)]
        return Preflight(
            calls=len(calls),
            qubits=max(n_qubits for n_qubits, _ in calls),
            longest_chain=max(longest_chain(embedding) for tile in tiles for embedding in tile.embeddings),
            access_seconds=sum(self._access.estimate(n_qubits, reads) for n_qubits, reads in calls),
            unresolved_share=max(
                Program.of(batch, self.ranges, self.chain_prefactor, tile.limits).unresolved_share
                for batch, tile in zip(batches, tiles, strict=True)
            ),
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

    def _tiles_of(self, batch: Sequence[QuadraticProblem]) -> Tiles:
        """Return a tile for each of these problems of one size; embedded once for every size and number."""
        n_variables, count = key = batch[0].n_variables, len(batch)
        if key not in self._tiles:
            system = require("dwave.system", extra=EXTRA, purpose="embedding problems on a QPU")
            gauges = require("dwave.preprocessing.composites", extra=EXTRA, purpose="spin-reversal transforms")
            embeddings = self.chip.tiles(n_variables, count)
            published = coupling_limits(self.device.properties)
            limits = [[TileLimit.of(one, embedding, self.chip.graph) for one in published] for embedding in embeddings]
            chains = [embedding[variable] for embedding in embeddings for variable in range(n_variables)]
            # Spins are reversed above the embedding, so that a chain is flipped as a whole and stays ferromagnetic:
            # only then may it use the extended range of couplings.
            fixed = system.FixedEmbeddingComposite(self.device, dict(enumerate(chains)))
            composite = gauges.SpinReversalTransformComposite(fixed)
            self._tiles[key] = Tiles(embeddings, limits, composite, qubits_of(embeddings))
        return self._tiles[key]

    def _plan(self, problems: Sequence[QuadraticProblem], positions: list[int], seed: int) -> Run:
        """Return the program of these problems and its calls, each with a gauge of its own."""
        batch = [problems[position] for position in positions]
        tiles = self._tiles_of(batch)
        program = Program.of(batch, self.ranges, self.chain_prefactor, tiles.limits)
        self._warn_of_noise(program)
        calls = []
        for number, reads in enumerate(self._reads(tiles.n_qubits)):
            flips = np.random.default_rng(child_seed(seed, number)).random((1, len(program.model.variables))) < 0.5
            submit = partial(
                tiles.composite.sample,
                program.model,
                srts=flips if self.spin_reversals else np.zeros_like(flips),
                chain_strength=program.chain_strengths,
                num_reads=reads,
                auto_scale=False,
                **self._device_parameters,
            )
            calls.append(Call(submit, reads, self._access.estimate(tiles.n_qubits, reads)))
        return Run(positions, program, calls)

    def _reads(self, n_qubits: int) -> list[int]:
        """Return the reads of each call: divided among the gauges, and by the limits of a call."""
        gauges = max(self.spin_reversals, 1)
        shares = [self.num_reads // gauges + (gauge < self.num_reads % gauges) for gauge in range(gauges)]
        return [reads for share in shares for reads in self._access.divide(share, n_qubits)]

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
class Tiles:
    """Disjoint embeddings of as many problems of one size, and the device as a sampler of all of them."""

    embeddings: Sequence[Embedding]
    limits: Sequence[Sequence[TileLimit]]  # of the sums of couplings, for each embedding
    composite: Any  # dimod sampler whose variables are those of a `Program`
    n_qubits: int


@dataclass(frozen=True, eq=False)
class Program:
    """Problems of n variables each as one Ising model: variable `t·n + i` is variable i of problem t."""

    problems: Sequence[QuadraticProblem]
    model: dimod.BinaryQuadraticModel  # in spins; every problem fills the device's range by itself
    chain_strengths: dict[int, float]  # of every variable
    resolutions: Sequence[Resolution]  # how each problem was scaled

    @classmethod
    def of(
        cls,
        problems: Sequence[QuadraticProblem],
        ranges: DeviceRanges,
        chain_prefactor: float,
        limits: Sequence[Sequence[TileLimit]] = (),
    ) -> Program:
        """Return the program of problems of one size; `limits` are those of each problem's tile.

        Each problem is scaled by itself: a class whose update has become small still gets the whole range.
        """
        dimod = require("dimod", extra=EXTRA, purpose="programming a QPU")
        size = problems[0].n_variables
        rows, columns = np.triu_indices(size, 1)
        linear, biases, resolutions = [], [], []
        for problem, of_tile in zip(problems, limits or [()] * len(problems), strict=True):
            fields, couplings, _ = problem.to_ising()
            resolution = resolve(fields, couplings, ranges, chain_prefactor, of_tile)
            linear.append(fields / resolution.scale)
            biases.append(couplings[rows, columns] / resolution.scale)
            resolutions.append(resolution)
        shifts = size * np.arange(len(problems))[:, None]
        model = dimod.BinaryQuadraticModel.from_numpy_vectors(
            np.concatenate(linear),
            ((rows + shifts).ravel(), (columns + shifts).ravel(), np.concatenate(biases)),
            0.0,
            dimod.SPIN,
        )
        strengths = np.repeat([resolution.chain_strength for resolution in resolutions], size)
        return cls(problems, model, dict(enumerate(strengths.tolist())), resolutions)

    @property
    def unresolved_share(self) -> float:
        """The share of the couplings below the analog error, in the problem where it is largest."""
        return max(resolution.share_below[COUPLING_ERROR[1]] for resolution in self.resolutions)

    def read(self, sampleset: Any) -> list[NDArray[np.uint8]]:
        """Return the bits (reads, n) of every problem in a sample set of the model."""
        size = len(self.model.variables)
        if set(sampleset.variables) != set(range(size)):
            raise SamplerError(f"the device answered for {len(sampleset.variables)} variables of {size}")
        rows = (sampleset.samples(sorted_by=None)[:, list(range(size))] > 0).astype(np.uint8)
        bits = np.repeat(rows, sampleset.record.num_occurrences, axis=0)
        return np.split(bits, len(self.problems), axis=1)


@dataclass(frozen=True, eq=False)
class Run:
    """Some problems of a solve, their program, and the calls among which the reads are divided."""

    positions: list[int]  # of the problems in the solve
    program: Program
    calls: list[Call]

    def answers(self, receipt: Receipt, polish: bool) -> list[Samples]:
        """Return an answer per problem from the reads of the calls that succeeded; without any the problems failed."""
        parts: list[list[NDArray[np.uint8]]] = []
        failure, left_out = "", ""
        for call in self.calls:
            try:
                if call.failure is not None:
                    raise call.failure
                _note_quality(call, receipt)
                parts.append(self.program.read(call.answer))
            except CallFailedError as error:
                failure = str(error)
            except SamplerError as error:
                left_out = left_out or str(error)
        problems = self.program.problems
        if not parts:
            return [Samples.failed(problem, left_out or failure, {"receipt": receipt}) for problem in problems]
        if left_out:
            receipt.faults.append(f"reads left out: {left_out}")
        answers = []
        for problem, scaled, *several in zip(problems, self.program.resolutions, *parts, strict=True):
            info = {"coefficient_scale": scaled.scale, "chain_strength": scaled.chain_strength, "receipt": receipt}
            answer = Samples.of(problem, np.concatenate(several), info)
            info["raw_energy"] = answer.best_energy
            if polish:
                samplers = require("dwave.samplers", extra=EXTRA, purpose="polishing reads")
                order = list(range(problem.n_variables))
                start = answer.bits.reshape(len(answer.bits), -1), order
                found = samplers.SteepestDescentSampler().sample(problem.to_bqm(), initial_states=start)
                answer = Samples.of(problem, found.samples(sorted_by=None)[:, order], info)
            answers.append(answer)
        return answers


def _note_quality(call: Call, receipt: Receipt) -> None:
    """Record missing reads and broken chains of an answer on the receipt; an answer without reads is a failure."""
    occurrences = call.answer.record.num_occurrences
    reads = int(occurrences.sum())
    if reads < call.reads:
        receipt.faults.append(f"fewer reads than asked: {f'{reads} of {call.reads}' if reads else 'none'}")
    if reads == 0:
        raise CallFailedError("the device returned no reads")
    share = float(np.average(call.answer.record.chain_break_fraction, weights=occurrences))
    receipt.breaks.append((share, reads))
    if share > MANY_BROKEN_CHAINS:
        receipt.faults.append(f"broken chains: {share:.0%}")


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
