"""Compiled kernels of a convolution layer: free functions on plain arrays; each says what it overwrites.

Images are channels-last, (n, height, width, channels), so that a row of a patch is contiguous. A place is the number of
a position in its pooling window, row by row. Everything is computed in the arrays' own precision.

Patches are never copied for the convolution: LANES filters at a time are one vector value (see `_vectors`), and the
sums of `TOGETHER` neighbouring places stay in registers while the patch is read from the image. Derivatives are
computed at the maxima alone: a quarter of all places, or less.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from annealfit._support._vectors import LANES, load, multiply_add, repeat, select, store

TOGETHER = 4  # places: of two AVX2 registers each, these and the values read fill all registers


@njit(cache=True, nogil=True)
def convolve_and_pool(
    images: NDArray, weights: NDArray, kernel: int, pool: int, pooled: NDArray, maxima: NDArray
) -> None:
    """Overwrite pooled (n, h, w, F) with the largest response in each window, or 0 if none is above 0.

    maxima (n, h, w, F), 32-bit integers, are overwritten with its place, the first of equals, or −1 for 0. weights are
    (blocks, kernel·kernel·channels + 1, LANES): those of LANES filters at a time, and 0 beyond F.
    """
    count, height, width, filters = pooled.shape
    row_length = images.shape[2] * images.shape[3]
    flat = images.reshape(images.size)
    responses = np.empty((width * pool, LANES), images.dtype)
    best, where = np.empty((width, LANES), images.dtype), np.empty((width, LANES), np.int32)
    for n in range(count):
        for block in range(len(weights)):
            first = block * LANES
            for y in range(height):
                best[:] = 0
                where[:] = -1
                for i in range(y * pool, (y + 1) * pool):
                    start = (n * images.shape[1] + i) * row_length
                    _convolve_row(flat, start, row_length, images.shape[3], weights[block], kernel, responses)
                    for x in range(width):
                        largest, places = load(best, x), load(where, x)
                        for j in range(x * pool, (x + 1) * pool):
                            response = load(responses, j)
                            smaller = response <= largest
                            largest = select(smaller, largest, response)
                            places = select(smaller, places, repeat((i - y * pool) * pool + j - x * pool, places))
                        store(best, x, largest)
                        store(where, x, places)
                for x in range(width):
                    for f in range(first, min(first + LANES, filters)):
                        pooled[n, y, x, f] = best[x, f - first]
                        maxima[n, y, x, f] = where[x, f - first]


@njit(forceinline=True)
def _convolve_row(flat, start, row_length, channels, weights, kernel, responses):
    """Overwrite responses (columns, LANES) with those of a row of places, whose pixels begin at `start`."""
    columns, run = len(responses), kernel * channels
    bias = load(weights, kernel * run)
    for x in range(0, columns - columns % TOGETHER, TOGETHER):
        sum_0 = sum_1 = sum_2 = sum_3 = bias
        for i in range(kernel):
            value = np.uintp(start + i * row_length + x * channels)
            for t in range(run):
                weight = load(weights, i * run + t)
                sum_0 = multiply_add(flat[value], weight, sum_0)
                sum_1 = multiply_add(flat[value + np.uintp(channels)], weight, sum_1)
                sum_2 = multiply_add(flat[value + np.uintp(2 * channels)], weight, sum_2)
                sum_3 = multiply_add(flat[value + np.uintp(3 * channels)], weight, sum_3)
                value += np.uintp(1)
        store(responses, x, sum_0)
        store(responses, x + 1, sum_1)
        store(responses, x + 2, sum_2)
        store(responses, x + 3, sum_3)
    for x in range(columns - columns % TOGETHER, columns):
        sum_0 = bias
        for i in range(kernel):
            value = np.uintp(start + i * row_length + x * channels)
            for t in range(run):
                sum_0 = multiply_add(flat[value], load(weights, i * run + t), sum_0)
                value += np.uintp(1)
        store(responses, x, sum_0)


@njit(cache=True, nogil=True)
def derive_by_filters(
    images: NDArray, maxima: NDArray, cotangents: NDArray, kernel: int, pool: int, derivatives: NDArray
) -> None:
    """Overwrite derivatives (n, R, F, vectors, LANES) with the sums of cotangents (n, R, h, w, F) times patches.

    A patch ends with a 1 for the bias, and zeros until it fills its vectors. It is read once for all filters that have
    their maximum there.
    """
    derivatives[:] = 0
    count, seeds, height, width, filters = cotangents.shape
    vectors, channels, row_length = derivatives.shape[3], images.shape[3], images.shape[2] * images.shape[3]
    patches = np.zeros((pool * pool, vectors, LANES), images.dtype)
    flat, values = images.reshape(images.size), patches.reshape(patches.size)
    is_read = np.zeros(pool * pool, np.bool_)
    for n in range(count):
        for y in range(height):
            for x in range(width):
                is_read[:] = False
                for f in range(filters):
                    place = maxima[n, y, x, f]
                    if place < 0:
                        continue
                    if not is_read[place]:
                        top, left = y * pool + place // pool, x * pool + place % pool
                        first = ((n * images.shape[1] + top) * images.shape[2] + left) * channels
                        _read_patch(flat, first, row_length, kernel, kernel * channels, values, place * vectors * LANES)
                        is_read[place] = True
                    for r in range(seeds):
                        cotangent = cotangents[n, r, y, x, f]
                        first = ((n * seeds + r) * filters + f) * vectors
                        for v in range(vectors):
                            known = load(derivatives, first + v)
                            product = multiply_add(cotangent, load(patches, place * vectors + v), known)
                            store(derivatives, first + v, product)


@njit(forceinline=True)
def _read_patch(flat, first, row_length, kernel, run, values, start):
    """Overwrite values, from `start` on, with the patch that begins at `first`, and a 1."""
    target = np.uintp(start)
    for i in range(kernel):
        source = np.uintp(first + i * row_length)
        for _ in range(run):
            values[target] = flat[source]
            target += np.uintp(1)
            source += np.uintp(1)
    values[target] = 1


@njit(cache=True, nogil=True)
def derive_by_images(
    cotangents: NDArray, maxima: NDArray, weights: NDArray, kernel: int, pool: int, derivatives: NDArray
) -> None:
    """Overwrite derivatives (n, R, height, width, channels) with the sums of cotangents (n, R, h, w, F) times filters.

    weights are (F, kernel·kernel·channels + 1).
    """
    derivatives[:] = 0
    count, seeds, height, width, filters = cotangents.shape
    channels = derivatives.shape[4]
    run = kernel * channels
    rows = derivatives.reshape(count, seeds, derivatives.shape[2], derivatives.shape[3] * channels)
    for n in range(count):
        for y in range(height):
            for x in range(width):
                for f in range(filters):
                    place = maxima[n, y, x, f]
                    if place < 0:
                        continue
                    top, start = y * pool + place // pool, (x * pool + place % pool) * channels
                    for r in range(seeds):
                        cotangent = cotangents[n, r, y, x, f]
                        for i in range(kernel):
                            target, own = rows[n, r, top + i, start : start + run], weights[f, i * run : (i + 1) * run]
                            for t in range(run):
                                target[t] += cotangent * own[t]
