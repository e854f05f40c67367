"""Outputs of rows, compiled by numba: every row is read once, and straight from where it is.

A BLAS first copies what it multiplies into an order of its own. With hundreds of outputs that pays; with ten of them
the copy takes as long as the product.
"""

import numpy as np
from numba import njit

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


@njit(nogil=True, cache=True)
def copy_from_centre(features, centre, copy):
    """The features (n, d) less the centre (d,), in `copy`, which is overwritten; returns the farthest of each (d,)."""
    farthest = np.zeros(len(centre))
    for row in range(len(features)):
        x, y = features[row], copy[row]
        for j in range(len(centre)):
            distance = x[j] - centre[j]
            y[j] = distance
            size = abs(distance)
            farthest[j] = farthest[j] if farthest[j] >= size else size  # what is not a number is farthest
    return farthest


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


@njit(nogil=True, cache=True)
def add_columns(features, weights, totals):
    """Add to totals (3, d) the weighted sums over rows of features (n, d), of their squares and of their magnitudes."""
    sums, squares, magnitudes = totals[0], totals[1], totals[2]
    for row in range(len(features)):
        x, weight = features[row], weights[row]
        for j in range(len(x)):
            weighed = weight * x[j]
            sums[j] += weighed
            squares[j] += weighed * x[j]
            magnitudes[j] += abs(weighed)
