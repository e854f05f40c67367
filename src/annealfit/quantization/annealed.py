"""Annealed levels: a walk from the best answer known, which cools together with the problem's damping."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, check_number
from annealfit._support.randomness import child_seeds, descend
from annealfit.quantization.classical import Nearest, descend_from, settle, walk_from
from annealfit.quantization.layer_problem import LayerProblem, Rounding
from annealfit.samplers.native.level_walk import soft_partners

# What a layer is given if it is not said how many sweeps and reads: a sweep of one weight looks at its lines, which
# costs as much as some two hundred multiplications, and moves along some, which costs as many as there are inputs.
# More reads are for layers that are small, where a single walk may miss what is best.
_WORK, _WORK_OF_READS, _LOOK = 1e10, 2e9, 200
_LEAST_SWEEPS, _MOST_SWEEPS, _MOST_READS = 100, 400, 64
_ROUNDS = 10  # between which scales are fitted, and the damping falls
# Reads differ in where they start: with scales up to so many times larger or smaller, and up to so many times as
# warm, which is enough to forget the start. The first read does neither.
_SPREAD, _WARMEST = 2.0, 30.0


@dataclass(frozen=True)
class Annealed:
    """Level moves from the best answer so far, along single weights and along soft pairs of them.

    Three things make it work where single flips from anywhere do not. It starts from GPTQ's answer, and warm rather
    than hot: the temperature is in units of that answer's error per weight. Weights of correlated inputs move in
    pairs, one up and one down. And the Gram matrix is damped at first, which smooths what a few calibration inputs
    left rough; the damping falls with the temperature, to 0.

    Parameters
    ----------
    num_sweeps, num_reads : int or None
        None is what suits the size of the layer: 100 sweeps and one read of a large one, up to 400 sweeps and 64
        reads of a small one. The best read of each output counts.
    temperatures : (hot, cold)
        Of the first and the last sweep, in units of the start's error per weight. Further reads start warmer.
    damping : (first, last)
        Added to the Gram matrix's diagonal, in units of its mean, during the anneal; (0, 0) for none.
    partners : int
        How many pairs each weight is moved in, with those whose inputs are most correlated with its own; 0 for none.
    num_threads : int or None

    """

    num_sweeps: int | None = None
    num_reads: int | None = None
    temperatures: tuple[float, float] = (2.0, 0.2)
    damping: tuple[float, float] = (0.2, 0.02)
    partners: int = 8
    num_threads: int | None = None

    name = "annealed"

    def __post_init__(self) -> None:
        for name in ("num_sweeps", "num_reads", "num_threads"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), Integral, minimum=1)
        check_number("partners", self.partners, Integral, minimum=0)
        for name, least in (("temperatures", np.finfo(float).tiny), ("damping", 0.0)):
            pair = getattr(self, name)
            if np.shape(pair) != (2,):
                raise InvalidInputError(f"{name} is {pair!r}; it must be a pair of numbers, first and last")
            for value in pair:
                check_number(name, value, minimum=least)

    def improve(self, problem: LayerProblem, start: Rounding | None, seed: int) -> Rounding:
        """The best read of each output, settled and its scales fitted; it may be worse than the start."""
        start = start or descend_from(problem, Nearest().improve(problem, None, seed), self.num_threads)
        sweeps, reads = self._effort(problem)
        lanes = np.repeat(np.arange(problem.n_outputs), reads)
        many, state = problem.take(lanes), Rounding(start.numbers[lanes], start.scales[lanes])
        if reads > 1 and not problem.are_scales_fixed:
            state = _with_spread_scales(many, state, reads)
        seeds = child_seeds(seed, np.arange(problem.n_outputs)[:, None], np.arange(reads)).ravel()
        warmth = np.tile(np.geomspace(1.0, _WARMEST, reads), problem.n_outputs)
        state = self._anneal(many, state, seeds, self._temperatures(sweeps, warmth))
        if reads == 1:
            return state
        best = many.errors(state).reshape(-1, reads).argmin(axis=1) + reads * np.arange(problem.n_outputs)
        return Rounding(state.numbers[best], state.scales[best])

    def _effort(self, problem: LayerProblem) -> tuple[int, int]:
        """Sweeps and reads."""
        sweep = problem.n_outputs * float(problem.n_inputs) * (problem.n_inputs + _LOOK)
        sweeps = self.num_sweeps or int(np.clip(_WORK / sweep, _LEAST_SWEEPS, _MOST_SWEEPS))
        return sweeps, self.num_reads or int(np.clip(_WORK_OF_READS / (sweep * sweeps), 1, _MOST_READS))

    def _temperatures(self, sweeps: int, warmth: Array) -> Array:
        """Of every sweep and lane (S, L), in units of the start's error per weight."""
        hot, cold = self.temperatures
        return np.geomspace(hot * warmth, np.full(len(warmth), cold), sweeps)

    def _anneal(
        self, problem: LayerProblem, state: Rounding, seeds: NDArray[np.uint64], temperatures: Array
    ) -> Rounding:
        rounds = np.array_split(temperatures, min(_ROUNDS, len(temperatures)))
        units = problem.damped(self.damping[0]).errors(state) / problem.n_inputs
        units = np.maximum(units, 1e-12 * problem.powers)  # an error of 0 has no temperature
        units = np.where(units > 0, units, 1.0)  # nor has an output that is always 0, at which nothing changes
        partners = soft_partners(problem.damped(self.damping[1]).metric, self.partners)
        for turn, (part, share) in enumerate(zip(rounds, self._shares(len(rounds)), strict=True)):
            damped = problem.damped(share)
            walk = walk_from(damped, state, descend(seeds, [turn]), partners, self.num_threads)
            walk.anneal(1 / (part * units))
            state = damped.fitted(Rounding(walk.levels, state.scales))
        for _ in range(3):  # scales and levels, to the nearest minimum
            state = problem.fitted(settle(problem, state, partners, self.num_threads))
        return descend_from(problem, state, self.num_threads)

    def _shares(self, rounds: int) -> Array:
        first, last = self.damping
        return np.geomspace(first, last, rounds) if min(first, last) > 0 else np.linspace(first, last, rounds)


def _with_spread_scales(problem: LayerProblem, state: Rounding, reads: int) -> Rounding:
    """The first read as it is; the others, to start elsewhere, with other scales and the levels nearest then."""
    multiples = np.tile(np.append(1.0, _SPREAD ** np.linspace(-1.0, 1.0, reads - 1)), problem.n_outputs // reads)
    others = problem.nearest(multiples[:, None] * state.scales)
    return state.take(multiples != 1.0, others)
