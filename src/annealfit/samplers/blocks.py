"""BlockSampler: problems larger than a sampler can take, solved block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, SamplerError, check_number
from annealfit._support.randomness import child_seed
from annealfit.problems.bounds import box_minimum
from annealfit.problems.problem import Problems, QuadraticProblem, group_by_curvature
from annealfit.samplers.protocol import Preflight, Sampler, Samples, SolveInfo, solve_checked


@dataclass(frozen=True)
class BlockSampler(Sampler):
    """Block-coordinate descent with another sampler: `max_variables` at a time, the rest held fixed.

    With the update `u` so far (0 in blocks not solved yet), block b is the problem `(G_bb, (Gu + g)_b, δ, K)`; its
    energy is the change of the whole problem's energy, so the energies of the blocks of a first sweep add up. The
    blocks of all problems at one turn go to the child together. Each of the `sweeps` visits every block, with the
    others as they were last chosen, and keeps the better of the old and the new bits.

    A block that the child fails to answer takes the continuous minimum in its field, rounded to levels, since no bits
    mean "no update"; in a later sweep it keeps its bits. The history counts such blocks (`failed_blocks`).

    >>> from annealfit.problems.encoding import Encoding
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
        """Return one read per problem. A problem none of whose blocks was answered has failed."""
        groups = [
            _Group(group, positions.tolist(), self._turns(group)) for positions, group in group_by_curvature(problems)
        ]
        lost = None  # the error of a child that failed for good: it is not called again
        for turn in range(max((len(group.turns) for group in groups), default=0)):
            going = [group for group in groups if turn < len(group.turns)]
            parts = [group.part(turn) for group in going]
            together = parts[0] if len(parts) == 1 else [part for several in parts for part in several]
            turn_seeds = [child_seed(seeds[position], turn) for group in going for position in group.positions]
            if lost is None:
                try:
                    solved = solve_checked(self.child, together, turn_seeds)
                except SamplerError as error:
                    if turn == 0:
                        raise
                    lost = str(error)
            if lost is not None:
                solved = [Samples.failed(part, lost) for part in together]  # the blocks paid for are used
            answers = iter(solved)
            for group, several in zip(going, parts, strict=True):
                group.take(turn, several, [next(answers) for _ in several])
        found = {position: answer for group in groups for position, answer in group.answers()}
        return [found[position] for position in range(len(problems))]

    def summarise(self, answers: Sequence[Samples]) -> dict[str, float | str]:
        """Return the child's summary of all blocks, energies of whole problems, and the number of failed blocks."""
        blocks = [block for answer in answers for block in answer.info.get("blocks", ())]
        solved = [block for block in blocks if block.failure is None]
        summary = {**self.child.summarise(blocks), "failed_blocks": len(blocks) - len(solved)}
        if "raw_energy" in summary:  # without the gain of polishing, in every sweep
            gained = sum(block.info.get("raw_energy", block.best_energy) - block.best_energy for block in solved)
            summary["raw_energy"] = float(gained + sum(a.best_energy for a in answers if a.failure is None))
        return summary

    @property
    def has_preflight(self) -> bool:
        """Whether the child has one."""
        return self.child.has_preflight

    def preflight(self, problems: Sequence[QuadraticProblem]) -> Preflight | None:
        """Return the child's costs of all blocks, with the updates of the other blocks at 0."""
        turns = [
            self.child.preflight(_part(group, block, group.gradients[:, block]))
            for _, group in group_by_curvature(problems)
            for block in self._turns(group)
        ]
        known = [turn for turn in turns if turn is not None]
        return Preflight.of_all(known) if known else None

    def restore_usage(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Restore the child's usage."""
        self.child.restore_usage(history)

    def prepare(self) -> None:
        """Prepare the child."""
        self.child.prepare()

    def close(self) -> None:
        """Close the child."""
        self.child.close()

    def _turns(self, problems: Problems) -> list[slice]:
        """Return the blocks in turn: consecutive parameters, as many as fit, all blocks of about one size."""
        at_most = self.max_variables // problems.bits
        if at_most == 0:
            raise InvalidInputError(
                f"max_variables is {self.max_variables}, and one parameter has {problems.bits} bits: "
                "use fewer bits, or larger blocks"
            )
        count = -(-problems.n_parameters // at_most)
        edges: NDArray[np.int64] = np.linspace(0, problems.n_parameters, count + 1).round().astype(np.int64)
        return self.sweeps * [slice(int(first), int(last)) for first, last in pairwise(edges)]


class _Group:
    """Problems with a common curvature, whose blocks share theirs too, and the bits chosen so far."""

    def __init__(self, problems: Problems, positions: list[int], turns: list[slice]) -> None:
        self.problems, self.positions, self.turns = problems, positions, turns
        self.updates = np.zeros_like(problems.gradients)
        self.bits = np.zeros((*self.updates.shape, problems.bits), dtype=np.uint8)
        self.blocks: list[list[Samples]] = [[] for _ in problems]

    def part(self, turn: int) -> Problems:
        """Return the problems of the turn's block in the field of the other blocks."""
        block = self.turns[turn]
        others = self.updates.copy()
        others[:, block] = 0.0
        fields = others @ self.problems.shared_curvature.matrix[:, block] + self.problems.gradients[:, block]
        return _part(self.problems, block, fields)

    def take(self, turn: int, parts: Problems, answers: list[Samples]) -> None:
        """Store the answers of a block: in the first sweep always, later where they are better."""
        block, is_first = self.turns[turn], self.turns.index(self.turns[turn]) == turn
        for number, (part, answer) in enumerate(zip(parts, answers, strict=True)):
            self.blocks[number].append(answer)
            if answer.failure is None:
                chosen = answer.best_bits
            elif is_first:
                chosen = part.encoding.encode(box_minimum(part))
            else:
                continue
            if is_first or part.energy(chosen) < part.energy(self.bits[number, block]):
                self.bits[number, block] = chosen
                self.updates[number, block] = part.decode(chosen)

    def answers(self) -> Iterator[tuple[int, Samples]]:
        """Yield the position and the answer of each problem."""
        for position, problem, bits, blocks in zip(self.positions, self.problems, self.bits, self.blocks, strict=True):
            info: SolveInfo = {"blocks": tuple(blocks)}
            if all(block.failure is not None for block in blocks):
                yield position, Samples.failed(problem, str(blocks[-1].failure), info)
            else:
                yield position, Samples.of(problem, bits[None], info)


def _part(problems: Problems, block: slice, fields: NDArray[np.float64]) -> Problems:
    """Return the problems of one block of parameters, in these fields (P, size of the block)."""
    return Problems((problems.shared_curvature.part(block),), fields, problems.ranges, problems.bits)
