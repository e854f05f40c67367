"""Policies: initial weights, ranges, bits and damping of the updates. A policy decides, the trainer acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array, rounded
from annealfit._support.randomness import child_seed
from annealfit.problems.problem import Problems

# Paths below the seed of a training (`annealfit._support.randomness`): initial weights, anneals.
INITIAL_WEIGHTS, ANNEALS = 0, 1

Initialization = Callable[[Any, int], Array]  # of a LinearHead and a seed


def uniform(head: Any, seed: int) -> Array:
    """Return weights and biases uniform in ±1/√d, as PyTorch initialises a linear layer."""
    limit = 1 / np.sqrt(max(head.n_parameters - 1, 1))
    generator = np.random.default_rng(child_seed(seed, INITIAL_WEIGHTS))
    return generator.uniform(-limit, limit, size=(head.n_parameters, head.n_outputs))


def zeros(head: Any, seed: int) -> Array:
    """Return zeros: every class equally likely."""
    return np.zeros((head.n_parameters, head.n_outputs))


INITIALIZATIONS: dict[str, Initialization] = {"uniform": uniform, "zeros": zeros}


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of an iteration, as policies see it; arrays have an entry per problem (P,)."""

    energies: Array  # of the sampler's answers; 0 without an answer
    accepted: NDArray[np.bool_]  # whether the update was applied
    solved: NDArray[np.bool_]  # whether the sampler answered
    loss_change: float = 0.0
    rating: float = 0.0  # `RangePolicy.rate` of this iteration
    last_rating: float | None = None  # and of the one before
    last_ranges: Array | None = None  # kept at the iteration before


# Chosen by measurement: docs/defaults.md.
GROWTH, SHRINKAGE = 1.3, 0.5
FIRST_RANGE = 0.1
FIRST_MULTIPLES = {1: 0.3, 2: 1.2, 3: 2.05, 4: 2.5, 5: 2.9}  # by bits; from 3 on those of a uniform quantiser
CLIMB, MULTIPLES = 1.1, (0.02, 4.0)
SMALLEST, LARGEST = 1e-100, 1e100  # keep arithmetic finite; training does not reach them


class RangePolicy:
    """A fixed range δ, as in the paper. Other policies override one method or more."""

    def first(self, problems: Problems, update_range: float | None) -> Array:
        """Return what is kept for the first problems (P,), from the user's `update_range` if there is one."""
        return np.full(len(problems), FIRST_RANGE if update_range is None else update_range)

    def choose(self, problems: Problems) -> Array:
        """Return the ranges (P,) of problems that are about to be solved; they come with those kept so far."""
        return problems.ranges

    def revise(self, ranges: Array, outcome: Outcome) -> Array:
        """Return the ranges (P,) to keep for the next iteration."""
        return ranges

    def rate(self, problems: Problems, loss_change: float) -> float:
        """Rate an iteration; `revise` gets this rating and the one before."""
        return 0.0


class AdaptiveRange(RangePolicy):
    """A trust region per problem: wider after an update that was applied, else narrower.

    Halving δ is worth a bit of resolution and costs no variable. A failed solve leaves the range as it is.
    """

    def revise(self, ranges: Array, outcome: Outcome) -> Array:
        """Grow or shrink each range."""
        gained = outcome.accepted & (outcome.energies < 0)
        factors = np.where(gained, GROWTH, np.where(outcome.solved, SHRINKAGE, 1.0))
        return np.clip(ranges * factors, SMALLEST, LARGEST)


