"""Values between two given ends, such as 0 and 1, as an encoding with an offset: a shift of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, check_number
from annealfit.problems.curvature import Curvature
from annealfit.problems.encoding import Encoding, levels_of
from annealfit.problems.problem import Problems


@dataclass(frozen=True)
class Levels:
    """`2^K` equally spaced values from `low` to `high`: `v = low + (high − low)·Σ_k 2^k b_k / (2^K − 1)`.

    With the centre `c = (low + high)/2` it is `v = c + u`, `u` in the symmetric encoding of range `(high − low)/2`. So
    `vᵀGv + 2gᵀv` is `uᵀGu + 2(g + cG1)ᵀu` and a constant: a problem over `v` is one of ours with another gradient.

    >>> levels = Levels(0.0, 1.0, bits=1)
    >>> (problem,) = levels.problems(Curvature([[2.0, 0.5], [0.5, 1.0]]), np.array([[-2.0, 0.5]]))
    >>> problem.energy([1, 0]) + levels.constants(problem.shared_curvature, np.array([[-2.0, 0.5]]))
    array([-2.])
    >>> levels.decode(np.array([[1], [0]], dtype=np.uint8)).tolist()
    [1.0, 0.0]
    """

    low: float
    high: float
    bits: int

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            check_number(name, getattr(self, name))
        if not self.high > self.low:
            raise InvalidInputError(f"levels go from {self.low} to {self.high}; high must be above low")
        Encoding(self.bits, self.high - self.low)

    @property
    def centre(self) -> float:
        """The middle of the values, `c`."""
        return (self.low + self.high) / 2

    def problems(self, curvature: Curvature, gradients: Array) -> Problems:
        """Return the problems "minimise `vᵀGv + 2gᵀv`", one for each row of gradients (P, D)."""
        ranges = np.full(len(gradients), (self.high - self.low) / 2)
        return Problems((curvature,), gradients + self.centre * curvature.row_sums, ranges, int(self.bits))

    def constants(self, curvature: Curvature, gradients: Array) -> Array:
        """Return what `vᵀGv + 2gᵀv` has in addition to the energy of the problem, (P,): `c²·1ᵀG1 + 2c·gᵀ1`."""
        return self.centre**2 * curvature.row_sums.sum() + 2 * self.centre * gradients.sum(axis=1)

    def decode(self, bits: NDArray[np.uint8]) -> Array:
        """Return the values (…) of bits (…, K)."""
        spacing = (self.high - self.low) / ((1 << int(self.bits)) - 1)
        return np.asarray(self.low + spacing * levels_of(bits), dtype=np.float64)

    def encode(self, values: ArrayLike) -> NDArray[Any]:
        """Return the bits (…, K) of the levels nearest to values (…)."""
        return Encoding(self.bits, (self.high - self.low) / 2).encode(np.asarray(values, dtype=float) - self.centre)
