"""SIMD values for numba: one vector register (or a few) holding one number per lane.

numba has no vector type, and LLVM's loop vectoriser gives up on the annealing loop because the lane
state would live in memory.  So the lanes are made explicit: `VectorType(dtype)` is a numba type whose
machine representation is LLVM's portable vector `<LANES x dtype>`, and the arithmetic operators work
on it.  LLVM splits the vector into whatever registers the processor has (SSE, AVX2, AVX-512, NEON),
so nothing here depends on an instruction set.

Scalars mixed with lanes are converted to the lanes' dtype and repeated: `vector * 2.5` stays single
precision if `vector` is.
"""

import operator

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 16
"""Lanes in a vector: two AVX2 registers in single precision, so that two dependency chains overlap."""


class VectorType(types.Type):
    """LANES numbers of one dtype (an integer, float32, float64, or boolean for a mask)."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"VectorType({dtype}, {LANES})")


def machine_type(dtype):
    """The LLVM vector type for LANES numbers of a numba dtype."""
    floats = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
    element = floats.get(dtype) or ir.IntType(1 if dtype is types.boolean else dtype.bitwidth)
    return ir.VectorType(element, LANES)


@register_model(VectorType)
class VectorModel(models.PrimitiveModel):
    """Lanes are held as an LLVM vector value."""

    def __init__(self, manager, lanes_type):
        super().__init__(manager, lanes_type, machine_type(lanes_type.dtype))


def _repeated(context, builder, value, value_type, dtype):
    """`value` itself if it is a vector, else the scalar cast to `dtype` and copied to every lane."""
    if isinstance(value_type, VectorType):
        return value
    scalar = context.cast(builder, value, value_type, dtype)
    vector = machine_type(dtype)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.IntType(32)(0))
    to_every_lane = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), to_every_lane)


def _define_operator(python_operator, instruction, *condition):
    """Teach numba `lanes operator lanes` and `lanes operator scalar`: an instruction of LLVM by its builder's name.

    For floats the name begins with "f", except where it is a comparison, whose condition is given.
    """

    @infer_global(python_operator)
    class VectorOperator(AbstractTemplate):
        def generic(self, arguments, keywords):
            left, right = arguments
            if isinstance(left, VectorType) and (right == left or isinstance(right, types.Number)):
                return signature(VectorType(types.boolean) if condition else left, left, right)
            return None

    def lower(context, builder, resolved, arguments):
        dtype = resolved.args[0].dtype
        right = _repeated(context, builder, arguments[1], resolved.args[1], dtype)
        prefix = "f" if isinstance(dtype, types.Float) and not condition else ""
        return getattr(builder, prefix + instruction)(*condition, arguments[0], right)

    lower_builtin(python_operator, VectorType, VectorType)(lower)
    lower_builtin(python_operator, VectorType, types.Number)(lower)


_define_operator(operator.add, "add")
_define_operator(operator.mul, "mul")
_define_operator(operator.or_, "or_")  # this and the next three: unsigned integers only
_define_operator(operator.xor, "xor")
_define_operator(operator.lshift, "shl")
_define_operator(operator.rshift, "lshr")
_define_operator(operator.le, "fcmp_ordered", "<=")  # floats only, false for NaN
_define_operator(operator.ne, "fcmp_unordered", "!=")  # floats only, true for NaN


def _lanes_of(array):
    """The type of a row of the array; its address is only known for the C-contiguous ones."""
    if array.layout != "C":
        raise TypingError(f"lanes are loaded from C-contiguous arrays only, not {array}")
    return VectorType(array.dtype)


def _row_pointer(context, builder, array_type, array, row):
    """Address of row `row`, as a vector, of a C-contiguous array whose last axis has LANES elements."""
    data = context.make_array(array_type)(context, builder, array).data
    first = builder.gep(data, [builder.mul(row, row.type(LANES))])
    return builder.bitcast(first, machine_type(array_type.dtype).as_pointer())


@intrinsic
def load(typing_context, array, row):
    """Row `row` of a C-contiguous (..., LANES) array (leading axes flattened); no bounds check."""

    def generate(context, builder, resolved, arguments):
        array_type = resolved.args[0]
        pointer = _row_pointer(context, builder, array_type, *arguments)
        # NumPy promises the alignment of an element only.
        return builder.load(pointer, align=array_type.dtype.bitwidth // 8)

    return _lanes_of(array)(array, types.intp), generate


@intrinsic
def store(typing_context, array, row, vector):
    """array[row, :] = vector, for an array as in `load`."""

    def generate(context, builder, resolved, arguments):
        array_type = resolved.args[0]
        pointer = _row_pointer(context, builder, array_type, *arguments[:2])
        builder.store(arguments[2], pointer, align=array_type.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, _lanes_of(array)), generate


def _emit_multiply_add(builder, dtype, factor, vector, addend):
    """Write the LLVM code for factor * vector + addend."""
    function_type = ir.FunctionType(machine_type(dtype), [machine_type(dtype)] * 3)
    name = f"llvm.fmuladd.v{LANES}f{dtype.bitwidth}"
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), [factor, vector, addend])


@intrinsic
def multiply_add(typing_context, factor, vector, addend):
    """The sum factor * vector + addend; `factor` may be a scalar.

    Fused (one rounding) where the processor can, else a multiplication and an addition: LLVM's
    `fmuladd`.  Its `fma` would round alike everywhere, but by a library call per lane on processors
    without the instruction; results repeat on one machine either way.
    """

    def generate(context, builder, resolved, arguments):
        first = _repeated(context, builder, arguments[0], resolved.args[0], vector.dtype)
        return _emit_multiply_add(builder, vector.dtype, first, *arguments[1:])

    return vector(factor, vector, addend), generate


@intrinsic
def select(typing_context, mask, if_true, if_false):
    """Lane by lane, `if_true` where the mask is set, else `if_false` (which may be a scalar)."""

    def generate(context, builder, resolved, arguments):
        otherwise = _repeated(context, builder, arguments[2], resolved.args[2], if_true.dtype)
        return builder.select(arguments[0], arguments[1], otherwise)

    return if_true(mask, if_true, if_false), generate


@intrinsic
def any_lane(typing_context, mask):
    """Whether the mask is set in at least one lane."""

    def generate(context, builder, resolved, arguments):
        return builder.icmp_unsigned("!=", builder.bitcast(arguments[0], ir.IntType(LANES)), ir.IntType(LANES)(0))

    return types.boolean(mask), generate


@intrinsic
def repeat(typing_context, scalar, like):
    """The scalar in every lane, in the dtype of the lanes `like`."""

    def generate(context, builder, resolved, arguments):
        return _repeated(context, builder, arguments[0], resolved.args[0], like.dtype)

    return like(scalar, like), generate


@intrinsic
def convert(typing_context, vector, like):
    """The same numbers in the dtype of the lanes `like`; a mask counts as 0 and 1."""
    source, target = vector.dtype, like.dtype

    def generate(context, builder, resolved, arguments):
        if source == target:
            return arguments[0]
        if source is types.boolean:
            return builder.zext(arguments[0], machine_type(target))
        resize = builder.fpext if target.bitwidth > source.bitwidth else builder.fptrunc
        return resize(arguments[0], machine_type(target))

    return like(vector, like), generate


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
            value = _emit_multiply_add(builder, dtype, value, mantissa, _constant(dtype, coefficient))
        return _emit_multiply_add(builder, dtype, value, mantissa, exponent)

    return like(words, like), generate
