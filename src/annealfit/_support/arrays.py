"""The one type that most functions here are about, how other things become one, and one that does so when asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.errors import InvalidInputError

Array = NDArray[np.float64]


class SideBySide:
    """Arrays (r, n) beside each other, (r, Σn), put together by `np.asarray`: where nobody asks, nothing is copied.

    >>> pair = SideBySide([np.zeros((1, 2)), np.ones((1, 1))])
    >>> np.asarray(pair).tolist()
    [[0.0, 0.0, 1.0]]
    """

    def __init__(self, parts: Sequence[Array]) -> None:
        self._parts = parts

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.concatenate(self._parts, axis=1, dtype=dtype)


def as_real(values: ArrayLike, name: str, *, ndim: int) -> NDArray[np.float64]:
    """The values as an array of finite numbers with so many dimensions, or an error that names them."""
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
