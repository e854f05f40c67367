"""The softmax of many rows at once, compiled by numba, with an exponential that fits into vector registers.

NumPy's, on many processors, is the C library's, number by number, and takes longer than all the rest. Arrays are
(classes, n), as in `annealfit.objectives.links`; some rows at a time stay in the cache.
"""

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

from annealfit.rows._products import ANY_ORDER

ROWS_AT_ONCE = 512
ROWS_FOR_PRODUCTS = 128  # the shares of so many, in two directions of ten classes, are in the cache next to the core
EXACT = {"contract", "nsz"}
"""Products and sums may become one instruction; nothing is put into another order."""

SMALLEST = -80.0
"""Exponents below are taken for it: a probability of 10⁻³⁵, which is a number in single precision too."""

# log 2 in two parts, of which the first has so few digits that whole multiples of it are exact.
LOG_2, REST_OF_LOG_2 = 0.693359375, math.log(2) - 0.693359375


def exponential(x):
    """`exp(x)` for x from `SMALLEST` to 0, in the precision of x, to two units of its last digit."""
    raise NotImplementedError("compiled functions have one: see below")


def _parts_of_exponential(real, whole, digits, bias, terms):
    """What the exponential needs in one precision, as constants.

    A number to which 1.5·2^digits is added has no digits left behind the point: what it was, rounded, is in its last
    bits. Shifted to where the exponent is, they are a power of two.
    """
    taylor = tuple(real(1 / math.factorial(power)) for power in range(terms, -1, -1))
    numbers = (1 / math.log(2), 1.5 * 2.0**digits, LOG_2, REST_OF_LOG_2, SMALLEST)
    return *map(real, numbers), whole(digits), whole(bias << digits), taylor


def _reinterpreting(source, target, llvm_type):
    """A compiled function that takes the bits of one type for another's."""

    @intrinsic
    def reinterpret(typing_context, value):
        return target(source), lambda context, builder, signature, given: builder.bitcast(given[0], llvm_type)

    return reinterpret


def _exponential_of(real, whole, llvm_types, digits, bias, terms):
    per_doubling, rounding, log_2, rest, smallest, shift, one, taylor = _parts_of_exponential(
        np.dtype(str(real)).type, np.dtype(str(whole)).type, digits, bias, terms
    )
    bits_of = _reinterpreting(real, whole, llvm_types[1])
    number_of = _reinterpreting(whole, real, llvm_types[0])

    def implementation(x):
        x = smallest if x < smallest else x  # what is not a number stays so
        doublings = x * per_doubling + rounding
        power = number_of(whole((bits_of(doublings) << shift) + one))
        doublings -= rounding
        x = (x - doublings * log_2) - doublings * rest
        result = taylor[0]
        for coefficient in taylor[1:]:
            result = result * x + coefficient
        return result * power

    return implementation


_IN_SINGLE = _exponential_of(types.float32, types.int32, (ir.FloatType(), ir.IntType(32)), 23, 127, 6)
_IN_DOUBLE = _exponential_of(types.float64, types.int64, (ir.DoubleType(), ir.IntType(64)), 52, 1023, 13)


@overload(exponential, inline="always", jit_options={"fastmath": EXACT})
def _choose_exponential(x):
    return _IN_SINGLE if x == types.float32 else _IN_DOUBLE


@njit(nogil=True)
def _space(dtype):
    return np.empty(ROWS_AT_ONCE, dtype)


@njit(nogil=True, fastmath=EXACT)
def _weigh(outputs, first, last, probabilities, best, largest, total):
    """Of the outputs (C, n) of some rows the first largest, and which one it is; and of all of them exponentials.

    Whole arrays come in, and rows are cut out here: a compiler that sees a part of an array does not trust its order.
    """
    size = last - first
    output = outputs[0, first:last]
    for i in range(size):
        best[i], largest[i], total[i] = 0, output[i], 0
    for c in range(1, len(outputs)):
        output = outputs[c, first:last]
        for i in range(size):
            best[i] = c if output[i] > largest[i] else best[i]
            largest[i] = output[i] if output[i] > largest[i] else largest[i]
    for c in range(len(outputs)):
        output, probability = outputs[c, first:last], probabilities[c, first:last]
        for i in range(size):
            probability[i] = exponential(output[i] - largest[i])
            total[i] += probability[i]


