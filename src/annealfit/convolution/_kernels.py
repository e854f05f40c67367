"""Kernels of a convolution layer, compiled: free functions on plain arrays; each says what it overwrites.

Images are channels-last, (n, height, width, channels), so that a row of a patch is one contiguous run. A place is the
number of a position of the convolution, row by row. Everything is computed in the arrays' own precision.
"""

from __future__ import annotations

from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def gather_patches(images: NDArray, kernel: int, patches: NDArray) -> None:
    """Overwrite patches (n, places, kernel·kernel·channels + 1) with those of images, and a last 1 for the bias."""
    count, height, width, channels = images.shape
    rows = images.reshape(count, height, width * channels)
    run, columns = kernel * channels, width - kernel + 1
    for n in range(count):
        for y in range(height - kernel + 1):
            for x in range(columns):
                patch = patches[n, y * columns + x]
                start = x * channels
                for i in range(kernel):
                    source = rows[n, y + i]
                    for t in range(run):
                        patch[i * run + t] = source[start + t]
                patch[kernel * run] = 1


@njit(cache=True, nogil=True)
def rectify_and_pool(convolved: NDArray, pool: int, pooled: NDArray, winners: NDArray) -> None:
    """Overwrite pooled (n, h, w, F) with the largest of each window of convolved (n, H, W, F), or 0 if none is above.

    winners (n, h, w, F), 32-bit integers, are overwritten with its place; −1 where the 0 is. Of equals the first wins.
    """
    count, height, width, filters = pooled.shape
    columns = convolved.shape[2]
    for n in range(count):
        for y in range(height):
            for x in range(width):
                best, won = pooled[n, y, x], winners[n, y, x]
                best[:] = 0
                won[:] = -1
                for i in range(pool):
                    for j in range(pool):
                        candidates = convolved[n, y * pool + i, x * pool + j]
                        place = won.dtype.type((y * pool + i) * columns + x * pool + j)
                        for f in range(filters):  # no branches, so that this is vector instructions
                            better = candidates[f] > best[f]
                            won[f] = place if better else won[f]
                            best[f] = candidates[f] if better else best[f]


@njit(cache=True, nogil=True)
def place_at_winners(cotangents: NDArray, winners: NDArray, placed: NDArray) -> None:
    """Overwrite placed (n, R, F, places) with cotangents (n, R, h, w, F) where they were won, and 0 elsewhere."""
    placed[:] = 0
    count, seeds, height, width, filters = cotangents.shape
    for n in range(count):
        for r in range(seeds):
            target = placed[n, r]
            for y in range(height):
                for x in range(width):
                    for f in range(filters):
                        place = winners[n, y, x, f]
                        if place >= 0:
                            target[f, place] = cotangents[n, r, y, x, f]


@njit(cache=True, nogil=True)
def add_patches(patches: NDArray, kernel: int, images: NDArray) -> None:
    """Overwrite images (n, height, width, channels) with the sums of patches (n, places, kernel·kernel·channels).

    The transpose of `gather_patches`, but for its last 1.
    """
    images[:] = 0
    count, height, width, channels = images.shape
    rows = images.reshape(count, height, width * channels)
    run, columns = kernel * channels, width - kernel + 1
    for n in range(count):
        for y in range(height - kernel + 1):
            for x in range(columns):
                patch = patches[n, y * columns + x]
                start = x * channels
                for i in range(kernel):
                    target = rows[n, y + i]
                    for t in range(run):
                        target[start + t] += patch[i * run + t]
