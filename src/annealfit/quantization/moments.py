"""The moments of a layer's inputs, on which its output error depends: mean and Gram matrix, of rows or of patches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
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
    outputs are to be reproduced from; `cross` and the moments of the target say how they differ. What is kept are
    covariances, so that inputs far from 0 lose no digits.

    >>> moments = InputMoments.of(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> moments.gram.tolist(), moments.means.tolist()
    ([[5.0, 7.0], [7.0, 10.0]], [2.0, 3.0])
    """

    covariance: Array  # (D, D)
    means: Array  # (D,)
    cross_covariance: Array  # of X and R, (D, D); the covariance itself where there is no reference
    target_covariance: Array  # of R
    target_means: Array

    @cached_property
    def gram(self) -> Array:
        """`XᵀX/N`, (D, D)."""
        return self.covariance + np.outer(self.means, self.means)

    @cached_property
    def cross(self) -> Array:
        """`XᵀR/N`, (D, D)."""
        return self.cross_covariance + np.outer(self.means, self.target_means)

    @cached_property
    def target_gram(self) -> Array:
        """`RᵀR/N`, (D, D)."""
        return self.target_covariance + np.outer(self.target_means, self.target_means)

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
        step = max(1, NUMBERS_PER_CHUNK // found.shape[1])
        slices = (slice(first, first + step) for first in range(0, found.shape[0], step))
        return cls.of_chunks((found[rows], None if wanted is None else wanted[rows]) for rows in slices)

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
        zeros = np.zeros(len(matrix))
        return cls(matrix, zeros, matrix, matrix, zeros)

    @property
    def size(self) -> int:
        """The number of inputs, `D`."""
        return len(self.means)

    def centred(self) -> InputMoments:
        """The same for inputs measured from their means, which a bias can absorb."""
        zeros = np.zeros(self.size)
        return InputMoments(self.covariance, zeros, self.cross_covariance, self.target_covariance, zeros)


class MomentSums:
    """The moments of rows that come in chunks, each with its reference or without one.

    Rows are measured from the means of the first chunk before they are squared.
    """

    def __init__(self) -> None:
        self._count = 0.0
        self._totals: list[Array] = []
        self._origins: list[Array] = []

    def add(self, rows: Any, reference: Any = None, weights: NDArray[Any] | None = None) -> None:
        """Count these rows (n, D) in, too, each so many times."""
        own, target = (
            np.asarray(part.toarray() if scipy.sparse.issparse(part) else part, dtype=float)
            for part in (rows, rows if reference is None else reference)
        )
        with threads_for_large_product(own.size * own.shape[1]), np.errstate(over="ignore", invalid="ignore"):
            if not self._count and len(own):
                self._origins = [own.mean(axis=0), target.mean(axis=0)]
            if self._origins:
                own = own - self._origins[0]
                target = own if reference is None else target - self._origins[1]
            times = np.ones(len(own)) if weights is None else np.asarray(weights, dtype=float)
            weighted = own.T if weights is None else own.T * times
            sums = [weighted @ own, times @ own]
            if reference is not None:
                others = target.T if weights is None else target.T * times
                sums += [weighted @ target, others @ target, times @ target]
        if not all(np.isfinite(total).all() for total in sums):
            raise InvalidInputError("inputs hold NaN or infinity, or are too large to be squared")
        if own.any() and not sums[0].any():
            raise InvalidInputError(f"inputs differ by {np.abs(own).max():.3g}, too small to be squared; multiply them")
        self._totals = [old + new for old, new in zip(self._totals, sums, strict=True)] if self._totals else sums
        self._count += float(times.sum())

    def moments(self) -> InputMoments:
        """Of all rows so far."""
        if self._count == 0:
            raise InvalidInputError("inputs have no rows; give what the layer sees for some hundred images, say")
        squares, shift, *others = [total / self._count for total in self._totals]
        cross, target_squares, target_shift = others or (squares, squares, shift)
        return InputMoments(
            squares - np.outer(shift, shift),
            self._origins[0] + shift,
            cross - np.outer(shift, target_shift),
            target_squares - np.outer(target_shift, target_shift),
            self._origins[1] + target_shift,
        )


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

    def places(self, shape: Sequence[int]) -> tuple[int, ...]:
        """How many patches images of a shape have along each axis."""
        places, *_ = self._layout(shape)
        if places.min() < 1:
            raise InvalidInputError(f"the kernel {self.kernel} is larger than the images, {tuple(shape[2:])}")
        return tuple(places.tolist())

    def _layout(self, shape: Sequence[int]) -> tuple[NDArray[np.intp], Any, NDArray[np.intp]]:
        """Places, zeros before and after, and the extents of the kernel, axis by axis."""
        given = (shape[2:], self.kernel, self.strides, self.dilations)
        space, kernel, strides, dilations = (np.array(lengths) for lengths in given)
        extents = (kernel - 1) * dilations + 1
        if isinstance(self.padding, str):
            zeros = np.maximum((-(-space // strides) - 1) * strides + extents - space, 0)
            before = (zeros + (self.padding == "before")) // 2
            padding = np.column_stack([before, zeros - before])
        else:
            padding = np.array(self.padding)
        return (space + padding.sum(axis=1) - extents) // strides + 1, padding, extents

    def patches(self, images: NDArray[Any], chosen: NDArray[np.bool_] | None = None) -> Iterator[NDArray[Any]]:
        """All patches (n·places, channels·kernel) of images (N, channels, …), n images at a time: channel by channel.

        Or those at chosen places (N, places…).

        >>> next(Window.of(2).patches(np.arange(9.0).reshape(1, 1, 3, 3))).tolist()[0]
        [0.0, 1.0, 3.0, 4.0]
        """
        places, (_, padding, extents) = self.places(images.shape), self._layout(images.shape)
        axes, width = len(places), images.shape[1] * prod(self.kernel)
        steps = tuple(slice(None, None, step) for step in (*self.strides, *self.dilations))
        count = max(1, NUMBERS_PER_CHUNK // (prod(places) * width))
        for first in range(0, len(images), count):
            part = np.pad(images[first : first + count], [(0, 0), (0, 0), *padding])
            windows = sliding_window_view(part, tuple(extents), axis=tuple(range(2, 2 + axes)))
            moved = windows[(slice(None), slice(None), *steps)]  # (n, C, places…, kernel…)
            found = moved.transpose(0, *range(2, 2 + axes), 1, *range(2 + axes, 2 + 2 * axes))
            if chosen is not None:
                found = found[np.nonzero(chosen[first : first + count])]
            yield found.reshape(-1, width)


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
    if reference is None:
        return InputMoments.of_chunks((patches, None) for patches in window.patches(found))
    wanted = _as_images(reference, "reference", len(window.kernel))
    if wanted.shape != found.shape:
        raise InvalidInputError(f"images have shape {found.shape} and reference {wanted.shape}; they must be the same")
    return InputMoments.of_chunks(zip(window.patches(found), window.patches(wanted), strict=True))


def _as_images(values: Any, name: str, axes: int) -> NDArray[Any]:
    images = np.asanyarray(values)
    if images.dtype.kind not in "biuf" or images.ndim != axes + 2 or images.size == 0:
        raise InvalidInputError(
            f"{name} is an array of {images.dtype} and shape {images.shape}; expected numbers, and the shape "
            f"(N, channels{', height, width' if axes == 2 else ', …'}), nothing of it 0"
        )
    return images
