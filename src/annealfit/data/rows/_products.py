"""Products with rows, compiled by numba: every row is read once, and straight from where it is.

A BLAS first copies what it multiplies into an order of its own. With hundreds of outputs that pays; with ten of them
the copy takes as long as the product.
"""

import numpy as np
from numba import njit

from annealfit._support._vectors import LANES, convert, load, multiply_add, repeat, store

OUTPUTS_AT_ONCE = 5
"""For two rows: as many sums as fit into registers."""

ANY_ORDER = {"reassoc", "contract", "nsz"}
"""Sums may be added up in any order, in vector registers. The order is the same every time."""


@njit(nogil=True, cache=True, fastmath=ANY_ORDER)
def project_rows(features, weights, outputs):
    """`WXᵀ`: outputs (O, n), overwritten, of features (n, d) and weights (O, d); O is a multiple of OUTPUTS_AT_ONCE."""
    count, size = features.shape
    nothing = features.dtype.type(0)
    for row in range(0, count, 2):
        other = min(row + 1, count - 1)  # the last of an odd number is worked out twice
        x, y = features[row], features[other]
        for first in range(0, len(weights), OUTPUTS_AT_ONCE):
            w0, w1, w2 = weights[first], weights[first + 1], weights[first + 2]
            w3, w4 = weights[first + 3], weights[first + 4]
            x0 = x1 = x2 = x3 = x4 = y0 = y1 = y2 = y3 = y4 = nothing
            for j in range(size):
                x0 += x[j] * w0[j]
                x1 += x[j] * w1[j]
                x2 += x[j] * w2[j]
                x3 += x[j] * w3[j]
                x4 += x[j] * w4[j]
                y0 += y[j] * w0[j]
                y1 += y[j] * w1[j]
                y2 += y[j] * w2[j]
                y3 += y[j] * w3[j]
                y4 += y[j] * w4[j]
            outputs[first, row], outputs[first + 1, row], outputs[first + 2, row] = x0, x1, x2
            outputs[first + 3, row], outputs[first + 4, row] = x3, x4
            outputs[first, other], outputs[first + 1, other], outputs[first + 2, other] = y0, y1, y2
            outputs[first + 3, other], outputs[first + 4, other] = y3, y4


ROWS_IN_REGISTERS = 64
"""Their sums are added up in registers, and then to those of all rows, in double precision."""


@njit(forceinline=True)
def _add(totals, place, vector):
    """Add a vector of any precision to one in double, in an array as in `load`."""
    before = load(totals, place)
    store(totals, place, before + convert(vector, before))


@njit(nogil=True, cache=True)
def add_moments(features, values, moments):
    """Add `VX` to moments (O, d) in double precision, of features (n, d) and values (O, n) in single.

    d is a multiple of LANES, and O one of OUTPUTS_AT_ONCE.
    """
    blocks = features.shape[1] // LANES
    nothing = repeat(0.0, load(features, 0))
    for first in range(0, len(features), ROWS_IN_REGISTERS):
        last = min(first + ROWS_IN_REGISTERS, len(features))
        for output in range(0, len(values), OUTPUTS_AT_ONCE):
            v0, v1, v2 = values[output], values[output + 1], values[output + 2]
            v3, v4 = values[output + 3], values[output + 4]
            for block in range(blocks):
                sum0 = sum1 = sum2 = sum3 = sum4 = nothing
                for row in range(first, last):
                    x = load(features, row * blocks + block)
                    sum0 = multiply_add(v0[row], x, sum0)
                    sum1 = multiply_add(v1[row], x, sum1)
                    sum2 = multiply_add(v2[row], x, sum2)
                    sum3 = multiply_add(v3[row], x, sum3)
                    sum4 = multiply_add(v4[row], x, sum4)
                place = output * blocks + block
                _add(moments, place, sum0)
                _add(moments, place + blocks, sum1)
                _add(moments, place + 2 * blocks, sum2)
                _add(moments, place + 3 * blocks, sum3)
                _add(moments, place + 4 * blocks, sum4)


