"""The arithmetic of convolution layers: features of images, and derivatives with respect to the filters of a layer.

A layer convolves without padding, cuts off what is negative, and keeps the largest of each window. With the winners
held fixed a feature is linear in the filters of any one layer, `patch · filter` at the place that won. So derivatives
are products with patches, exact wherever the winners do not change.

Weights of a layer are (filters, kernel·kernel·channels + 1): the patch row by row, channels last, and the bias.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError

Values = NDArray[Any]  # of single or double precision, as the images are

_BATCH_BYTES = 2 * 2**20  # of what is worked out at a time, which stays in the processor's cache
_SEEDS = 10  # quantities that are usually differentiated: one per class


@dataclass(frozen=True)
class LayerShape:
    """Sizes of one layer."""

    height: int  # of its input
    width: int
    channels: int
    filters: int
    kernel: int
    pool: int

    @property
    def convolved(self) -> tuple[int, int]:
        """Height and width after the convolution."""
        return self.height - self.kernel + 1, self.width - self.kernel + 1

    @property
    def pooled(self) -> tuple[int, int]:
        """Height and width after pooling; what does not fill a window is left out."""
        height, width = self.convolved
        return height // self.pool, width // self.pool

    @property
    def places(self) -> int:
        """Positions of the convolution."""
        height, width = self.convolved
        return height * width

    @property
    def inputs(self) -> int:
        """Values of its input."""
        return self.height * self.width * self.channels

    @property
    def n_parameters(self) -> int:
        """Of one filter, the bias among them."""
        return self.kernel**2 * self.channels + 1


class LayerTrace(NamedTuple):
    """What derivatives need to know about a layer's way from inputs to outputs."""

    inputs: Values  # (n, height, width, channels)
    winners: NDArray[np.int32]  # (n, h, w, filters): which of its window, −1 where nothing is above 0
    outputs: Values  # (n, h, w, filters)


