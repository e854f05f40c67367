"""An exponential that fits into vector registers, for functions that numba compiles.

NumPy's, on many processors, is the C library's, number by number, and takes longer than all the rest of a softmax.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

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
