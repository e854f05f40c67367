"""Grey conversion and resampling of images, in floating point and for a whole batch at once.

Resampling is separable: with weights R (h, H) and C (w, W), whose rows sum to 1, an image P (H, W) becomes
R P Cᵀ (h, w). When an image shrinks, the kernels widen with the reduction, so that every pixel counts
(antialiasing); "nearest" is the exception, it picks one pixel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from annealfit._support.arrays import Array
from annealfit._support.errors import choose

# ITU-R BT.601: how bright red, green and blue look.
LUMA = np.array([0.299, 0.587, 0.114])


def to_grey(images: Array) -> Array:
    """Grey images (N, H, W) from colour (N, H, W, 3) by ITU-R 601 luma; grey ones are returned as they are.

    >>> to_grey(np.ones((1, 2, 2, 3))).round(12).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    """
    return images if images.ndim == 3 else images @ LUMA


def resize(images: Array, height: int, width: int, method: str = "area") -> Array:
    """Resample images (N, H, W) or (N, H, W, channels) to `height` × `width`; of the same size, they are unchanged.

    >>> resize(np.arange(16.0).reshape(1, 4, 4), 2, 2).tolist()
    [[[2.5, 4.5], [10.5, 12.5]]]
    """
    choose("resize", method, METHODS)
    if images.shape[1:3] == (height, width):
        return images
    rows, columns = weights(images.shape[1], height, method), weights(images.shape[2], width, method)
    if images.ndim == 3:
        return rows @ images @ columns.T
    planes = np.moveaxis(images, 3, 1)
    return np.moveaxis(rows @ planes @ columns.T, 1, 3)


@lru_cache(maxsize=64)
def weights(n_in: int, n_out: int, method: str) -> Array:
    """The matrix (n_out, n_in) that resamples a line of pixels; each row sums to 1.

    >>> weights(4, 2, "area").tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    """
    matrix = METHODS[method](n_in, n_out)
    matrix /= matrix.sum(axis=1, keepdims=True)
    matrix.setflags(write=False)  # it is shared by every caller
    return matrix


def _area(n_in: int, n_out: int) -> Array:
    """How much of output pixel i, [i s, (i+1) s] with s = n_in/n_out, each input pixel [j, j+1] covers."""
    edges = np.arange(n_out + 1) * (n_in / n_out)
    pixels = np.arange(n_in)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.maximum(overlap, 0.0)


def _nearest(n_in: int, n_out: int) -> Array:
    """The pixel under the centre (i + ½) n_in/n_out, in whole numbers so that no rounding moves it."""
    chosen = (2 * np.arange(n_out) + 1) * n_in // (2 * n_out)
    return np.eye(n_in)[chosen]


def _by_kernel(kernel: Callable[[Array], Array], support: float) -> Callable[[int, int], Array]:
    """Weights k((j + ½ − c)/r) around each output pixel's centre c, r = max(1, n_in/n_out)."""

    def matrix(n_in: int, n_out: int) -> Array:
        scale = n_in / n_out
        reduction = max(scale, 1.0)
        centres = (np.arange(n_out)[:, None] + 0.5) * scale
        distance = (np.arange(n_in) + 0.5 - centres) / reduction
        return np.where(np.abs(distance) < support, kernel(distance), 0.0)

    return matrix


def _triangle(x: Array) -> Array:
    return np.maximum(1.0 - np.abs(x), 0.0)


def _cubic(x: Array) -> Array:
    """Keys' cubic with a = −½, the value for which it reproduces quadratics."""
    x = np.abs(x)
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _lanczos(x: Array) -> Array:
    return np.sinc(x) * np.sinc(x / 3.0)


METHODS: dict[str, Callable[[int, int], Array]] = {
    "area": _area,
    "bilinear": _by_kernel(_triangle, 1.0),
    "bicubic": _by_kernel(_cubic, 2.0),
    "lanczos": _by_kernel(_lanczos, 3.0),
    "nearest": _nearest,
}
