"""What an iteration achieved, as the policies see it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the policies are told; arrays have an entry per problem, (P,)."""

    energies: NDArray[np.float64]  # the sampler's; 0 where there was no answer
    accepted: NDArray[np.bool_]  # whether the update was applied
    solved: NDArray[np.bool_]  # whether the solve did not fail
    loss_change: float = 0.0
    rating: float = 0.0  # what `RangePolicy.rate` said of the iteration
    last_rating: float | None = None  # and of the one before; None at first
    last_ranges: NDArray[np.float64] | None = None  # as kept at the iteration before
