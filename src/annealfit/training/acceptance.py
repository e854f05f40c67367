"""Acceptance rules: which of the proposed updates are applied, and by how much."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from annealfit.objectives import Point
from annealfit.objectives.base import newton_multiple


@dataclass(frozen=True, eq=False)
class Proposal:
    """The sampler's answers of one iteration, not yet applied. A rule may look at where they lead."""

    point: Point  # before the update
    updates: NDArray[np.float64]  # of every problem's parameters, (P, D)
    energies: NDArray[np.float64]  # twice the surrogate's value of every problem's update, (P,)
    step: float = 1.0  # α: every multiple is multiplied by it
    _tried: dict[tuple[bytes, float], Point] = field(default_factory=dict, init=False, repr=False)

    @property
    def loss(self) -> float:
        """The loss before the update."""
        return self.point.loss

    def after(self, accepted: NDArray[np.bool_], multiple: float) -> Point:
        """The point that a multiple of the accepted problems' updates (P,) leads to."""
        key = accepted.tobytes(), multiple
        if key not in self._tried:
            self._tried[key] = self.point.moved((multiple * self.step) * self._direction(accepted))
        return self._tried[key]

    def newton_multiple(self, accepted: NDArray[np.bool_]) -> float:
        """The multiple that minimises the loss to second order along the accepted updates.

        0 where the loss does not fall; 1, the surrogate's own step, where it bends down and has no least.
        """
        found = newton_multiple(self.point, self._direction(accepted).reshape(self.point.gradients.shape))
        return found if math.isfinite(found) else 1.0

    def _direction(self, accepted: NDArray[np.bool_]) -> NDArray[np.float64]:
        return self.updates * accepted[:, None]


@dataclass(frozen=True, eq=False)
class Decision:
    """Which problems' updates to apply (P,), and the multiple of them."""

    accepted: NDArray[np.bool_]
    multiple: float = 1.0


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
    a look at it.
    """
    return Decision(proposal.energies < 0)


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


ACCEPTANCES: dict[str, Acceptance] = {"always": always, "descent": descent, "line_search": line_search}
