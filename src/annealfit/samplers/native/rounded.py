"""RoundedSampler: the classical competitor that every annealer has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from annealfit.problems.bounds import box_minimum, compile_kernel
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers.protocol import Sampler, Samples


@dataclass(frozen=True)
class RoundedSampler(Sampler):
    """The continuous minimum over the box, rounded to the nearest levels: no annealing, no chance.

    >>> from annealfit.problems.encoding import Encoding
    >>> problem = QuadraticProblem([[2.0]], [-1.0], Encoding(bits=2, range=1.0))
    >>> RoundedSampler().sample(problem).bits.tolist()  # the minimum 0.5 rounds to 1/3
    [[[0, 1]]]
    """

    def prepare(self) -> None:
        """Compile the relaxation."""
        compile_kernel()

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """One read per problem; the seeds are not used."""
        return [Samples.of(p, p.encoding.encode(box_minimum(p))[None]) for p in problems]
