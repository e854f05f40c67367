"""Level numbers packed into bytes, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError


def pack_levels(numbers: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Whole numbers of so many bits each, one after another, the lowest bit first.

    >>> pack_levels(np.array([3, 0, 1, 2]), 2).tolist()
    [147]
    """
    flat = np.asarray(numbers, dtype=np.uint8).ravel()
    return np.packbits((flat[:, None] >> np.arange(bits, dtype=np.uint8)) & 1, bitorder="little")


def unpack_levels(packed: NDArray[np.uint8], bits: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The inverse of `pack_levels`.

    >>> unpack_levels(np.array([147], dtype=np.uint8), 2, (2, 2)).tolist()
    [[3, 0], [1, 2]]
    """
    count = int(np.prod(shape))
    if packed.dtype != np.uint8 or packed.shape != (-(-count * bits // 8),):
        raise FileFormatError(
            f"packed levels have shape {packed.shape} and type {packed.dtype}; {count} numbers of {bits} bits are "
            f"{-(-count * bits // 8)} bytes"
        )
    found = np.unpackbits(packed, count=count * bits, bitorder="little").reshape(count, bits)
    return (found << np.arange(bits, dtype=np.uint8)).sum(axis=1, dtype=np.uint8).reshape(shape)
