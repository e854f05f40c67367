"""Acceptance rules: which of the proposed updates are applied, and by how much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Proposal:
    """The sampler's answers of one iteration, not yet applied."""

    energies: NDArray[np.float64]  # twice the surrogate's value of every problem's update, (B,)
    loss: float  # before the update
    loss_along: Callable[[NDArray[np.bool_], float], float]  # after a multiple of the chosen problems' updates
    newton_multiple: Callable[[NDArray[np.bool_]], float]  # −f′/f″ along the chosen problems' updates


@dataclass(frozen=True, eq=False)
class Decision:
    """Which problems' updates to apply (B,), and the multiple of them."""

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
            if proposal.loss_along(chosen, multiple) < proposal.loss:
                return Decision(chosen, multiple)
            multiple /= 2
    return Decision(np.zeros_like(chosen))


ACCEPTANCES: dict[str, Acceptance] = {"always": always, "descent": descent, "line_search": line_search}