@njit(nogil=True, fastmath=EXACT)
def _divide(probabilities, first, last, total):
    """Make the exponentials of some rows probabilities; totals become their inverses."""
    for i in range(last - first):
        total[i] = 1 / total[i]
    for c in range(len(probabilities)):
        probability = probabilities[c, first:last]
        for i in range(last - first):
            probability[i] *= total[i]


@njit(nogil=True, cache=True, fastmath=EXACT)
def softmax_of_rows(outputs, probabilities):
    """The softmax over the classes of outputs (C, n); probabilities (C, n) are overwritten."""
    best, largest, total = _space(outputs.dtype), _space(outputs.dtype), _space(outputs.dtype)
    for first in range(0, outputs.shape[1], ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, outputs.shape[1])
        _weigh(outputs, first, last, probabilities, best, largest, total)
        _divide(probabilities, first, last, total)


@njit(nogil=True, cache=True, fastmath=EXACT)
def evaluate(outputs, labels, probabilities, losses, right):
    """The softmax (C, n) of outputs, and of every row its loss and whether its first largest output is its label's.

    probabilities, losses (n,) in double precision and right (n,) are overwritten.
    """
    best, largest, total = _space(outputs.dtype), _space(outputs.dtype), _space(outputs.dtype)
    for first in range(0, outputs.shape[1], ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, outputs.shape[1])
        _evaluate(outputs, labels, first, last, probabilities, losses, right, best, largest, total)


@njit(nogil=True, fastmath=EXACT)
def _evaluate(outputs, labels, first, last, probabilities, losses, right, best, largest, total):
    """The same of some rows."""
    _weigh(outputs, first, last, probabilities, best, largest, total)
    for row in range(first, last):
        i, label = row - first, labels[row]
        losses[row] = math.log(np.float64(total[i])) + (largest[i] - outputs[label, row])
        right[row] = best[i] == label
    _divide(probabilities, first, last, total)


@njit(nogil=True, cache=True, fastmath=EXACT)
def mean_spreads(outputs, spreads):
    """The mean over the classes of `π(1 − π)`, with π the softmax of outputs (C, n); spreads (n,) are overwritten."""
    best, largest, total = _space(outputs.dtype), _space(outputs.dtype), _space(outputs.dtype)
    weights = np.empty_like(outputs)
    for first in range(0, outputs.shape[1], ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, outputs.shape[1])
        _weigh(outputs, first, last, weights, best, largest, total)
        spread = spreads[first:last]
        for i in range(len(spread)):
            spread[i] = 0
        for c in range(len(outputs)):
            weight = weights[c, first:last]
            for i in range(len(spread)):
                spread[i] += weight[i] * weight[i]
        for i in range(len(spread)):
            # Rounding may take a little more than there is from a row that is decided.
            spread[i] = max(1 - spread[i] / (total[i] * total[i]), 0) / len(outputs)


