"""What a convolution sees: patches of its inputs, and their moments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from numbers import Integral
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, check_number
from annealfit.quantization.moments import NUMBERS_PER_CHUNK, InputMoments, MomentSums

# Zeros before and after, axis by axis; or as many as it takes for one patch per stride, the odd one before or after.
Padding = tuple[tuple[int, int], ...] | str


@dataclass(frozen=True)
class Window:
    """Where a convolution looks: its kernel and how it moves over images (N, channels, height, width) or the like."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: Padding
    dilations: tuple[int, ...]

    @classmethod
    def of(cls, kernel: int | Sequence[int], stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Window:
        """A window in two dimensions, or in as many as the kernel has; single numbers hold for all axes.

        >>> Window.of(3, padding=1).padding
        ((1, 1), (1, 1))
        """
        axes = 2 if isinstance(kernel, Integral) else len(tuple(kernel))  # type: ignore[arg-type]

        def for_each_axis(name: str, value: Any, least: int) -> tuple[int, ...]:
            values = (value,) * axes if isinstance(value, Integral) else tuple(value)
            if len(values) != axes:
                raise InvalidInputError(f"{name} has {len(values)} numbers and the kernel {axes} axes")
            for number in values:
                check_number(name, number, Integral, minimum=least)
            return tuple(int(number) for number in values)

        return cls(
            for_each_axis("kernel", kernel, 1),
            for_each_axis("stride", stride, 1),
            tuple((zeros, zeros) for zeros in for_each_axis("padding", padding, 0)),
            for_each_axis("dilation", dilation, 1),
        )

    @property
    def extents(self) -> tuple[int, ...]:
        """Pixels from the first to the last that a patch looks at, axis by axis."""
        return tuple((size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True))

    def padding_of(self, space: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Zeros before and after, axis by axis, for images of this size."""
        if not isinstance(self.padding, str):
            return self.padding
        zeros = (
            max((-(-size // stride) - 1) * stride + extent - size, 0)
            for size, extent, stride in zip(space, self.extents, self.strides, strict=True)
        )
        lean = self.padding == "before"
        return tuple(((count + lean) // 2, count - (count + lean) // 2) for count in zeros)

    def places(self, space: Sequence[int]) -> tuple[int, ...]:
        """How many patches there are along each axis of images of this size."""
        found = tuple(
            (size + sum(zeros) - extent) // stride + 1
            for size, zeros, extent, stride in zip(
                space, self.padding_of(space), self.extents, self.strides, strict=True
            )
        )
        if min(found) < 1:
            raise InvalidInputError(f"the kernel {self.kernel} is larger than the images, {tuple(space)}")
        return found

    def patches(self, images: NDArray[Any]) -> NDArray[Any]:
        """All patches (N·places, channels·kernel) of images (N, channels, …): channel by channel, row by row.

        >>> Window.of(2).patches(np.arange(9.0).reshape(1, 1, 3, 3)).tolist()[0]
        [0.0, 1.0, 3.0, 4.0]
        """
        self.places(images.shape[2:])  # refuses what is too small
        padded = np.pad(images, ((0, 0), (0, 0), *self.padding_of(images.shape[2:])))
        axes = tuple(range(2, images.ndim))
        windows = sliding_window_view(padded, self.extents, axis=axes)
        steps = tuple(slice(None, None, step) for step in (*self.strides, *self.dilations))
        chosen = windows[(slice(None), slice(None), *steps)]  # (N, C, places…, kernel…)
        size = len(axes)
        ordered = chosen.transpose(0, *range(2, 2 + size), 1, *range(2 + size, 2 + 2 * size))
        return ordered.reshape(-1, images.shape[1] * prod(self.kernel))

    def chunks(self, images: NDArray[Any]) -> Iterator[slice]:
        """Some images at a time, so that their patches fit in memory."""
        numbers = prod(self.places(images.shape[2:])) * images.shape[1] * prod(self.kernel)
        step = max(1, NUMBERS_PER_CHUNK // numbers)
        return (slice(first, first + step) for first in range(0, len(images), step))


def convolution_moments(
    images: Any,
    kernel: int | Sequence[int],
    reference: Any = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
) -> InputMoments:
    """The moments of a convolution's patches: `quantize_layer` takes them as its inputs.

    Images are (N, channels, height, width), and the weights that go with them those of the filters (F, channels, k, k)
    as `filters.reshape(F, -1).T`. `reference` are the images that the outputs are to be reproduced from, if others.

    >>> images = np.random.default_rng(0).normal(size=(10, 3, 8, 8))
    >>> convolution_moments(images, kernel=3, padding=1).gram.shape
    (27, 27)
    """
    window = Window.of(kernel, stride, padding, dilation)
    found = _as_images(images, "images", len(window.kernel))
    wanted = None if reference is None else _as_images(reference, "reference", len(window.kernel))
    if wanted is not None and wanted.shape != found.shape:
        raise InvalidInputError(f"images have shape {found.shape} and reference {wanted.shape}; they must be the same")
    sums = MomentSums()
    for part in window.chunks(found):
        sums.add(window.patches(found[part]), None if wanted is None else window.patches(wanted[part]))
    return sums.moments()


def _as_images(values: Any, name: str, axes: int) -> NDArray[Any]:
    images = values if isinstance(values, np.ndarray) else np.asarray(values)
    if images.dtype.kind not in "biuf" or images.ndim != axes + 2 or images.size == 0:
        raise InvalidInputError(
            f"{name} is an array of {images.dtype} and shape {images.shape}; expected numbers, and the shape "
            f"(N, channels{', height, width' if axes == 2 else ', …'}), nothing of it 0"
        )
    return images
