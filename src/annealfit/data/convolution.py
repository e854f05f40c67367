"""Convolution layers: features of images, their derivatives with respect to filters, and features as rows for a head.

A layer convolves without padding, applies ReLU, and keeps the maximum of each window. While the maxima stay where they
are, a feature is linear in the filters of any one layer: `patch · filter` at the maximum. So derivatives are products
with patches.

Weights of a layer are (filters, kernel·kernel·channels + 1): the patch row by row, channels last, and the bias.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError
from annealfit._support.threads import in_order
from annealfit.data.rows import DenseChunk, Rows
from annealfit.data.rows.rows import add_up

Values = NDArray[Any]  # in single or double precision, as the images are
Cotangents = Callable[[Values, slice], Values]  # features of some images, and which: derivatives (n, R, d) by them

ROWS_PER_CHUNK = 1024  # the work of a thread
KEPT_BYTES = 2**30  # features of up to so many bytes are kept in memory; larger ones are computed in every pass
_BATCH_BYTES = 2 * 2**20  # of intermediate values, which then stay in the processor's cache
_QUANTITIES = 10  # that are usually differentiated: one per class
_DIGEST_IMAGES = 4096  # at a time


def with_channels(shape: Sequence[int]) -> tuple[int, int, int]:
    """Complete the shape of an image to (H, W, channels); (H, W) has one channel.

    >>> with_channels((8, 8)), with_channels((4, 6, 3))
    ((8, 8, 1), (4, 6, 3))
    """
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise InvalidInputError(f"an image shape is (H, W) or (H, W, channels), not {tuple(shape)}")
    height, width, channels = (*shape, 1)[:3]
    return int(height), int(width), int(channels)


@dataclass(frozen=True)
class LayerShape:
    """The sizes of one layer."""

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
        """Height and width after pooling; an incomplete window is left out."""
        height, width = self.convolved
        return height // self.pool, width // self.pool

    @property
    def outputs(self) -> tuple[int, int, int]:
        """Height, width and channels of its output."""
        return (*self.pooled, self.filters)

    @property
    def places(self) -> np.dtype[Any]:
        """The smallest type of integers that numbers the places of a window and −1."""
        return np.min_scalar_type(-(self.pool**2))

    @property
    def n_parameters(self) -> int:
        """The number of parameters of one filter, with its bias."""
        return self.kernel**2 * self.channels + 1


class LayerTrace(NamedTuple):
    """The forward pass of a layer, as derivatives need it."""

    inputs: Values  # (n, height, width, channels)
    maxima: NDArray[Any]  # integers (n, h, w, filters): the maximum's place in its window, −1 where nothing is above 0


@dataclass(frozen=True)
class Network:
    """The shapes of all layers, and what they compute for given weights."""

    layers: tuple[LayerShape, ...]

    @classmethod
    def of(cls, image_shape: tuple[int, int, int], layers: Sequence[tuple[int, int, int]]) -> Network:
        """Make the network of images (height, width, channels) and layers (filters, kernel size, pool size).

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
        """The number of values of the last layer's output."""
        return math.prod(self.layers[-1].pooled) * self.layers[-1].filters

    @property
    def multiplications(self) -> float:
        """The number of multiplications of one image's forward pass."""
        return float(sum(math.prod(shape.convolved) * shape.n_parameters * shape.filters for shape in self.layers))

    def features(self, images: Values, weights: Sequence[Values], traces: Sequence[LayerTrace] = ()) -> Values:
        """Compute features (n, d) of images (n, height, width, channels): filter by filter, row by row.

        `traces`, if those of `blank_traces`, are overwritten.
        """
        features = np.empty((len(images), self.n_features), images.dtype)
        for batch in _batches(len(images), self._most_inputs):
            found, outputs = self._forward(images[batch], weights)
            features[batch] = _flat(outputs)
            for layer, (known, own) in enumerate(zip(traces, found, strict=False)):
                known.maxima[batch] = own.maxima
                if layer:
                    known.inputs[batch] = own.inputs
        return features

    def blank_traces(self, images: Values) -> list[LayerTrace]:
        """Return traces of these images to be filled by `features`; the inputs of the first layer are the images."""
        inputs = [images, *(np.empty((len(images), *shape.outputs), images.dtype) for shape in self.layers[:-1])]
        maxima = [np.empty((len(images), *shape.outputs), shape.places) for shape in self.layers]
        return list(map(LayerTrace, inputs, maxima))

    def trace_bytes(self, itemsize: int) -> int:
        """Return the bytes of the traces of an image, without the image."""
        inputs = sum(math.prod(shape.outputs) for shape in self.layers[:-1]) * itemsize
        return inputs + sum(math.prod(shape.outputs) * shape.places.itemsize for shape in self.layers)

    def maps(self, images: Values, weights: Sequence[Values]) -> list[Values]:
        """Compute the outputs (n, h, w, filters) of every layer."""
        traces, outputs = self._forward(images, weights)
        return [*(trace.inputs for trace in traces[1:]), outputs]

    def jacobians(
        self,
        images: Values,
        weights: Sequence[Values],
        layer: int,
        cotangents: Cotangents,
        known: tuple[Values, Sequence[LayerTrace]] | None = None,
    ) -> Iterator[Values]:
        """Yield derivatives with respect to a layer's filters, (n, R, F, D) for some images at a time.

        `cotangents` gets the features of these images and their positions, and returns the derivatives (n, R, d) of R
        quantities with respect to the features. Of several equal maxima of a window the first counts. `known` are
        features and traces of all the images, if they were computed before.
        """
        for batch in _batches(len(images), _QUANTITIES * max(self._most_inputs, self._most_weights)):
            if known is None:
                traces, outputs = self._forward(images[batch], weights)
                features = _flat(outputs)
            else:
                features = known[0][batch]
                traces = [LayerTrace(trace.inputs[batch], trace.maxima[batch]) for trace in known[1]]
            by_outputs = self._by_last_outputs(features, cotangents, batch)
            for above in range(len(self.layers) - 1, layer, -1):
                by_outputs = _by_inputs(by_outputs, traces[above], weights[above], self.layers[above])
            yield _by_filters(by_outputs, traces[layer], self.layers[layer])

    def gradients(self, images: Values, weights: Sequence[Values], cotangents: Cotangents) -> list[Array]:
        """Compute derivatives (F, D) with respect to the filters of every layer, summed over images, in one pass.

        `cotangents` are as in `jacobians`, of one quantity.
        """
        totals = [np.zeros((shape.filters, shape.n_parameters)) for shape in self.layers]
        for batch in _batches(len(images), self._most_weights):
            traces, outputs = self._forward(images[batch], weights)
            by_outputs = self._by_last_outputs(_flat(outputs), cotangents, batch)
            for layer in reversed(range(len(self.layers))):
                totals[layer] += _by_filters(by_outputs, traces[layer], self.layers[layer]).sum(axis=(0, 1))
                if layer:
                    by_outputs = _by_inputs(by_outputs, traces[layer], weights[layer], self.layers[layer])
        return totals

    @property
    def _most_inputs(self) -> int:
        return max(shape.height * shape.width * shape.channels for shape in self.layers)

    @property
    def _most_weights(self) -> int:
        return max(shape.filters * shape.n_parameters for shape in self.layers)

    def _forward(self, images: Values, weights: Sequence[Values]) -> tuple[list[LayerTrace], Values]:
        """Return the traces of all layers, and the outputs (n, h, w, filters) of the last."""
        traces: list[LayerTrace] = []
        inputs = np.ascontiguousarray(images)
        for shape, own in zip(self.layers, weights, strict=True):
            outputs, maxima = _convolved(inputs, own.astype(images.dtype, copy=False), shape)
            traces.append(LayerTrace(inputs, maxima))
            inputs = outputs
        return traces, inputs

    def _by_last_outputs(self, features: Values, cotangents: Cotangents, batch: slice) -> Values:
        """Return derivatives with respect to the outputs of the last layer, (n, R, h, w, filters)."""
        last = self.layers[-1]
        by_features = cotangents(features, batch).astype(features.dtype, copy=False)
        by_filter = by_features.reshape(*by_features.shape[:2], last.filters, *last.pooled)
        return np.ascontiguousarray(by_filter.transpose(0, 1, 3, 4, 2))


