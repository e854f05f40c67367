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

    With the update `u` so far (0 where no block has been), the block b sees the problem
    `(G_bb, (Gu + g)_b, δ, K)`; its energy is the change of the whole problem's, so the energies of a first sweep's
    blocks add up. All problems' blocks of one turn go to the child together. `sweeps` visits every block again,
    each time seeing what the others chose, and keeps the better of the old and the new.

    A block that the child fails to answer takes the continuous minimum in its field, rounded to levels, since no bits
    say "no update"; on a later sweep it keeps what it had. The history counts such blocks (`failed_blocks`).

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
        """One read per problem. A problem none of whose blocks was answered is not solved."""
        groups = [
            _Group(group, [seeds[position] for position in positions], self._turns(group), positions)
            for positions, group in group_by_curvature(problems)
        ]
        lost = None  # what the child said when it gave up: it is not asked again
        for turn in range(max((len(group.turns) for group in groups), default=0)):
            going = [group for group in groups if turn < len(group.turns)]
            parts = [group.part(turn) for group in going]
            together = parts[0] if len(parts) == 1 else [part for several in parts for part in several]
            of_turn = [child_seed(seed, turn) for group in going for seed in group.seeds]
            if lost is None:
                try:
                    solved = solve_checked(self.child, together, of_turn)
                except SamplerError as error:
                    if turn == 0:
                        raise
                    lost = str(error)
            if lost is not None:
                solved = [Samples.failed(part, lost) for part in together]  # what was paid for stays on record
            answers = iter(solved)
            for group, several in zip(going, parts, strict=True):
                group.take(turn, several, [next(answers) for _ in several])
        found = {position: answer for group in groups for position, answer in group.answers()}
        return [found[position] for position in range(len(problems))]

    def summarise(self, answers: Sequence[Samples]) -> dict[str, float | str]:
        """What the child says of all its blocks, and how many failed; energies are those of the whole answers."""
        blocks = [block for answer in answers for block in answer.info.get("blocks", ())]
        summary = {**self.child.summarise(blocks), "failed_blocks": sum(block.failure is not None for block in blocks)}
        if "raw_energy" in summary:  # what polishing gained is taken back; of blocks solved again, for each time
            gained = sum(
                block.info.get("raw_energy", block.best_energy) - block.best_energy
                for block in blocks
                if block.failure is None
            )
            summary["raw_energy"] = float(gained + sum(a.best_energy for a in answers if a.failure is None))
        return summary

    @property
    def has_preflight(self) -> bool:
        """Whether the child has one."""
        return self.child.has_preflight

    def preflight(self, problems: Sequence[QuadraticProblem]) -> Preflight | None:
        """The child's costs of all blocks; every block is taken as if the others had not been."""
        turns = [
            self.child.preflight(_part(group, block, group.gradients[:, block]))
            for _, group in group_by_curvature(problems)
            for block in self._turns(group)
        ]
        known = [turn for turn in turns if turn is not None]
        return Preflight.of_all(known) if known else None

    def restore_usage(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Tell the child."""
        self.child.restore_usage(history)

    def prepare(self) -> None:
        """Prepare the child."""
        self.child.prepare()

    def close(self) -> None:
        """Close the child."""
        self.child.close()

    def _turns(self, problems: Problems) -> list[slice]:
        """The blocks in turn: consecutive parameters, as many as fit, all blocks of about one size."""
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
    """Problems with a common metric, whose blocks have common metrics too, and what was chosen for them so far."""

    def __init__(self, problems: Problems, seeds: list[int], turns: list[slice], positions: NDArray[np.intp]) -> None:
        self.problems, self.seeds, self.turns = problems, seeds, turns
        self.positions: list[int] = positions.tolist()  # among all problems
        self.updates = np.zeros_like(problems.gradients)
        self.bits = np.zeros((*self.updates.shape, problems.bits), dtype=np.uint8)
        self.asked: list[list[Samples]] = [[] for _ in problems]

    def part(self, turn: int) -> Problems:
        """The problems of the turn's block: what it chose before is chosen anew, in the field of all the others."""
        block = self.turns[turn]
        others = self.updates.copy()
        others[:, block] = 0.0
        fields = others @ self.problems.metric.matrix[:, block] + self.problems.gradients[:, block]
        return _part(self.problems, block, fields)

    def take(self, turn: int, parts: Problems, answers: list[Samples]) -> None:
        """Put the block's answers in place: on the first sweep always, later where they are better."""
        block, is_first = self.turns[turn], self.turns.index(self.turns[turn]) == turn
        for number, (part, answer) in enumerate(zip(parts, answers, strict=True)):
            self.asked[number].append(answer)
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
        """Each problem's position and answer."""
        for number, (problem, blocks) in enumerate(zip(self.problems, self.asked, strict=True)):
            info: SolveInfo = {"blocks": tuple(blocks)}
            failures = [block.failure for block in blocks if block.failure is not None]
            if len(failures) == len(blocks):
                yield self.positions[number], Samples.failed(problem, failures[-1], info)
            else:
                yield self.positions[number], Samples.of(problem, self.bits[number][None], info)


def _part(problems: Problems, block: slice, fields: NDArray[np.float64]) -> Problems:
    """The problems of one block of parameters, in these fields (P, size of the block)."""
    return Problems((problems.metric.part(block),), fields, problems.ranges, problems.bits)
