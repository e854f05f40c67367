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
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError
from annealfit._support.threads import in_order
from annealfit.data.rows import DenseChunk, Rows
from annealfit.data.rows.rows import add_up, drawn_positions

Values = NDArray[Any]  # in single or double precision, as the images are

ROWS_PER_CHUNK = 1024  # the work of a thread
KEPT_BYTES = 2**30  # features of up to so many bytes are kept in memory; larger ones are computed in every pass
_BATCH_BYTES = 2 * 2**20  # of intermediate values, which then stay in the processor's cache
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


class ForwardPass(NamedTuple):
    """What a network computes of some images, as derivatives need it."""

    inputs: Sequence[Values]  # of every layer (n, height, width, channels)
    maxima: Sequence[NDArray[Any]]  # integers (n, h, w, filters): a maximum's place in its window, −1 where none is > 0
    features: Values  # place by place, and a column of ones (n, d + 1)

    def part(self, images: slice) -> ForwardPass:
        """Return the pass of some of the images."""
        return ForwardPass(
            [own[images] for own in self.inputs], [own[images] for own in self.maxima], self.features[images]
        )


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
        return math.prod(self.layers[-1].outputs)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """The places of a head's parameters (d + 1,), in the order of `features`, among those ordered by filter.

        `RandomConvFeatures`, model files and checkpoints order features by filter.
        """
        by_filter = np.arange(self.n_features).reshape(self.layers[-1].filters, -1)
        return np.append(by_filter.T.ravel(), self.n_features)

    @property
    def multiplications(self) -> float:
        """The number of multiplications of one image's forward pass."""
        return float(sum(math.prod(shape.convolved) * shape.n_parameters * shape.filters for shape in self.layers))

    def forward(self, images: Values, weights: Sequence[Values]) -> ForwardPass:
        """Compute the features of images (n, height, width, channels) and what leads to them."""
        return self.forward_from(0, ForwardPass([np.ascontiguousarray(images)], [], images), weights)

    def forward_from(self, first: int, known: ForwardPass, weights: Sequence[Values]) -> ForwardPass:
        """Compute a pass of which the layers before `first` are known; it shares their arrays."""
        count, dtype = len(known.features), known.features.dtype
        inner = [np.empty((count, *shape.outputs), dtype) for shape in self.layers[first:-1]]
        maxima = [np.empty((count, *shape.outputs), shape.places) for shape in self.layers[first:]]
        features = np.empty((count, self.n_features + 1), dtype)
        features[:, -1] = 1
        whole = ForwardPass([*known.inputs[: first + 1], *inner], [*known.maxima[:first], *maxima], features)
        for batch in self._batches(count):
            own = whole.part(batch)
            outputs = [*(inputs.reshape(len(inputs), -1) for inputs in own.inputs[1:]), own.features]
            for layer in range(first, len(self.layers)):
                _convolve(own.inputs[layer], weights[layer], self.layers[layer], outputs[layer], own.maxima[layer])
        return whole

    def pass_bytes(self, itemsize: int) -> int:
        """Return the bytes of an image's forward pass, without the image."""
        inner = sum(math.prod(shape.outputs) for shape in self.layers[:-1]) * itemsize
        return inner + sum(math.prod(shape.outputs) * shape.places.itemsize for shape in self.layers)

    def maps(self, images: Values, weights: Sequence[Values]) -> list[Values]:
        """Compute the outputs (n, h, w, filters) of every layer."""
        known = self.forward(images, weights)
        return [*known.inputs[1:], known.features[:, :-1].reshape(len(images), *self.layers[-1].outputs)]

    def jacobians(self, known: ForwardPass, weights: Sequence[Values], layer: int, by_features: Values) -> Values:
        """Return derivatives (n, R, F, D) with respect to a layer's filters, from those (n, R, d) by the features.

        Of several equal maxima of a window the first counts.
        """
        return self._backward(known, weights, by_features, [layer], summed=False)[0]

    def gradients(
        self, known: ForwardPass, weights: Sequence[Values], layers: Sequence[int], by_features: Values
    ) -> list[Array]:
        """Return derivatives (F, D) with respect to the filters of some layers, summed over images.

        They are those of one quantity, from its derivatives (n, d) with respect to the features.
        """
        totals = [np.zeros((self.layers[layer].filters, self.layers[layer].n_parameters)) for layer in layers]
        for batch in self._batches(len(by_features)):
            found = self._backward(known.part(batch), weights, by_features[batch, None], layers, summed=True)
            for total, own in zip(totals, found, strict=True):
                total += own[0, 0]
        return totals

    def _batches(self, count: int) -> Iterator[slice]:
        """Yield slices of as many images as stay in the cache."""
        most = max(shape.height * shape.width * shape.channels for shape in self.layers)
        size = max(1, _BATCH_BYTES // (4 * most))
        return (slice(first, first + size) for first in range(0, count, size))

    def _backward(
        self, known: ForwardPass, weights: Sequence[Values], by_features: Values, layers: Sequence[int], *, summed: bool
    ) -> list[Values]:
        """Return derivatives (n, R, F, D), or (1, R, F, D) if summed, with respect to the filters of some layers."""
        from annealfit.data._convolution_kernels import derive_by_filters, derive_by_images

        count, quantities = by_features.shape[:2]
        dtype, found = known.features.dtype, {}
        by_outputs = np.ascontiguousarray(by_features, dtype).reshape(count, quantities, *self.layers[-1].outputs)
        for layer in reversed(range(min(layers), len(self.layers))):
            shape, inputs, maxima = self.layers[layer], known.inputs[layer], known.maxima[layer]
            if layer in layers:
                size = 1 if summed else count, quantities, shape.filters, shape.n_parameters
                found[layer] = np.empty(size, dtype)
                derive_by_filters(inputs, maxima, by_outputs, shape.kernel, shape.pool, found[layer])
            if layer > min(layers):
                by_inputs, own = np.empty((count, quantities, *inputs.shape[1:]), dtype), weights[layer].astype(dtype)
                derive_by_images(by_outputs, maxima, own, shape.kernel, shape.pool, by_inputs)
                by_outputs = by_inputs
        return [found[layer] for layer in layers]


def _convolve(inputs: Values, weights: Values, shape: LayerShape, outputs: Values, maxima: NDArray[Any]) -> None:
    """Overwrite outputs (n, h·w·filters or more) and maxima of a layer."""
    from annealfit.data._convolution_kernels import LANES, convolve_and_pool  # numba takes a moment to load

    blocks = -(-shape.filters // LANES)
    by_lane = np.zeros((blocks * LANES, shape.n_parameters), inputs.dtype)
    by_lane[: shape.filters] = weights
    by_lane = np.ascontiguousarray(by_lane.reshape(blocks, LANES, -1).transpose(0, 2, 1))
    convolve_and_pool(inputs, by_lane, shape.kernel, shape.pool, outputs, maxima)


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
        self._chosen = np.arange(len(self.labels))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        height, width, channels = self.pixels.shape[1:]
        return height, width, channels

    def part(self, positions: NDArray[np.intp]) -> Images:
        """Return some of the images."""
        part = copy(self)
        part.labels, part._chosen = self.labels[positions], self._chosen[positions]
        part.weights = None if self.weights is None else self.weights[positions]
        return part

    def take(self, positions: NDArray[np.intp] | slice) -> Values:
        """Return the images at some positions, shifted and scaled; copies have positions after all originals."""
        copies, originals = np.divmod(self._chosen[positions], len(self.pixels))
        taken = np.empty((len(originals), *self.shape), self.dtype)
        for number, shift in enumerate(self.shifts):
            own = copies == number
            if own.any():
                taken[own] = shifted(self.pixels[originals[own]], *shift)
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


class FeatureChunk(DenseChunk):
    """The features of some images, with the forward pass that made them while there is room for it."""

    def __init__(self, known: ForwardPass, labels: NDArray[np.intp], weights: Array | None, start: int) -> None:
        self.known: ForwardPass | None = known
        self._augmented = known.features
        self.features = known.features[:, :-1]
        self.labels, self.weights, self.start = labels, weights, start

    def project(self, weights: Array) -> Array:
        """Return `WᵀXᵀ` (O, n)."""
        from annealfit.data.rows._single_kernels import project_rows

        rows, outputs = self._augmented, np.empty((weights.shape[1], len(self.labels)))
        project_rows(rows, np.ascontiguousarray(weights.T, rows.dtype), 1.0, np.zeros(len(outputs)), outputs)
        return outputs

    def moments(self, values: Array) -> Array:
        """Return `VX` (O, D)."""
        from annealfit.data._convolution_kernels import add_rows

        rows = self._augmented
        found = np.zeros((len(values), rows.shape[1]), rows.dtype)
        add_rows(rows, np.ascontiguousarray(values, rows.dtype), found)
        return found.astype(np.float64, copy=False)

    def column_sums(self) -> Array:
        """Return weighted sums of the columns, their squares and magnitudes (3, D); features are never below 0."""
        rows = self._augmented
        weights = np.ones(len(rows), rows.dtype) if self.weights is None else self.weights.astype(rows.dtype)
        sums = weights @ rows
        return np.stack([sums, weights @ np.square(rows), sums]).astype(np.float64)


class NetworkRows(Rows):
    """The features of images as rows, computed chunk by chunk in threads; up to KEPT_BYTES of them are kept.

    So is the rest of the forward pass, where there is room for it beside the features. They are in the images'
    precision; products are returned in double precision. Of `previous` rows of the same images, the first layers are
    used again whose weights are the same arrays.
    """

    def __init__(
        self, images: Images, network: Network, weights: Sequence[Values], previous: NetworkRows | None = None
    ) -> None:
        self.images, self.network, self.weights = images, network, tuple(weights)
        self.n_parameters, self.n_classes = network.n_features + 1, images.n_classes
        self.total_weight = float(len(images)) if images.weights is None else float(images.weights.sum())
        self.entries = len(images) * self.n_parameters
        self._firsts = range(0, len(images), ROWS_PER_CHUNK)
        size = self.entries * images.dtype.itemsize
        self._keeps = size <= KEPT_BYTES
        self._keeps_all = size + len(images) * network.pass_bytes(images.dtype.itemsize) <= KEPT_BYTES
        self._kept: dict[int, FeatureChunk] = {}
        before: Sequence[Values] = () if previous is None else previous.weights[:-1]
        self._same = next((layer for layer, own in enumerate(before) if own is not weights[layer]), len(before))
        self._before = dict(previous._kept) if previous is not None and self._same else {}

    def chunks(self) -> Iterable[FeatureChunk]:
        """Return the chunks in the order of the images."""
        return map(self._chunk, self._firsts)

    def sum(self, term: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Sum a term over all chunks, in their order whatever the number of threads."""
        return add_up(in_order(lambda first: term(self._chunk(first)), self._firsts))

    def sample(self, count: int) -> Rows:
        """Return the rows of `count` images, always the same ones; all if there are fewer."""
        if len(self.images) <= count:
            return self
        return NetworkRows(self.images.part(drawn_positions(len(self.images), count)), self.network, self.weights)

    def gradient(self, chunk: FeatureChunk, layer: int, by_features: Values) -> Array:
        """Return the `gradients` of the network for the images of a chunk and one layer."""
        known = chunk.known or self.network.forward(self._images(chunk.start), self.weights)
        if layer == 0:
            known = known._replace(inputs=[self._images(chunk.start), *known.inputs[1:]])
        return self.network.gradients(known, self.weights, [layer], by_features)[0]

    def digest(self) -> str:
        """Return the digest of the images."""
        return self.images.digest()

    def _images(self, first: int) -> Values:
        return self.images.take(slice(first, first + ROWS_PER_CHUNK))

    def _chunk(self, first: int) -> FeatureChunk:
        if first in self._kept:
            return self._kept[first]
        before, own, images = self._before.pop(first, None), slice(first, first + ROWS_PER_CHUNK), self.images
        if before is not None and before.known is not None:
            known = self.network.forward_from(self._same, before.known, self.weights)
        else:
            known = self.network.forward(self._images(first), self.weights)
            known = known._replace(inputs=[known.inputs[0][:, :0].copy(), *known.inputs[1:]])  # taken anew if needed
        chunk = FeatureChunk(known, images.labels[own], None if images.weights is None else images.weights[own], first)
        if self._keeps:
            self._kept[first] = chunk
            if not self._keeps_all:
                chunk.known = None
        return chunk
