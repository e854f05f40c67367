"""What an iteration achieved, as the policies see it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Outcome:
    """The sampler's energies, the acceptance rule's decision, and which solves did not fail; (P,) each."""

    energies: NDArray[np.float64]  # 0 where there was no answer
    accepted: NDArray[np.bool_]
    solved: NDArray[np.bool_]