@njit(nogil=True, cache=True)
def gram_of_block(features, origin, roots, first, last, gram):
    """`Σ r² xxᵀ` of the features first … last − 1 of rows (n, d), from an origin (d,), and a 1; overwrites gram.

    The rows of the block are multiplied by their roots (n,), some at a time, to where all products find them.
    """
    own, size = origin[first:last], last - first
    blocks = -(-size // LANES)
    rooted = np.zeros((ROWS_IN_REGISTERS, blocks * LANES), features.dtype)
    products, sums, total = np.zeros((blocks * LANES, blocks * LANES)), np.zeros(size), 0.0
    nothing = repeat(0.0, load(rooted, 0))
    for start in range(0, len(features), ROWS_IN_REGISTERS):
        count = min(ROWS_IN_REGISTERS, len(features) - start)
        for row in range(count):
            x, y, root = features[start + row, first:last], rooted[row], roots[start + row]
            for j in range(size):
                y[j] = root * (x[j] - own[j])
            for j in range(size):
                sums[j] += root * y[j]
            total += root * root
        for block in range(blocks):
            for i in range(0, min((block + 1) * LANES, size), 4):
                sum0 = sum1 = sum2 = sum3 = nothing
                for row in range(count):
                    x, y = load(rooted, row * blocks + block), rooted[row]
                    sum0 = multiply_add(y[i], x, sum0)
                    sum1 = multiply_add(y[i + 1], x, sum1)
                    sum2 = multiply_add(y[i + 2], x, sum2)
                    sum3 = multiply_add(y[i + 3], x, sum3)
                place = i * blocks + block
                _add(products, place, sum0)
                _add(products, place + blocks, sum1)
                _add(products, place + 2 * blocks, sum2)
                _add(products, place + 3 * blocks, sum3)
    for i in range(size):
        for j in range(i + 1):
            gram[i, j] = gram[j, i] = products[j, i]
        gram[i, size] = gram[size, i] = sums[i]
    gram[size, size] = total


@njit(nogil=True, cache=True, fastmath=ANY_ORDER)
def look_at_columns(features, weights, centre, copy, farthest, totals):
    """All that is to be known about the columns of features (n, d), in one look at them.

    The features less the centre (d,) are in `copy`, the farthest of each column in `farthest` (d,), and in totals
    (3, d) the sums over rows, weighed (n,), of features, of their squares and of their magnitudes. All are overwritten.
    """
    count = len(features)
    farthest[:] = 0
    totals[:] = 0
    for row in range(0, count, 4):  # at a time: then totals are read and written less often
        rows = (row, min(row + 1, count - 1), min(row + 2, count - 1), min(row + 3, count - 1))
        x0, x1, x2, x3 = features[rows[0]], features[rows[1]], features[rows[2]], features[rows[3]]
        y0, y1, y2, y3 = copy[rows[0]], copy[rows[1]], copy[rows[2]], copy[rows[3]]
        a0 = weights[rows[0]]  # beyond the last row is the last one again, which then weighs nothing
        a1 = weights[rows[1]] if row + 1 < count else 0.0
        a2 = weights[rows[2]] if row + 2 < count else 0.0
        a3 = weights[rows[3]] if row + 3 < count else 0.0
        for j in range(len(centre)):
            d0, d1, d2, d3 = x0[j] - centre[j], x1[j] - centre[j], x2[j] - centre[j], x3[j] - centre[j]
            y0[j], y1[j], y2[j], y3[j] = d0, d1, d2, d3
            one, other = max(abs(d0), abs(d1)), max(abs(d2), abs(d3))
            size = one if one >= other else other
            farthest[j] = farthest[j] if farthest[j] >= size else size
            totals[0, j] += (a0 * x0[j] + a1 * x1[j]) + (a2 * x2[j] + a3 * x3[j])
            totals[1, j] += (a0 * x0[j] * x0[j] + a1 * x1[j] * x1[j]) + (a2 * x2[j] * x2[j] + a3 * x3[j] * x3[j])
            totals[2, j] += (a0 * abs(x0[j]) + a1 * abs(x1[j])) + (a2 * abs(x2[j]) + a3 * abs(x3[j]))


@njit(nogil=True, cache=True)
def move_grams(entries, edges, shift, factor, lift):
    """Gram matrices of blocks of features and a 1, of features that grow by `shift` (d,); overwrites entries.

    They are one after the other in `entries`, in the order of `edges` (B, 2), where the blocks begin and end. Before,
    they are multiplied by a factor, and a share `lift` of the diagonal is added to it.
    """
    start = 0
    for block in range(len(edges)):
        moved = shift[edges[block, 0] : edges[block, 1]]
        size = len(moved)
        gram = entries[start : start + (size + 1) ** 2].reshape((size + 1, size + 1))
        start += (size + 1) ** 2
        for i in range(size + 1):
            for j in range(size + 1):
                gram[i, j] *= factor
            gram[i, i] *= 1 + lift
        sums, total = gram[size].copy(), gram[size, size]
        for i in range(size):
            for j in range(size):
                gram[i, j] += sums[i] * moved[j] + moved[i] * sums[j] + total * (moved[i] * moved[j])
            gram[i, size] = gram[size, i] = sums[i] + total * moved[i]
