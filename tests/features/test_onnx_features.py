"""ONNX networks as extractors, against the same network worked out with NumPy."""

import pickle

import dask.array as da
import numpy as np
import onnx
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from annealfit import AnnealedClassifier, RandomConvFeatures
from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit.data.datasets import ImagePreparation
from annealfit.data.features import OnnxFeatures
from annealfit.models.image_classifier import ImageClassifier
from annealfit.quantization import quantize_network

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.random((60, 8, 8, 3))
LABELS = np.arange(60) % 3
FILTERS, BIASES = GENERATOR.standard_normal((4, 3, 3, 3)), GENERATOR.standard_normal(4)
DENSE = GENERATOR.standard_normal((36, 5))
WEIGHTS = {"filters": FILTERS, "biases": BIASES, "dense": DENSE}
NODES = [
    helper.make_node("Conv", ["images", "filters", "biases"], ["conv"]),
    helper.make_node("Relu", ["conv"], ["relu"]),
    helper.make_node("MaxPool", ["relu"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
    helper.make_node("Flatten", ["pool"], ["flat"]),
    helper.make_node("MatMul", ["flat", "dense"], ["logits"]),
]


CLOSE = {"rtol": 1e-4, "atol": 1e-4}  # the network is in single precision, and its numbers are of the order of 10


def save(path, batch="N", nodes=NODES, inputs=("images",), output="logits"):
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(name, kind, [batch, 3, 8, 8]) for name in inputs],
        [helper.make_tensor_value_info(output, kind, None)],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in WEIGHTS.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def network(tmp_path):
    return save(tmp_path / "network.onnx")


def by_hand(images=IMAGES):
    """The same network, with NumPy alone, value by value."""
    patches = sliding_window_view(images.transpose(0, 3, 1, 2), (3, 3), axis=(2, 3))
    conv = np.einsum("ncijkl,fckl->nfij", patches, FILTERS) + BIASES[:, None, None]
    relu = np.maximum(conv, 0)
    pool = relu.reshape(len(images), 4, 3, 2, 3, 2).max(axis=(3, 5))
    flat = pool.reshape(len(images), -1)
    return {"conv": conv, "relu": relu, "pool": pool, "flat": flat, "logits": flat @ DENSE}


def test_inner_outputs_are_listed_and_are_those_of_the_network(network):
    assert OnnxFeatures.outputs(network) == ["conv", "relu", "pool", "flat", "logits"]
    for name, expected in by_hand().items():
        found = OnnxFeatures(network, name, batch_size=7).fit_transform(IMAGES)
        np.testing.assert_allclose(found, expected.reshape(60, -1), **CLOSE)


def test_the_networks_own_output_is_the_default_and_precision_is_its_own(tmp_path):
    features = OnnxFeatures(save(tmp_path / "single.onnx")).fit(IMAGES)
    found = features.transform(IMAGES)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_hand()["logits"], **CLOSE)
    assert features.get_feature_names_out().tolist() == [f"logits_{number}" for number in range(5)]


def test_only_what_an_output_needs_is_kept(network):
    whole, inner = (OnnxFeatures(network, name).fit(IMAGES) for name in ("logits", "relu"))
    assert len(whole.model_) > len(inner.model_) + DENSE.nbytes / 2


def test_it_is_our_random_convolution_with_its_filters(network):
    ours = RandomConvFeatures(n_filters=4).fit(IMAGES).with_filters([FILTERS], [BIASES])
    np.testing.assert_allclose(OnnxFeatures(network, "flat").fit_transform(IMAGES), ours.transform(IMAGES), **CLOSE)


