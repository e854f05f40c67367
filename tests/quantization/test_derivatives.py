"""The backward rules: each against finite differences in double precision, and what happens where there is none."""

import numpy as np
import pytest
import scipy.special
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from annealfit.quantization.derivatives import RULES, Derivatives
from annealfit.quantization.onnx_graph import OnnxGraph

GENERATOR = np.random.default_rng(5)
STEP = 1e-6


def normal(*shape):
    return GENERATOR.normal(size=shape)


def positive(*shape):
    return 0.5 + GENERATOR.random(size=shape)


def whole(*numbers):
    return np.array(numbers, np.int64)


IMAGES = normal(2, 4, 7, 6)
# An operator, its inputs (the gradients at those that are floats are compared), and its attributes.
CASES = [
    *((name, [3 * normal(3, 5)], {}) for name in ("Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "Tanh", "Exp", "Erf")),
    *((name, [3 * normal(3, 5)], {}) for name in ("Abs", "Neg", "Softplus", "Identity", "Flatten")),
    *((name, [positive(3, 5)], {}) for name in ("Log", "Sqrt", "Reciprocal")),
    ("LeakyRelu", [normal(3, 5)], {"alpha": 0.3}),
    ("HardSigmoid", [3 * normal(3, 5)], {"alpha": 0.25, "beta": 0.4}),
    ("Clip", [3 * normal(3, 5), np.float64(-1.0), np.float64(2.0)], {}),
    ("Pow", [positive(3, 5), np.float64(3.0)], {}),
    ("Dropout", [normal(3, 5)], {}),
    ("Cast", [normal(3, 5)], {"to": TensorProto.FLOAT}),
    ("Reshape", [normal(3, 4), whole(2, -1)], {}),
    ("Squeeze", [normal(3, 1, 4), whole(1)], {}),
    ("Unsqueeze", [normal(3, 4), whole(1)], {}),
    ("Transpose", [normal(3, 4, 2)], {"perm": [2, 0, 1]}),
    ("Transpose", [normal(3, 4, 2)], {}),
    *((name, [normal(3, 4), normal(2, 1, 4)], {}) for name in ("Add", "Sub", "Mul", "Sum", "Max", "Min", "Mean")),
    ("Div", [normal(3, 4), positive(2, 1, 4)], {}),
    ("Where", [normal(3, 4) > 0, normal(3, 4), normal(4)], {}),
    ("Expand", [normal(3, 1), whole(2, 3, 4)], {}),
    ("Concat", [normal(3, 4), normal(3, 2)], {"axis": -1}),
    ("Slice", [normal(5, 6), whole(4, 0), whole(0, 5), whole(0, 1), whole(-2, 2)], {}),
    ("Gather", [normal(5, 6), whole(0, 2, 2, 4)], {"axis": 1}),
    ("Split", [normal(5, 6), whole(2, 4)], {"axis": 1}),
    ("Pad", [normal(2, 3), whole(1, 0, 2, 1)], {}),
    ("Pad", [normal(3, 4), whole(1, 2, 0, 1)], {"mode": "reflect"}),
    ("Tile", [normal(2, 3), whole(2, 3)], {}),
    ("DepthToSpace", [normal(2, 8, 3, 2)], {"blocksize": 2}),
    ("SpaceToDepth", [normal(2, 2, 4, 6)], {"blocksize": 2}),
    ("Resize", [normal(1, 2, 3, 2), np.zeros(0), np.array([1.0, 1.0, 2.0, 2.0])], {"mode": "nearest"}),
    ("ReduceSum", [normal(3, 4, 5), whole(1, 2)], {"keepdims": 0}),
    *((name, [normal(3, 4, 5)], {"axes": [1], "keepdims": 1}) for name in ("ReduceMean", "ReduceMax")),
    ("GlobalAveragePool", [IMAGES], {}),
    ("GlobalMaxPool", [IMAGES], {}),
    ("Softmax", [normal(3, 4, 5)], {"axis": 1}),
    ("LogSoftmax", [normal(3, 5)], {}),
    ("BatchNormalization", [IMAGES, normal(4), normal(4), normal(4), positive(4)], {"epsilon": 0.01}),
    ("LayerNormalization", [normal(3, 4, 5), normal(5), normal(5)], {"axis": -1}),
    ("MatMul", [normal(2, 3, 4), normal(4, 5)], {}),
    ("MatMul", [normal(2, 3, 4), normal(2, 4, 5)], {}),
    *(
        ("Gemm", [normal(4, 3) if a else normal(3, 4), normal(5, 4) if b else normal(4, 5), normal(5)], own)
        for a in (0, 1)
        for b in (0, 1)
        for own in [{"transA": a, "transB": b, "alpha": 0.5, "beta": 2.0}]
    ),
    ("Conv", [IMAGES, normal(6, 4, 3, 2), normal(6)], {}),
    ("Conv", [IMAGES, normal(6, 2, 3, 2), normal(6)], {"group": 2, "strides": [2, 3], "pads": [1, 0, 2, 1]}),
    ("Conv", [IMAGES, normal(4, 1, 3, 2), normal(4)], {"group": 4, "dilations": [2, 1], "pads": [2, 2, 0, 1]}),
    ("Conv", [IMAGES, normal(6, 4, 3, 2), normal(6)], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("ConvTranspose", [IMAGES, normal(4, 3, 3, 2), normal(3)], {"strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ("AveragePool", [IMAGES], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ("AveragePool", [IMAGES], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
    ("MaxPool", [IMAGES], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
]
# Inputs that are floats, but of which no gradient is asked for: filters, limits, exponents, scales of a norm.
FIXED = {"Conv": (1,), "ConvTranspose": (1,), "BatchNormalization": (1, 2, 3, 4), "LayerNormalization": (1, 2)}
FIXED |= {"Pow": (1,), "Clip": (1, 2), "Resize": (1, 2)}
# What ONNX's own evaluator has in single precision only, or for one shape only.
DOUBLE = {"Erf": scipy.special.erf, "Mean": lambda *arrays: sum(arrays) / len(arrays)}


def network_of(operator, arrays, attributes, dtype):
    """The operator alone: its first input is fed, the others are constants."""
    arrays = [array.astype(dtype) if np.asarray(array).dtype.kind == "f" else np.asarray(array) for array in arrays]
    names = [f"i{k}" if array.size else "" for k, array in enumerate(arrays)]
    outputs = ["y", "z"] if operator == "Split" else ["y"]
    fed = helper.make_tensor_value_info("i0", helper.np_dtype_to_tensor_dtype(arrays[0].dtype), None)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
    constants = [numpy_helper.from_array(array, name) for array, name in zip(arrays, names, strict=True) if name][1:]
    if attributes.get("to"):
        attributes = {"to": kind}
    node = helper.make_node(operator, names, outputs, **attributes)
    graph = helper.make_graph([node], "network", [fed], made, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("operator", "arrays", "attributes"), CASES)
def test_rules_are_the_derivatives(operator, arrays, attributes):
    arrays = [np.asarray(array) for array in arrays]
    places = [k for k, one in enumerate(arrays) if one.dtype.kind == "f" and k not in FIXED.get(operator, ())]
    network = OnnxGraph(network_of(operator, arrays, attributes, np.float32))
    derivatives = Derivatives(network, [f"i{k}" for k in places])
    feed = {"i0": arrays[0].astype(np.float32) if arrays[0].dtype.kind == "f" else arrays[0]}
    values = derivatives.forward(feed)
    slopes = {name: GENERATOR.normal(size=values[name].shape) for name in derivatives.outputs}
    found = derivatives.backward(feed, values, slopes)
    assert not derivatives.unknown
    for place in places:
        direction = GENERATOR.normal(size=arrays[place].shape)
        ends = []
        for sign in (1, -1):
            moved = [one + sign * STEP * direction if k == place else one for k, one in enumerate(arrays)]
            if operator in DOUBLE:
                outputs = [DOUBLE[operator](*moved)]
            else:
                double = network_of(operator, moved, attributes, np.float64)
                outputs = ReferenceEvaluator(double).run(None, {"i0": moved[0]})
            ends.append(sum((slopes[name] * own).sum() for name, own in zip(slopes, outputs, strict=True)))
        wanted = (ends[0] - ends[1]) / (2 * STEP)
        own = (found[f"i{place}"] * direction).sum()
        size = np.linalg.norm(found[f"i{place}"]) * np.linalg.norm(direction)
        assert own == pytest.approx(wanted, abs=1e-5 * size + 1e-7)


def test_every_rule_is_tried():
    assert set(RULES) - {operator for operator, *_ in CASES} == {"Upsample"}  # which later opsets do not have
