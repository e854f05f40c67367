"""A layer's levels by any sampler: every output is one `QuadraticProblem`, and all share the Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, SamplerError, check_number
from annealfit._support.randomness import child_seeds
from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import Problems
from annealfit.quantization.grids import Grid
from annealfit.quantization.layer_problem import LayerProblem, Rounding
from annealfit.quantization.methods import descend_from
from annealfit.samplers.protocol import Sampler, Samples, solve_checked


@dataclass(frozen=True)
class Sampled:
    """Levels by a sampler of `annealfit.samplers`, with the scales that the best answer so far has.

    Parameters
    ----------
    sampler : Sampler
        A dimod sampler is wrapped: `DimodSampler(it)`.
    rounds : int
        How often levels are sampled and scales fitted to them, at most: for a sampler that proves its answers.
    settle : bool
        Let descent follow every answer, as is usual after a quantum annealer, whose reads are noisy.

    """

    sampler: Sampler
    rounds: int = 1
    settle: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.sampler, Sampler):
            raise InvalidInputError(f"{self.sampler!r} is not an annealfit sampler; wrap dimod's: DimodSampler(it)")
        check_number("rounds", self.rounds, Integral, minimum=1)

    @property
    def name(self) -> str:
        """The sampler's."""
        return type(self.sampler).__name__

    def improve(self, problem: LayerProblem, start: Rounding | None, seed: int) -> Rounding:
        """What the sampler answers, scales fitted; outputs that it could not solve stay as they are at the start."""
        found = start or descend_from(problem, problem.nearest(problem.first_scales))
        self.sampler.prepare()  # so that no time limit is spent on compiling
        bounds = np.full(problem.n_outputs, -np.inf)
        open_outputs = np.flatnonzero((found.scales > 0).all(axis=1))  # a scale of 0 leaves nothing to choose
        for turn in range(self.rounds):
            if not len(open_outputs):
                break
            part = problem.take(open_outputs)
            own = Rounding(found.numbers[open_outputs], found.scales[open_outputs])
            seeds = child_seeds(seed, turn, open_outputs).tolist()
            solved, bounds[open_outputs] = self._solve(part, own, seeds)
            fitted = descend_from(part, solved) if self.settle else part.fitted(solved)
            numbers, scales = found.numbers.copy(), found.scales.copy()
            numbers[open_outputs], scales[open_outputs] = fitted.numbers, fitted.scales
            found = Rounding(numbers, scales)
            moved = ~np.isclose(fitted.scales, own.scales, rtol=1e-9, atol=0.0).all(axis=1)
            open_outputs = open_outputs[moved]
        bounds[open_outputs] = -np.inf  # their scales are not those that the bounds are of
        return Rounding(found.numbers, found.scales, bounds if np.isfinite(bounds).any() else None)

    def _solve(self, problem: LayerProblem, start: Rounding, seeds: list[int]) -> tuple[Rounding, Array]:
        """The sampler's levels with the start's scales, and what it knows that none can get below, (P,)."""
        problems = to_problems(problem, start.scales)
        answers = solve_checked(self.sampler, problems, seeds)
        failures = [answer.failure for answer in answers if answer.failure is not None]
        if len(failures) == len(answers):
            raise SamplerError(f"{self.name} solved none of {len(answers)} outputs: {failures[0]}")
        numbers, offsets = start.numbers.copy(), _offsets(problem, start.scales)
        bounds = np.full(len(answers), -np.inf)
        for output, answer in enumerate(answers):
            if answer.failure is None:
                numbers[output] = _numbers(problem.grid, answer, problem.n_inputs)
                bounds[output] = answer.info.get("lower_bound", -np.inf) + offsets[output]
        return Rounding(numbers, start.scales), bounds


def to_problems(problem: LayerProblem, scales: Array) -> Problems:
    """The outputs of a layer, with these scales (P, G), as quadratic problems over bits.

    A grid of 2^K levels is a K-bit code. Any other number of levels, three above all, takes several one-bit
    parameters for each weight, whose multiples add up to all levels: two of the same size for a ternary one. With
    scales per group every output has a metric of its own.
    """
    grid, spacings = problem.grid, problem.grid.step * problem.spread(scales)
    if not (spacings > 0).all():
        raise InvalidInputError("an output has the scale 0, all its weights being 0: there is nothing to choose")
    bits, multiples = _code(grid)
    shifts = spacings * _middle(grid)  # what is added to every value, so that the levels lie around 0
    slopes = shifts @ problem.metric.matrix - problem.correlations
    of_parameters = np.repeat(multiples, problem.n_inputs)
    top = (grid.count - 1) / 2 if len(multiples) == 1 else 0.5
    if len(problem.starts) == 1:
        metric = problem.metric if len(multiples) == 1 else Curvature(_copies(problem.metric.matrix, multiples))
        return Problems((metric,), np.tile(slopes, len(multiples)) * of_parameters, top * spacings[:, 0], bits)
    matrices = (spacing[:, None] * problem.metric.matrix * spacing for spacing in spacings)
    metrics = tuple(Curvature(_copies(matrix, multiples)) for matrix in matrices)
    gradients = np.tile(slopes * spacings, len(multiples)) * of_parameters
    return Problems(metrics, gradients, np.full(len(spacings), top), bits)


def _middle(grid: Grid) -> float:
    """The middle of the levels, in steps: 0 for a symmetric grid."""
    return grid.origin + (grid.count - 1) / 2


def _offsets(problem: LayerProblem, scales: Array) -> Array:
    """What the energies of `to_problems` lack to be errors, (P,)."""
    shifts = problem.grid.step * problem.spread(scales) * _middle(problem.grid)
    return problem.metric.energies(-problem.correlations, shifts) + problem.powers


def _code(grid: Grid) -> tuple[int, NDArray[np.float64]]:
    """Bits per parameter, and the multiples of the parameters that a weight is the sum of.

    >>> _code(Grid.of(2)), _code(Grid.of(2, "ternary"))[1].tolist(), _code(Grid.of(3, "with_zero"))[1].tolist()
    ((2, array([1.])), [1.0, 1.0], [1.0, 2.0, 3.0])
    """
    top = grid.count - 1
    bits = top.bit_length()
    if grid.count == 2**bits:
        return bits, np.ones(1)
    powers = 2 ** np.arange(bits - 1)
    return 1, np.append(powers, top - powers.sum()).astype(float)


def _copies(matrix: Array, multiples: Array) -> Array:
    return np.kron(np.outer(multiples, multiples), matrix).astype(np.float64, copy=False)


def _numbers(grid: Grid, answer: Samples, size: int) -> NDArray[np.int64]:
    """The numbers of the levels (D,) of the best bits."""
    bits, multiples = _code(grid)
    if len(multiples) == 1:
        return answer.best_bits.astype(np.int64) @ (1 << np.arange(bits))
    return multiples.astype(np.int64) @ answer.best_bits[:, 0].astype(np.int64).reshape(len(multiples), size)
