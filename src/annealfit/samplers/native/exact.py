"""Samplers without chance: brute force for very small problems, and the rounded continuous minimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit.problems.bounds import box_minimum, compile_kernel
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers.protocol import Sampler, Samples

_CHUNK = 1 << 16  # states evaluated at once: bounds memory, not results


@dataclass(frozen=True)
class ExactSolver(Sampler):
    """The global minimum, by the energies of all `2^(D·K)` states."""

    max_variables: int = 24

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """The optimum of every problem, as a single read; the seeds are not used."""
        return [Samples.of(problem, self._minimise(problem)[None]) for problem in problems]

    def _minimise(self, problem: QuadraticProblem) -> NDArray[np.uint8]:
        n = problem.n_variables
        if n > self.max_variables:
            raise InvalidInputError(
                f"brute force over {n} variables means 2^{n} states; the limit is {self.max_variables}. "
                "Use SimulatedAnnealer, or fewer bits or features"
            )
        best_energy, best_bits = np.inf, np.zeros(n, dtype=np.uint8)
        for start in range(0, 1 << n, _CHUNK):
            states = np.arange(start, min(start + _CHUNK, 1 << n), dtype=np.int64)
            bits = ((states[:, None] >> np.arange(n)) & 1).astype(np.uint8)
            energies = problem.energy(bits)
            index = int(energies.argmin())
            if energies[index] < best_energy:
                best_energy, best_bits = float(energies[index]), bits[index]
        return best_bits.reshape(problem.n_parameters, problem.encoding.bits)


@dataclass(frozen=True)
class RoundedSampler(Sampler):
    """The continuous minimum over the box, rounded to the nearest levels: the classical answer to beat.

    >>> from annealfit.problems.encoding import Encoding
    >>> problem = QuadraticProblem([[2.0]], [-1.0], Encoding(bits=2, range=1.0))
    >>> RoundedSampler().sample(problem).bits.tolist()  # the minimum 0.5 rounds to 1/3
    [[[0, 1]]]
    """

    def prepare(self) -> None:
        """Load the compiled relaxation."""
        compile_kernel()

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """One read per problem; the seeds are not used."""
        return [Samples.of(p, p.encoding.encode(box_minimum(p))[None]) for p in problems]