@dataclass(frozen=True)
class Network:
    """The sizes of all layers; what they compute for given weights, a pair of arrays in and one out."""

    layers: tuple[LayerShape, ...]

    @classmethod
    def of(cls, image_shape: tuple[int, int, int], layers: Sequence[tuple[int, int, int]]) -> Network:
        """The network of images (height, width, channels) and layers of (filters, kernel size, pool size).

        >>> Network.of((8, 8, 1), [(2, 3, 2)]).n_features
        18
        """
        height, width, channels = image_shape
        shapes = []
        for number, (filters, kernel, pool) in enumerate(layers, start=1):
            if kernel > min(height, width):
                raise InvalidInputError(
                    f"layer {number}: the kernel ({kernel}×{kernel}) is larger than its input "
                    f"({height}×{width}); use a smaller kernel_size, or larger images"
                )
            shape = LayerShape(height, width, channels, filters, kernel, pool)
            (height, width), channels = shape.pooled, filters
            if min(height, width) == 0:
                raise InvalidInputError(
                    f"layer {number}: pooling by {pool} leaves nothing of the "
                    f"{shape.convolved[0]}×{shape.convolved[1]} convolution; use a smaller pool_size"
                )
            shapes.append(shape)
        return cls(tuple(shapes))

    @property
    def n_features(self) -> int:
        """Values of the last layer's output."""
        last = self.layers[-1]
        return last.pooled[0] * last.pooled[1] * last.filters

    @property
    def multiplications(self) -> float:
        """Of one image's way through all layers."""
        return float(sum(shape.places * shape.n_parameters * shape.filters for shape in self.layers))

    def features(self, images: Values, weights: Sequence[Values]) -> Values:
        """Features (n, d) of images (n, height, width, channels): filter by filter, each a picture row by row."""
        features = np.empty((len(images), self.n_features), images.dtype)
        for batch in self._batches(len(images), self._most(lambda shape: shape.inputs)):
            features[batch] = _flat(self._traces(images[batch], weights)[-1].outputs)
        return features

    def maps(self, images: Values, weights: Sequence[Values]) -> list[Values]:
        """The outputs (n, h, w, filters) of every layer."""
        return [trace.outputs for trace in self._traces(images, weights)]

    def jacobians(
        self,
        images: Values,
        weights: Sequence[Values],
        layer: int,
        cotangents: Callable[[Values, slice], NDArray[Any]],
    ) -> Iterator[Values]:
        """Derivatives with respect to a layer's filters, (n, R, F, D) for some images at a time.

        `cotangents` is asked, with the features of these images and where they stand, for the derivatives (n, R, d) of
        R quantities with respect to the features. Where several places of a window are equally large, the first
        counts.
        """
        derivatives = self._most(lambda shape: max(shape.inputs, shape.filters * shape.n_parameters))
        for batch in self._batches(len(images), _SEEDS * derivatives):
            traces = self._traces(images[batch], weights)
            found = self._at_places(cotangents(_flat(traces[-1].outputs), batch), images.dtype)
            for above in range(len(self.layers) - 1, layer, -1):
                found = _pull_back(found, traces[above], weights[above], self.layers[above])
            yield _by_filter(found, traces[layer], self.layers[layer])

    def gradients(
        self, images: Values, weights: Sequence[Values], cotangents: Callable[[Values, slice], NDArray[Any]]
    ) -> list[NDArray[np.float64]]:
        """Derivatives (F, D) with respect to the filters of every layer, summed over images: one pass back for all.

        `cotangents` are as in `jacobians`, of one quantity.
        """
        totals = [np.zeros((shape.filters, shape.n_parameters)) for shape in self.layers]
        for batch in self._batches(len(images), self._most(lambda shape: shape.filters * shape.n_parameters)):
            traces = self._traces(images[batch], weights)
            found = self._at_places(cotangents(_flat(traces[-1].outputs), batch), images.dtype)
            for layer in reversed(range(len(self.layers))):
                totals[layer] += _by_filter(found, traces[layer], self.layers[layer]).sum(axis=(0, 1))
                if layer:
                    found = _pull_back(found, traces[layer], weights[layer], self.layers[layer])
        return totals

    def _at_places(self, cotangents: NDArray[Any], dtype: Any) -> Values:
        """Derivatives with respect to features (n, R, d) as with respect to the last outputs (n, R, h, w, filters)."""
        last = self.layers[-1]
        by_filter = cotangents.astype(dtype, copy=False).reshape(*cotangents.shape[:2], last.filters, *last.pooled)
        return np.ascontiguousarray(by_filter.transpose(0, 1, 3, 4, 2))

    def _traces(self, images: Values, weights: Sequence[Values]) -> list[LayerTrace]:
        traces: list[LayerTrace] = []
        inputs = np.ascontiguousarray(images)
        for shape, own in zip(self.layers, weights, strict=True):
            traces.append(_trace(inputs, own.astype(images.dtype, copy=False), shape))
            inputs = traces[-1].outputs
        return traces

    def _most(self, values: Callable[[LayerShape], int]) -> int:
        """The most values that a layer has of a kind, for one image."""
        return max(map(values, self.layers))

    @staticmethod
    def _batches(count: int, values: int) -> Iterator[slice]:
        """Slices of so many images, of so many values each, as stay in the cache."""
        size = max(1, _BATCH_BYTES // (4 * values))
        return (slice(first, first + size) for first in range(0, count, size))


def _flat(outputs: Values) -> Values:
    """The outputs (n, h, w, filters) of the last layer as features (n, d): filter by filter."""
    return outputs.transpose(0, 3, 1, 2).reshape(len(outputs), -1)


def join_filters(filters: Values, biases: Values) -> Values:
    """The weights (F, k·k·channels + 1) of a layer, from filters (F, channels, k, k) and biases (F,)."""
    return np.column_stack([filters.transpose(0, 2, 3, 1).reshape(len(filters), -1), biases])


def split_filters(weights: Values, shape: LayerShape) -> tuple[Values, Values]:
    """The inverse of `join_filters`."""
    filters = weights[:, :-1].reshape(len(weights), shape.kernel, shape.kernel, shape.channels)
    return np.ascontiguousarray(filters.transpose(0, 3, 1, 2)), weights[:, -1].copy()


def _trace(inputs: Values, weights: Values, shape: LayerShape) -> LayerTrace:
    from annealfit.data.convolution._kernels import LANES, convolve_and_pool  # numba takes a moment to load

    blocks = -(-shape.filters // LANES)
    by_lane = np.zeros((blocks * LANES, shape.n_parameters), inputs.dtype)
    by_lane[: shape.filters] = weights
    by_lane = np.ascontiguousarray(by_lane.reshape(blocks, LANES, -1).transpose(0, 2, 1))
    outputs = np.empty((len(inputs), *shape.pooled, shape.filters), inputs.dtype)
    winners = np.empty(outputs.shape, np.int32)
    convolve_and_pool(inputs, by_lane, shape.kernel, shape.pool, outputs, winners)
    return LayerTrace(inputs, winners, outputs)


def _by_filter(cotangents: Values, trace: LayerTrace, shape: LayerShape) -> Values:
    """Derivatives (n, R, F, D) with respect to a layer's filters, from those with respect to its outputs."""
    from annealfit.data.convolution._kernels import LANES, derive_by_filters

    vectors = -(-shape.n_parameters // LANES)
    found = np.empty((*cotangents.shape[:2], shape.filters, vectors, LANES), trace.inputs.dtype)
    derive_by_filters(trace.inputs, trace.winners, cotangents, shape.kernel, shape.pool, found)
    return found.reshape(*found.shape[:3], -1)[..., : shape.n_parameters]


def _pull_back(cotangents: Values, trace: LayerTrace, weights: Values, shape: LayerShape) -> Values:
    """Derivatives with respect to a layer's inputs (n, R, H, W, C), from those with respect to its outputs."""
    from annealfit.data.convolution._kernels import derive_by_images

    found = np.empty((*cotangents.shape[:2], *trace.inputs.shape[1:]), trace.inputs.dtype)
    derive_by_images(
        cotangents, trace.winners, weights.astype(found.dtype, copy=False), shape.kernel, shape.pool, found
    )
    return found
