"""The features that a network makes of images, as rows for a head; worked out chunk by chunk, in threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.threads import in_order
from annealfit.data.convolution.images import Images
from annealfit.data.convolution.network import Network, Values
from annealfit.data.rows import DenseChunk, Rows
from annealfit.data.rows.base import Term, add_up

ROWS_PER_CHUNK = 1024  # a unit of work of a thread
KEPT_BYTES = 2**30  # features of up to so many bytes are kept; of more images they are worked out at every pass


class NetworkRows(Rows):
    """Rows of features. Beside the images no more memory is used than for kept features, and a chunk per thread."""

    def __init__(
        self, images: Images, network: Network, weights: Sequence[Values], kept_bytes: int | None = None
    ) -> None:
        """`kept_bytes` are KEPT_BYTES unless given."""
        self.images, self.network, self.weights = images, network, tuple(weights)
        self.n_parameters, self.n_classes = network.n_features + 1, images.n_classes
        firsts = range(0, len(images), ROWS_PER_CHUNK)
        self._positions = [np.arange(first, min(first + ROWS_PER_CHUNK, len(images))) for first in firsts]
        most = KEPT_BYTES if kept_bytes is None else kept_bytes
        self._keeps = len(images) * self.n_parameters * images.dtype.itemsize <= most
        self._kept: dict[int, FeatureChunk] = {}

    def chunks(self) -> Iterable[FeatureChunk]:
        """The features of some images after those of others."""
        return map(self._chunk, range(len(self._positions)))

    def sum(self, term: Term) -> tuple[Any, ...]:
        """The sums over all chunks, added up in their order, whoever worked them out."""
        return add_up(in_order(lambda number: term(self._chunk(number)), range(len(self._positions))))

    @cached_property
    def total_weight(self) -> float:
        """Known without a look at features."""
        weights = self.images.weights
        return float(len(self.images)) if weights is None else float(weights.sum())

    @cached_property
    def entries(self) -> int:
        """As above."""
        return len(self.images) * self.n_parameters

    def digest(self) -> str:
        """The images'."""
        return self.images.digest()

    def _chunk(self, number: int) -> FeatureChunk:
        if number in self._kept:
            return self._kept[number]
        images, positions = self.images, self._positions[number]
        features = self.network.features(images.take(positions), self.weights)
        weights = None if images.weights is None else images.weights[positions]
        chunk = FeatureChunk(features, images.labels[positions], weights, positions)
        if self._keeps:
            self._kept[number] = chunk
        return chunk


class FeatureChunk(DenseChunk):
    """Features of some images, in the images' precision; products come out in double precision."""

    def __init__(
        self, features: Values, labels: NDArray[np.intp], weights: Array | None, positions: NDArray[np.intp]
    ) -> None:
        self._augmented = np.ones((len(features), features.shape[1] + 1), features.dtype)
        self._augmented[:, :-1] = features
        self.labels, self.weights, self.positions = labels, weights, positions

    def project(self, weights: Array) -> Array:
        """`WᵀXᵀ`, (O, n)."""
        return super().project(self._like(weights)).astype(np.float64)

    def moments(self, values: Array) -> Array:
        """`VX`, (O, D)."""
        return super().moments(self._like(values)).astype(np.float64)

    def exact_moments(self, values: Array) -> Array:
        """The same in double precision."""
        return super().moments(values)

    def gram(self, values: Array | None = None) -> Array:
        """`Xᵀ diag(v) X`, (D, D), as symmetric as it would be in double precision."""
        found = super().gram(None if values is None else self._like(values)).astype(np.float64)
        return (found + found.T) / 2

    def _like(self, values: Array) -> Values:
        return values.astype(self._augmented.dtype, copy=False)
