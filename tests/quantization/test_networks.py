"""quantize_network: ONNX in, ONNX out; every operator, every kind of bad input."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_networks import constant, constants_of, conv_net, model_of, perceptron, run

from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit.quantization import (
    Annealed,
    Grid,
    convolution_moments,
    quantize_layer,
    quantize_network,
    read_packed_weights,
)
from annealfit.quantization.onnx_graph import OnnxGraph, find_layers
from annealfit.quantization.packing import unpack_network
from annealfit.samplers import ExactSolver

QUICK = Annealed(num_sweeps=20, num_reads=1)


def quantize_on_all(model, rows, bits, **settings):
    """Nothing is held out, and nothing is chosen: every layer along its own error."""
    own = {"damping": 0.0, "along_loss": False, "refit": False}
    return quantize_network(model, rows, bits, validation=rows, **own, **settings)


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(1)
    return (generator.normal(size=(400, 12)) @ generator.normal(size=(12, 12))).astype(np.float32)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(2).normal(size=(60, 4, 8, 7)).astype(np.float32)


def test_layers_are_those_of_the_arrays(rows):
    # The first layer sees the rows; the second is fed by the quantised first one and reproduces what it gave before.
    model = perceptron()
    found = quantize_on_all(model, rows, 2, method="descent")
    before = constants_of(model)
    first = quantize_layer(before["w1"], rows, bits=2, bias=before["b1"], method="descent")
    np.testing.assert_array_equal(found.layers[0].levels, first.levels)
    after = constants_of(found.model)
    np.testing.assert_allclose(after["w1"], first.weights, rtol=1e-6)
    np.testing.assert_allclose(after["b1"], first.bias, rtol=1e-5, atol=1e-6)
    reference, seen = (np.maximum(rows @ part["w1"] + part["b1"], 0) for part in (before, after))
    second = quantize_layer(
        0.5 * before["w2"].T, seen, bits=2, bias=2 * before["b2"], reference=reference, method="descent"
    )
    assert found.layers[1].error == pytest.approx(second.error, rel=1e-3)
    np.testing.assert_allclose(after["w2"], 2 * second.weights.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(2 * after["b2"], second.bias, rtol=1e-3, atol=1e-4)


def test_the_model_that_comes_out_computes_with_the_rounded_weights(rows):
    model = perceptron()
    found = quantize_on_all(model, rows, 1, method=QUICK)
    for layer in found:
        assert len(np.unique(np.abs(layer.weights))) <= len(layer.scales)  # ± one scale per output
        assert set(np.unique(layer.levels)) == {-1, 1}
    before, after = run(model, rows), run(found.model, rows)
    assert found.output_error == pytest.approx(((after - before) ** 2).sum() / (before**2).sum(), rel=1e-4)
    assert found.agreement == pytest.approx((after.argmax(1) == before.argmax(1)).mean())
    assert [layer.operator for layer in found] == ["MatMul", "Gemm"]
    assert constants_of(model)["w1"].std() > 0.5  # what was given is as it was
    assert list(found.layers[0].errors) == ["nearest", "gptq", "gptq_search", "descent", "annealed"]


def test_with_many_bits_nothing_changes(rows, images):
    for model, inputs in ((perceptron(), rows), (conv_net(), images)):
        assert quantize_network(model, inputs, 8, method="gptq").output_error < 1e-3


CONVOLUTIONS = [
    {},
    {"group": 1},
    {"group": 1, "pads": None, "strides": None, "dilations": None},
    {"auto_pad": "SAME_UPPER", "pads": None, "dilations": None},
    {"auto_pad": "SAME_LOWER", "pads": None, "dilations": None},
    {"auto_pad": "VALID", "pads": None},
]


@pytest.mark.parametrize("attributes", CONVOLUTIONS)
def test_patches_are_what_the_convolution_sees(attributes, images):
    model = conv_net(**attributes)
    (layer, _), _ = find_layers(OnnxGraph(model))
    wanted = run(model_of(model.graph.node[:1], model.graph.initializer[:2], ["N", 4, 8, 7], "c"), images)
    constants = constants_of(model)
    matrix = layer.matrix(constants["filters"])
    parts = [np.concatenate(group) for group in zip(*layer.rows(images), strict=True)]
    products = [part @ own for part, own in zip(parts, np.split(matrix, layer.n_groups, axis=1), strict=True)]
    outputs = np.hstack(products) + constants["fb"]
    found = outputs.reshape(len(images), *wanted.shape[2:], 6).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(layer.constant(matrix), constants["filters"])


def test_a_convolution_is_quantised_by_the_moments_of_its_patches(images):
    model = conv_net(group=1, dilations=None, pads=[1, 2, 1, 2])
    filters = constants_of(model)["filters"]
    moments = convolution_moments(images, (3, 2), stride=(2, 1), padding=(1, 2))
    bias = constants_of(model)["fb"]
    alone = quantize_layer(filters.reshape(6, -1).T, moments, bits=2, bias=bias, method="descent")
    (conv, _) = quantize_on_all(model, images, 2, method="descent")
    np.testing.assert_array_equal(conv.levels, alone.levels)
    assert conv.error == pytest.approx(alone.error, rel=1e-6)
    assert conv.weights.shape == filters.shape


def test_groups_of_a_convolution_have_one_error(images):
    model = conv_net()
    found = quantize_on_all(model, images, 1, method="gptq")
    wanted = run(model_of(model.graph.node[:1], model.graph.initializer[:2], ["N", 4, 8, 7], "c"), images)
    after = model_of(found.model.graph.node[:1], found.model.graph.initializer[:2], ["N", 4, 8, 7], "c")
    left = run(after, images) - wanted
    varying = wanted - wanted.mean(axis=(0, 2, 3), keepdims=True)
    assert found.layers[0].error == pytest.approx((left**2).sum() / (varying**2).sum(), rel=1e-3)


GRIDS = [
    ("mlp", {"bits": 2, "levels": "ternary"}),
    ("mlp", {"bits": 3, "group_size": 5}),  # stored in 4 bits; the last group is shorter
    ("mlp", {"bits": 1, "group_size": 5}),
    ("mlp", {"bits": 8}),
    ("mlp", {"levels": Grid(-5, 3, 4)}),
    ("conv", {"bits": 1}),
    ("conv", {"bits": 4, "levels": "twos_complement"}),
    ("large conv", {"bits": 2, "group_size": 7}),
    ("large conv", {"bits": 1}),
]


@pytest.mark.parametrize(("name", "settings"), GRIDS)
def test_the_file_is_small_runs_and_has_the_integers(name, settings, tmp_path, rows, images):
    models = {
        "mlp": (perceptron(sizes=(12, 31, 9)), rows),
        "conv": (conv_net(), images),
        "large conv": (conv_net(filters=33, group=1), images),
    }
    model, inputs = models[name]
    found = quantize_network(model, inputs, method="gptq", **settings)
    written = found.save(tmp_path / "small.onnx")
    assert sorted(tmp_path.iterdir()) == [written]
    assert (found.bytes_before, found.bytes_after) == (model.ByteSize(), written.stat().st_size)
    small = onnx.load(written)
    onnx.checker.check_model(small)
    np.testing.assert_allclose(run(small, inputs), run(found.model, inputs), rtol=1e-5, atol=1e-5)
    packed, stored = unpack_network(small), constants_of(found.model)
    weights = read_packed_weights(written)
    assert list(packed) == [layer.weight for layer in found if layer.name not in found.floats]
    assert packed
    for layer in found:
        if layer.weight in packed:
            levels, scales, _ = packed[layer.weight]
            np.testing.assert_array_equal(levels, layer.levels)
            np.testing.assert_array_equal(scales, np.atleast_2d(layer.scales))
            np.testing.assert_array_equal(weights[layer.weight], stored[layer.weight])  # to the last bit


def test_a_file_with_low_bit_weights_is_a_tenth_of_the_float_one(tmp_path):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(50, 300)).astype(np.float32)
    model = perceptron(sizes=(300, 200, 10))
    for bits, share in ((1, 1 / 15), (2, 1 / 11), (3, 1 / 6.5)):
        found = quantize_network(model, inputs, bits, method="nearest")
        assert found.save(tmp_path / "small.onnx").stat().st_size < share * model.ByteSize()
        np.testing.assert_allclose(run(found.packed, inputs), run(found.model, inputs), rtol=1e-4, atol=1e-4)


def test_small_weights_stay_float_and_are_named(rows):
    found = quantize_network(perceptron(sizes=(12, 20, 1)), rows, 2, method="nearest")
    assert list(found.floats) == ["second"]
    assert "packed it would have" in found.floats["second"]
    assert list(unpack_network(found.packed)) == ["w1"]
    np.testing.assert_allclose(run(found.packed, rows), run(found.model, rows), rtol=1e-5, atol=1e-5)


def test_old_networks_are_packed(rows):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="only"), helper.make_node("Relu", ["h"], ["y"])]
    weights = constant("w", np.random.default_rng(0).normal(size=(12, 40)))
    model = model_of(nodes, [weights], ["N", 12], opset=8)
    model.ir_version = 3
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [12, 40]))
    found = quantize_network(model, rows, 1, method="nearest")
    assert [value.name for value in found.packed.graph.input] == ["x"]
    np.testing.assert_allclose(run(found.packed, rows), run(found.model, rows), rtol=1e-5, atol=1e-5)


def test_a_packed_network_has_nothing_left_to_quantise(tmp_path, rows):
    written = quantize_network(perceptron(), rows, 1, method="nearest").save(tmp_path / "small.onnx")
    with pytest.raises(InvalidInputError, match="no weights to quantise"):
        quantize_network(written, rows, 1, method="nearest")


def test_side_files_of_version_0_2_are_read(tmp_path):
    folder = Path(__file__).parent / "files-0.2.0"  # a network with dequantised weights, and its integers beside it
    stored, packed = (
        constants_of(onnx.load(folder / "perceptron.onnx")),
        read_packed_weights(folder / "perceptron.safetensors"),
    )
    assert list(packed) == ["w1", "w2"]
    for name, values in packed.items():
        np.testing.assert_array_equal(values, stored[name])
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes((folder / "perceptron.safetensors").read_bytes()[:-7])
    with pytest.raises(FileFormatError, match="cut short"):
        read_packed_weights(cut)


def test_only_onnx_files_are_written(tmp_path, rows):
    beside = tmp_path / "model.safetensors"
    beside.write_text("a trained classifier")
    found = quantize_network(perceptron(), rows, 1, method="nearest")
    found.save(tmp_path / "model.onnx")
    with pytest.raises(InvalidInputError, match="does not end in onnx"):
        found.save(beside)
    assert beside.read_text() == "a trained classifier"


def test_constants_behind_nodes_are_found(rows):
    weights = np.random.default_rng(0).normal(size=(3, 12)).astype(np.float32)
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(weights, "c")),
        helper.make_node("Identity", ["c"], ["i"]),
        helper.make_node("Transpose", ["i"], ["t"]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    found = quantize_on_all(model_of(nodes, [], ["N", 12]), rows, 2, method="gptq")
    (layer,) = found
    assert layer.name == "y"  # a node without a name is called by what it computes
    alone = quantize_layer(weights.T, rows, bits=2, method="gptq")
    np.testing.assert_array_equal(layer.levels, alone.levels)
    assert layer.bias is None
    np.testing.assert_allclose(run(found.model, rows), rows @ alone.weights, rtol=1e-4, atol=1e-4)


def test_half_precision_stays_half_precision(rows):
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="only")],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["N", 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["N", 40])],
        [numpy_helper.from_array(np.random.default_rng(0).normal(size=(12, 40)).astype(np.float16), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = quantize_network(model, rows, 2, method="gptq")
    assert constants_of(found.model)["w"].dtype == np.float16
    levels, _, weights = unpack_network(found.packed)["w"]
    np.testing.assert_array_equal(levels, found.layers[0].levels)
    np.testing.assert_array_equal(weights, constants_of(found.model)["w"])
    inputs = {"x": rows.astype(np.float16)}
    (packed,), (plain,) = (
        onnxruntime.InferenceSession(network.SerializeToString()).run(None, inputs)
        for network in (found.packed, found.model)
    )
    np.testing.assert_allclose(packed, plain, rtol=2e-3, atol=1e-2)


def test_some_layers_are_kept_and_layers_have_bits_of_their_own(rows):
    model = perceptron()
    found = quantize_network(model, rows, 2, method="nearest", keep=["second"])
    assert [layer.name for layer in found] == ["first"]
    np.testing.assert_array_equal(constants_of(found.model)["w2"], constants_of(model)["w2"])
    mixed = quantize_network(model, rows, {"first": 1, "second": 4}, method="gptq")
    assert [layer.grid.count for layer in mixed] == [2, 16]
    calls = []
    quantize_network(model, rows, 1, method="nearest", on_layer=lambda *told: calls.append(told))
    assert calls == [(0, 2, "first"), (1, 2, "second")]


def test_a_sampler_quantises_a_network():
    generator = np.random.default_rng(0)
    model, inputs = perceptron(sizes=(6, 5, 3)), generator.normal(size=(50, 6))
    found = quantize_network(model, inputs, 1, method=ExactSolver())
    assert all("ExactSolver" in layer.errors for layer in found)


def test_calibration_in_files_and_mappings(tmp_path, rows):
    np.save(tmp_path / "X.npy", rows)
    np.savez(tmp_path / "X.npz", anything=rows)
    np.savez(tmp_path / "named.npz", x=rows, y=np.zeros(3))
    model = perceptron().SerializeToString()
    plain = quantize_network(model, rows, 1, method="gptq")
    for calibration in (
        tmp_path / "X.npy",
        str(tmp_path / "X.npz"),
        tmp_path / "named.npz",
        {"x": rows},
        {"x": tmp_path / "X.npy"},
        rows.astype(np.float64),
    ):
        found = quantize_network(model, calibration, 1, method="gptq")
        np.testing.assert_array_equal(found.layers[1].levels, plain.layers[1].levels)


def test_a_network_with_a_fixed_batch(rows):
    model = perceptron()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    found = quantize_on_all(model, rows[:31], 2, method="gptq")  # ten batches; the last row does not fill one
    whole = quantize_on_all(perceptron(), rows[:30], 2, method="gptq")
    np.testing.assert_array_equal(found.layers[0].levels, whole.layers[0].levels)
    with pytest.raises(InvalidInputError, match="reads 3 rows at a time"):
        quantize_network(model, rows[:2], 2)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 256  # as many as we would take by ourselves
    many = rows[:300]
    found = quantize_on_all(model, many, 2, method="gptq")
    whole = quantize_on_all(perceptron(), many[:256], 2, method="gptq")
    np.testing.assert_array_equal(found.layers[0].levels, whole.layers[0].levels)


BAD_CALIBRATION = [
    (np.ones((5, 4)), r"shape \(5, 4\); the network's input 'x' is \(N, 12\)"),
    (np.ones((5, 3, 4)), r"reshape it: X.reshape\(-1, 12\)"),
    (np.ones(12), r"shape \(12,\)"),
    (np.empty((0, 12)), "no rows"),
    (np.full((5, 12), np.nan), "NaN"),
    (np.array([["a"] * 12]), "expected numbers"),
    ({"z": np.ones((5, 12))}, r"inputs \['x'\] and the calibration \['z'\]"),
    ("rows.csv", "neither an npy nor an npz"),
]


@pytest.mark.parametrize(("calibration", "message"), BAD_CALIBRATION)
def test_bad_calibration_is_named(calibration, message):
    with pytest.raises(InvalidInputError, match=message):
        quantize_network(perceptron(), calibration, 2)


def test_calibration_is_never_unpickled(tmp_path):
    np.save(tmp_path / "X.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FileFormatError, match="plain NumPy arrays"):
        quantize_network(perceptron(), tmp_path / "X.npy", 2)
    (tmp_path / "Y.npy").write_bytes(b"no array")
    with pytest.raises(FileFormatError, match="plain NumPy arrays"):
        quantize_network(perceptron(), tmp_path / "Y.npy", 2)


def recurrent_step():
    """Tokens (N, 5) and a mask of the same shape, a state (2, 1, 4) and a number: integers, several inputs."""
    generator = np.random.default_rng(0)
    kinds = {
        "tokens": (TensorProto.INT32, ["N", 5]),
        "mask": (TensorProto.INT64, ["N", 5]),
        "state": (TensorProto.FLOAT, [2, 1, 4]),
        "rate": (TensorProto.INT64, []),
    }
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["embedded"], name="embed"),
        helper.make_node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["m", "last"], ["m3"]),
        helper.make_node("Mul", ["embedded", "m3"], ["masked"]),
        helper.make_node("MatMul", ["masked", "w"], ["positions"], name="positions"),
        helper.make_node("ReduceSum", ["positions", "middle"], ["summed"], keepdims=0),
        helper.make_node("Cast", ["rate"], ["r"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["summed", "r"], ["scaled"]),
        helper.make_node("ReduceSum", ["state", "first"], ["s"], keepdims=0),
        helper.make_node("Concat", ["scaled", "s"], ["both"], axis=1),
        helper.make_node("MatMul", ["both", "v"], ["y"], name="head"),
    ]
    constants = [
        constant("table", generator.normal(size=(7, 6))),
        constant("w", generator.normal(size=(6, 40))),
        constant("v", generator.normal(size=(44, 10))),
        *(numpy_helper.from_array(np.array([k]), name) for k, name in ((2, "last"), (1, "middle"), (0, "first"))),
    ]
    inputs = [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])]
    graph = helper.make_graph(nodes, "network", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_integers_several_inputs_and_a_state(tmp_path):
    generator, model = np.random.default_rng(1), recurrent_step()
    tokens, mask = generator.integers(0, 7, (30, 5)), generator.integers(0, 2, (30, 5))
    state = generator.normal(size=(30, 2, 1, 4)).astype(np.float32)  # one for each row
    given = {"tokens": tokens, "mask": mask, "state": state, "rate": np.array(2)}
    np.savez(tmp_path / "X.npz", **given)
    found = quantize_on_all(model, tmp_path / "X.npz", 2, method="gptq")
    assert found.floats == {"embed": "Gather, weights 7×6"}
    values = constants_of(model)
    embedded = values["table"][tokens] * mask[..., None]
    alone = quantize_layer(values["w"], embedded.reshape(-1, 6), bits=2, method="gptq")
    np.testing.assert_array_equal(found.layers[0].levels, alone.levels)
    before = np.concatenate([2 * (embedded @ values["w"]).sum(axis=1), state.sum(axis=1)[:, 0]], axis=1)
    after = np.concatenate([2 * (embedded @ alone.weights).sum(axis=1), state.sum(axis=1)[:, 0]], axis=1)
    head = quantize_layer(values["v"], after, bits=2, reference=before, method="gptq")
    assert found.layers[1].error == pytest.approx(head.error, rel=1e-3)
    for name, wrong, message in (
        ("tokens", tokens + 0.5, "'tokens' is int32, and is given .*; give whole numbers"),
        ("mask", mask[:29], r"different numbers of rows: \[29, 30, 30\]"),
        ("state", state[0], "one whole input for each row"),
        ("rate", np.ones((30, 1)), "network's input 'rate'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            quantize_network(model, {**given, name: wrong}, 2, method="gptq")


def test_depthwise_convolutions(images):
    model = conv_net(filters=4, group=4)
    found = quantize_network(model, images, 2, method="gptq")
    assert found.layers[0].levels.shape == (6, 4)
    np.testing.assert_allclose(run(found.packed, images), run(found.model, images), rtol=1e-5, atol=1e-5)


def test_axes_of_any_length_may_be_written_as_minus_one(rows):
    model = perceptron()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    found = quantize_network(model, rows, 2, method="nearest")
    whole = quantize_network(perceptron(), rows, 2, method="nearest")
    np.testing.assert_array_equal(found.layers[1].levels, whole.layers[1].levels)


def _damage(model, kind):
    graph = model.graph
    if kind == "type":
        graph.initializer[0].data_type = 99
    elif kind == "data":
        graph.initializer[0].raw_data = graph.initializer[0].raw_data[:-4]
    elif kind == "output":
        graph.node[1].ClearField("output")
    elif kind == "versions":
        model.opset_import.append(helper.make_opsetid("", 13))
    elif kind == "outputs":
        graph.ClearField("output")
    elif kind == "perm":
        graph.node.insert(0, helper.make_node("Transpose", ["w1"], ["turned"], perm=[0, 5]))
        graph.node[1].input[1] = "turned"
    elif kind == "inputs":
        graph.node[0].ClearField("input")
    elif kind == "external in a node":
        node = helper.make_node("Constant", [], ["c"], value=constant("c", np.ones(3)))
        node.attribute[0].t.data_location = TensorProto.EXTERNAL
        graph.node.append(node)
    elif kind == "external":
        graph.initializer[0].ClearField("raw_data")
        graph.initializer[0].data_location = TensorProto.EXTERNAL
        graph.initializer[0].external_data.add(key="location", value="weights.bin")
    else:
        graph.input[0].type.tensor_type.elem_type = 99


@pytest.mark.parametrize(
    "kind",
    ["type", "data", "output", "outputs", "perm", "inputs", "versions", "external", "external in a node", "input type"],
)
def test_damaged_networks_are_named(kind, tmp_path, rows):
    model = perceptron()
    _damage(model, kind)
    (tmp_path / "broken.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FileFormatError, match="broken.onnx: not an ONNX network, or a damaged one"):
        quantize_network(tmp_path / "broken.onnx", rows, 2, method="nearest")
    with pytest.raises(FileFormatError, match="the network: not an ONNX network, or a damaged one"):
        quantize_network(model.SerializeToString(), rows, 2, method="nearest")


def _with_operator(node, *constants):
    return model_of([node, helper.make_node("MatMul", ["h", "w"], ["y"], name="last")], list(constants), ["N", 12])


W = constant("w", np.ones((4, 2)))
UNSUPPORTED = [
    (helper.make_node("Einsum", ["x", "e"], ["h"], name="ein", equation="ij,jk->ik"), "Einsum.*12×4"),
    (helper.make_node("MatMul", ["x", "e3"], ["h"], name="batched"), "MatMul, weights with 3 axes"),
    (helper.make_node("Gather", ["e", "x"], ["h"], name="embed"), "Gather, weights"),
    (helper.make_node("Gemm", ["x", "e"], ["h"], name="turned", transA=1), "Gemm, transA=1"),
    (helper.make_node("Gemm", ["x", "e"], ["h"], name="nothing", alpha=0.0), "Gemm, alpha=0"),
]


@pytest.mark.parametrize(("node", "message"), UNSUPPORTED)
def test_unsupported_operators_stay_float_and_are_named(node, message):
    model = _with_operator(node, constant("e", np.ones((12, 4))), constant("e3", np.ones((1, 12, 4))), W)
    layers, floats = find_layers(OnnxGraph(model))
    assert [layer.name for layer in layers] == ["last"]
    assert list(floats) == [node.name]
    assert re.search(message, floats[node.name])
    assert find_layers(OnnxGraph(model), [node.name])[1] == {node.name: f"{node.op_type}, kept"}


def test_weights_that_nodes_share_are_named(rows):
    square = constant("s", np.eye(12))
    nodes = [helper.make_node("MatMul", [a, "s"], [b], name=b) for a, b in (("x", "h"), ("h", "y"))]
    with pytest.raises(InvalidInputError, match="'h' .MatMul, its weights 's' are those of other nodes"):
        quantize_network(model_of(nodes, [square], ["N", 12]), rows, 2)


def test_networks_that_are_none(tmp_path, rows):
    (tmp_path / "text.onnx").write_text("not a network")
    for name, error in (("text.onnx", FileFormatError), ("missing.onnx", FileNotFoundError)):
        with pytest.raises(error):
            quantize_network(tmp_path / name, rows, 2)
    with pytest.raises(FileFormatError, match="folder"):
        quantize_network(tmp_path, rows, 2)
    with pytest.raises(InvalidInputError, match="is no network"):
        quantize_network(3, rows, 2)
    relu = model_of([helper.make_node("Relu", ["x"], ["y"])], [], ["N", 12])
    with pytest.raises(InvalidInputError, match="no weights to quantise: it has Relu"):
        quantize_network(relu, rows, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep": ["third"]}, r"keep names \['third'\].*'first', 'second'"),
        ({"keep": "first"}, "must be a list"),
        ({"bits": {"first": 2}}, r"bits are given for \['first'\]"),
        ({"bits": 0}, "bits is 0"),
        ({"method": "magic"}, "method is 'magic'"),
        ({"levels": "odd"}, "levels is 'odd'"),
    ],
)
def test_bad_settings_of_a_network(settings, message, rows):
    with pytest.raises(InvalidInputError, match=message):
        quantize_network(perceptron(), rows, **settings)


def test_what_cannot_be_run_is_said(rows):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("NoSuchOperator", ["h"], ["y"])]
    with pytest.raises(InvalidInputError, match="onnxruntime cannot run the network.*NoSuchOperator"):
        quantize_network(model_of(nodes, [constant("w", np.ones((12, 2)))], ["N", 12]), rows, 2, method="nearest")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": np.ones((3, 8, 8)), "kernel": 3}, "expected numbers, and the shape"),
        ({"images": np.ones((3, 1, 8, 8)), "kernel": 9}, "larger than the images"),
        ({"images": np.ones((3, 1, 8, 8)), "kernel": 3, "stride": 0}, "stride is 0"),
        ({"images": np.ones((3, 1, 8, 8)), "kernel": 3, "padding": (1, 1, 1)}, "3 numbers and the kernel 2"),
        ({"images": np.ones((3, 1, 8, 8)), "kernel": 3, "reference": np.ones((2, 1, 8, 8))}, "must be the same"),
    ],
)
def test_bad_images(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        convolution_moments(**arguments)
