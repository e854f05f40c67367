"""Labelled images, of which a few at a time are in memory as a network reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from annealfit._support.errors import InvalidInputError
from annealfit.data.convolution.network import Values

_DIGEST_IMAGES = 4096  # at a time


class Images:
    """Images (N, height, width, channels) of any type of number, with labels below `n_classes`, perhaps with weights.

    Copies that are shifted by some pixels are images of their own, with the same label and weight, and are made when
    they are taken; where nothing is left to shift in, the edge is repeated. Every value may be scaled, as it is taken,
    to `(value − mean) / scale`, with a mean and a scale for each pixel.
    """

    def __init__(
        self,
        pixels: NDArray[Any],
        labels: NDArray[np.intp],
        n_classes: int,
        weights: NDArray[np.float64] | None = None,
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
        self._scaling = None
        if scaling is not None:
            mean, scale = (np.asarray(values).reshape(self.shape).astype(self.dtype) for values in scaling)
            self._scaling = mean, scale

    def __len__(self) -> int:
        return len(self.pixels) * len(self.shifts)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        height, width, channels = self.pixels.shape[1:]
        return height, width, channels

    def take(self, positions: NDArray[np.intp]) -> Values:
        """The images at some positions, copies after originals, as a network reads them."""
        copies, originals = np.divmod(positions, len(self.pixels))
        taken = np.empty((len(positions), *self.shape), self.dtype)
        for copy in np.unique(copies):
            own = copies == copy
            taken[own] = shifted(self.pixels[originals[own]], *self.shifts[copy])
        if self._scaling is not None:
            mean, scale = self._scaling
            taken -= mean
            taken /= scale
        return taken

    def digest(self) -> str:
        """A digest of everything that the images are."""
        found = hashlib.sha256(repr((self.shape, self.shifts, self.dtype.str)).encode())
        for first in range(0, len(self.pixels), _DIGEST_IMAGES):
            found.update(np.ascontiguousarray(self.pixels[first : first + _DIGEST_IMAGES], self.dtype).tobytes())
        found.update(self.labels.astype(np.int64).tobytes())
        for values in (*(self._scaling or ()), *(() if self.weights is None else (self.weights,))):
            found.update(np.ascontiguousarray(values).tobytes())
        return found.hexdigest()


def shifted(images: NDArray[Any], down: int, right: int) -> NDArray[Any]:
    """Images (n, height, width, channels), moved by whole pixels; the edge is repeated where they leave a gap.

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
    """All shifts of at most so many pixels, down and right together; none first.

    >>> shifts_within(1)
    [(0, 0), (-1, 0), (0, -1), (0, 1), (1, 0)]
    """
    steps = range(-distance, distance + 1)
    found = [(down, right) for down in steps for right in steps if abs(down) + abs(right) <= distance]
    return sorted(found, key=lambda shift: (abs(shift[0]) + abs(shift[1]), shift))
