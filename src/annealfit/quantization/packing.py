"""Low-bit weights inside an ONNX file: packed levels, and a function of standard operators that unpacks them.

A layer's weights become three constants (bytes, scales, shape) and a node of the domain `annealfit`. Its function is in
the file. onnxruntime folds it when it opens the file, so the network runs as fast as with float weights and computes
with exactly `scales · levels`. It needs no low-bit types: operators of opset 10 are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError
from annealfit.data.features.onnx_files import onnx_module, with_opset
from annealfit.quantization.grids import Grid

_DOMAIN = "annealfit"
_LEAST_OPSET, _LEAST_IR = 10, 8  # Slice with inputs; functions in a file
_STORED_BITS = (1, 2, 4, 8)  # of which bytes hold whole numbers of levels


def stored_bits(grid: Grid) -> int:
    """Bits that a level takes in a file: 3 are stored as 4, and 5 to 7 as 8."""
    return next(bits for bits in _STORED_BITS if bits >= grid.storage_bits)


def dequantized(levels: NDArray[Any], scales: NDArray[Any], group_size: int | None) -> Array:
    """Weights (n_inputs, n_outputs) of levels and scales."""
    spread = scales if group_size is None else np.repeat(scales, group_size, axis=0)[: len(levels)]
    return spread.astype(np.float64) * levels


def pack_network(model: Any, layers: Sequence[Any]) -> tuple[Any, dict[str, str]]:
    """Return a copy of an ONNX model with the weights of these layers packed; and why some stay float, by name."""
    small = with_opset(type(model).FromString(model.SerializeToString()), _LEAST_OPSET)
    opset = next(one.version for one in small.opset_import if one.domain in ("", "ai.onnx"))
    constants = {tensor.name: tensor for tensor in small.graph.initializer}
    inputs = {value.name: value for value in small.graph.input}  # old files list constants among them
    functions, n_before = dict[tuple[Any, ...], Any](), len(small.functions)
    nodes, reasons = list[Any](), dict[str, str]()
    for layer in layers:
        if not np.array_equal(onnx_module().numpy_helper.to_array(constants[layer.weight]), layer.weights):
            reasons[layer.name] = "its weights were changed after they were rounded"
            continue
        key = layer.grid, layer.is_transposed, layer.weights.dtype.str
        function = functions.get(key) or _function(f"unpack_{n_before + len(functions) + 1}", *key, opset)
        tensors, node = _packed(layer, function.name)
        size = sum(part.ByteSize() for part in (*tensors, node))
        if size >= layer.weights.nbytes:
            reasons[layer.name] = f"packed it would have {size:,} bytes instead of {layer.weights.nbytes:,}"
            continue
        functions[key] = function
        nodes.append(node)
        small.graph.initializer.remove(constants[layer.weight])
        if layer.weight in inputs:
            small.graph.input.remove(inputs[layer.weight])
        small.graph.initializer.extend(tensors)
    if nodes:
        small.ir_version = max(small.ir_version, _LEAST_IR)
        if all(one.domain != _DOMAIN for one in small.opset_import):
            small.opset_import.append(onnx_module("onnx.helper").make_opsetid(_DOMAIN, 1))
        small.functions.extend(functions.values())
        others = list(small.graph.node)
        small.graph.ClearField("node")
        small.graph.node.extend([*nodes, *others])
    return small, reasons


def _packed(layer: Any, function: str) -> tuple[list[Any], Any]:
    """The constants of a layer and the node that makes its weights of them.

    Rows of lowest levels are appended until groups, and bytes, are full; the function cuts them off.
    """
    bits, (rows, outputs) = stored_bits(layer.grid), layer.levels.shape
    step, per_byte = layer.group_size or 1, 8 // bits
    scales = np.atleast_2d(layer.scales)
    padded = -(-rows // step) * step
    while padded * outputs % per_byte:
        padded += step
    if layer.group_size is not None:
        scales = np.pad(scales, [(0, padded // step - len(scales)), (0, 0)])
    numbers = np.pad(layer.grid.numbers(layer.levels), [(0, padded - rows), (0, 0)]).astype(np.uint8)
    shifted = numbers.reshape(-1, per_byte) << (bits * np.arange(per_byte, dtype=np.uint8))
    from_array, name = onnx_module().numpy_helper.from_array, layer.weight
    tensors = [
        from_array(np.bitwise_or.reduce(shifted, axis=1).astype(np.uint8), f"{name}.bytes"),
        from_array(scales[:, None, :].astype(np.float32), f"{name}.scales"),
        from_array(np.array(layer.weights.shape), f"{name}.shape"),
    ]
    make_node = onnx_module("onnx.helper").make_node
    return tensors, make_node(function, [tensor.name for tensor in tensors], [name], domain=_DOMAIN)


def _function(name: str, grid: Grid, is_transposed: bool, dtype: str, opset: int) -> Any:
    """The function bytes (n,), scales (groups, 1, n_outputs), shape → weights of this shape.

    A table (256, levels per byte) has the levels of every byte.
    """
    helper, from_array = onnx_module("onnx.helper"), onnx_module().numpy_helper.from_array
    types, bits = onnx_module().TensorProto, stored_bits(grid)
    numbers = np.arange(256)[:, None] >> bits * np.arange(8 // bits) & 2**bits - 1
    table = grid.at(np.minimum(numbers, grid.count - 1))
    constants = {
        "table": table.astype(np.int8 if np.abs(table).max() < 128 else np.int16),
        "middle": np.array([0, 2, 0]),  # the scales' shape less this: (groups, −1, n_outputs)
        **{key: np.array([value]) for key, value in {"all": -1, "first": 0, "second": 1, "end": 3}.items()},
    }

    def node(operator: str, read: str, made: str, **attributes: Any) -> Any:
        return helper.make_node(operator, read.split(), [made], **attributes)

    turned = [
        node("Slice", "grouped_shape second end", "matrix_shape"),
        node("Reshape", "values matrix_shape", "matrix"),
        node("Transpose", "matrix", "turned"),
    ]
    body = [
        *(helper.make_node("Constant", [], [key], value=from_array(value)) for key, value in constants.items()),
        node("Cast", "bytes", "numbers", to=types.INT32),
        node("Gather", "table numbers", "whole_levels"),
        node("Cast", "whole_levels", "levels", to=types.FLOAT),
        node("Shape", "scales", "lengths"),
        node("Sub", "lengths middle", "grouped_shape"),
        node("Reshape", "levels grouped_shape", "grouped"),
        node("Mul", "grouped scales", "products"),
        node("Reshape", "products all", "row"),
        node("ReduceProd", "shape", "count", keepdims=1),
        node("Slice", "row first count", "values"),
        *(turned if is_transposed else []),
        node("Reshape", f"{'turned' if is_transposed else 'values'} shape", "shaped"),
        node("Cast", "shaped", "weights", to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype))),
    ]
    read, opsets = ["bytes", "scales", "shape"], [helper.make_opsetid("", opset)]
    return helper.make_function(_DOMAIN, name, read, ["weights"], body, opsets)


def unpack_network(model: Any) -> dict[str, tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Levels (n_inputs, n_outputs), scales (groups, n_outputs) and weights of a model from `pack_network`, by name."""
    to_array = onnx_module().numpy_helper.to_array
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    functions = {function.name: function.node for function in model.functions if function.domain == _DOMAIN}
    if not functions:
        raise InvalidInputError("the network has no packed weights; annealfit quantize -o writes them")
    found = {}
    for node in model.graph.node:
        if node.domain != _DOMAIN:
            continue
        packed, scales, shape = (to_array(constants[name]) for name in node.input)
        operators = functions[node.op_type]
        table = to_array(operators[0].attribute[0].t)
        is_transposed = any(inner.op_type == "Transpose" for inner in operators)
        outputs = scales.shape[2]
        rows = int(np.prod(shape)) // outputs
        matrix = table[packed].astype(np.int64).reshape(-1, outputs)
        group_size = -(-len(matrix) // len(scales))
        levels, scales = matrix[:rows], scales[:, 0]
        values = dequantized(levels, scales, group_size)
        dtype = onnx_module("onnx.helper").tensor_dtype_to_np_dtype(operators[-1].attribute[0].i)
        weights = (values.T if is_transposed else values).reshape(shape).astype(dtype)
        found[node.output[0]] = levels, scales[: -(-rows // group_size)], weights
    return found
