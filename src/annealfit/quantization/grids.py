"""Which values a weight may have: a few equally spaced whole numbers, times a scale."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, check_number, choose

MOST_WEIGHT_BITS = 8  # levels are kept as 8-bit integers, and beyond there is nothing left to choose
GRIDS = ("symmetric", "with_zero", "twos_complement", "ternary")


@dataclass(frozen=True)
class Grid:
    """The levels `lowest, lowest + step, …`, so many of them: whole numbers that a scale makes weights of.

    >>> Grid.of(bits=2).levels.tolist(), Grid.of(bits=2, kind="twos_complement").levels.tolist()
    ([-3, -1, 1, 3], [-2, -1, 0, 1])
    """

    lowest: int
    step: int
    count: int

    def __post_init__(self) -> None:
        for name, value, least in (("step", self.step, 1), ("count", self.count, 2)):
            check_number(f"the {name} of a grid", value, Integral, minimum=least)
        check_number("the lowest level of a grid", self.lowest, Integral)
        if max(abs(self.lowest), abs(self.highest)) > 2**MOST_WEIGHT_BITS:
            raise InvalidInputError(
                f"the levels of the grid go from {self.lowest} to {self.highest}; at most {MOST_WEIGHT_BITS} "
                "bits are meant"
            )

    @classmethod
    def of(cls, bits: Any = 2, kind: str = "symmetric") -> Grid:
        """The grid of a number of bits.

        "symmetric" has 2^bits levels around 0 and not 0 itself (±1, ±3, …), "with_zero" one level less and 0 among
        them (0, ±1, …), "twos_complement" the integers of that many bits, and "ternary" is −1, 0, 1: what
        "with_zero" is with 2 bits.
        """
        choose("levels", kind, GRIDS)
        if kind == "ternary" and bits == 1:
            raise InvalidInputError("levels are 'ternary' and bits 1; three levels take two bits to store: bits=2")
        check_number(
            "bits", bits, Integral, minimum=1, maximum=MOST_WEIGHT_BITS, remedy="1 and 2 are where choosing pays"
        )
        count = 2 ** int(bits)
        if kind == "symmetric":
            return cls(lowest=1 - count, step=2, count=count)
        if kind == "twos_complement":
            return cls(lowest=-count // 2, step=1, count=count)
        if kind == "with_zero" and bits == 1:
            raise InvalidInputError(
                "levels are 'with_zero' and bits 1; one bit has no room for 0: 2 bits, or symmetric"
            )
        count = 3 if kind == "ternary" else count - 1
        return cls(lowest=-(count // 2), step=1, count=count)

    @property
    def levels(self) -> NDArray[np.int64]:
        """The levels, ascending."""
        return self.lowest + self.step * np.arange(self.count)

    @property
    def highest(self) -> int:
        """The largest level."""
        return self.lowest + self.step * (self.count - 1)

    @property
    def reach(self) -> int:
        """The largest absolute level that both signs have, or else that one has."""
        return min(-self.lowest, self.highest) or max(-self.lowest, self.highest)

    @property
    def storage_bits(self) -> int:
        """Bits that the number of a level takes."""
        return int(self.count - 1).bit_length()

    @property
    def origin(self) -> float:
        """The first level in units of the step: level number k stands for `step · (k + origin)`."""
        return self.lowest / self.step

    def nearest(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """The numbers 0 … count − 1 of the levels nearest to values, in units of the scale."""
        return np.clip(np.rint((values - self.lowest) / self.step), 0, self.count - 1).astype(np.int64)

    def at(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The levels with these numbers."""
        return self.lowest + self.step * numbers
