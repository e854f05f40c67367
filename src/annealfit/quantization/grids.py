"""The values that a weight may have: a few equally spaced whole numbers, times a scale; and how they are packed."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import FileFormatError, InvalidInputError, check_number, choose

MOST_WEIGHT_BITS = 8  # levels are kept as 8-bit integers, and beyond there is nothing left to choose
GRIDS = ("symmetric", "with_zero", "twos_complement", "ternary")

_CANDIDATES = np.geomspace(0.03, 1.0, 24)  # of the scale at which the largest weight is the largest level
_FITS = 5  # of scale and levels in turn, from the best candidate


@dataclass(frozen=True)
class Grid:
    """The levels `lowest, lowest + step, …`, so many of them: whole numbers that are multiplied by a scale.

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
    def of(cls, bits: Any = 2, kind: str | Grid = "symmetric") -> Grid:
        """The grid of a number of bits; one of your own stays as it is.

        "symmetric" has 2^bits levels around 0 and not 0 itself (±1, ±3, …), "with_zero" one level less and 0 among
        them (0, ±1, …), "twos_complement" the integers of that many bits, and "ternary" is −1, 0, 1: what
        "with_zero" is with 2 bits.
        """
        if isinstance(kind, Grid):
            return kind
        choose("levels", kind, GRIDS)
        if kind == "ternary" and bits == 1:
            raise InvalidInputError("levels are 'ternary' and bits 1; three levels take two bits to store: bits=2")
        remedy = "1 and 2 are where choosing pays"
        check_number("bits", bits, Integral, minimum=1, maximum=MOST_WEIGHT_BITS, remedy=remedy)
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

    def nearest(self, values: Array, scales: Array | float = 1.0) -> NDArray[np.int64]:
        """The numbers 0 … count − 1 of the levels that are nearest to values with these scales, which may be 0."""
        units = np.divide(values, scales, out=np.zeros_like(values), where=np.asarray(scales) > 0)
        return np.clip(np.rint((units - self.lowest) / self.step), 0, self.count - 1).astype(np.int64)

    def at(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The levels with these numbers."""
        return self.lowest + self.step * numbers

    def numbers(self, levels: NDArray[Any]) -> NDArray[np.int64]:
        """The inverse of `at`."""
        return (levels.astype(np.int64) - self.lowest) // self.step

    def packed_bytes(self, count: int) -> int:
        """Bytes that so many levels take, packed."""
        return -(-count * self.storage_bits // 8)

    def pack(self, levels: NDArray[Any]) -> NDArray[np.uint8]:
        """Levels in as few bits as the grid takes, one after another, the lowest bit first.

        >>> Grid.of(bits=2).pack(np.array([3, -3, -1, 1])).tolist()
        [147]
        """
        flat = self.numbers(levels).astype(np.uint8).ravel()
        return np.packbits((flat[:, None] >> np.arange(self.storage_bits, dtype=np.uint8)) & 1, bitorder="little")

    def unpack(self, packed: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.int64]:
        """The inverse of `pack`.

        >>> Grid.of(bits=2).unpack(np.array([147], dtype=np.uint8), (2, 2)).tolist()
        [[3, -3], [-1, 1]]
        """
        count, bits = int(np.prod(shape)), self.storage_bits
        size = self.packed_bytes(count)
        if packed.dtype != np.uint8 or packed.shape != (size,):
            raise FileFormatError(
                f"packed levels have shape {packed.shape} and type {packed.dtype}; {count} numbers of {bits} bits are "
                f"{size} bytes"
            )
        found = np.unpackbits(packed, count=count * bits, bitorder="little").reshape(count, bits)
        numbers = (found << np.arange(bits, dtype=np.uint8)).sum(axis=1, dtype=np.uint8).reshape(shape)
        return self.at(numbers.astype(np.int64))

    def scales_of(self, weights: Array, starts: NDArray[np.intp]) -> Array:
        """The scale of each output and group (P, G) with the least squared rounding error of its weights (P, D).

        Groups begin at the inputs `starts`. A search over 24 candidates, then scale and levels fitted to each other in
        turn. Weights that are all 0 have the scale 0.

        >>> Grid.of(bits=1).scales_of(np.array([[0.5, -0.5, 1.0, -1.0]]), np.array([0])).tolist()
        [[0.75]]
        """
        lengths = np.diff(starts, append=weights.shape[1])

        def levels_at(scales: Array) -> NDArray[np.int64]:
            return self.at(self.nearest(weights, np.repeat(scales, lengths, axis=1)))

        largest = np.maximum.reduceat(np.abs(weights), starts, axis=1) / self.reach
        best, least = largest, np.full(largest.shape, np.inf)
        for share in _CANDIDATES:
            scales = share * largest
            rest = weights - np.repeat(scales, lengths, axis=1) * levels_at(scales)
            errors = np.add.reduceat(rest**2, starts, axis=1)
            best, least = np.where(errors < least, scales, best), np.minimum(errors, least)
        for _ in range(_FITS):
            levels = levels_at(best)
            products, squares = (np.add.reduceat(part * levels, starts, axis=1) for part in (weights, levels))
            best = np.where((squares > 0) & (products > 0), products / np.maximum(squares, 1e-300), best)
        return best
