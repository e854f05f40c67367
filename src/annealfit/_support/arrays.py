"""Arrays of double precision: their type, and checked conversion of other values."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.errors import InvalidInputError

Array = NDArray[np.float64]


def rounded(values: ArrayLike, bits: int = 16) -> Array:
    """Round to some significant bits.

    Sums of the same rows in another order differ in their last bits. A decision that rests on rounded sums is the same,
    so that a training does not depend on where its rows are stored.

    >>> rounded(1 / 3, bits=2).tolist(), rounded([0.0, -1e-9, 5.0]).round(12).tolist()
    (0.375, [0.0, -1e-09, 5.0])
    """
    fraction, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(np.ldexp(fraction, bits)), exponent - bits))


def as_real(values: ArrayLike, name: str, *, ndim: int) -> NDArray[np.float64]:
    """Convert values to an array of finite numbers with `ndim` dimensions, or raise an error that names them."""
    try:
        given = np.asarray(values)
        array = np.ascontiguousarray(given.real, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} is not an array of numbers: {error}") from error
    if given.dtype.kind == "c":
        raise InvalidInputError(f"{name} is an array of {given.dtype}; expected real numbers")
    if array.ndim != ndim:
        raise InvalidInputError(f"{name} has {array.ndim} dimensions; expected {ndim}")
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} holds NaN or infinity; check the features and weights it came from")
    return array
