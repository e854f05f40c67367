"""The methods of the field: rounding to the nearest level, GPTQ, and descent by single weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, check_number, choose
from annealfit._support.threads import threads_for_large_product
from annealfit.quantization.layer_problem import LayerProblem, Rounding
from annealfit.samplers.native.level_walk import LevelWalk

ORDERS = ("activations", "given")

_MULTIPLES = np.geomspace(0.6, 2.2, 12)  # of the scale that suits the weights alone; see docs/quantization.md
_BLOCK = 64  # inputs whose changes reach the others in one product
_MOST_ROUNDS = 20  # of levels and scales in turn; most layers need a handful


@dataclass(frozen=True)
class Nearest:
    """Every weight to its nearest level, with the scale of least squared error of the weights."""

    name = "nearest"
    starts_from_nothing = True

    def improve(self, problem: LayerProblem, start: Rounding | None, seed: int) -> Rounding:
        """The start does not matter."""
        return problem.nearest(problem.first_scales)


@dataclass(frozen=True)
class GPTQ:
    """Weights are rounded one after another, and those that are left make up for the error (Frantar et al. 2022).

    That is Babai's nearest-plane algorithm for the lattice of the layer, but for the ends of the grid. Scales are
    chosen beforehand, as there: those of least squared error of the weights.

    Parameters
    ----------
    damping : float
        Share of the Gram matrix's mean diagonal that is added to its diagonal, for numerical stability.
    order : {"activations", "given"}
        Inputs of largest power first, or as they come.
    search : bool
        Try twelve multiples of each output's scale, take the one of least output error, and fit it to the levels:
        the method `"gptq_search"`.

    """

    damping: float = 0.01
    order: str = "activations"
    search: bool = False

    starts_from_nothing = True

    def __post_init__(self) -> None:
        check_number("damping", self.damping, above=0, maximum=1, remedy="GPTQ's usual is 0.01")
        choose("order", self.order, ORDERS)

    @property
    def name(self) -> str:
        """The word for it."""
        return "gptq_search" if self.search else "gptq"

    def improve(self, problem: LayerProblem, start: Rounding | None, seed: int) -> Rounding:
        """The start does not matter."""
        if not self.search or problem.are_scales_fixed:
            return self.round_with(problem, problem.first_scales)
        count, outputs = len(_MULTIPLES), np.arange(problem.n_outputs)
        scales = (_MULTIPLES[:, None, None] * problem.first_scales).reshape(-1, problem.first_scales.shape[1])
        many = problem.take(np.tile(outputs, count))
        tried = self.round_with(many, scales)
        best = many.errors(tried).reshape(count, -1).argmin(axis=0) * problem.n_outputs + outputs
        return problem.fitted(Rounding(tried.numbers[best], tried.scales[best]))

    def round_with(self, problem: LayerProblem, scales: Array) -> Rounding:
        """All outputs at once, with these scales (P, G)."""
        order = self._order(problem)
        targets, spreads = self._targets(problem)[:, order].T.copy(), problem.spread(scales)[:, order].T
        factor = self._factor(problem, order)
        numbers = np.empty(targets.shape, dtype=np.int64)
        for first in range(0, len(order), _BLOCK):
            last = min(first + _BLOCK, len(order))
            rest = np.empty((last - first, problem.n_outputs))
            for i in range(first, last):
                spread = spreads[i]
                units = np.divide(targets[i], spread, out=np.zeros_like(spread), where=spread > 0)
                numbers[i] = problem.grid.nearest(units)
                rest[i - first] = (targets[i] - spread * problem.grid.at(numbers[i])) / factor[i, i]
                targets[i + 1 : last] -= factor[i, i + 1 : last, None] * rest[i - first]
            targets[last:] -= factor[first:last, last:].T @ rest
        found = np.empty((problem.n_outputs, len(order)), dtype=np.int64)
        found[:, order] = numbers.T
        return Rounding(found, scales)

    def _order(self, problem: LayerProblem) -> NDArray[np.intp]:
        if self.order == "given":
            return np.arange(problem.n_inputs)
        return np.argsort(-problem.metric.diagonal, kind="stable")

    def _damped(self, problem: LayerProblem) -> Array:
        diagonal = problem.metric.diagonal
        return problem.metric.matrix + self.damping * float(diagonal.mean()) * np.eye(problem.n_inputs)

    def _targets(self, problem: LayerProblem) -> Array:
        """The weights; where the inputs are not those of the outputs to be reproduced, those that suit them."""
        drift = problem.correlations - problem.weights @ problem.metric.matrix
        if np.abs(drift).max() <= 1e-9 * np.abs(problem.correlations).max():
            return problem.weights
        return problem.weights + scipy.linalg.solve(self._damped(problem), drift.T, assume_a="pos").T

    def _factor(self, problem: LayerProblem, order: NDArray[np.intp]) -> Array:
        """The upper Cholesky factor of the damped Gram matrix's inverse, in this order."""
        matrix = self._damped(problem)[np.ix_(order, order)]
        with threads_for_large_product(float(len(order)) ** 3 / 2):  # of the triangular solve, the larger part
            # H⁻¹ = UᵀU with U upper: from H read backwards, H = LᵀL with L lower, and U = L⁻ᵀ needs no inverse of H.
            try:
                backwards = scipy.linalg.cholesky(matrix[::-1, ::-1], lower=False, check_finite=False)
            except np.linalg.LinAlgError as error:
                raise InvalidInputError(
                    f"the Gram matrix has a negative eigenvalue beyond the damping of {self.damping}; "
                    "check the inputs, or raise the damping"
                ) from error
            lower = np.ascontiguousarray(backwards[::-1, ::-1])
            identity = np.eye(len(order))
            return scipy.linalg.solve_triangular(lower, identity, lower=True, trans="T", check_finite=False)


