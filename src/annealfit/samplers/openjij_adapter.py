"""openjij's simulated annealing as one of our samplers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from annealfit.errors import check_number, require
from annealfit.problem import QuadraticProblem
from annealfit.samplers.base import Sampler, Samples


@dataclass(frozen=True)
class OpenJijSampler(Sampler):
    """`openjij.SASampler`, which declares too few of its parameters to go through `DimodSampler`'s check of them."""

    num_sweeps: int = 100
    num_reads: int = 1
    beta_range: tuple[float, float] | None = None  # None is openjij's own choice

    def __post_init__(self) -> None:
        require("openjij", extra="openjij", purpose="OpenJijSampler")
        check_number("num_sweeps", self.num_sweeps, Integral, minimum=1)
        check_number("num_reads", self.num_reads, Integral, minimum=1)

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """One call a problem."""
        child = require("openjij", extra="openjij", purpose="OpenJijSampler").SASampler()
        return [self._solve_one(child, problem, seed) for problem, seed in zip(problems, seeds, strict=True)]

    def _solve_one(self, child: Any, problem: QuadraticProblem, seed: int) -> Samples:
        quadratic, _ = problem.to_qubo()
        coefficients = np.triu(2 * quadratic, 1) + np.diag(quadratic.diagonal())
        rows, columns = np.triu_indices(len(quadratic))
        # openjij takes Python's numbers only, and builds no faster from an array than from this.
        keys = zip(rows.tolist(), columns.tolist(), strict=True)
        pairs = dict(zip(keys, coefficients[rows, columns].tolist(), strict=True))
        low, high = self.beta_range or (None, None)
        answer = child.sample_qubo(
            pairs,
            num_sweeps=self.num_sweeps,
            num_reads=self.num_reads,
            beta_min=low,
            beta_max=high,
            seed=int(seed) % 2**31,
        )
        order = np.argsort(np.fromiter(answer.variables, dtype=np.int64))
        return Samples.of(problem, answer.record.sample[:, order])
