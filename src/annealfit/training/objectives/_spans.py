"""Sums over rows along the directions of a span, and steps in it, compiled by numba.

Arrays are (directions, outputs, rows or parameters), as in `annealfit.training.objectives.head_span`.
"""

import numpy as np
from numba import njit

from annealfit.data.rows._products import ANY_ORDER

ROWS_FOR_PRODUCTS = 128  # the shares of so many, in two directions of ten classes, are in the cache next to the core


@njit(nogil=True, cache=True, fastmath=ANY_ORDER)
def curvature_along(probabilities, changes, roots, found):
    """The covariances, summed over rows, of changes (m, C, n) under each row's probabilities (C, n).

    Rows are weighed by the squares of `roots` (n,), or count once where there are none. found (m·C, m·C) is
    overwritten.
    """
    count, classes, rows = changes.shape
    size = count * classes
    shares = np.zeros((size + size % 2, ROWS_FOR_PRODUCTS), changes.dtype)  # an even number: the last may be nothing
    sums = np.zeros((len(shares), len(shares)))
    for first in range(0, rows, ROWS_FOR_PRODUCTS):
        last = min(first + ROWS_FOR_PRODUCTS, rows)
        for c in range(classes):
            _add_squares(probabilities, changes, roots, first, last, c, shares, sums)
        _subtract_products(shares, last - first, sums)
    for i in range(size):
        for j in range(i + 1):
            found[i, j] = found[j, i] = sums[i, j]


@njit(nogil=True, fastmath=ANY_ORDER)
def _add_squares(probabilities, changes, roots, first, last, c, shares, sums):
    """The shares `√a π z` of a class in the changes of some rows; `Σ a π z z` is added where its sums are."""
    count, classes, _ = changes.shape
    probability, root = probabilities[c, first:last], roots[first:last]
    for a in range(count):
        change, share = changes[a, c, first:last], shares[a * classes + c]
        for i in range(len(change)):
            share[i] = probability[i] * change[i]
        for i in range(len(root)):
            share[i] *= root[i]
        for b in range(a + 1):
            other, found = changes[b, c, first:last], changes.dtype.type(0)
            if len(root):
                for i in range(len(other)):
                    found += share[i] * (root[i] * other[i])
            else:
                for i in range(len(other)):
                    found += share[i] * other[i]
            sums[a * classes + c, b * classes + c] += found


@njit(nogil=True, fastmath=ANY_ORDER)
def _subtract_products(shares, size, sums):
    """Less the products of all pairs of shares, below the diagonal and on it; two by two, to read them less often."""
    for i in range(0, len(shares), 2):
        a, b = shares[i], shares[i + 1]
        for j in range(0, i + 1, 2):
            c, d = shares[j], shares[j + 1]
            ac = ad = bc = bd = shares.dtype.type(0)
            for k in range(size):
                ac += a[k] * c[k]
                ad += a[k] * d[k]
                bc += b[k] * c[k]
                bd += b[k] * d[k]
            sums[i, j] -= ac
            sums[i, j + 1] -= ad
            sums[i + 1, j] -= bc
            sums[i + 1, j + 1] -= bd


@njit(nogil=True, cache=True)
def move_weights(weights, multiples, directions, may_balance, moved):
    """Weights (D, O) after multiples (m, O) of directions (m, O, D), in `moved`; returns whether they are balanced.

    They are if they may be, and if all outputs move: then their mean over the outputs is taken away.
    """
    size, outputs = weights.shape
    balance = may_balance
    for c in range(outputs):
        stays = True
        for j in range(size):
            step = 0.0
            for a in range(len(directions)):
                step += multiples[a, c] * directions[a, c, j]
            stays &= step == 0
            moved[j, c] = weights[j, c] + step
        balance &= not stays
    if balance:
        for j in range(size):
            row, common = moved[j], 0.0
            for c in range(outputs):
                common += row[c]
            for c in range(outputs):
                row[c] -= common / outputs
    return balance


@njit(nogil=True, cache=True)
def add_penalties(bends, directions, ridge, starts):
    """Add to bends (m·G, m·G) what the penalty bends along directions (m, O, D), of outputs in groups (G,)."""
    count, outputs, size = directions.shape
    group = 0
    for c in range(outputs):
        if group + 1 < len(starts) and c == starts[group + 1]:
            group += 1
        for a in range(count):
            for b in range(count):
                found = 0.0
                for j in range(size):
                    found += ridge[j] * directions[a, c, j] * directions[b, c, j]
                bends[a * len(starts) + group, b * len(starts) + group] += found