@dataclass(frozen=True)
class Descent:
    """From an answer: single weights to their best level, and scales to their best value, until nothing changes."""

    num_threads: int | None = None

    name = "descent"

    def improve(self, problem: LayerProblem, start: Rounding | None, seed: int) -> Rounding:
        """Never worse than the start; without one, from the nearest levels."""
        return descend_from(problem, start or Nearest().improve(problem, None, seed), self.num_threads)


def descend_from(problem: LayerProblem, start: Rounding, num_threads: int | None = None) -> Rounding:
    """Levels and scales in turn, until neither can be improved by itself."""
    without = np.empty((problem.n_inputs, 0), dtype=np.intp)
    found = start
    for _ in range(_MOST_ROUNDS):
        settled = settle(problem, found, without, num_threads)
        changed = not np.array_equal(settled.numbers, found.numbers)
        found = problem.fitted(settled)
        if not changed or problem.are_scales_fixed:
            break
    return found


def settle(problem: LayerProblem, start: Rounding, partners: NDArray[np.intp], num_threads: int | None) -> Rounding:
    """With the scales as they are: descend along single weights, and along pairs of partners."""
    walk = walk_from(problem, start, np.zeros(problem.n_outputs, dtype=np.uint64), partners, num_threads)
    walk.settle()
    return Rounding(walk.levels, start.scales)


def walk_from(
    problem: LayerProblem,
    start: Rounding,
    seeds: NDArray[np.uint64],
    partners: NDArray[np.intp],
    num_threads: int | None,
) -> LevelWalk:
    """A lane for each output, at the start. Outputs whose scale is 0 have but one value, and stay."""
    grid = problem.grid
    return LevelWalk(
        problem.metric,
        -problem.correlations,
        grid.step * np.maximum(problem.spread(start.scales), np.finfo(float).tiny ** 0.25),
        grid.origin,
        grid.count - 1,
        start.numbers,
        seeds,
        partners,
        num_threads,
    )
