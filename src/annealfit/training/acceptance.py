"""Acceptance rules: which of the proposed updates are applied, and by how much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Proposal:
    """The samplers' answers of one iteration, not yet applied."""

    energies: NDArray[np.float64]  # twice the surrogate's value of every problem's update, (B,)


@dataclass(frozen=True, eq=False)
class Decision:
    """Which problems' updates to apply (B,), and the multiple of them."""

    accepted: NDArray[np.bool_]
    multiple: float = 1.0


Acceptance = Callable[[Proposal], Decision]


def always(proposal: Proposal) -> Decision:
    """Apply everything, as the paper does."""
    return Decision(np.ones(len(proposal.energies), dtype=bool))


ACCEPTANCES: dict[str, Acceptance] = {"always": always}
