"""What rows are: chunks that can be summed over, wherever they live.

An objective hands a *term* to `Rows.mean`: a function of one chunk that returns a tuple of numbers and arrays, summed
over the rows of the chunk. What comes back is the tuple's weighted mean over all rows. So nobody else needs to know
how many rows there are, what they weigh, whether they are in memory, or on which machine.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBERS_AT_ONCE = 2**17  # 1 MB of them
_NEIGHBOURS = 64  # rows that are left in or out together: so that a file is read in pieces, not row by row
Term = Callable[["Chunk"], tuple[Any, ...]]


class Chunk(ABC):
    """Some of the rows: their features with a last column of ones, their labels and their weights.

    Whoever sums over rows weighs them by `weighted`. A chunk is compared by identity: what was worked out for one
    that stays in memory can be kept as long as it does.
    """

    precision: Any = np.float64  # of the values whose moments are worked out
    labels: NDArray[np.intp]  # (n,), whole numbers below the number of classes
    weights: NDArray[np.float64] | None  # (n,); None where every row counts once

    @abstractmethod
    def project(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """`WᵀXᵀ`: the outputs (O, n) of weights (D, O)."""

    def step(self, updates: NDArray[np.float64], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """How outputs change with updates (D, O) of the weights, (O, n): `project`, or nearly; in `out`, if given."""
        if out is None:
            return self.project(updates)
        out[:] = self.project(updates)
        return out

    @abstractmethod
    def moments(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`VX`: sums (O, D) of the rows, multiplied by values (O, n)."""

    @abstractmethod
    def gram(self, values: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """`Xᵀ diag(v) X`, shape (D, D), for values (n,), or for ones."""

    def block_grams(
        self, values: NDArray[np.float64], blocks: Sequence[slice], origin: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The part of `gram(values)` of each block of features and the 1, for values (n,) of at least 0.

        Features are measured from `origin` (d,), or from 0. All entries are in one line: see `cut_grams`.
        """
        whole = self.gram(values)
        parts = [whole[np.ix_(chosen, chosen)] for chosen in (np.r_[block, len(whole) - 1] for block in blocks)]
        return moved_grams(np.concatenate([part.ravel() for part in parts]), blocks, origin)

    def column_sums(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Weighted sums over rows of every feature and the 1, of their squares, and of their magnitudes, (D,) each.

        For the magnitudes anything will do that they are not above.
        """
        ones = self.weighted(np.ones(len(self.labels)))
        squares = self.gram(ones).diagonal()
        return self.moments(ones[None])[0], squares, np.sqrt(self.total_weight * squares)

    def exact_project(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """`WᵀXᵀ` again, in double precision whatever the precision of the rows is."""
        return self.project(weights)

    def exact_moments(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`VX` again, in double precision whatever the precision of the rows is."""
        return self.moments(values)

    @abstractmethod
    def content(self) -> Iterable[NDArray[Any]]:
        """The arrays that hold the chunk's features: by their digest a checkpoint knows its training data."""

    def weighted(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values (…, n), each multiplied by its row's weight."""
        return values if self.weights is None else values * self.weights

    @property
    def total_weight(self) -> float:
        """What the rows weigh together."""
        return float(len(self.labels)) if self.weights is None else float(self.weights.sum())

    @property
    @abstractmethod
    def entries(self) -> int:
        """Feature values that are stored: what a product with the rows costs for each output."""

    def class_weights(self, n_classes: int) -> NDArray[np.float64]:
        """What the rows of each class weigh together, shape (C,)."""
        return np.bincount(self.labels, weights=self.weights, minlength=n_classes).astype(float)


def gram_sizes(blocks: Sequence[slice]) -> list[int]:
    """The number of rows of each block's Gram matrix: its features, and a 1."""
    return [block.stop - block.start + 1 for block in blocks]


def cut_grams(entries: NDArray[np.float64], blocks: Sequence[slice]) -> list[NDArray[np.float64]]:
    """The Gram matrix of every block, from all their entries in one line.

    >>> [gram.shape for gram in cut_grams(np.zeros(25), [slice(0, 3), slice(3, 5)])]
    [(4, 4), (3, 3)]
    """
    sizes = gram_sizes(blocks)
    ends = accumulate(size**2 for size in sizes)
    return [entries[end - size**2 : end].reshape(size, size) for size, end in zip(sizes, ends, strict=True)]


def moved_grams(
    entries: NDArray[np.float64],
    blocks: Sequence[slice],
    origin: NDArray[np.float64] | None,
    centre: NDArray[np.float64] | None = None,
    *,
    factor: float = 1.0,
    lift: float = 0.0,
) -> NDArray[np.float64]:
    """Gram matrices of features that are measured from `centre`, now from `origin`; both (d,), None is 0.

    First they are multiplied by the factor, and a share `lift` of their diagonal is added to it. Overwrites entries.
    """
    if origin is None and centre is None and factor == 1 and lift == 0:
        return entries
    from annealfit.data.rows import _products  # numba takes a moment to load

    shift = np.zeros(max(block.stop for block in blocks))
    for sign, place in ((1, centre), (-1, origin)):
        if place is not None:
            shift += sign * place[: len(shift)]
    edges = np.array([(block.start, block.stop) for block in blocks])
    _products.move_grams(entries, edges, shift, factor, lift)
    return entries


def dense_column_sums(features: NDArray[Any], weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """What `Chunk.column_sums` is of features (n, D), (3, D), from one look at some rows at a time, in the cache.

    >>> dense_column_sums(np.array([[1.0], [-3.0]]), None).ravel().tolist()
    [-2.0, 10.0, 4.0]
    """
    total = np.zeros((3, features.shape[1]))
    rows_at_once = 1 + _NUMBERS_AT_ONCE // features.shape[1]
    for first in range(0, len(features), rows_at_once):
        part = features[first : first + rows_at_once].astype(np.float64, copy=False)
        own = np.ones(len(part)) if weights is None else weights[first : first + rows_at_once]
        with np.errstate(over="ignore", invalid="ignore"):  # squares of huge features: who needs them looks at them
            for row, values in zip(total, (part, np.square(part), np.abs(part)), strict=True):
                row += own @ values
    return total


def spread_positions(total: int, fewest: int) -> NDArray[np.intp]:
    """The positions of at least `fewest` of so many rows, some neighbours here and there; of all, if half are too few.

    >>> spread_positions(1000, 200)[::64].tolist()
    [0, 192, 384, 576, 768, 960]
    """
    every = max(total // (fewest + _NEIGHBOURS), 1)
    starts = np.arange(0, total, every * _NEIGHBOURS)
    positions = (starts[:, None] + np.arange(_NEIGHBOURS)).ravel()
    return positions[: np.searchsorted(positions, total)] if every > 1 else np.arange(total)


def add_up(found: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The sums of what a term returned for each chunk, in the order of the chunks."""
    total: tuple[Any, ...] | None = None
    for one in found:
        total = one if total is None else tuple(a + b for a, b in zip(total, one, strict=True))
    assert total is not None, "there are rows"
    return total


class Rows(ABC):
    """All rows. A kind of rows has `n_parameters`, `n_classes` and one method to implement: `chunks`.

    Rows that live on other machines override `sum` as well, and send the term there.
    """

    n_parameters: int  # D: the features of a row and 1
    n_classes: int  # C
    # Whether what is worked out for a chunk may be kept until the next pass. Where not, a point is worked out in as
    # few passes as can be, by terms that know no more than the weights.
    chunks_are_cached: bool = True
    is_rounded: bool = False  # whether outputs, or how they change, are less exact than `Chunk.exact_project`
    is_checked: bool = False  # whether sizes and labels were looked at when the rows were made

    @property
    def classes(self) -> NDArray[Any]:
        """What the labels 0 … C − 1 stand for, sorted, shape (C,)."""
        return np.arange(self.n_classes)

    @abstractmethod
    def chunks(self) -> Iterable[Chunk]:
        """The rows, some at a time, in the same order every time."""

    def sample(self, count: int) -> Rows:
        """About so many of the rows, always the same ones, where they are more and it is easy; else all of them."""
        return self

    def thinned(self, fewest: int) -> Rows:
        """At least so many of the rows, spread over all of them, where they are twice as many and pass by; else all.

        For sums that need not be exact. Which rows they are depends on their number alone.
        """
        return self

    def sum(self, term: Term) -> tuple[Any, ...]:
        """The sums over all chunks of what the term returns for each."""
        return add_up(map(term, self.chunks()))

    def mean(self, term: Term) -> tuple[Any, ...]:
        """The weighted means over all rows of what the term sums."""
        return tuple(total / self.total_weight for total in self.sum(term))

    @cached_property
    def total_weight(self) -> float:
        """What all rows weigh together; their number where each counts once."""
        return self.sum(lambda chunk: (chunk.total_weight,))[0]

    @cached_property
    def entries(self) -> int:
        """Feature values of all rows."""
        return self.sum(lambda chunk: (chunk.entries,))[0]

    @cached_property
    def class_shares(self) -> NDArray[np.float64]:
        """Each class's share of the weight, shape (C,)."""
        return self.mean(lambda chunk: (chunk.class_weights(self.n_classes),))[0]

    def digest(self) -> str:
        """A digest of all rows: features, labels and weights, chunk by chunk."""
        return digest_of(
            array
            for chunk in self.chunks()
            for array in (*chunk.content(), chunk.labels, *(() if chunk.weights is None else (chunk.weights,)))
        )


def digest_of(arrays: Iterable[NDArray[Any]]) -> str:
    """The SHA-256 of the arrays' bytes, whole numbers being of 64 bits."""
    found = hashlib.sha256()
    for array in arrays:
        numbers = array.astype(np.int64, copy=False) if array.dtype.kind in "iu" else array
        found.update(np.ascontiguousarray(numbers).tobytes())
    return found.hexdigest()
