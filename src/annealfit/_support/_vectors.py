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
    if dtype is types.boolean:
        element = ir.IntType(1)
    elif dtype is types.float32:
        element = ir.FloatType()
    elif dtype is types.float64:
        element = ir.DoubleType()
    else:
        element = ir.IntType(dtype.bitwidth)
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


def _define_operator(python_operator, emit, gives_mask=False):
    """Teach numba `lanes operator lanes` and `lanes operator scalar`.

    `emit(builder, dtype, left, right)` writes the LLVM code for two vectors.
    """

    @infer_global(python_operator)
    class VectorOperator(AbstractTemplate):
        def generic(self, arguments, keywords):
            left, right = arguments
            if isinstance(left, VectorType) and (right == left or isinstance(right, types.Number)):
                return signature(VectorType(types.boolean) if gives_mask else left, left, right)
            return None

    def lower(context, builder, resolved, arguments):
        dtype = resolved.args[0].dtype
        right = _repeated(context, builder, arguments[1], resolved.args[1], dtype)
        return emit(builder, dtype, arguments[0], right)

    lower_builtin(python_operator, VectorType, VectorType)(lower)
    lower_builtin(python_operator, VectorType, types.Number)(lower)


def _arithmetic(for_integers, for_floats):
    """Emit one of two LLVM instructions, by the kind of dtype."""

    def emit(builder, dtype, left, right):
        instruction = for_floats if isinstance(dtype, types.Float) else for_integers
        return getattr(builder, instruction)(left, right)

    return emit


def _bitwise(instruction):
    return lambda builder, dtype, left, right: getattr(builder, instruction)(left, right)


def _less_or_equal(builder, dtype, left, right):
    return builder.fcmp_ordered("<=", left, right)


def _not_equal(builder, dtype, left, right):
    return builder.fcmp_unordered("!=", left, right)


_define_operator(operator.add, _arithmetic("add", "fadd"))
_define_operator(operator.mul, _arithmetic("mul", "fmul"))
_define_operator(operator.or_, _bitwise("or_"))  # this and the next three: unsigned integers only
_define_operator(operator.xor, _bitwise("xor"))
_define_operator(operator.lshift, _bitwise("shl"))
_define_operator(operator.rshift, _bitwise("lshr"))
_define_operator(operator.le, _less_or_equal, gives_mask=True)  # floats only, false for NaN
_define_operator(operator.ne, _not_equal, gives_mask=True)  # floats only, true for NaN


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


def emit_multiply_add(builder, dtype, factor, vector, addend):
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
        return emit_multiply_add(builder, vector.dtype, first, *arguments[1:])

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
