"""Packed weights in ONNX files: what is not the ordinary way from `quantize_network` to a file."""

import dataclasses

import numpy as np
import onnx
import onnxruntime
import pytest
from small_networks import constants_of, perceptron, run

from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit.quantization import quantize_network, read_packed_weights
from annealfit.quantization.packing import pack_network, unpack_network

ROWS = np.random.default_rng(0).normal(size=(30, 12)).astype(np.float32)


def test_the_rest_of_a_packed_network_is_packed_later(tmp_path):
    part = quantize_network(perceptron(), ROWS, 1, method="nearest", keep=["second"])
    assert part.floats == {"second": "Gemm, kept"}
    whole = quantize_network(part.save(tmp_path / "part.onnx"), ROWS, 2, method="nearest")
    assert [layer.name for layer in whole] == ["second"]
    found = read_packed_weights(whole.save(tmp_path / "whole.onnx"))
    assert list(found) == ["w2", "w1"]
    np.testing.assert_array_equal(found["w1"], constants_of(part.model)["w1"])
    onnx.checker.check_model(whole.packed)
    np.testing.assert_array_equal(run(whole.packed, ROWS), run(whole.model, ROWS))


def test_weights_that_are_no_longer_the_rounded_ones_stay_float():
    found = quantize_network(perceptron(), ROWS, 2, method="nearest")
    changed = dataclasses.replace(found.layers[0], weights=found.layers[0].weights + 1)
    small, reasons = pack_network(found.model, [changed, found.layers[1]])
    assert reasons == {"first": "its weights were changed after they were rounded"}
    assert list(unpack_network(small)) == ["w2"]


def test_files_without_packed_weights(tmp_path):
    onnx.save(perceptron(), tmp_path / "model.onnx")
    with pytest.raises(InvalidInputError, match="has no packed weights"):
        read_packed_weights(tmp_path / "model.onnx")
    small = quantize_network(perceptron(), ROWS, 2, method="nearest").packed
    small.graph.initializer[-1].name = "other"
    onnx.save(small, tmp_path / "broken.onnx")
    with pytest.raises(FileFormatError, match="broken.onnx"):
        read_packed_weights(tmp_path / "broken.onnx")


def test_onnxruntime_unpacks_weights_when_it_opens_the_file(tmp_path):
    # Then it runs the same operators as with float weights, and nothing of the function is left.
    found, operators = quantize_network(perceptron(), ROWS, 2, method="nearest"), []
    for model in (found.model, found.packed):
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        operators.append([node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node])
    assert operators[0] == operators[1]
