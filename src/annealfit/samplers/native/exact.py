"""Brute force: the oracle of the tests, and an honest answer for very small problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers.protocol import Sampler, Samples

_CHUNK = 1 << 16  # states evaluated at once: bounds memory, not results


@dataclass(frozen=True)
class ExactSolver(Sampler):
    """The global minimum by looking at all `2^(D·K)` states."""

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
