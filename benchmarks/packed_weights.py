"""Forms of low-bit weights in ONNX files, on one thread of onnxruntime: `python -m benchmarks.packed_weights`.

What `annealfit quantize` writes, beside float weights and the operators that keep weights packed in memory: MatMulNBits
with a float zero point (our symmetric levels), and DequantizeLinear with an Add for the half level. Times are the least
of several, in milliseconds; answers are compared with those of float weights that have the same values.
"""

from benchmarks.timing import print_table

import argparse
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from annealfit.quantization import quantize_network

BLOCK, REPEATS = 128, 9


def network(nodes: list, constants: dict, shape: tuple) -> onnx.ModelProto:
    tensors = [c if isinstance(c, TensorProto) else numpy_helper.from_array(c, n) for n, c in constants.items()]
    inputs, output = (
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *shape])],
        onnx.ValueInfoProto(name="y"),
    )
    graph = helper.make_graph(nodes, "layer", inputs, [output], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def in_bytes(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Numbers along the last axis, the first in the lowest bits."""
    parts = numbers.reshape(*numbers.shape[:-1], -1, 8 // bits).astype(np.uint8)
    return np.bitwise_or.reduce(parts << (bits * np.arange(8 // bits, dtype=np.uint8)), axis=-1)


def product_packed_in_memory(layer, bits: int) -> onnx.ModelProto:
    """MatMulNBits: levels (outputs, blocks, block), a scale and a zero point for each block."""
    inputs, outputs = layer.levels.shape
    blocks = -(-inputs // BLOCK)
    numbers = np.pad(layer.grid.numbers(layer.levels).T, [(0, 0), (0, blocks * BLOCK - inputs)])
    constants = {
        "levels": in_bytes(numbers.reshape(outputs, blocks, BLOCK), bits),
        "scales": np.repeat(2 * layer.scales[:, None], blocks, axis=1).astype(np.float32),
        "zeros": np.full((outputs, blocks), (2**bits - 1) / 2, np.float32),
    }
    sizes = {"K": inputs, "N": outputs, "bits": bits, "block_size": BLOCK}
    node = helper.make_node("MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft", **sizes)
    return network([node], constants, (inputs,))


def convolution_packed_in_memory(layer, shape: tuple) -> onnx.ModelProto:
    """DequantizeLinear of unsigned integers of 4 bits, a scale for each filter, and an Add for the half level."""
    numbers = layer.grid.numbers(layer.levels).T
    levels = TensorProto(name="levels", data_type=TensorProto.UINT4, dims=layer.weights.shape)
    levels.raw_data = in_bytes(numbers.ravel(), 4).tobytes()
    scales = (2 * layer.scales).astype(np.float32)
    constants = {"levels": levels, "scales": scales, "offsets": -7.5 * scales.reshape(-1, 1, 1, 1)}
    unpack = helper.make_node("DequantizeLinear", ["levels", "scales"], ["whole"], domain="com.microsoft", axis=0)
    add, conv = helper.make_node("Add", ["whole", "offsets"], ["w"]), helper.make_node("Conv", ["x", "w"], ["y"])
    return network([unpack, add, conv], constants, shape)


def measured(model: onnx.ModelProto, inputs: np.ndarray) -> tuple[np.ndarray, list[str]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level, seconds = 1, 4, []
    started = time.perf_counter()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    opened = time.perf_counter() - started
    for rows in (inputs[:1], inputs):
        least = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            (found,) = session.run(None, {"x": rows})
            least.append(time.perf_counter() - started)
        seconds.append(min(least))
    return found, [f"{model.ByteSize():,}", *(f"{1000 * value:.3f}" for value in (opened, *seconds))]


def run(*, quick: bool) -> None:
    generator, rows = np.random.default_rng(0), []
    products = [(257, 64), (512, 214)] if quick else [(257, 64), (512, 214), (120, 18710), (2048, 2048)]
    for shape in [*products, (64, 64, 3, 3)]:
        weights = generator.normal(size=shape).astype(np.float32)
        is_conv = len(shape) == 4
        sizes = (shape[1], 40, 40) if is_conv else shape[:1]
        inputs = generator.normal(size=(8 if is_conv else 256, *sizes)).astype(np.float32)
        plain = network([helper.make_node("Conv" if is_conv else "MatMul", ["x", "w"], ["y"])], {"w": weights}, sizes)
        for bits in (4,) if is_conv else (2, 4):
            found = quantize_network(plain, inputs, bits, method="nearest")
            (layer,) = found.layers
            kept = convolution_packed_in_memory(layer, sizes) if is_conv else product_packed_in_memory(layer, bits)
            wanted, numbers = measured(found.model, inputs)
            name = "×".join(map(str, shape))
            rows.append([name, str(bits), "float", *numbers, "0"])
            forms = {"annealfit": found.packed, "DequantizeLinear" if is_conv else "MatMulNBits": kept}
            for form, model in forms.items():
                answers, numbers = measured(model, inputs)
                rows.append([name, str(bits), form, *numbers, f"{abs(answers - wanted).max() / abs(wanted).max():.0e}"])
    headings = ["weights", "bits", "form", "bytes", "opened", "one row", "all rows", "difference"]
    print_table("Low-bit weights in files (256 rows; 8 images of 40×40)", headings, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packed_weights", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two layers and a convolution")
    run(quick=parser.parse_args().quick)
