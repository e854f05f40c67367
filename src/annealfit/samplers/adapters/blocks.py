"""BlockSampler: problems larger than a sampler can take, solved block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.errors import InvalidInputError, SamplerError, check_number
from annealfit.problem import QuadraticProblem
from annealfit.problems import Problems, alike
from annealfit.randomness import child_seed
from annealfit.samplers.protocol import Preflight, Sampler, Samples, SolveInfo


@dataclass(frozen=True)
class BlockSampler(Sampler):
    """Block-coordinate descent with another sampler: `max_variables` at a time, the rest held fixed.

    With the update `u` so far (0 where no block has been), the block b sees the problem
    `(G_bb, (Gu + g)_b, δ, K)`; its energy is the change of the whole problem's, so the energies of a first sweep's
    blocks add up. All problems' blocks of one turn go to the child together. `sweeps` visits every block again,
    each time seeing what the others chose, and keeps the better of the old and the new.

    >>> from annealfit.encoding import Encoding
    >>> from annealfit.samplers import ExactSolver
    >>> problem = QuadraticProblem(np.eye(40) + 0.1, np.linspace(-1, 1, 40), Encoding(bits=2, range=0.5))
    >>> answer = BlockSampler(ExactSolver(), max_variables=20, sweeps=2).sample(problem)
    >>> answer.best_energy < 0, answer.bits.shape
    (True, (1, 40, 2))
    """

    child: Sampler
    max_variables: int
    sweeps: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.child, Sampler):
            raise InvalidInputError(f"{self.child!r} is not an annealfit sampler; wrap dimod's: DimodSampler(it)")
        check_number("max_variables", self.max_variables, Integral, minimum=1)
        check_number("sweeps", self.sweeps, Integral, minimum=1)

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """One read per problem. A problem one of whose blocks fails is not solved."""
        answers: dict[int, Samples] = {}
        for positions, group in alike(problems):
            solved = self._solve_alike(group, [seeds[position] for position in positions])
            answers.update(zip(positions.tolist(), solved, strict=True))
        return [answers[position] for position in range(len(problems))]

    def summarise(self, answers: Sequence[Samples]) -> dict[str, float | str]:
        """What the child says of all its blocks; the whole answers' energy stands for those of the blocks."""
        blocks = [block for answer in answers for block in answer.info.get("blocks", ())]
        summary = self.child.summarise(blocks)
        if "raw_energy" in summary:  # what polishing gained is taken back; of blocks solved again, for each time
            gained = sum(
                block.info.get("raw_energy", block.best_energy) - block.best_energy
                for block in blocks
                if block.failure is None
            )
            summary["raw_energy"] = float(gained + sum(a.best_energy for a in answers if a.failure is None))
        return summary

    def preflight(self, problems: Sequence[QuadraticProblem]) -> Preflight | None:
        """The child's costs of all blocks; every block is taken as if the others had not been."""
        turns = [
            self.child.preflight(_part(group, block, group.gradients[:, block]))
            for _, group in alike(problems)
            for block in self._turns(group)
        ]
        known = [turn for turn in turns if turn is not None]
        return Preflight.of_all(known) if known else None

    def carry_on(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Tell the child."""
        self.child.carry_on(history)

    def prepare(self) -> None:
        """Prepare the child."""
        self.child.prepare()

    def close(self) -> None:
        """Close the child."""
        self.child.close()

    def _solve_alike(self, problems: Problems, seeds: list[int]) -> list[Samples]:
        """Problems with a common metric: their blocks have common metrics too."""
        matrix = problems.metric.matrix
        updates = np.zeros_like(problems.gradients)
        bits = np.zeros((*updates.shape, problems.bits), dtype=np.uint8)
        asked: list[list[Samples]] = [[] for _ in problems]
        failures: dict[int, str] = {}
        turns = list(self._turns(problems))
        first_sweep = len(turns) // self.sweeps
        for turn, block in enumerate(turns):
            going = np.array([number for number in range(len(problems)) if number not in failures], dtype=np.intp)
            if not len(going):
                break
            # What the block chose before is chosen anew, in the field of all the others.
            others = updates.copy()
            others[:, block] = 0.0
            fields = others @ matrix[:, block] + problems.gradients[:, block]
            parts = _part(problems, block, fields).take(going)
            try:
                solved = self.child.solve(parts, [child_seed(seeds[number], turn) for number in going])
            except SamplerError as error:
                if turn == 0:
                    raise
                solved = [Samples.failed(part, str(error)) for part in parts]  # what was paid for stays on record
            for number, part, samples in zip(going.tolist(), parts, solved, strict=True):
                asked[number].append(samples)
                if samples.failure is not None:
                    failures[number] = samples.failure
                elif turn < first_sweep or samples.best_energy < part.energy(bits[number, block]):
                    bits[number, block] = samples.best_bits
                    updates[number, block] = part.decode(samples.best_bits)
        answers = []
        for number, (problem, blocks) in enumerate(zip(problems, asked, strict=True)):
            info: SolveInfo = {"blocks": tuple(blocks)}
            # A failure after the first sweep leaves a whole answer, only less refined.
            whole = number not in failures or len(blocks) > first_sweep
            answers.append(
                Samples.of(problem, bits[number][None], info)
                if whole
                else Samples.failed(problem, failures[number], info)
            )
        return answers

    def _turns(self, problems: Problems) -> Iterator[slice]:
        """The blocks in turn: consecutive parameters, as many as fit, all blocks of about one size."""
        at_most = self.max_variables // problems.bits
        if at_most == 0:
            raise InvalidInputError(
                f"max_variables is {self.max_variables}, and one parameter has {problems.bits} bits: "
                "use fewer bits, or larger blocks"
            )
        count = -(-problems.n_parameters // at_most)
        edges: NDArray[np.int64] = np.linspace(0, problems.n_parameters, count + 1).round().astype(np.int64)
        for _ in range(self.sweeps):
            yield from (slice(int(first), int(last)) for first, last in pairwise(edges))


def _part(problems: Problems, block: slice, fields: NDArray[np.float64]) -> Problems:
    """The problems of one block of parameters, in these fields (P, size of the block)."""
    return Problems((problems.metric.part(block),), fields, problems.ranges, problems.bits)
