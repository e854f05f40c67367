"""What an iteration achieved, as the policies see it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Outcome:
    """The sampler's energies and the acceptance rule's decision, a value a problem (B,)."""

    energies: NDArray[np.float64]
    accepted: NDArray[np.bool_]
