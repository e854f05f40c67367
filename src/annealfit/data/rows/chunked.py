"""Rows of a table that is read in slices, at every pass anew: as many as a disk holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit._support.threads import in_order
from annealfit.data.rows.base import Chunk, Rows, Term, add_up, spread_positions
from annealfit.data.rows.in_memory import InMemoryRows
from annealfit.data.rows.tables import (
    Selection,
    TableChunk,
    check_table,
    chunk_bounds,
    is_out_of_core,
    is_single,
    keep_memory,
    read_slice,
    reading_lock,
    rows_at_once,
)


def rows_of(
    features: Any, labels: NDArray[np.intp], n_classes: int, weights: NDArray[np.float64] | None = None
) -> Rows:
    """Rows in memory, or read in slices: as the features are."""
    kind = ChunkedRows if is_out_of_core(features) else InMemoryRows
    return kind(features, labels, n_classes, weights)


class ChunkedRows(Rows):
    """Features (N, d) of any table with a shape and row slices; labels (N,) and perhaps weights (N,) are in memory.

    Chunks are read, and their sums worked out, in as many threads as there are processors, and the sums are added in
    the order of the chunks: the same chunks give the same result, whoever works them out. Beside labels and weights
    no more memory is used than for a few chunks.

    >>> rows = ChunkedRows(np.array([[1.0], [3.0], [2.0]]), np.array([0, 1, 1]), n_classes=2, chunk_rows=2)
    >>> len(list(rows.chunks())), rows.sum(lambda chunk: (chunk.moments(np.ones((1, len(chunk.labels)))),))
    (2, (array([[6., 3.]]),))
    """

    chunks_are_cached = False

    def __init__(
        self,
        features: Any,
        labels: NDArray[np.intp],
        n_classes: int,
        weights: NDArray[np.float64] | None = None,
        *,
        chunk_rows: int | None = None,
    ) -> None:
        check_table(features)
        self._features, self._labels, self._weights = features, labels, weights
        self.n_parameters, self.n_classes = features.shape[1] + 1, n_classes
        self._bounds = chunk_bounds(features, n_classes, chunk_rows or rows_at_once(features, n_classes))
        self._lock = reading_lock(features)
        self.is_rounded = is_single(features)

    def chunks(self) -> Iterable[Chunk]:
        """The rows in their order, read when their turn comes."""
        return map(self._chunk, self._bounds)

    def sum(self, term: Term) -> tuple[Any, ...]:
        """The sums over all chunks, added up in their order."""
        keep_memory()
        return add_up(in_order(lambda bounds: term(self._chunk(bounds)), self._bounds))

    def sample(self, count: int) -> Rows:
        """Rows drawn at random, in their order, in memory."""
        total = len(self._labels)
        chosen = np.arange(total)
        if total > count:
            chosen = np.sort(np.random.default_rng(0).choice(total, count, replace=False))
        features = np.concatenate(list(self._picked(chosen)))
        weights = None if self._weights is None else self._weights[chosen]
        return InMemoryRows(features, self._labels[chosen], self.n_classes, weights)

    def thinned(self, fewest: int) -> Rows:
        """Read some neighbours at a time, at every pass."""
        chosen = spread_positions(len(self._labels), fewest)
        if len(chosen) == len(self._labels):
            return self
        weights = None if self._weights is None else self._weights[chosen]
        return ChunkedRows(Selection(self._features, chosen), self._labels[chosen], self.n_classes, weights)

    def check_finite(self) -> None:
        """Raise if a feature is not a number, or infinite."""
        for (first, _), wrong in zip(self._bounds, in_order(self._first_wrong, self._bounds), strict=True):
            if wrong is not None:
                row, column = first + wrong[0], wrong[1]
                raise InvalidInputError(
                    f"Input X contains NaN or infinity (the first in row {row}, column {column}); "
                    "fill or leave out such rows"
                )

    @cached_property
    def total_weight(self) -> float:
        """Known without a look at features."""
        return float(len(self._labels)) if self._weights is None else float(self._weights.sum())

    @cached_property
    def entries(self) -> int:
        """As above."""
        return len(self._labels) * self.n_parameters

    @cached_property
    def class_shares(self) -> NDArray[np.float64]:
        """As above."""
        counts = np.bincount(self._labels, weights=self._weights, minlength=self.n_classes)
        return counts / self.total_weight

    def _chunk(self, bounds: tuple[int, int]) -> TableChunk:
        part = slice(*bounds)
        weights = None if self._weights is None else self._weights[part]
        return TableChunk(self._read(bounds), self._labels[part], weights)

    def _read(self, bounds: tuple[int, int]) -> NDArray[Any]:
        with self._lock:
            return read_slice(self._features, *bounds)

    def _picked(self, chosen: NDArray[np.intp]) -> Iterator[NDArray[Any]]:
        for first, last in self._bounds:
            own = chosen[np.searchsorted(chosen, first) : np.searchsorted(chosen, last)]
            if len(own):
                yield self._read((first, last))[own - first]

    def _first_wrong(self, bounds: tuple[int, int]) -> tuple[int, int] | None:
        features = self._read(bounds)
        if np.isfinite(features.sum(dtype=np.float64)):  # a sum of finite numbers that is not is rare enough
            return None
        wrong = np.argwhere(~np.isfinite(features))
        return (int(wrong[0, 0]), int(wrong[0, 1])) if len(wrong) else None
