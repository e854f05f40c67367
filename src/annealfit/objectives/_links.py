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
        _weigh(outputs, first, last, probabilities, best, largest, total)
        for row in range(first, last):
            i, label = row - first, labels[row]
            losses[row] = math.log(np.float64(total[i])) + (largest[i] - outputs[label, row])
            right[row] = best[i] == label
        _divide(probabilities, first, last, total)


@njit(nogil=True, cache=True)
def subtract_labels(probabilities, labels):
    """`π − y`, in place of the probabilities (C, n)."""
    for i in range(len(labels)):
        probabilities[labels[i], i] -= 1


@njit(nogil=True, cache=True, fastmath=ANY_ORDER)
def share(probabilities, changes, shares, squares):
    """Changes (m, C, n), multiplied by the probabilities (C, n); and the sums of these times the changes (C, m, m).

    shares and squares are overwritten.
    """
    count, classes, _ = changes.shape
    squares[:] = 0
    for c in range(classes):
        probability = probabilities[c]
        for a in range(count):
            own, product = changes[a, c], shares[a, c]
            for i in range(len(own)):
                product[i] = probability[i] * own[i]
            for b in range(a + 1):
                other, found = changes[b, c], changes.dtype.type(0)
                for i in range(len(own)):
                    found += product[i] * other[i]
                squares[c, a, b] = squares[c, b, a] = found
