"""A program on its way through the device: the calls that carry it out, and what their answers say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from annealfit.errors import SamplerError, require
from annealfit.hardware.embeddings import EXTRA
from annealfit.problem import QuadraticProblem
from annealfit.samplers.dwave.flight import Call, CallFailedError
from annealfit.samplers.dwave.programming import Program
from annealfit.samplers.protocol import Receipt, Samples

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
