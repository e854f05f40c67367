"""Vector operations on the fields of floating-point numbers: changing a sign, taking a logarithm."""

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from annealfit._support._vectors import LANES, emit_multiply_add, machine_type


def log2_coefficients(degree, unit):
    """c_1..c_degree of the polynomial sum_i c_i x**i that interpolates log2(1 + m), m = unit * x, on [0, 1].

    The nodes are the Chebyshev-Lobatto points, for two reasons: the error is within a small factor
    of the least possible, and it is zero at both ends.  The approximate logarithm is therefore
    continuous from one power of two to the next, and never positive for a uniform up to 1.
    """
    nodes = 0.5 - 0.5 * np.cos(np.pi * np.arange(1, degree + 1) / degree)
    powers = nodes[:, None] ** np.arange(1, degree + 1)
    coefficients = np.linalg.solve(powers, np.log2(1.0 + nodes))
    return tuple((coefficients * unit ** np.arange(1.0, degree + 1)).tolist())


# How IEEE 754 lays out a number: the integer type of the same width, the bits of its fraction and the
# bias of its exponent.  Then the coefficients of `log2_uniform`, for its unit of the fraction.
_SINGLE = (types.uint32, 23, 127, log2_coefficients(5, 2.0**-23))
_DOUBLE = (types.uint64, 52, 1023, log2_coefficients(13, 1.0))


def _layout(dtype):
    return _SINGLE if dtype is types.float32 else _DOUBLE


def _constant(dtype, value):
    """`value` in every lane."""
    return ir.Constant(machine_type(dtype), [value] * LANES)


@intrinsic
def flip_sign(typing_context, vector, words):
    """-vector in the lanes where the top bit of the uint32 word is set, else vector."""
    dtype = vector.dtype

    def generate(context, builder, resolved, arguments):
        integer = _layout(dtype)[0]
        sign = builder.and_(arguments[1], _constant(types.uint32, 1 << 31))
        if integer is types.uint64:
            sign = builder.shl(builder.zext(sign, machine_type(integer)), _constant(integer, 32))
        flipped = builder.xor(builder.bitcast(arguments[0], machine_type(integer)), sign)
        return builder.bitcast(flipped, machine_type(dtype))

    return vector(vector, words), generate


@intrinsic
def log2_uniform(typing_context, words, like):
    """log2(uniform) for the uniforms (word >> 1) / 2**31 of random uint32 words, as lanes like `like`.

    The integer n = word >> 1 becomes a floating-point number, whose fields say n = 2**e (1 + m), so

        log2(uniform) = (e - 31) + log2(1 + m),    0 <= m < 1,

    with a polynomial (`log2_coefficients`) for the second term.  Its error, as a relative error of
    the probability, is at most 2e-5 in single and 1e-11 in double precision.  In single precision
    the conversion rounds n to 24 significant bits, which keeps the small uniforms exact; it may
    round to 2**31, whose logarithm is 0.  n = 0 has e = -bias: less than any other, and finite.
    """
    dtype = like.dtype

    def generate(context, builder, resolved, arguments):
        integer, fraction_bits, bias, coefficients = _layout(dtype)
        floats, integers = machine_type(dtype), machine_type(integer)
        # Below 2**31, so the signed conversion, which all processors have, is right.
        number = builder.sitofp(builder.lshr(arguments[0], _constant(types.uint32, 1)), floats)
        fields = builder.bitcast(number, integers)

        biased_exponent = builder.lshr(fields, _constant(integer, fraction_bits))
        if integer is types.uint64:
            biased_exponent = builder.trunc(biased_exponent, machine_type(types.int32))
        exponent = builder.sitofp(builder.sub(biased_exponent, _constant(types.int32, bias + 31)), floats)

        fraction = builder.and_(fields, _constant(integer, (1 << fraction_bits) - 1))
        if dtype is types.float32:
            mantissa = builder.sitofp(fraction, floats)  # 2**23 m, one instruction
        else:  # AVX2 converts no 64-bit integers, so m is made as (1 + m) - 1
            significand = builder.or_(fraction, _constant(integer, bias << fraction_bits))
            mantissa = builder.fsub(builder.bitcast(significand, floats), _constant(dtype, 1.0))

        value = _constant(dtype, coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            value = emit_multiply_add(builder, dtype, value, mantissa, _constant(dtype, coefficient))
        return emit_multiply_add(builder, dtype, value, mantissa, exponent)

    return like(words, like), generate
