"""Compiled kernels of a convolution layer: free functions on plain arrays; each says what it overwrites.

Images are channels-last, (n, height, width, channels), so that a row of a patch is contiguous. A place is the number of
a position in its pooling window, row by row. Everything is computed in the arrays' own precision.

Patches are never copied for the convolution: LANES filters at a time are one vector value (see `_vectors`), and the
sums of `TOGETHER` neighbouring places stay in registers while the patch is read from the image. Derivatives are
computed at the maxima alone: a quarter of all places, or less.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from annealfit._support._vectors import LANES, VectorType, load, machine_type, multiply_add, repeat, select, store

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
    """Overwrite derivatives (n, R, F, D) with the sums of cotangents (n, R, h, w, F) times patches, and of cotangents.

    A row of a patch is read from the image in whole vectors; sums of what lies beyond the row are left out. The sums of
    three vectors at a time stay in registers, over all maxima of a filter.
    """
    count, seeds, height, width, filters = cotangents.shape
    channels, row_length = images.shape[3], images.shape[2] * images.shape[3]
    run, size = kernel * channels, images.shape[1] * row_length
    vectors = (run + LANES - 1) // LANES  # of a row of a patch
    parts = np.array([i * row_length + v * LANES for i in range(kernel) for v in range(vectors)])
    offsets = np.array([0] + [p // pool * row_length + p % pool * channels for p in range(pool * pool)])  # of −1, 0, …
    image = np.zeros(size + vectors * LANES, images.dtype)
    pixels, known = images.reshape(count, size), cotangents.reshape(count, seeds, height * width, filters)
    firsts, chosen = np.empty(height * width + 1, np.intp), np.empty(height * width + 1, np.intp)
    factors, sums = np.empty(height * width, images.dtype), np.zeros((len(parts) + 1, LANES), images.dtype)
    for n in range(count):
        image[:size] = pixels[n]
        for f in range(filters):
            active = 0
            for y in range(height):
                for x in range(width):
                    place = np.intp(maxima[n, y, x, f])
                    firsts[active] = y * pool * row_length + x * pool * channels + offsets[np.uintp(place + 1)]
                    chosen[active] = y * width + x
                    active += int(place >= 0)
            for r in range(seeds):
                bias = 0.0
                for k in range(active):
                    factors[k] = known[n, r, np.uintp(chosen[k]), f]
                    bias += factors[k]
                for p in range(0, len(parts), 3):
                    second, third = min(p + 1, len(parts) - 1), min(p + 2, len(parts) - 1)
                    sum_0 = sum_1 = sum_2 = load(sums, len(parts))  # zeros
                    for k in range(active):
                        sum_0 = multiply_add(factors[k], load_from(image, firsts[k] + parts[p]), sum_0)
                        sum_1 = multiply_add(factors[k], load_from(image, firsts[k] + parts[second]), sum_1)
                        sum_2 = multiply_add(factors[k], load_from(image, firsts[k] + parts[third]), sum_2)
                    store(sums, p, sum_0)
                    store(sums, second, sum_1)
                    store(sums, third, sum_2)
                for i in range(kernel):
                    for t in range(run):
                        derivatives[n, r, f, i * run + t] = sums[i * vectors + t // LANES, t % LANES]
                derivatives[n, r, f, kernel * run] = bias


@intrinsic
def load_from(typing_context, array, first):
    """array[first : first + LANES] of a C-contiguous array, not aligned; no bounds check."""

    def generate(context, builder, resolved, arguments):
        array_type = resolved.args[0]
        data = context.make_array(array_type)(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), machine_type(array_type.dtype).as_pointer())
        return builder.load(pointer, align=array_type.dtype.bitwidth // 8)

    return VectorType(array.dtype)(array, types.intp), generate


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
