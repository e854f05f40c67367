"""Acceptance rules: which of the proposed updates are applied, and by how much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError
from annealfit.training.objectives import Point
from annealfit.training.objectives.base import Span, group_starts

Multiple = float | Array  # one for all blocks, or one for each (blocks,)


@dataclass(frozen=True, eq=False)
class Proposal:
    """The sampler's answers of one iteration, not yet applied. A rule may look at where they lead."""

    point: Point  # before the update
    updates: Array  # of every problem's parameters, (P, D)
    energies: Array  # twice the surrogate's value of every problem's update, (P,)
    step: float = 1.0  # α: every multiple is multiplied by it
    previous: Point | None = None  # from which the last step that was applied led to the point
    solved: NDArray[np.bool_] | None = None  # the others' blocks stay where they are; None is all, (P,)
    _spans: dict[bytes, Span] = field(default_factory=dict, init=False, repr=False)
    _tried: dict[tuple[bytes, ...], Point] = field(default_factory=dict, init=False, repr=False)

    @property
    def loss(self) -> float:
        """The loss before the update."""
        return self.point.loss

    def after(
        self,
        accepted: NDArray[np.bool_],
        multiple: Multiple = 1.0,
        previous: Multiple = 0.0,
        *,
        balanced: bool = False,
    ) -> Point:
        """The point that a multiple of the accepted problems' updates (P,), and of the previous step, leads to.

        Before the second step there is no previous one, and its multiple means nothing. A balanced one is as in
        `Decision`.
        """
        if not accepted.any():
            return self.point
        key = (
            accepted.tobytes(),
            np.asarray(multiple).tobytes(),
            np.asarray(previous).tobytes(),
            bytes([bool(balanced)]),
        )
        if key not in self._tried:
            self._tried[key] = self._moved(accepted, multiple, previous, balanced)
        return self._tried[key]

    def newton_multiple(self, accepted: NDArray[np.bool_]) -> float:
        """The multiple that minimises the loss to second order along the accepted updates.

        0 where the loss does not fall; 1, the surrogate's own step, where it bends down and has no least.
        """
        span = self._span(accepted)
        bends, count = span.curvature_along(), len(span.directions)
        slope = float((self.point.gradients * span.directions[0]).sum())
        bend = float(bends[: len(bends) // count, : len(bends) // count].sum())
        if slope >= 0:
            return 0.0
        return -slope / bend if bend > 0 else 1.0

    def newton_multiples(self, accepted: NDArray[np.bool_]) -> tuple[Array, Array]:
        """The same with a multiple for each block (blocks,), of its update and of its previous step."""
        span = self._span(accepted)
        slopes = (self.point.gradients * span.directions).sum(axis=2)
        bends, (count, blocks) = span.curvature_along(), slopes.shape
        if len(bends) == slopes.size:
            found = _least(bends, slopes.ravel()).reshape(slopes.shape)
        else:
            starts = group_starts(blocks, len(bends) // count)
            by_group = _least(bends, np.add.reduceat(slopes, starts, axis=1).ravel()).reshape(count, -1)
            found = np.repeat(by_group, np.diff(np.append(starts, blocks)), axis=1)
        return found[0], found[1] if count > 1 else np.zeros(blocks)

    def _moved(self, accepted: NDArray[np.bool_], multiple: Multiple, previous: Multiple, balanced: bool) -> Point:
        is_plain = np.ndim(multiple) == 0 and not np.any(previous) and not balanced
        if is_plain and accepted.tobytes() not in self._spans:  # nobody searched: no need to know the directions
            return self.point.moved((multiple * self.step) * self._direction(accepted))
        span = self._span(accepted)
        multiples = np.zeros(span.directions.shape[:2])
        for row, given in zip(multiples, (multiple, previous), strict=False):
            row[:] = self.step * np.asarray(given)
        if self.solved is not None and len(self.solved) == len(multiples.T):
            multiples[:, ~self.solved] = 0.0
        return getattr(span, "at_without_class_mean", span.at)(multiples) if balanced else span.at(multiples)

    def _span(self, accepted: NDArray[np.bool_]) -> Span:
        key = accepted.tobytes()
        if key not in self._spans:
            updates = self._direction(accepted).reshape(self.point.gradients.shape)
            self._spans[key] = self.point.span(updates, self.previous)
        return self._spans[key]

    def _direction(self, accepted: NDArray[np.bool_]) -> Array:
        return self.updates * accepted[:, None]


def _least(bends: Array, slopes: Array) -> Array:
    """Where `sᵀm + ½mᵀBm` is least; along directions in which it hardly bends, or twice the same, nothing.

    Where it bends down there is no least; there the step is that of the same bend upward.
    """
    if not np.isfinite(bends).all():
        raise InvalidInputError(
            "the curvature along a step overflowed: features, weights or steps are too large; "
            "standardise the features, or start anew where these weights came from a file"
        )
    from annealfit.problems import _kernels  # numba takes a moment to import: only when it is needed

    found, is_firm = _kernels.least(bends, slopes, _FIRM)
    if is_firm:  # as mostly: a tenth of an eigenproblem's work
        return found
    scales = np.sqrt(np.abs(bends.diagonal()))
    scales = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > 0)
    scaled = bends * scales[:, None] * scales
    values, vectors = np.linalg.eigh(scaled)
    sizes = np.abs(values)
    inverse = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > _FLAT * sizes.max(initial=0.0))
    return -scales * (vectors @ (inverse * (vectors.T @ (scales * slopes))))


_FLAT = 1e-9  # of the largest bend, after each direction is given length 1 in it
_FIRM = 1e-5  # squared pivots of a matrix whose diagonal is 1: where none is smaller, hardly a direction is flat


@dataclass(frozen=True, eq=False)
class Decision:
    """Which problems' updates to apply (P,), the multiple of them, and that of the step before.

    A balanced step ends without what all blocks share, where the objective knows that it is nothing but a penalty.
    """

    accepted: NDArray[np.bool_]
    multiple: Multiple = 1.0
    previous: Multiple = 0.0
    balanced: bool = False


Acceptance = Callable[[Proposal], Decision]

# A longer step than this comes of a direction in which the loss hardly bends; the next iteration can go on.
LARGEST_MULTIPLE = 16.0
HALVINGS = 4


def always(proposal: Proposal) -> Decision:
    """Apply everything, as the paper does."""
    return Decision(np.ones(len(proposal.energies), dtype=bool))


def descent(proposal: Proposal) -> Decision:
    """Apply the updates whose surrogate is negative.

    Where the curvature bounds the loss's, `f(W + U) ≤ f(W) + Σ_c s_c(u_c)`: the loss falls, by theorem, without
    a search. The theorem is about real numbers: where rounding hides the sign of a surrogate, with features of 10⁷ and
    more, or where the curvature is no bound, the loss may rise, and then nothing is applied.
    """
    chosen = proposal.energies < 0
    if chosen.any() and not proposal.after(chosen).loss <= proposal.loss:  # of the point that is looked at next anyway
        chosen = np.zeros_like(chosen)
    return Decision(chosen)


def line_search(proposal: Proposal) -> Decision:
    """Apply the updates that promise descent, by the multiple that minimises the true loss to second order.

    The surrogate is steeper than the loss, so this is usually a longer step. It is taken only if the loss falls;
    else the step is halved a few times, and in the end nothing is applied.
    """
    chosen = proposal.energies < 0
    if chosen.any():
        multiple = min(proposal.newton_multiple(chosen), LARGEST_MULTIPLE)
        for _ in range(HALVINGS):
            if proposal.after(chosen, multiple).loss < proposal.loss:
                return Decision(chosen, multiple)
            multiple /= 2
    return Decision(np.zeros_like(chosen))


def subspace(proposal: Proposal) -> Decision:
    """Like `line_search`, with a multiple for each block, and in a second direction too: the step before.

    The loss is minimised to second order over the span of all blocks' updates and all blocks' previous steps. What
    it needs beyond the line search are sums over rows of products that are at hand. The step is balanced.

    Far from a parabola even an eighth of that step may be too long; and as it is made of multiples, narrower ranges
    would not shorten it. Then it is the line search's turn, whose multiple is limited.
    """
    chosen = proposal.energies < 0
    if chosen.any():
        multiple, previous = proposal.newton_multiples(chosen)
        for _ in range(HALVINGS):
            if proposal.after(chosen, multiple, previous, balanced=True).loss < proposal.loss:
                return Decision(chosen, multiple, previous, balanced=True)
            multiple, previous = multiple / 2, previous / 2
    return line_search(proposal)


ACCEPTANCES: dict[str, Acceptance] = {
    "always": always,
    "descent": descent,
    "line_search": line_search,
    "second_direction": subspace,
}

# Rules that apply an update without a look at the loss: they rest on a curvature that bounds it.
RESTING_ON_A_BOUND = frozenset({descent})
