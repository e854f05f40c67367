"""Methods that round a layer: to the nearest level, GPTQ, descent by single weights, annealing, and any sampler.

A method has a name and `improve(problem, start, seed)`, which returns an answer for every output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, SamplerError, check_number, choose_or_own
from annealfit._support.randomness import child_seeds, descend
from annealfit._support.threads import threads_for_large_product
from annealfit.quantization.layer_problem import LayerProblem, Rounding, levels_of_bits, to_problems
from annealfit.samplers import LatticeSolver
from annealfit.samplers.native.levels import LevelChains, soft_partners
from annealfit.samplers.protocol import Sampler, solve_checked

_MULTIPLES = np.geomspace(0.6, 2.2, 12)  # of the scale that suits the weights alone; see docs/quantization.md
_BLOCK = 64  # inputs whose changes reach the others in one product
_MOST_ROUNDS = 20  # of levels and scales in turn; most layers need a handful

# The effort of an anneal if sweeps and reads are not given, in multiplications. A sweep of one weight reads its lines,
# which costs some 1,500, and moves along some, which costs as many as there are inputs. More reads are for small
# layers, where a single anneal may miss the best answer.
_WORK, _WORK_OF_READS, _LOOK = 1e10, 1e9, 1500
_LEAST_SWEEPS, _MOST_SWEEPS, _MOST_READS = 12, 400, 64
_ROUNDS = 10  # between which scales are fitted, and the damping falls
_HOT, _COLD = 2.0, 0.2  # temperatures of the first and the last sweep, in units of the start's error per weight
_DAMPINGS = (0.2, 0.02)  # first and last, in units of the Gram matrix's mean diagonal
_BOUND_ROUNDING = 72  # of the rounding of an error: the margin within which LatticeSolver's energies count as the same
_PARTNERS = 8  # pairs that each weight is moved in
# Reads differ in where they start: with scales up to so many times larger or smaller, and up to so many times as
# warm, which is enough to forget the start. The first read does neither.
_SPREAD, _WARMEST = 2.0, 30.0


class Method(Protocol):
    """Something that rounds a layer: from nothing, or from the best answer of the methods before it.

    An object of one's own is run after the classical methods and starts from the best of their answers, unless it says
    otherwise: `starts_from_nothing = True`.
    """

    @property
    def name(self) -> str:
        """What errors and seconds are listed under."""

    def improve(self, problem: LayerProblem, start: Rounding | None, seed: int) -> Rounding:
        """An answer. It need not be better than the start: the best one of each output is kept."""


@dataclass(frozen=True)
class Nearest:
    """Every weight to its nearest level, with the scale of least squared error of the weights."""

    name = "nearest"
    starts_from_nothing = True

    def improve(self, problem: LayerProblem, start: Rounding | None, seed: int) -> Rounding:
        """The nearest levels, whatever the start."""
        return problem.nearest(problem.first_scales)


@dataclass(frozen=True)
class GPTQ:
    """Weights are rounded one after another, and those that are left make up for the error (Frantar et al. 2022).

    Inputs of largest power come first. It is Babai's nearest-plane algorithm for the lattice of the layer, but for the
    ends of the grid. Scales are chosen beforehand: those of least squared error of the weights.

    Parameters
    ----------
    damping : float
        Share of the Gram matrix's mean diagonal that is added to its diagonal, for numerical stability.
    search : bool
        Try twelve multiples of each output's scale, take the one of least output error, and fit it to the levels:
        the method `"gptq_search"`.

    """

    damping: float = 0.01
    search: bool = False

    starts_from_nothing = True

    def __post_init__(self) -> None:
        check_number("damping", self.damping, above=0, maximum=1, remedy="GPTQ's usual is 0.01")

    @property
    def name(self) -> str:
        """The word for it."""
        return "gptq_search" if self.search else "gptq"

    def improve(self, problem: LayerProblem, start: Rounding | None, seed: int) -> Rounding:
        """GPTQ's levels, whatever the start."""
        if not self.search or problem.are_scales_fixed:
            return self.round_with(problem, problem.first_scales)
        count, outputs = len(_MULTIPLES), np.arange(problem.n_outputs)
        scales = (_MULTIPLES[:, None, None] * problem.first_scales).reshape(-1, problem.first_scales.shape[1])
        tried = self.round_with(problem, scales)
        errors = problem.take(np.tile(outputs, count)).errors(tried)
        best = errors.reshape(count, -1).argmin(axis=0) * problem.n_outputs + outputs
        return problem.fitted(Rounding(tried.numbers[best], tried.scales[best]))

    def round_with(self, problem: LayerProblem, scales: Array) -> Rounding:
        """All outputs at once, with these scales (P, G), or with several for each, (n·P, G)."""
        powers = problem.metric.diagonal
        order = np.argsort(-powers, kind="stable")
        damped = problem.metric.matrix + self.damping * float(powers.mean()) * np.eye(len(powers))
        factor = self._factor(damped[np.ix_(order, order)])
        targets = np.tile(_targets(problem, order, factor).T, len(scales) // problem.n_outputs)
        spreads = problem.spread(scales)[:, order].T
        numbers = np.empty(targets.shape, dtype=np.int64)
        for first in range(0, len(order), _BLOCK):
            last = min(first + _BLOCK, len(order))
            rest = np.empty((last - first, len(scales)))
            for i in range(first, last):
                numbers[i] = problem.grid.nearest(targets[i], spreads[i])
                rest[i - first] = (targets[i] - spreads[i] * problem.grid.at(numbers[i])) / factor[i, i]
                targets[i + 1 : last] -= factor[i, i + 1 : last, None] * rest[i - first]
            targets[last:] -= factor[first:last, last:].T @ rest
        found = np.empty((len(scales), len(order)), dtype=np.int64)
        found[:, order] = numbers.T
        return Rounding(found, scales)

    def _factor(self, matrix: Array) -> Array:
        """The upper Cholesky factor of the inverse of the damped Gram matrix."""
        with threads_for_large_product(float(len(matrix)) ** 3 / 2):  # of the triangular solve, the larger part
            # H⁻¹ = UᵀU with U upper: from H read backwards, H = LᵀL with L lower, and U = L⁻ᵀ needs no inverse of H.
            try:
                backwards = scipy.linalg.cholesky(matrix[::-1, ::-1], lower=False, check_finite=False)
            except np.linalg.LinAlgError as error:
                raise InvalidInputError(
                    f"the Gram matrix has a negative eigenvalue beyond the damping of {self.damping}; "
                    "check the inputs, or raise the damping"
                ) from error
            lower, identity = np.ascontiguousarray(backwards[::-1, ::-1]), np.eye(len(matrix))
            return scipy.linalg.solve_triangular(lower, identity, lower=True, trans="T", check_finite=False)


def _targets(problem: LayerProblem, order: NDArray[np.intp], factor: Array) -> Array:
    """The weights, in order; where the inputs are not those of the outputs to be reproduced, those that suit them.

    The factor is that of the inverse of the damped Gram matrix, in the same order.
    """
    drift = problem.correlations - problem.weights @ problem.metric.matrix
    if np.abs(drift).max() <= 1e-9 * np.abs(problem.correlations).max():
        return problem.weights[:, order]
    return problem.weights[:, order] + drift[:, order] @ factor.T @ factor


@dataclass(frozen=True)
class Descent:
    """From an answer: single weights to their best level, and scales to their best value, until nothing changes."""

    name = "descent"

    def improve(self, problem: LayerProblem, start: Rounding | None, seed: int) -> Rounding:
        """Never worse than the start; without one, from the nearest levels."""
        return descend_from(problem, start or problem.nearest(problem.first_scales))


def descend_from(
    problem: LayerProblem, start: Rounding, num_threads: int | None = None, rounds: int = _MOST_ROUNDS
) -> Rounding:
    """Levels and scales in turn, until neither can be improved by itself."""
    found, changed = _descended(problem, start, num_threads)
    left = np.arange(problem.n_outputs if changed.any() else 0)  # all may have new scales
    for _ in range(0 if problem.are_scales_fixed else rounds - 1):
        if not len(left):
            break
        part, changed = _descended(problem.take(left), Rounding(found.numbers[left], found.scales[left]), num_threads)
        found.numbers[left], found.scales[left] = part.numbers, part.scales
        left = left[changed]
    return found


def _descended(problem: LayerProblem, start: Rounding, num_threads: int | None) -> tuple[Rounding, NDArray[np.bool_]]:
    """Single weights at their best level, then the scales; and the outputs that have other levels."""
    chains = chains_from(problem, start, num_threads=num_threads)
    chains.polish(with_chains=False)
    return problem.fitted(Rounding(chains.levels, start.scales)), (chains.levels != start.numbers).any(axis=1)


def chains_from(
    problem: LayerProblem,
    start: Rounding,
    seeds: NDArray[np.uint64] | None = None,
    partners: NDArray[np.intp] | None = None,
    num_threads: int | None = None,
) -> LevelChains:
    """A chain for each output, at the start. Outputs whose scale is 0 have but one value, and stay."""
    grid = problem.grid
    return LevelChains(
        problem.metric,
        -problem.correlations,
        grid.step * np.maximum(problem.spread(start.scales), np.finfo(float).tiny ** 0.25),
        grid.origin,
        grid.count - 1,
        start.numbers,
        np.zeros(problem.n_outputs, dtype=np.uint64) if seeds is None else seeds,
        partners,
        num_threads,
    )


@dataclass(frozen=True)
class Annealed:
    """Level moves from the best answer so far, along single weights and along soft pairs of them.

    Three things make it work where single flips from random levels do not. It starts from GPTQ's answer, and warm
    rather than hot: the temperature is in units of that answer's error per weight. Weights of correlated inputs move
    in pairs, one up and one down. And the Gram matrix is damped at first, which smooths what a few calibration inputs
    left rough; the damping falls with the temperature, to 0.

    Parameters
    ----------
    num_sweeps, num_reads : int or None
        None is what suits the size of the layer: 12 sweeps and one read of a large one, up to 400 sweeps and 64
        reads of a small one, but few where there are few weights. The best read of each output counts.
    num_threads : int or None

    """

    num_sweeps: int | None = None
    num_reads: int | None = None
    num_threads: int | None = None

    name = "annealed"

    def __post_init__(self) -> None:
        for name in ("num_sweeps", "num_reads", "num_threads"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), Integral, minimum=1)

    def improve(self, problem: LayerProblem, start: Rounding | None, seed: int) -> Rounding:
        """The best read of each output, polished and its scales fitted; it may be worse than the start."""
        start = start or descend_from(problem, problem.nearest(problem.first_scales), self.num_threads)
        sweeps, reads = self.effort(problem)
        lanes = np.repeat(np.arange(problem.n_outputs), reads)
        many, state = problem.take(lanes), Rounding(start.numbers[lanes], start.scales[lanes])
        if reads > 1 and not problem.are_scales_fixed:  # all reads but the first start with scales of their own
            multiples = np.tile(np.append(1.0, _SPREAD ** np.linspace(-1.0, 1.0, reads - 1)), problem.n_outputs)
            state = state.take(multiples != 1.0, many.nearest(multiples[:, None] * state.scales))
        seeds = child_seeds(seed, np.arange(problem.n_outputs)[:, None], np.arange(reads)).ravel()
        state = self._anneal(many, state, seeds, self.rounds(sweeps, reads))
        best = many.errors(state).reshape(-1, reads).argmin(axis=1) + reads * np.arange(problem.n_outputs)
        return Rounding(state.numbers[best], state.scales[best])

    def effort(self, problem: LayerProblem) -> tuple[int, int]:
        """Sweeps and reads."""
        sweep = problem.n_outputs * float(problem.n_inputs) * (problem.n_inputs + _LOOK)
        size = problem.n_inputs  # a filter of nine weights needs no more than some forty reads of a hundred sweeps
        sweeps = self.num_sweeps or int(np.clip(_WORK / sweep, _LEAST_SWEEPS, min(_MOST_SWEEPS, 20 + 10 * size)))
        return sweeps, self.num_reads or int(
            np.clip(_WORK_OF_READS / (sweep * sweeps), 1, min(_MOST_READS, 8 + 4 * size))
        )

    def rounds(self, sweeps: int, reads: int) -> list[tuple[Array, float]]:
        """Temperatures (sweeps of a round, reads) in units of the start's error per weight, and the round's damping."""
        hot = _HOT * np.geomspace(1.0, _WARMEST, reads)
        parts = np.array_split(np.geomspace(hot, np.full(reads, _COLD), sweeps), min(_ROUNDS, sweeps))
        return list(zip(parts, np.geomspace(*_DAMPINGS, len(parts)), strict=True))

    def _anneal(
        self, problem: LayerProblem, state: Rounding, seeds: NDArray[np.uint64], rounds: list[tuple[Array, float]]
    ) -> Rounding:
        """Anneal all chains in rounds."""
        units = temperature_units(problem.damped(rounds[0][1]), state)
        partners = anneal_partners(problem)
        for turn, (part, share) in enumerate(rounds):
            damped = problem.damped(share)
            chains = chains_from(damped, state, descend(seeds, [turn]), partners, self.num_threads)
            chains.anneal(1 / (np.tile(part, len(units) // part.shape[1]) * units))
            state = damped.fitted(Rounding(chains.levels, state.scales))
        for _ in range(3):  # scales and levels, to the nearest minimum
            chains = chains_from(problem, state, None, partners, self.num_threads)
            chains.polish()
            state = problem.fitted(Rounding(chains.levels, state.scales))
        return descend_from(problem, state, self.num_threads)


def temperature_units(problem: LayerProblem, start: Rounding) -> Array:
    """The start's error per weight of each output, above 0."""
    units = np.maximum(problem.errors(start) / problem.n_inputs, 1e-12 * problem.powers)  # no error: no temperature
    return np.where(units > 0, units, 1.0)  # nor has an output that is always 0, at which nothing changes


def anneal_partners(problem: LayerProblem) -> NDArray[np.intp]:
    """The inputs that each weight's input is paired with."""
    return soft_partners(problem.damped(_DAMPINGS[1]).metric, _PARTNERS)


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
        start = start or descend_from(problem, problem.nearest(problem.first_scales))
        self.sampler.prepare()  # so that no time limit is spent on compiling
        numbers, scales, bounds = start.numbers.copy(), start.scales.copy(), np.full(problem.n_outputs, -np.inf)
        left = np.flatnonzero((scales > 0).all(axis=1))  # a scale of 0 leaves nothing to choose
        for turn in range(self.rounds):
            if not len(left):
                break
            part, own = problem.take(left), Rounding(numbers[left], scales[left])
            solved, bounds[left] = self._solve(part, own, child_seeds(seed, turn, left).tolist())
            fitted = descend_from(part, solved) if self.settle else part.fitted(solved)
            numbers[left], scales[left] = fitted.numbers, fitted.scales
            left = left[~np.isclose(fitted.scales, own.scales, rtol=1e-9, atol=0.0).all(axis=1)]
        bounds[left] = -np.inf  # their scales are not those that the bounds are of
        return Rounding(numbers, scales, bounds if np.isfinite(bounds).any() else None)

    def _solve(self, problem: LayerProblem, start: Rounding, seeds: list[int]) -> tuple[Rounding, Array]:
        """The sampler's levels with the start's scales, and what it knows that none can get below, (P,)."""
        problems, offsets = to_problems(problem, start.scales)
        answers = solve_checked(self.sampler, problems, seeds)
        failures = [answer.failure for answer in answers if answer.failure is not None]
        if len(failures) == len(answers):
            raise SamplerError(f"{self.name} solved none of {len(answers)} outputs: {failures[0]}")
        numbers, bounds = start.numbers.copy(), np.full(len(answers), -np.inf)
        for output, answer in enumerate(answers):
            if answer.failure is None:
                numbers[output] = levels_of_bits(problem.grid, answer.best_bits)
                bounds[output] = answer.info.get("lower_bound", -np.inf) + offsets[output]
        largest = problem.spread(start.scales) * max(abs(problem.grid.lowest), abs(problem.grid.highest))
        bounds -= _BOUND_ROUNDING * problem.rounding_errors(largest)
        return Rounding(numbers, start.scales), bounds


QUICK: tuple[Method, ...] = (GPTQ(), Descent())  # to measure a layer by
# The methods whose best answer, output by output, the others start from.
CLASSICAL: tuple[Method, ...] = (Nearest(), GPTQ(), GPTQ(search=True), Descent())

ROUNDING_METHODS: Mapping[str, Sequence[Method]] = {
    "nearest": (Nearest(),),
    "gptq": (GPTQ(),),
    "gptq_search": (GPTQ(search=True),),
    "descent": CLASSICAL,
    "annealed": (*CLASSICAL, Annealed()),
    "lattice": (*CLASSICAL, Sampled(LatticeSolver(), rounds=8)),
}


def methods_of(method: Any) -> Sequence[Method]:
    """The methods to run for a word, a sampler, a method of one's own or a tuple: the last is the one asked for.

    >>> [one.name for one in methods_of("annealed")]
    ['nearest', 'gptq', 'gptq_search', 'descent', 'annealed']
    """
    if isinstance(method, str):
        return choose_or_own("method", method, ROUNDING_METHODS)
    if isinstance(method, tuple):
        return method
    if isinstance(method, Sampler) or callable(getattr(method, "sample", None)):
        own: Method = Sampled(method)  # refuses dimod's samplers
    else:
        words = {word: chain[-1] for word, chain in ROUNDING_METHODS.items()}
        own = choose_or_own("method", method, words, ("improve",))
    return (own,) if getattr(own, "starts_from_nothing", False) else (*CLASSICAL, own)
