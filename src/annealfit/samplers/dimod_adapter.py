"""Any dimod sampler as one of ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from annealfit.errors import InvalidInputError, SamplerError, require
from annealfit.export import largest_coefficient
from annealfit.problem import QuadraticProblem
from annealfit.samplers.base import Sampler, Samples
from annealfit.samplers.faults import is_passing

_SEED_LIMIT = 2**31  # dwave-samplers and others take non-negative 32-bit seeds


class DimodSampler(Sampler):
    """Problems are handed to `child.sample` as BQMs, one after another; a lost connection fails one of them.

    Keyword arguments go to the child and are checked against the `parameters` it declares, because
    several dimod samplers drop a misspelt keyword without a word. With `normalize` the coefficients are
    divided by the largest (as in the paper), which changes the temperature scale of an annealer and
    nothing else. Without a child the sampler is dwave-samplers' simulated annealing.

    >>> sampler = DimodSampler(num_reads=5, num_sweeps=100, beta_range=(0.01, 3.0))
    """

    def __init__(self, child: Any = None, *, normalize: bool = True, **parameters: Any) -> None:
        if child is None:
            child = require(
                "dwave.samplers", extra="dwave", purpose="D-Wave's simulated annealing"
            ).SimulatedAnnealingSampler()
        if not callable(getattr(child, "sample", None)) or not hasattr(child, "parameters"):
            raise InvalidInputError(
                f"{child!r} is not a dimod sampler: it needs a method `sample` and a mapping `parameters`"
            )
        unknown = sorted(set(parameters) - set(child.parameters))
        if unknown:
            raise InvalidInputError(
                f"{type(child).__name__} takes no parameter {', '.join(unknown)}; "
                f"it takes {', '.join(sorted(child.parameters))}"
            )
        self.child = child
        self.normalize = normalize
        self.parameters = parameters

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value!r}" for name, value in self.parameters.items())
        return f"DimodSampler({type(self.child).__name__}(), normalize={self.normalize}{settings})"

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """One call of the child a problem."""
        return [self._try(problem, seed) for problem, seed in zip(problems, seeds, strict=True)]

    def _try(self, problem: QuadraticProblem, seed: int) -> Samples:
        try:
            return self._solve_one(problem, seed)
        except Exception as error:
            if not is_passing(error):
                raise
            return Samples.failed(problem, f"{type(error).__name__}: {error}")

    def _solve_one(self, problem: QuadraticProblem, seed: int) -> Samples:
        started = time.perf_counter()
        bqm = problem.to_bqm()
        scale = largest_coefficient(problem) if self.normalize else 1.0
        if scale > 0:
            bqm.scale(1 / scale)
        parameters = dict(self.parameters)
        if "seed" in self.child.parameters:
            parameters.setdefault("seed", int(seed) % _SEED_LIMIT)
        built = time.perf_counter()
        sampleset = self.child.sample(bqm, **parameters)
        if len(sampleset) == 0:
            raise SamplerError(f"{type(self.child).__name__} returned no samples")
        sampled = time.perf_counter()
        if set(sampleset.variables) != set(range(problem.n_variables)):
            raise SamplerError(
                f"{type(self.child).__name__} returned {len(sampleset.variables)} variables "
                f"for a problem of {problem.n_variables}"
            )
        order = np.argsort(np.fromiter(sampleset.variables, dtype=np.int64))
        states = sampleset.record.sample[:, order]
        if sampleset.vartype.name == "SPIN":
            states = (states + 1) // 2
        info = {
            **sampleset.info,
            "coefficient_scale": scale,
            "preprocessing_seconds": built - started,
            "sampling_seconds": sampled - built,
        }
        return Samples.of(problem, states, info)