def _batches(count: int, values: int) -> Iterator[slice]:
    """Yield slices of as many images, of so many values each, as stay in the cache."""
    size = max(1, _BATCH_BYTES // (4 * values))
    return (slice(first, first + size) for first in range(0, count, size))


def _flat(outputs: Values) -> Values:
    """Flatten outputs (n, h, w, filters) to features (n, d), filter by filter."""
    return outputs.transpose(0, 3, 1, 2).reshape(len(outputs), -1)


def _convolved(inputs: Values, weights: Values, shape: LayerShape) -> tuple[Values, NDArray[Any]]:
    """Return outputs and maxima (n, h, w, filters)."""
    from annealfit.data._convolution_kernels import LANES, convolve_and_pool  # numba takes a moment to load

    blocks = -(-shape.filters // LANES)
    by_lane = np.zeros((blocks * LANES, shape.n_parameters), inputs.dtype)
    by_lane[: shape.filters] = weights
    by_lane = np.ascontiguousarray(by_lane.reshape(blocks, LANES, -1).transpose(0, 2, 1))
    outputs = np.empty((len(inputs), *shape.outputs), inputs.dtype)
    maxima = np.empty(outputs.shape, shape.places)
    convolve_and_pool(inputs, by_lane, shape.kernel, shape.pool, outputs, maxima)
    return outputs, maxima


def _by_filters(by_outputs: Values, trace: LayerTrace, shape: LayerShape) -> Values:
    """Return derivatives (n, R, F, D) with respect to a layer's filters, from those with respect to its outputs."""
    from annealfit.data._convolution_kernels import derive_by_filters

    found = np.empty((*by_outputs.shape[:2], shape.filters, shape.n_parameters), trace.inputs.dtype)
    derive_by_filters(trace.inputs, trace.maxima, by_outputs, shape.kernel, shape.pool, found)
    return found


def _by_inputs(by_outputs: Values, trace: LayerTrace, weights: Values, shape: LayerShape) -> Values:
    """Return derivatives with respect to a layer's inputs (n, R, H, W, C), from those with respect to its outputs."""
    from annealfit.data._convolution_kernels import derive_by_images

    found = np.empty((*by_outputs.shape[:2], *trace.inputs.shape[1:]), trace.inputs.dtype)
    own = weights.astype(found.dtype, copy=False)
    derive_by_images(by_outputs, trace.maxima, own, shape.kernel, shape.pool, found)
    return found


def join_filters(filters: Values, biases: Values) -> Values:
    """Join filters (F, channels, k, k) and biases (F,) to the weights (F, k·k·channels + 1) of a layer."""
    return np.column_stack([filters.transpose(0, 2, 3, 1).reshape(len(filters), -1), biases])


def split_filters(weights: Values, shape: LayerShape) -> tuple[Values, Values]:
    """Split the weights of a layer into filters and biases: the inverse of `join_filters`."""
    filters = weights[:, :-1].reshape(len(weights), shape.kernel, shape.kernel, shape.channels)
    return np.ascontiguousarray(filters.transpose(0, 3, 1, 2)), weights[:, -1].copy()


class Images:
    """Images (N, height, width, channels) with labels below `n_classes` and perhaps weights.

    Every shift adds a copy of all images, moved by whole pixels, with the same labels and weights. Copies are made
    when they are taken, and so is `(value − mean) / scale` with the mean and scale of each pixel in `scaling`.
    """

    def __init__(
        self,
        pixels: NDArray[Any],
        labels: NDArray[np.intp],
        n_classes: int,
        weights: Array | None = None,
        *,
        shifts: Sequence[tuple[int, int]] = ((0, 0),),
        scaling: tuple[ArrayLike, ArrayLike] | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        if pixels.ndim != 4 or len(labels) != len(pixels):
            raise InvalidInputError(
                f"pixels have shape {pixels.shape} and labels {labels.shape}; "
                "expected (N, height, width, channels) and (N,)"
            )
        self.pixels, self.n_classes, self.shifts, self.dtype = pixels, n_classes, tuple(shifts), np.dtype(dtype)
        self.labels = np.tile(labels, len(self.shifts))
        self.weights = None if weights is None else np.tile(weights, len(self.shifts))
        self._scaling = [np.asarray(values).reshape(self.shape).astype(self.dtype) for values in scaling or ()]

    def __len__(self) -> int:
        return len(self.pixels) * len(self.shifts)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        height, width, channels = self.pixels.shape[1:]
        return height, width, channels

    def take(self, positions: NDArray[np.intp]) -> Values:
        """Return the images at some positions, shifted and scaled; copies have positions after all originals."""
        copies, originals = np.divmod(positions, len(self.pixels))
        taken = np.empty((len(positions), *self.shape), self.dtype)
        for copy in np.unique(copies):
            own = copies == copy
            taken[own] = shifted(self.pixels[originals[own]], *self.shifts[copy])
        if self._scaling:
            mean, scale = self._scaling
            taken -= mean
            taken /= scale
        return taken

    def digest(self) -> str:
        """Return a digest of pixels, shifts, labels, scaling and weights."""
        found = hashlib.sha256(repr((self.shape, self.shifts, self.dtype.str)).encode())
        for first in range(0, len(self.pixels), _DIGEST_IMAGES):
            found.update(np.ascontiguousarray(self.pixels[first : first + _DIGEST_IMAGES], self.dtype).tobytes())
        found.update(self.labels.astype(np.int64).tobytes())
        for values in (*self._scaling, *(() if self.weights is None else (self.weights,))):
            found.update(np.ascontiguousarray(values).tobytes())
        return found.hexdigest()


def shifted(images: NDArray[Any], down: int, right: int) -> NDArray[Any]:
    """Move images (n, height, width, channels) by whole pixels, and repeat the edge where they leave a gap.

    >>> shifted(np.array([[1, 2, 3]])[None, ..., None], 0, 1)[0, ..., 0].tolist()
    [[1, 1, 2]]
    """
    if down == right == 0:
        return images
    height, width = images.shape[1:3]
    rows = np.clip(np.arange(height) - down, 0, height - 1)
    columns = np.clip(np.arange(width) - right, 0, width - 1)
    return images[:, rows[:, None], columns]


def shifts_within(distance: int) -> list[tuple[int, int]]:
    """Return all shifts (down, right) of at most `distance` pixels in total, shortest first.

    >>> shifts_within(1)
    [(0, 0), (-1, 0), (0, -1), (0, 1), (1, 0)]
    """
    steps = range(-distance, distance + 1)
    found = [(down, right) for down in steps for right in steps if abs(down) + abs(right) <= distance]
    return sorted(found, key=lambda shift: (abs(shift[0]) + abs(shift[1]), shift))


class NetworkRows(Rows):
    """The features of images as rows, computed chunk by chunk in threads; up to KEPT_BYTES of them are kept.

    So are the maxima and inputs of layers, where there is room for them beside the features.

    They are in the images' precision; products are returned in double precision.
    """

    def __init__(self, images: Images, network: Network, weights: Sequence[Values]) -> None:
        self.images, self.network, self.weights = images, network, tuple(weights)
        self.n_parameters, self.n_classes = network.n_features + 1, images.n_classes
        self.total_weight = float(len(images)) if images.weights is None else float(images.weights.sum())
        self.entries = len(images) * self.n_parameters
        self._firsts = range(0, len(images), ROWS_PER_CHUNK)
        self._keeps = self.entries * images.dtype.itemsize <= KEPT_BYTES
        size = self.entries * images.dtype.itemsize + len(images) * network.trace_bytes(images.dtype.itemsize)
        self._keeps_traces = size <= KEPT_BYTES
        self._kept: dict[int, DenseChunk] = {}
        self._traces: dict[int, Sequence[LayerTrace]] = {}

    def chunks(self) -> Iterable[DenseChunk]:
        """Return the chunks in the order of the images."""
        return map(self._chunk, self._firsts)

    def sum(self, term: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Sum a term over all chunks, in their order whatever the number of threads."""
        return add_up(in_order(lambda first: term(self._chunk(first)), self._firsts))

    def jacobians(self, chunk: DenseChunk, layer: int, cotangents: Cotangents) -> Iterator[Values]:
        """Return the `jacobians` of the network for the images of a chunk."""
        images = self.images.take(chunk.start + np.arange(len(chunk.labels)))
        traces, known = self._traces.get(chunk.start), None
        if traces is not None:
            known = chunk.features, [LayerTrace(images, traces[0].maxima), *traces[1:]]
        return self.network.jacobians(images, self.weights, layer, cotangents, known)

    def digest(self) -> str:
        """Return the digest of the images."""
        return self.images.digest()

    def _chunk(self, first: int) -> DenseChunk:
        if first in self._kept:
            return self._kept[first]
        images, own = self.images, slice(first, first + ROWS_PER_CHUNK)
        taken = images.take(np.arange(len(images))[own])
        traces = self.network.blank_traces(taken) if self._keeps_traces else []
        features = self.network.features(taken, self.weights, traces)
        weights = None if images.weights is None else images.weights[own]
        chunk = DenseChunk(features, images.labels[own], weights, first, dtype=images.dtype)
        if traces:
            self._traces[first] = [LayerTrace(taken[:, :0].copy(), traces[0].maxima), *traces[1:]]
        if self._keeps:
            self._kept[first] = chunk
        return chunk
