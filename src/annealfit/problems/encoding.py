"""Bits ↔ updates: the symmetric signed encoding of the paper (its equations 8 and 9)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.errors import check_number

MAX_BITS = 30  # 2^30 levels: finer than single precision resolves, and levels still fit 32-bit integers


@dataclass(frozen=True)
class Encoding:
    """`K` bits per parameter over the range [−δ, δ]: `u = Σ_k p_k (2 b_k − 1)`, `p_k = δ·2^k / (2^K − 1)`.

    The values are `2^K` equally spaced levels, `−δ` and `δ` among them; bit 0 is the finest.

    >>> encoding = Encoding(bits=2, range=0.3)
    >>> encoding.decode([[0, 0], [1, 0], [0, 1], [1, 1]]).round(3).tolist()
    [-0.3, -0.1, 0.1, 0.3]
    """

    bits: int
    range: float

    def __post_init__(self) -> None:
        check_number("bits", self.bits, Integral, minimum=1, maximum=MAX_BITS, remedy="2 or 3 are enough")
        check_number("the range δ of an update", self.range, above=0, remedy="the paper's is 0.5")

    def with_range(self, range_: float) -> Encoding:
        """Return an encoding of the same bits over another range, which is not checked."""
        encoding = object.__new__(Encoding)
        encoding.__dict__.update(bits=self.bits, range=range_)
        return encoding

    @property
    def levels(self) -> int:
        """Number of values of one parameter, `2^K`."""
        return 1 << int(self.bits)

    @property
    def resolution(self) -> float:
        """Weight of the finest bit, `p_0 = δ/(2^K − 1)`: half the distance between two levels."""
        return self.range / (self.levels - 1)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """Bit weights `p_0 … p_{K−1}`."""
        return self.resolution * np.exp2(np.arange(self.bits))

    def decode(self, bits: ArrayLike) -> NDArray[np.float64]:
        """Return updates (…) of bits (…, K)."""
        return np.multiply(self.resolution, odd_levels(np.asarray(bits)), dtype=np.float64)

    def encode(self, updates: ArrayLike) -> NDArray[np.uint8]:
        """Return the bits (…, K) of the levels nearest to updates (…), clipped to the range."""
        position = (np.asarray(updates, dtype=float) / self.resolution + (self.levels - 1)) / 2
        return bits_of(np.clip(np.rint(position), 0, self.levels - 1), self.bits)


def bits_of(levels: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Return the bits (…, K) of levels 0 … 2^K − 1, the finest first.

    >>> levels_of(bits_of(np.array([5, 2]), bits=3)).tolist()
    [5, 2]
    """
    found = np.empty((*levels.shape, bits), np.uint8)
    rest: NDArray[np.uint32] = levels.astype(
        np.uint8 if bits <= 8 else np.uint32
    )  # many at once: small numbers are quick
    for bit in range(bits):
        found[..., bit] = rest & 1
        rest >>= 1
    return found


def levels_of(bits: NDArray[Any]) -> NDArray[np.int64]:
    """Return the levels 0 … 2^K − 1 of bits (…, K)."""
    count = bits.shape[-1]
    levels = np.zeros(bits.shape[:-1], np.uint8 if count <= 8 and bits.dtype == np.uint8 else np.int64)
    for bit in range(count - 1, -1, -1):
        levels = 2 * levels + bits[..., bit]
    return levels.astype(np.int64, copy=False)


def odd_levels(bits: NDArray[Any]) -> NDArray[np.int64]:
    """Return the levels −(2^K − 1), …, −1, 1, …, 2^K − 1 of bits (…, K): integers, so exactly symmetric."""
    return 2 * levels_of(bits) - ((1 << bits.shape[-1]) - 1)
