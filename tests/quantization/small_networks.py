"""Small ONNX networks for the tests of quantisation."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def constant(name, values):
    return numpy_helper.from_array(np.asarray(values, dtype=np.float32), name)


def model_of(nodes, constants, input_shape, output="y", opset=17):
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, input_shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", "C"])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def perceptron(seed=0, sizes=(12, 16, 5)):
    """MatMul, Add, Relu, Gemm with a transposed matrix: two layers."""
    generator = np.random.default_rng(seed)
    inputs, hidden, outputs = sizes
    constants = [
        constant("w1", generator.normal(size=(inputs, hidden))),
        constant("b1", generator.normal(size=hidden)),
        constant("w2", generator.normal(size=(outputs, hidden))),
        constant("b2", generator.normal(size=outputs)),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h0"], name="first"),
        helper.make_node("Add", ["h0", "b1"], ["h1"], name="add"),
        helper.make_node("Relu", ["h1"], ["h2"], name="relu"),
        helper.make_node("Gemm", ["h2", "w2", "b2"], ["y"], name="second", transB=1, alpha=0.5, beta=2.0),
    ]
    return model_of(nodes, constants, ["N", inputs])


def conv_net(seed=0, filters=6, **attributes):
    """Conv in two groups with strides, pads and dilations, Relu, Flatten, Gemm."""
    generator = np.random.default_rng(seed)
    settings = {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2], **attributes}
    settings = {name: value for name, value in settings.items() if value is not None}
    size, filters = filters, generator.normal(size=(filters, 4 // settings["group"], 3, 2))
    nodes = [
        helper.make_node("Conv", ["x", "filters", "fb"], ["c"], name="conv", **settings),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], name="pool"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w"], ["y"], name="head"),
    ]
    constants = [
        constant("filters", filters),
        constant("fb", generator.normal(size=size)),
        constant("w", generator.normal(size=(size, 3))),
    ]
    return model_of(nodes, constants, ["N", 4, 8, 7])


def run(model, inputs, output=None):
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run([output or model.graph.output[0].name], {"x": np.asarray(inputs, dtype=np.float32)})[0]


def constants_of(model):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