@njit(nogil=True, cache=True, fastmath=EXACT)
def tilt(logits, biases, probabilities, entropies):
    """The softmax of logits (C, n) with biases (C,) added to them, and its entropies (n,); both are overwritten.

    `H(π) = log Σ exp(z) − Σ π z`, with z measured from the largest: nothing of it is negative, so nothing cancels. A
    bias of −∞ leaves a class out.
    """
    largest, total, shares = _space(logits.dtype), _space(logits.dtype), _space(logits.dtype)
    for first in range(0, logits.shape[1], ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, logits.shape[1])
        size = last - first
        for i in range(size):
            largest[i], total[i], shares[i] = -np.inf, 0, 0
        for c in range(len(logits)):
            logit, bias = logits[c, first:last], biases[c]
            for i in range(size):
                value = logit[i] + bias
                largest[i] = largest[i] if largest[i] >= value else value
        for c in range(len(logits)):
            logit, probability, bias = logits[c, first:last], probabilities[c, first:last], biases[c]
            if bias == -np.inf:
                for i in range(size):
                    probability[i] = 0
            else:
                for i in range(size):
                    value = logit[i] + bias - largest[i]
                    value = SMALLEST if value < SMALLEST else value
                    probability[i] = exponential(value)
                    total[i] += probability[i]
                    shares[i] += probability[i] * value
        for i in range(size):
            entropies[first + i] = math.log(total[i]) - shares[i] / total[i]
        _divide(probabilities, first, last, total)


@njit(nogil=True, fastmath=EXACT)
def _step(outputs, multiples, changes, first, last, balance, moved, common):
    """The outputs of some rows, moved by multiples (m, C) of changes (m, C, n); with `balance` less their mean."""
    size = last - first
    for i in range(size):
        common[i] = 0
    for c in range(len(outputs)):
        before, after = outputs[c, first:last], moved[c, first:last]
        for i in range(size):
            after[i] = before[i]
        for a in range(len(changes)):
            change, multiple = changes[a, c, first:last], multiples[a, c]
            for i in range(size):
                after[i] += multiple * change[i]
        for i in range(size):
            common[i] += after[i]
    if balance:
        for c in range(len(outputs)):
            after = moved[c, first:last]
            for i in range(size):
                after[i] -= common[i] / len(outputs)


@njit(nogil=True, cache=True, fastmath=EXACT)
def move(outputs, multiples, changes, labels, balance, moved, probabilities, losses, right):
    """Outputs (C, n) after multiples (m, C) of changes (m, C, n), in `moved`; and `evaluate` of them.

    With `balance` moved outputs are measured from their mean over the classes. moved, probabilities, losses (n,) and
    right (n,) are overwritten.
    """
    best, largest, total = _space(outputs.dtype), _space(outputs.dtype), _space(outputs.dtype)
    for first in range(0, outputs.shape[1], ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, outputs.shape[1])
        _step(outputs, multiples, changes, first, last, balance, moved, total)
        _evaluate(moved, labels, first, last, probabilities, losses, right, best, largest, total)


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


@njit(nogil=True, cache=True)
def subtract_labels(probabilities, labels, residuals):
    """`π − y` where y is 1, of probabilities (C, n), in residuals (C, n), which may be the same array."""
    for i in range(len(labels)):
        residuals[labels[i], i] = probabilities[labels[i], i] - 1


@njit(nogil=True, cache=True, fastmath=ANY_ORDER)
def bends(probabilities, changes, roots, found):
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


@njit(nogil=True, cache=True, fastmath=EXACT)
def move_logit(logits, multiples, changes, labels, moved, probabilities, losses, right):
    """What `move` is for two classes, whose one output is the logit of the second: arrays are (n,), changes (m, n)."""
    for i in range(len(logits)):
        moved[i] = logits[i]
    for a in range(len(changes)):
        change, multiple = changes[a], multiples[a]
        for i in range(len(logits)):
            moved[i] += multiple * change[i]
    for i in range(len(logits)):
        logit = moved[i]
        odds = exponential(-abs(logit))  # of the less likely class
        likely = 1 / (1 + odds)
        probabilities[i] = likely if logit > 0 else odds * likely
        losses[i] = odds
    for i in range(len(logits)):
        logit = moved[i] if labels[i] == 1 else -moved[i]
        losses[i] = math.log1p(losses[i]) + max(-logit, 0.0)
        right[i] = (moved[i] > 0) == (labels[i] == 1)
