"""DimodSampler: any dimod sampler as an annealfit sampler."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from annealfit._support.errors import InvalidInputError, SamplerError, require
from annealfit.problems.export import largest_coefficient
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers.protocol import Sampler, Samples, SolveInfo, is_transient

_SEED_LIMIT = 2**31  # dwave-samplers and others take non-negative 32-bit seeds


class DimodSampler(Sampler):
    """Passes every problem to `child.sample` as a BQM, one after another; a lost connection fails one problem.

    Parameters
    ----------
    child : dimod sampler or None
        None is dwave-samplers' simulated annealing.
    normalize : bool
        Divide the coefficients by the largest (as the paper does). It changes the scale of an annealer's
        temperatures, and nothing else; without it a `beta_range` is in units of the problem's energy, as in
        `SimulatedAnnealer`.
    strict : bool
        Refuse parameters that the child neither declares nor names in the signature of its `sample`: several dimod
        samplers silently ignore a misspelt keyword. A child with undeclared parameters needs `strict=False`.
    **parameters
        Passed to the child at every call, with the problem's seed if the child has a parameter `seed`.

    Examples
    --------
    >>> DimodSampler(num_reads=5, num_sweeps=100)
    DimodSampler(SimulatedAnnealingSampler(), normalize=False, strict=True, num_reads=5, num_sweeps=100)

    """

    neutral_settings: ClassVar[frozenset[str]] = frozenset({"strict"})
    further_settings: ClassVar[str] = "parameters"

    def __init__(self, child: Any = None, *, normalize: bool = False, strict: bool = True, **parameters: Any) -> None:
        if child is None:
            dwave = require("dwave.samplers", extra="dwave", purpose="D-Wave's simulated annealing")
            child = dwave.SimulatedAnnealingSampler()
        if inspect.isclass(child):
            raise InvalidInputError(f"sampler is the class {child.__name__}; pass an object of it: {child.__name__}(…)")
        if not callable(getattr(child, "sample", None)) or not hasattr(child, "parameters"):
            raise InvalidInputError(
                f"sampler is {child!r}; pass an annealfit sampler, a word as 'levels', or a dimod sampler, which has "
                "a method `sample` and a mapping `parameters`"
            )
        self._accepted = _accepted_parameters(child)
        unknown = sorted(set(parameters) - self._accepted) if strict else []
        if unknown:
            raise InvalidInputError(
                f"{type(child).__name__} takes no parameter {', '.join(unknown)}; it takes "
                f"{', '.join(sorted(self._accepted)) or 'none that it names'} (strict=False passes any)"
            )
        self.child, self.normalize, self.strict, self.parameters = child, normalize, strict, parameters

    def __repr__(self) -> str:
        settings = {name: value for name, value in self.get_params(deep=False).items() if name != "child"}
        listed = "".join(f", {name}={value!r}" for name, value in settings.items())
        return f"DimodSampler({type(self.child).__name__}(){listed})"

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """Call the child once per problem."""
        answers = []
        for problem, seed in zip(problems, seeds, strict=True):
            try:
                answers.append(self._solve_one(problem, seed))
            except Exception as error:
                if not is_transient(error):
                    raise
                answers.append(Samples.failed(problem, f"{type(error).__name__}: {error}"))
        return answers

    def _solve_one(self, problem: QuadraticProblem, seed: int) -> Samples:
        started = time.perf_counter()
        bqm = problem.to_bqm()
        scale = largest_coefficient(problem) if self.normalize else 1.0
        if scale > 0:
            bqm.scale(1 / scale)
        parameters = dict(self.parameters)
        if "seed" in self._accepted:
            parameters.setdefault("seed", int(seed) % _SEED_LIMIT)
        built = time.perf_counter()
        sampleset = self.child.sample(bqm, **parameters)
        name = type(self.child).__name__
        if not hasattr(sampleset, "record"):
            raise SamplerError(f"{name} returned {sampleset!r}; expected a dimod SampleSet")
        if len(sampleset) == 0:
            raise SamplerError(f"{name} returned no samples")
        sampled = time.perf_counter()
        if set(sampleset.variables) != set(range(problem.n_variables)):
            raise SamplerError(
                f"{name} returned {len(sampleset.variables)} variables for a problem of {problem.n_variables}"
            )
        states = sampleset.samples(sorted_by=None)[:, list(range(problem.n_variables))]
        if sampleset.vartype.name == "SPIN":
            states = (states + 1) // 2
        info: SolveInfo = {
            "coefficient_scale": scale,
            "preprocessing_seconds": built - started,
            "sampling_seconds": sampled - built,
        }
        return Samples.of(problem, states, {**sampleset.info, **info})


def _accepted_parameters(child: Any) -> set[str]:
    """Return the parameters that the child declares or that its `sample` names: openjij's declare hardly any."""
    named = list(inspect.signature(child.sample).parameters.values())[1:]  # the first is the model
    return {*child.parameters, *(p.name for p in named if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))}
