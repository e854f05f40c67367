"""Compiled kernels of a convolution layer: free functions on plain arrays; each says what it overwrites.

Images are channels-last, (n, height, width, channels), so that a row of a patch is contiguous. A place is the number of
a position in its pooling window, row by row. Everything is computed in the arrays' own precision.

Patches are never copied: LANES filters, or LANES values of a row of a patch, are one vector value (see `_vectors`), and
several sums stay in registers while patches are read from the image, so that none waits for the one before.
Derivatives are computed at the maxima alone: a quarter of all places, or less.
"""

from __future__ import annotations

import numpy as np
from llvmlite.binding import get_host_cpu_features
from numba import njit, types
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.extending import intrinsic
from numpy.typing import NDArray

from annealfit._support._vectors import LANES, VectorType, load, machine_type, multiply_add, repeat, select, store
from annealfit.data.rows._kernels import ANY_ORDER

# Neighbouring places whose responses are summed together. Eight fill half of the registers of AVX-512; others have half
# as many registers, of half the size or less.
MANY_REGISTERS = bool(get_host_cpu_features().get("avx512f"))
PARTS_TOGETHER = 5  # vectors of a patch that are summed together: the rows of a 5×5 patch


@njit(cache=True, nogil=True)
def convolve_and_pool(
    images: NDArray, weights: NDArray, kernel: int, pool: int, pooled: NDArray, maxima: NDArray
) -> None:
    """Overwrite pooled (n, h·w·F or more) with the largest response in each window, or 0 if none is above 0.

    maxima (n, h, w, F) are overwritten with its place, the first of equals, or −1 for 0. weights are
    (blocks, kernel·kernel·channels + 1, LANES): those of LANES filters at a time, and 0 beyond F.
    """
    count, height, width, filters = maxima.shape
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
                    at = (y * width + x) * filters
                    for f in range(first, min(first + LANES, filters)):
                        pooled[n, at + f] = best[x, f - first]
                        maxima[n, y, x, f] = where[x, f - first]


@njit(forceinline=True)
def _convolve_row(flat, start, row_length, channels, weights, kernel, responses):
    """Overwrite responses (columns, LANES) with those of a row of places, whose pixels begin at `start`."""
    one = (load(weights, kernel * kernel * channels),)  # the bias
    four = one + one + one + one
    if MANY_REGISTERS and len(responses) >= 8:
        _convolve_together(four + four, flat, start, row_length, channels, weights, kernel, responses)
    elif len(responses) >= 4:
        _convolve_together(four, flat, start, row_length, channels, weights, kernel, responses)
    else:
        _convolve_together(one, flat, start, row_length, channels, weights, kernel, responses)


@njit(forceinline=True)
def _convolve_together(biases, flat, start, row_length, channels, weights, kernel, responses):
    """Do so for as many places at a time as there are biases; the last ones may be done twice."""
    together = len(biases)
    for following in range(0, len(responses), together):
        x = min(following, len(responses) - together)
        sums = biases
        for i in range(kernel):
            value = np.uintp(start + i * row_length + x * channels)
            for t in range(kernel * channels):
                weight = load(weights, i * kernel * channels + t)
                for p in range(together):
                    pixel = flat[value + np.uintp(p * channels)]
                    sums = tuple_setitem(sums, p, multiply_add(pixel, weight, sums[p]))
                value += np.uintp(1)
        for p in range(together):
            store(responses, x + p, sums[p])


