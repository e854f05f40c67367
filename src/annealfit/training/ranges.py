"""Range policies: how far an update may reach in the next iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an iteration achieved, as the policies see it."""

    energies: NDArray[np.float64]  # (B,)
    accepted: NDArray[np.bool_]  # (B,)


RangePolicy = Callable[[NDArray[np.float64], Outcome], NDArray[np.float64]]


def fixed(ranges: NDArray[np.float64], outcome: Outcome) -> NDArray[np.float64]:
    """The same range for ever, as in the paper."""
    return ranges


RANGE_POLICIES: dict[str, RangePolicy] = {"fixed": fixed}