def test_shape_layout_and_normalisation(network):
    rows = (255 * IMAGES).reshape(60, -1)
    mean, std = np.array([10.0, 20.0, 30.0]), np.array([2.0, 3.0, 4.0])
    features = OnnxFeatures(network, image_shape=(8, 8, 3), mean=mean, std=std).fit(rows)
    expected = by_hand((255 * IMAGES - mean) / std)["logits"]
    np.testing.assert_allclose(features.transform(rows), expected, rtol=1e-4, atol=1e-2)
    half = OnnxFeatures(network, mean=0.5, std=0.5).fit(IMAGES)
    np.testing.assert_allclose(half.transform(IMAGES), by_hand((IMAGES - 0.5) / 0.5)["logits"], **CLOSE)
    last = OnnxFeatures(network, channels_first=False).fit(IMAGES.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(last.transform(IMAGES.transpose(0, 3, 1, 2)), by_hand()["logits"], **CLOSE)


def test_a_network_that_fixes_its_batch_is_given_so_many(tmp_path):
    features = OnnxFeatures(save(tmp_path / "fixed.onnx", batch=16)).fit(IMAGES)
    np.testing.assert_allclose(features.transform(IMAGES), by_hand()["logits"], **CLOSE)


def test_a_pipeline_is_cross_validated_saved_and_loaded(network, tmp_path):
    model = make_pipeline(OnnxFeatures(network, "flat"), AnnealedClassifier(max_iter=3, random_state=0))
    assert cross_val_score(clone(model), IMAGES, LABELS, cv=3).shape == (3,)
    model.fit(IMAGES, LABELS)
    stored = pickle.dumps(model)
    network.unlink()  # a fitted one holds the network itself
    assert np.array_equal(pickle.loads(stored).predict_proba(IMAGES), model.predict_proba(IMAGES))
    together = ImageClassifier(*[step for _, step in model.steps], ("a", "b", "c"), ImagePreparation(color=True))
    together.save(tmp_path / "model.safetensors")
    loaded = ImageClassifier.load(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.predict_proba(IMAGES), model.predict_proba(IMAGES))


def test_slices_and_dask_arrays(network, tmp_path):
    np.save(tmp_path / "images.npy", IMAGES)
    expected = by_hand()["logits"]
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    features = OnnxFeatures(network, batch_size=16).fit(mapped)
    np.testing.assert_allclose(features.transform(mapped), expected, **CLOSE)
    lazy = OnnxFeatures(network).fit_transform(da.from_array(IMAGES, chunks=(25, 4, 8, 3)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), expected, **CLOSE)


def tokens_network(path):
    """Integers (N, 4), a mask of the same shape, and a state (2, 1, 3) that rows of one share."""
    kinds = {"tokens": (TensorProto.INT32, ["N", 4]), "mask": (TensorProto.INT64, ["N", 4])}
    kinds["state"] = (TensorProto.FLOAT, [2, 1, 3])
    nodes = [
        helper.make_node("Cast", ["tokens"], ["t"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["t", "m"], ["masked"]),
        helper.make_node("Reshape", ["state", "row"], ["s"]),
        helper.make_node("Concat", ["masked", "s"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(np.array([1, 6]), "row")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_integers_and_other_inputs(tmp_path):
    tokens, state = np.arange(24).reshape(6, 4), np.arange(6.0).reshape(2, 1, 3)
    path = tokens_network(tmp_path / "tokens.onnx")
    features = OnnxFeatures(path, batch_size=1, inputs={"mask": [1, 0, 1, 1], "state": state}).fit(tokens)
    expected = np.hstack([tokens * [1, 0, 1, 1], np.tile(np.arange(6), (6, 1))])
    np.testing.assert_array_equal(features.transform(tokens), expected)
    assert clone(features).fit(tokens).n_features_out_ == 10
    again = OnnxFeatures.from_tensors(*features.to_tensors())
    np.testing.assert_array_equal(again.transform(tokens), expected)
    masked = OnnxFeatures(path, "masked", inputs={"mask": 1}).fit(tokens)  # in batches; the mask is as long as X
    np.testing.assert_array_equal(masked.transform(tokens), tokens)
    with pytest.raises(InvalidInputError, match="'tokens' is int32, and is given 0.5"):
        masked.transform(tokens + 0.5)


def test_a_network_with_packed_weights(network, tmp_path):
    found = quantize_network(network, IMAGES.transpose(0, 3, 1, 2), 4, method="nearest")
    assert not found.floats
    features = [OnnxFeatures(path).fit(IMAGES) for path in (found.save(tmp_path / "small.onnx"), network)]
    packed, plain = (one.transform(IMAGES) for one in features)
    assert 0 < ((packed - plain) ** 2).sum() / (plain**2).sum() < 0.05


def test_stored_features_read_no_other_files(network):
    tensors, manifest = OnnxFeatures(network).fit(IMAGES).to_tensors()
    model = onnx.load_model_from_string(tensors["model"].tobytes())
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    model.graph.initializer[0].external_data.add(key="location", value="weights.bin")
    tensors["model"] = np.frombuffer(model.SerializeToString(), dtype=np.uint8)
    with pytest.raises(FileFormatError, match="in another file"):
        OnnxFeatures.from_tensors(tensors, manifest).transform(IMAGES)


def test_mistakes_are_told(network, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        OnnxFeatures(tmp_path / "nowhere.onnx").fit(IMAGES)
    (tmp_path / "text.onnx").write_text("This is no network.", encoding="utf-8")
    with pytest.raises(FileFormatError, match="not an ONNX network"):
        OnnxFeatures(tmp_path / "text.onnx").fit(IMAGES)
    with pytest.raises(InvalidInputError, match="'relu'.*lists all"):
        OnnxFeatures(network, "relo").fit(IMAGES)
    both = [helper.make_node("Add", ["left", "right"], ["sum"])]
    two = save(tmp_path / "two.onnx", nodes=both, inputs=("left", "right"), output="sum")
    with pytest.raises(InvalidInputError, match=r"2 inputs \(left, right\); X is one of them"):
        OnnxFeatures(two).fit(IMAGES)
    with pytest.raises(InvalidInputError, match=r"inputs names \['middle'\]"):
        OnnxFeatures(two, inputs={"middle": 1}).fit(IMAGES)
    with pytest.raises(InvalidInputError, match=r"'right' the shape \(7,\)"):
        OnnxFeatures(two, inputs={"right": np.ones(7)}).fit(IMAGES)
    mean = [helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0)]
    with pytest.raises(InvalidInputError, match="features need one row each"):
        OnnxFeatures(save(tmp_path / "mean.onnx", nodes=mean, output="mean")).fit(IMAGES)
    with pytest.raises(InvalidInputError, match="resize the images"):
        OnnxFeatures(network).fit(IMAGES[:, :7])
    with pytest.raises(InvalidInputError, match="resize the images"):
        OnnxFeatures(network).fit(IMAGES[..., 0])
    with pytest.raises(InvalidInputError, match="one per channel"):
        OnnxFeatures(network, mean=[1.0, 2.0]).fit(IMAGES)
    with pytest.raises(InvalidInputError, match="batch_size is 0"):
        OnnxFeatures(network, batch_size=0).fit(IMAGES)
    with pytest.raises(InvalidInputError, match="std is"):
        OnnxFeatures(network, std=0).fit(IMAGES)
    with pytest.raises(InvalidInputError, match="rows of 168 values; expected 192"):
        OnnxFeatures(network).fit(IMAGES).transform(IMAGES[:, :7])
