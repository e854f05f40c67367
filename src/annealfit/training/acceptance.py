"""Acceptance rules: which of the proposed updates are applied, and how far the step goes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array, rounded
from annealfit._support.errors import InvalidInputError
from annealfit.training.objectives import Point
from annealfit.training.objectives.linear_head import group_starts

Multiple = float | Array  # one for all blocks, or one per block (B,)

LARGEST_MULTIPLE = 16.0  # a longer step comes from a direction with almost no curvature; the next iteration can go on
HALVINGS = 4
# Eigenvalues below this share of the largest, in units in which each direction has curvature 1, are dropped.
_FLAT = 1e-9
_INVISIBLE = 2.0**-50  # of the loss: a smaller decrease is lost to rounding
_FIRM = 1e-5  # squared pivots of a unit-diagonal matrix: where none is smaller, no direction is nearly flat


@dataclass(frozen=True, eq=False)
class Decision:
    """The updates to apply (P,), their multiple, and the multiple of the previous step.

    `remove_class_mean` subtracts the mean over the classes from the new weights (see `Point.moved`).
    """

    accepted: NDArray[np.bool_]
    multiple: Multiple = 1.0
    previous: Multiple = 0.0
    remove_class_mean: bool = False
    balanced: InitVar[bool | None] = None  # the name of remove_class_mean in 0.2.0

    def __post_init__(self, balanced: bool | None) -> None:
        if balanced is not None:
            warnings.warn("Decision(balanced=…) is now Decision(remove_class_mean=…)", FutureWarning, stacklevel=3)
            object.__setattr__(self, "remove_class_mean", bool(balanced))


@dataclass(frozen=True, eq=False)
class Proposal:
    """The sampler's answers of one iteration, not yet applied. A rule may evaluate the points they lead to."""

    point: Point  # before the update
    updates: Array  # of every problem's parameters (P, D)
    energies: Array  # of every problem's update: twice the surrogate's value (P,)
    step: float = 1.0  # α: multiplies every multiple
    previous: Array | None = None  # weights before the last step that was applied
    solved: NDArray[np.bool_] | None = None  # problems with an answer (P,); the blocks of others stay
    _points: dict[tuple[bytes, ...], Point] = field(default_factory=dict, init=False, repr=False)

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
        remove_class_mean: bool = False,
    ) -> Point:
        """Return the point after a multiple of the accepted updates (P,) and a multiple of the previous step.

        A point that was evaluated before is not evaluated again.
        """
        if not accepted.any():
            return self.point
        key = tuple(np.asarray(value).tobytes() for value in (accepted, multiple, previous, remove_class_mean))
        if key not in self._points:
            self._points[key] = self.point.moved(
                self._step(accepted, multiple, previous), remove_class_mean=remove_class_mean
            )
        return self._points[key]

    def _step(self, accepted: NDArray[np.bool_], multiple: Multiple, previous: Multiple) -> Array:
        step: Array = np.reshape(self.step * multiple, (-1, 1)) * self._accepted(accepted)
        if self.previous is not None and np.any(previous):
            step += np.reshape(self.step * previous, (-1, 1)) * self.point.step_from(self.previous)
        if self.solved is not None and len(self.solved) == len(step):
            step[~self.solved] = 0.0
        return step

    def newton_multiple(self, accepted: NDArray[np.bool_]) -> float:
        """Return the multiple of the accepted updates that minimises the loss to second order, to 16 bits.

        0 where the loss does not decrease; 1, the surrogate's own step, where its curvature is not positive.
        """
        direction = self._accepted(accepted)
        slope = float((self.point.gradients * direction).sum())
        if slope >= 0:
            return 0.0
        curvature = float(self.point.curvature_along(direction[None]).sum())
        return float(rounded(-slope / curvature)) if curvature > 0 else 1.0

    def newton_multiples(self, accepted: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Return the multiples of updates and previous step that minimise the loss to second order, to 16 bits.

        There is one per block; all are 0 where the decrease would be lost to the rounding of the loss. The rounding of
        multiples changes the decrease by 1e-10 of it, and makes the step independent of the order in which rows are
        summed (see `rounded`).
        """
        directions = self._accepted(accepted)[None]
        if self.previous is not None:
            directions = np.array([directions[0], self.point.step_from(self.previous)])
        slopes: Array = np.vecdot(directions, self.point.gradients)
        curvature = self.point.curvature_along(directions, self.previous)
        count, blocks = slopes.shape
        starts = None
        if len(curvature) < slopes.size:
            starts = group_starts(blocks, len(curvature) // count)
            slopes = np.add.reduceat(slopes, starts, axis=1)
        found = _minimiser(curvature, slopes.ravel()).reshape(count, -1)
        if -0.5 * np.vdot(found, slopes) < _INVISIBLE * abs(self.loss):
            return np.zeros(blocks), np.zeros(blocks)
        found = rounded(found)
        if starts is not None:
            found = np.repeat(found, np.diff(np.append(starts, blocks)), axis=1)
        return found[0], found[1] if count > 1 else np.zeros(blocks)

    def _accepted(self, accepted: NDArray[np.bool_]) -> Array:
        """Return the accepted updates as blocks (B, S), with zeros in place of the others."""
        return (self.updates * accepted[:, None]).reshape(self.point.gradients.shape)


def _minimiser(curvature: Array, slopes: Array) -> Array:
    """Return the minimiser of `sᵀm + ½mᵀBm`; nearly flat and repeated directions get 0.

    Where B is not positive the step is that of the same curvature with a positive sign.
    """
    from scipy.linalg.lapack import dposv  # LAPACK itself: NumPy's checks take longer than a small solve

    if not np.isfinite(curvature).all():
        raise InvalidInputError(
            "the curvature along a step overflowed: features, weights or steps are too large; "
            "standardise the features, or start anew where these weights came from a file"
        )
    roots = np.sqrt(np.abs(curvature.diagonal()))
    scales = 1.0 / np.where(roots > 0, roots, np.inf)
    scaled = curvature * scales[:, None] * scales
    factor, solution, failed = dposv(scaled, scales * slopes)
    if not failed and factor.diagonal().min() ** 2 >= _FIRM:  # the usual case, cheaper than eigenvalues
        return -scales * np.asarray(solution)
    values, vectors = np.linalg.eigh(scaled)
    sizes = np.abs(values)
    inverse = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > _FLAT * sizes.max(initial=0.0))
    return -scales * (vectors @ (inverse * (vectors.T @ (scales * slopes))))


Acceptance = Callable[[Proposal], Decision]


def always(proposal: Proposal) -> Decision:
    """Apply every update, as the paper does."""
    return Decision(np.ones(len(proposal.energies), dtype=bool))


def descent(proposal: Proposal) -> Decision:
    """Apply the updates whose surrogate is negative.

    Where the curvature is an upper bound, `f(W + U) ≤ f(W) + Σ_c s_c(u_c)`: the loss decreases without a search. Where
    rounding hides the sign of a surrogate (features of 10⁷ and more), or the curvature is no bound, the loss may
    increase; then nothing is applied.
    """
    chosen = proposal.energies < 0
    if chosen.any() and not proposal.after(chosen).loss <= proposal.loss:
        chosen = np.zeros_like(chosen)
    return Decision(chosen)


def line_search(proposal: Proposal) -> Decision:
    """Apply the updates with a negative surrogate, times the multiple that minimises the true loss to second order.

    The step is taken only if the loss decreases; else it is halved a few times, and then nothing is applied.
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
    """Minimise the true loss to second order over multiples of all updates and all previous steps (momentum).

    Every block has its own two multiples, and the class mean is removed. If even an eighth of that step does not
    decrease the loss, `line_search` decides, whose multiple is limited. Nothing is applied where the decrease would be
    lost to rounding.
    """
    chosen = proposal.energies < 0
    if chosen.any():
        multiple, previous = proposal.newton_multiples(chosen)
        if not (multiple.any() or previous.any()):
            return Decision(np.zeros_like(chosen))
        for _ in range(HALVINGS):
            if proposal.after(chosen, multiple, previous, remove_class_mean=True).loss < proposal.loss:
                return Decision(chosen, multiple, previous, remove_class_mean=True)
            multiple, previous = multiple / 2, previous / 2
    return line_search(proposal)


ACCEPTANCES: dict[str, Acceptance] = {
    "always": always,
    "descent": descent,
    "line_search": line_search,
    "subspace": subspace,
    "second_direction": subspace,  # its name in 0.2.0
}
