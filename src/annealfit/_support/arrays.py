"""Arrays of double precision: their type, and checked conversion of other values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.errors import InvalidInputError

Array = NDArray[np.float64]


def rounded(values: ArrayLike, bits: int = 16) -> Array:
    """Round to some significant bits, by Dekker's splitting (1971).

    Sums of the same rows in another order differ in their last bits. A decision that rests on rounded sums is the same,
    so that a training does not depend on where its rows are stored.

    >>> rounded(1 / 3, bits=2).tolist(), rounded([0.0, -1e-9, 5.0]).round(12).tolist()
    (0.375, [0.0, -1e-09, 5.0])
    """
    given = np.asarray(values, dtype=np.float64)
    scaled = given * (2.0 ** (53 - bits) + 1)
    return np.asarray(scaled - (scaled - given))


def without_extremes(values: Array, largest: float | None = None) -> Array:
    """Divide numbers of at least 0 by the largest of all where sums of them could overflow, or have lost digits.

    >>> without_extremes(np.array([2e300, 1e300])).tolist(), without_extremes(np.array([2.0, 1.0])).tolist()
    ([1.0, 0.5], [2.0, 1.0])
    """
    largest = float(values.max(initial=0.0)) if largest is None else largest
    return values if 1e-100 < largest < 1e100 or largest == 0 else values / largest


def unique_labels(labels: ArrayLike) -> NDArray[Any]:
    """Return the labels of classes, sorted; values that have no order, or are missing, are refused."""
    given = np.asarray(labels)
    try:
        found = np.unique(given)
        missing = found[(found != found) | np.isin(found, (np.inf, -np.inf) if found.dtype.kind in "fO" else ())]
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in given.ravel().tolist()})
        raise InvalidInputError(
            f"the labels y are of the types {', '.join(kinds)}, which have no common order; make them numbers or "
            "texts, and leave out rows without one"
        ) from error
    if len(missing) or given.dtype.kind == "c":
        raise InvalidInputError(
            f"the labels y hold {'complex numbers' if given.dtype.kind == 'c' else missing[0]}, which is no class; "
            "leave out such rows, or give them a label"
        )
    return found


def check_stored(X: Any, name: str = "X") -> None:
    """Refuse sparse arrays whose indices lead outside, which compiled code would follow, and masked values."""
    if getattr(X, "format", None) in ("csr", "csc") and hasattr(X, "indptr"):
        rows, columns = X.shape if X.format == "csr" else X.shape[::-1]
        starts, places = np.asarray(X.indptr), np.asarray(X.indices)
        is_sound = len(starts) == rows + 1 and starts[0] == 0 and starts[-1] <= min(len(places), len(X.data))
        used = places[: starts[-1]]
        if not (
            is_sound and (np.diff(starts) >= 0).all() and used.min(initial=0) >= 0 and used.max(initial=-1) < columns
        ):
            raise InvalidInputError(f"{name} is a damaged {X.format} array: its indices lead outside {X.shape}")
    if np.ma.is_masked(X):
        raise InvalidInputError(f"{name} has masked values; fill them (X.filled), or leave out such rows")


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
