"""The moments of a layer's inputs, on which its output error depends: mean and Gram matrix, of rows or of patches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from annealfit._support.arrays import Array, as_real
from annealfit._support.errors import InvalidInputError, check_number
from annealfit._support.threads import threads_for_large_product

NUMBERS_PER_CHUNK = 1 << 23  # numbers that are turned into double precision at a time: 64 MiB


@dataclass(frozen=True, eq=False)
class InputMoments:
    """Mean and Gram matrix `XᵀX/N` of a layer's inputs (N, D); no more of the inputs is needed to choose weights.

    The layer may be fed by layers that are quantised already. Then its inputs `X` are not those, `R`, that its
    outputs are to be reproduced from, and `cross` (`XᵀR/N`) and the moments of the reference say how they differ.

    >>> moments = InputMoments.of(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> moments.gram.tolist(), moments.means.tolist()
    ([[5.0, 7.0], [7.0, 10.0]], [2.0, 3.0])
    """

    gram: Array  # (D, D)
    means: Array  # (D,)
    cross: Array  # (D, D): XᵀR/N; the Gram matrix itself where there is no reference
    reference: InputMoments | None = None

    @classmethod
    def of(cls, inputs: Any, reference: Any = None) -> InputMoments:
        """The moments of inputs (N, D): an array, a memory map, a sparse matrix, or moments themselves."""
        if isinstance(inputs, InputMoments):
            if reference is not None:
                raise InvalidInputError("inputs are moments already; make them with the reference: InputMoments.of")
            return inputs
        found, wanted = _as_rows(inputs, "inputs"), None if reference is None else _as_rows(reference, "reference")
        if wanted is not None and wanted.shape != found.shape:
            raise InvalidInputError(
                f"inputs have shape {found.shape} and reference {wanted.shape}; they must be the same rows"
            )
        return cls.of_chunks((found[rows], None if wanted is None else wanted[rows]) for rows in _slices(*found.shape))

    @classmethod
    def of_chunks(cls, chunks: Iterable[tuple[Any, Any]]) -> InputMoments:
        """The moments of all rows that come in chunks, dense or sparse, each with its reference or None."""
        sums = MomentSums()
        for rows, reference in chunks:
            sums.add(rows, reference)
        return sums.moments()

    @classmethod
    def of_gram(cls, gram: ArrayLike) -> InputMoments:
        """The moments of which only the Gram matrix is known; the inputs' means count as 0."""
        matrix = as_real(gram, "gram", ndim=2)
        if len(matrix) == 0 or matrix.shape != (len(matrix), len(matrix)):
            raise InvalidInputError(f"gram has shape {matrix.shape}; expected (n_inputs, n_inputs)")
        if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-6 * float(np.abs(matrix).max())):
            raise InvalidInputError(
                f"gram differs from its transpose by {np.abs(matrix - matrix.T).max():.3g}; pass inputs.T @ inputs"
            )
        if matrix.diagonal().min() < 0:
            raise InvalidInputError(
                f"gram has {matrix.diagonal().min():.3g} on its diagonal, where sums of squares stand; "
                "pass inputs.T @ inputs"
            )
        return cls(gram=matrix, means=np.zeros(len(matrix)), cross=matrix)

    @property
    def size(self) -> int:
        """The number of inputs, `D`."""
        return len(self.gram)

    @property
    def target(self) -> InputMoments:
        """The moments of what the outputs are to be reproduced from."""
        return self.reference or self

    def centred(self) -> InputMoments:
        """The same for inputs measured from their means, which a bias can absorb."""
        target = self.target
        gram, cross = (
            matrix - np.outer(self.means, means)
            for matrix, means in ((self.gram, self.means), (self.cross, target.means))
        )
        zeros = np.zeros(self.size)
        if self.reference is None:
            return InputMoments(gram, zeros, gram)
        wanted = target.gram - np.outer(target.means, target.means)
        return InputMoments(gram, zeros, cross, InputMoments(wanted, zeros, wanted))


class MomentSums:
    """The moments of rows that come in chunks, each with its reference or without one."""

    def __init__(self) -> None:
        self._count = 0
        self._totals: list[Array] = []

    def add(self, rows: Any, reference: Any = None) -> None:
        """Count these rows (n, D) in, too."""
        parts = [_dense(part) for part in (rows, reference) if part is not None]
        first = parts[0]
        with threads_for_large_product(first.size * first.shape[1]), np.errstate(over="ignore", invalid="ignore"):
            sums = [part.sum(axis=0) for part in parts] + [part.T @ part for part in parts]
            if reference is not None:
                sums.append(first.T @ parts[1])
        if not all(np.isfinite(total).all() for total in sums):
            raise InvalidInputError("inputs hold NaN or infinity, or are too large to be squared")
        self._totals = [old + new for old, new in zip(self._totals, sums, strict=True)] if self._totals else sums
        self._count += len(first)

    def moments(self) -> InputMoments:
        """Of all rows so far."""
        if self._count == 0:
            raise InvalidInputError("inputs have no rows; give what the layer sees for some hundred images, say")
        means = [total / self._count for total in self._totals]
        if len(means) == 2:
            return InputMoments(gram=means[1], means=means[0], cross=means[1])
        reference = InputMoments(gram=means[3], means=means[1], cross=means[3])
        return InputMoments(gram=means[2], means=means[0], cross=means[4], reference=reference)


def _dense(rows: Any) -> Array:
    return np.asarray(rows.toarray() if scipy.sparse.issparse(rows) else rows, dtype=float)


def _as_rows(inputs: Any, name: str) -> Any:
    """Something of which slices are rows of numbers."""
    rows = inputs.tocsr() if scipy.sparse.issparse(inputs) else np.asanyarray(inputs)
    if rows.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name} is an array of {rows.dtype}; expected numbers")
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise InvalidInputError(
            f"{name} has shape {rows.shape}; expected (n_samples, n_inputs): flatten images, or take a convolution's "
            "patches (annealfit.quantization.convolution_moments)"
        )
    return rows


def _slices(count: int, size: int) -> Iterable[slice]:
    rows = max(1, NUMBERS_PER_CHUNK // size)
    return (slice(first, first + rows) for first in range(0, count, rows))


# Zeros before and after, axis by axis; or as many as it takes for one patch per stride, the odd one before or after.
Padding = tuple[tuple[int, int], ...] | str


@dataclass(frozen=True)
class Window:
    """The window of a convolution: its kernel and how it moves over images (N, channels, height, width) or the like."""

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
        """Pixels from the first to the last of a patch, axis by axis."""
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
