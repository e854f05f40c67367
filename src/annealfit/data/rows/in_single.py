"""Rows in memory with a copy in single precision, for what a training asks again and again.

An iteration reads all rows twice: for its gradient, and for where its update leads. Both are right to seven digits
in single precision, in half the time; an update that is a little off is made good by the next. Outputs are added up
in double precision. What is reported in the end, the loss and its certificate, is worked out in double precision from
the rows as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.data.rows import products
from annealfit.data.rows.base import moved_grams
from annealfit.data.rows.tables import TableChunk

# By measurement (`python -m benchmarks.products`): fewer are in the processor's cache; of more a copy is much memory.
ENTRIES = range(2**18, 2**28)
_SAFE = 1e-12, 1e12  # distances from the centre whose squares can be weighed and added up in single precision
_ROWS_FOR_CENTRE = 15  # their median: outliers do not matter, and a constant is its own


def are_worth_a_copy(features: NDArray[Any]) -> bool:
    """Whether products with so many features are quicker from a copy in single precision."""
    return features.dtype == np.float64 and features.size in ENTRIES


class CopiedChunk(TableChunk):
    """Rows in double precision, whose moments and steps are worked out from a copy in single precision.

    The copy is measured from a centre: features far from zero keep the digits by which rows differ.
    """

    @cached_property
    def _look(self) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float64], bool]:
        """The features (n, d) from the centre, in single precision; the centre (d,); sums of columns (3, d).

        And whether they are numbers for single precision: where they are not, the copy is of no use.
        """
        from annealfit.data.rows import _products  # numba takes a moment to load

        every = -(-len(self.features) // _ROWS_FOR_CENTRE)
        with np.errstate(over="ignore", invalid="ignore"):  # of huge features, which then stay as they are
            centre = np.median(self.features[::every], axis=0)
        copy = np.empty(self.features.shape, np.float32)
        farthest, totals = np.empty(len(centre)), np.empty((3, len(centre)))
        weights = np.ones(len(self.labels)) if self.weights is None else self.weights
        _products.look_at_columns(self.features, weights, centre, copy, farthest, totals)
        is_safe = (farthest == 0) | ((_SAFE[0] <= farthest) & (farthest <= _SAFE[1]))
        products.compile_for(copy.dtype)
        return copy, centre, totals, bool((is_safe & np.isfinite(totals[0])).all())

    @property
    def _copy(self) -> tuple[NDArray[np.float32], NDArray[np.float64]] | None:
        """The copy and its centre; None for numbers that need the wider range."""
        copy, centre, _, is_useful = self._look
        return (copy, centre) if is_useful else None

    def column_sums(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Of the rows as they are, from the look that makes the copy."""
        sums, squares, magnitudes = np.column_stack([self._look[2], np.full(3, self.total_weight)])
        return sums, squares, magnitudes

    precision = np.float32

    def step(self, updates: NDArray[np.float64], out: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """`UᵀXᵀ`, (O, n), right to seven digits."""
        if self._copy is None:
            return super().step(updates, out)
        copy, centre = self._copy
        factors, unit = _in_single(updates[:-1].T)
        outputs = np.multiply(products.project(copy, factors), unit, out=out, dtype=np.float64)
        outputs += (updates[-1] + centre @ updates[:-1])[:, None]
        return outputs

    def moments(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`VX`, (O, D), right to seven digits."""
        if self._copy is None:
            return super().moments(values)
        copy, centre = self._copy
        factors, unit = _in_single(values)
        found = np.empty((len(values), len(centre) + 1))
        found[:, -1] = values.sum(axis=1, dtype=np.float64)
        np.multiply(products.moments(copy, factors), unit, out=found[:, :-1], dtype=np.float64)
        found[:, :-1] += found[:, -1:] * centre
        return found

    def block_grams(
        self, values: NDArray[np.float64], blocks: Sequence[slice], origin: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Right to six digits, and as convex as in double precision."""
        if self._copy is None:
            return super().block_grams(values, blocks, origin)
        copy, centre = self._copy
        factors, unit = _in_single(values)
        entries = products.block_grams(copy, factors, blocks)
        return moved_grams(entries, blocks, origin, centre, factor=unit, lift=_LIFT)


_ORDINARY = 1e-3, 1e3  # the largest of values that are what they are in single precision
_LIFT = 1e-5  # of a Gram matrix's diagonal: more than rounding takes from its smallest eigenvalue


def _in_single(values: NDArray[Any]) -> tuple[NDArray[np.float32], np.float64]:
    """Values in a unit in which single precision can hold them, and the unit."""
    if values.dtype == np.float32:
        return values, np.float64(1.0)
    largest = max(values.max(initial=0.0), -values.min(initial=0.0))
    if largest == 0 or _ORDINARY[0] < largest < _ORDINARY[1]:
        return values.astype(np.float32), np.float64(1.0)
    return (values / largest).astype(np.float32), largest