@njit(cache=True, nogil=True)
def derive_by_filters(
    images: NDArray, maxima: NDArray, cotangents: NDArray, kernel: int, pool: int, derivatives: NDArray
) -> None:
    """Overwrite derivatives (n, R, F, D) with the sums of cotangents (n, R, h, w, F) times patches, and of cotangents.

    Derivatives (1, R, F, D) are overwritten with their sum over the images. A row of a patch is read from the image in
    whole vectors; sums of what lies beyond the row are left out.
    """
    count, seeds, height, width, filters = cotangents.shape
    channels, row_length, windows = images.shape[3], images.shape[2] * images.shape[3], height * width
    run, size = kernel * channels, images.shape[1] * row_length
    parts, vectors = _parts_of_patch(kernel, run, row_length)
    corners, offsets = _starts_of_patches(height, width, pool, row_length, channels)
    image = np.zeros(size + vectors * LANES, images.dtype)
    pixels, known, winners = images.reshape(count, size), cotangents.reshape(-1), maxima.reshape(-1)
    firsts, chosen = np.empty(windows + 1, np.intp), np.empty(windows + 1, np.intp)
    factors, sums = np.empty(windows, images.dtype), np.zeros((len(parts) + 1, LANES), images.dtype)
    nothing = (load(sums, len(parts)),)
    derivatives[:] = 0
    for n in range(count):
        image[:size] = pixels[n]
        own = derivatives[min(n, len(derivatives) - 1)]
        for f in range(filters):
            active = 0
            for w in range(windows):
                winner = np.intp(winners[np.uintp((n * windows + w) * filters + f)])
                firsts[np.uintp(active)] = corners[w] + offsets[np.uintp(winner + 1)]
                chosen[np.uintp(active)] = w * filters + f
                active += int(winner >= 0)
            for r in range(seeds):
                start, bias = (n * seeds + r) * windows * filters, 0.0
                for k in range(active):
                    factors[k] = known[np.uintp(start + chosen[k])]
                    bias += factors[k]
                for p in range(0, len(parts), PARTS_TOGETHER):
                    totals, own_parts = nothing + nothing + nothing + nothing + nothing, _five(parts, p)
                    for k in range(active):
                        totals = _add_multiple(totals, factors[k], image, firsts[k], own_parts)
                    for s in range(PARTS_TOGETHER):
                        store(sums, p + s, totals[s])
                for i in range(kernel):
                    for t in range(run):
                        own[r, f, i * run + t] += sums[i * vectors + t // LANES, t % LANES]
                own[r, f, kernel * run] += bias


@njit(forceinline=True)
def _parts_of_patch(kernel, run, row_length):
    """The vectors of a patch in an image, row by row, filled up with the first; and their number in a row."""
    vectors = (run + LANES - 1) // LANES
    parts = np.zeros(-(-kernel * vectors // PARTS_TOGETHER) * PARTS_TOGETHER, np.intp)
    for part in range(kernel * vectors):
        parts[part] = part // vectors * row_length + part % vectors * LANES
    return parts, vectors


@njit(forceinline=True)
def _starts_of_patches(height, width, pool, row_length, channels):
    """Where windows begin in an image, and from there the patches of the places −1, 0, …."""
    corners = [(y * row_length + x * channels) * pool for y in range(height) for x in range(width)]
    offsets = [0] + [place // pool * row_length + place % pool * channels for place in range(pool * pool)]
    return np.array(corners), np.array(offsets)


@njit(forceinline=True)
def _five(parts, p):
    return parts[p], parts[p + 1], parts[p + 2], parts[p + 3], parts[p + 4]


@njit(forceinline=True)
def _add_multiple(totals, factor, values, first, parts):
    """Return the sums with the multiple of some vectors added."""
    for s in range(PARTS_TOGETHER):
        vector = load_from(values, first + parts[s])
        totals = tuple_setitem(totals, s, multiply_add(factor, vector, totals[s]))
    return totals


def _pointer(context, builder, array_type, array, first):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [first]), machine_type(array_type.dtype).as_pointer())


@intrinsic
def load_from(typing_context, array, first):
    """array[first : first + LANES] of a C-contiguous array, not aligned; no bounds check."""

    def generate(context, builder, resolved, arguments):
        array_type = resolved.args[0]
        pointer = _pointer(context, builder, array_type, *arguments)
        return builder.load(pointer, align=array_type.dtype.bitwidth // 8)

    return VectorType(array.dtype)(array, types.intp), generate


@intrinsic
def add_to(typing_context, array, first, vector):
    """array[first : first + LANES] += vector, for an array as in `load_from`."""

    def generate(context, builder, resolved, arguments):
        array_type = resolved.args[0]
        pointer, align = _pointer(context, builder, array_type, *arguments[:2]), array_type.dtype.bitwidth // 8
        builder.store(builder.fadd(builder.load(pointer, align=align), arguments[2]), pointer, align=align)
        return context.get_dummy_value()

    return types.void(array, types.intp, VectorType(array.dtype)), generate


@njit(cache=True, nogil=True)
def derive_by_images(
    cotangents: NDArray, maxima: NDArray, weights: NDArray, kernel: int, pool: int, derivatives: NDArray
) -> None:
    """Overwrite derivatives (n, R, height, width, channels) with the sums of cotangents (n, R, h, w, F) times filters.

    weights are (F, kernel·kernel·channels + 1). The filters that win at a place are summed before they are added.
    """
    count, seeds, height, width, filters = cotangents.shape
    channels, row_length, windows = derivatives.shape[4], derivatives.shape[3] * derivatives.shape[4], height * width
    run, size = kernel * channels, derivatives.shape[2] * row_length
    parts, vectors = _parts_of_patch(kernel, run, row_length)
    rows = np.arange(len(parts)) * LANES  # the same parts in a row of `padded`
    corners, offsets = _starts_of_patches(height, width, pool, row_length, channels)
    padded = np.zeros((filters, len(parts) * LANES), weights.dtype)
    for i in range(kernel):
        padded[:, i * vectors * LANES : i * vectors * LANES + run] = weights[:, i * run : (i + 1) * run]
    values, image = padded.reshape(-1), np.zeros(size + vectors * LANES, weights.dtype)
    flat, known, winners = derivatives.reshape(-1, size), cotangents.reshape(-1), maxima.reshape(-1)
    chosen, nothing = np.empty(filters + 1, np.intp), (load_from(np.zeros(LANES, weights.dtype), 0),)
    for n in range(count):
        for r in range(seeds):
            image[:] = 0
            for w in range(windows):
                places, start = (n * windows + w) * filters, ((n * seeds + r) * windows + w) * filters
                for place in range(pool * pool):
                    active = 0
                    for f in range(filters):
                        chosen[np.uintp(active)] = f
                        active += int(winners[np.uintp(places + f)] == place)
                    first = corners[w] + offsets[place + 1]
                    for p in range(0, len(parts) if active else 0, PARTS_TOGETHER):
                        totals, own_parts = nothing + nothing + nothing + nothing + nothing, _five(rows, p)
                        for k in range(active):
                            factor = known[np.uintp(start + chosen[k])]
                            totals = _add_multiple(totals, factor, values, chosen[k] * len(rows) * LANES, own_parts)
                        for s in range(PARTS_TOGETHER):
                            add_to(image, first + parts[p + s], totals[s])
            flat[n * seeds + r] = image[:size]


@njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def add_rows(rows: NDArray, values: NDArray, sums: NDArray) -> None:
    """Add `VX` to sums (O, D), of rows (n, D) and values (O, n)."""
    count = len(rows) // 8 * 8
    for first in range(0, count, 8):
        a, b, c, d = rows[first], rows[first + 1], rows[first + 2], rows[first + 3]
        e, f, g, h = rows[first + 4], rows[first + 5], rows[first + 6], rows[first + 7]
        for o in range(len(values)):
            v, own = values[o, first : first + 8], sums[o]
            for j in range(rows.shape[1]):
                early = (v[0] * a[j] + v[1] * b[j]) + (v[2] * c[j] + v[3] * d[j])
                own[j] += early + ((v[4] * e[j] + v[5] * f[j]) + (v[6] * g[j] + v[7] * h[j]))
    for row in range(count, len(rows)):
        for o in range(len(values)):
            for j in range(rows.shape[1]):
                sums[o, j] += values[o, row] * rows[row, j]