class RelaxationRange(RangePolicy):
    """A multiple of the size of the continuous minimum `−G⁻¹g` of each problem; the multiple is searched for.

    Small multiples give short updates at the ends of the range, which the acceptance rule stretches; large ones resolve
    the minimum of a surrogate that may be far from the loss. Which is better depends on the data, so the multiple
    climbs: it moves on in the direction in which the loss fell faster, relative to what the surrogate promises. The
    multiple of a problem whose update was refused shrinks.
    """

    def first(self, problems: Problems, update_range: float | None) -> Array:
        """Return the first multiples; with `update_range`, those that give the first ranges this value."""
        if update_range is None:
            return np.full(len(problems), FIRST_MULTIPLES.get(problems.bits, FIRST_MULTIPLES[5]))
        return update_range / _sizes(problems)

    def choose(self, problems: Problems) -> Array:
        """Turn the multiples that are kept into ranges."""
        return np.minimum(np.maximum(problems.ranges * _sizes(problems), SMALLEST), LARGEST)

    def revise(self, ranges: Array, outcome: Outcome) -> Array:
        """Move all multiples up or down together; those of refused updates shrink."""
        gained, refused = outcome.accepted, outcome.solved & ~outcome.accepted
        if not outcome.solved.any():
            return ranges
        upward = True
        if outcome.last_rating is not None and outcome.last_ranges is not None:
            rose = bool(ranges[gained].sum() >= outcome.last_ranges[gained].sum())
            upward = rose == (outcome.rating >= outcome.last_rating)
        climbed = np.minimum(np.maximum(ranges * (CLIMB if upward else 1 / CLIMB), MULTIPLES[0]), MULTIPLES[1])
        shrunk = np.maximum(ranges * SHRINKAGE, SMALLEST)
        return np.where(gained, climbed, np.where(refused, shrunk, ranges))

    def rate(self, problems: Problems, loss_change: float) -> float:
        """Return the decrease of the loss, relative to that of the surrogate without box and levels."""
        promised = -0.5 * float((problems.gradients * problems.newton_steps).sum())
        return -loss_change / promised if promised > 0 else 0.0


def _sizes(problems: Problems) -> Array:
    """Return the root mean squares (P,) of the continuous minima, to 16 bits (see `rounded`); never 0."""
    steps = problems.newton_steps
    return np.maximum(rounded(np.sqrt(np.vecdot(steps, steps) / steps.shape[1])), SMALLEST)


RANGE_POLICIES: dict[str, RangePolicy] = {
    "fixed": RangePolicy(),
    "adaptive": AdaptiveRange(),
    "relaxation": RelaxationRange(),
}


class PrecisionPolicy:
    """A fixed number of bits, as in the paper. Other policies override one method or both."""

    def first(self, most: int) -> int:
        """Return the bits of the first iteration, at most `most`."""
        return most

    def following(self, bits: int, most: int, outcome: Outcome) -> int:
        """Return the bits of the next iteration."""
        return bits


class AdaptivePrecision(PrecisionPolicy):
    """The paper's outlook: one bit first, one more whenever fewer than half of the solves have a negative energy."""

    def first(self, most: int) -> int:
        """Return 1."""
        return 1

    def following(self, bits: int, most: int, outcome: Outcome) -> int:
        """Add a bit when stuck."""
        stuck = 2 * int((outcome.energies < 0).sum()) < int(outcome.solved.sum())
        return min(bits + 1, most) if stuck else bits


PRECISION_POLICIES: dict[str, PrecisionPolicy] = {"fixed": PrecisionPolicy(), "adaptive": AdaptivePrecision()}


# Chosen by measurement: docs/convolution.md.
FIRST_DAMPING, RELIEF, CAUTION = 0.1, 0.8, 4.0
LEAST_DAMPING, MOST_DAMPING = 1e-3, 1e3


class DampingPolicy:
    """No damping. Other policies override both methods.

    Damping is added to the diagonal of a curvature, in units of the mean of the diagonal.
    """

    def first(self) -> float | None:
        """Return the damping of the first step; None records nothing."""
        return None

    def revise(self, damping: float | None, outcome: Outcome) -> float | None:
        """Return the damping of the next step."""
        return damping


class FixedDamping(DampingPolicy):
    """A fixed damping."""

    def __init__(self, damping: float) -> None:
        self.damping = damping

    def first(self) -> float:
        """Return the damping."""
        return self.damping


class LevenbergMarquardt(DampingPolicy):
    """Less damping after a step that was applied, much more after one that was refused.

    A Gauss-Newton curvature ignores that ReLUs and pooling switch. Damping keeps problems convex where it is singular,
    and updates short where it is wrong.
    """

    def first(self) -> float:
        """Return a tenth of the mean curvature."""
        return FIRST_DAMPING

    def revise(self, damping: float | None, outcome: Outcome) -> float | None:
        """Decrease or increase the damping; a step without answers changes nothing."""
        if damping is None or not outcome.solved.any():
            return damping
        return min(max(damping * (RELIEF if outcome.accepted.any() else CAUTION), LEAST_DAMPING), MOST_DAMPING)


DAMPINGS: dict[str, DampingPolicy] = {"adaptive": LevenbergMarquardt(), "none": DampingPolicy()}
