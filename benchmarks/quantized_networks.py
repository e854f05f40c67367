"""The networks that the benchmark of low-bit weights quantises: trained by scikit-learn or Adam, as ONNX models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.neural_network import MLPClassifier

from annealfit import AnnealedConvNet, load_dataset
from annealfit.models.baselines import train_adam
from annealfit.data.convolution import Images, join_filters, split_filters
from annealfit.training.objectives import ConvNet
from annealfit.training.objectives.conv_net import HEAD, layer_name

HIDDEN = (128, 64)
CALIBRATION = 2_000


@dataclass(frozen=True)
class Trained:
    """A trained network, and the images it is tried on."""

    model: Any
    calibration: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    def accuracy(self, model: Any = None) -> float:
        import onnxruntime

        session = onnxruntime.InferenceSession((model or self.model).SerializeToString())
        return float((session.run(None, {"x": self.X_test})[0].argmax(axis=1) == self.y_test).mean())


def perceptron(dataset: str, seed: int, folder: Path | None, *, size: int | None = None, epochs: int = 8) -> Trained:
    """Pixels – 128 – 64 – classes, trained by scikit-learn on all images; kept in a folder if there is one."""
    data = load_dataset(dataset, seed=seed, n_train="all", n_test="all", size=size)
    X, X_test = (np.asarray(part, np.float32).reshape(len(part), -1) for part in (data.X_train, data.X_test))
    classes, labels = np.unique(data.y_train, return_inverse=True)
    path = None if folder is None else folder / f"{dataset}-{seed}.npz"
    if path is not None and path.exists():
        with np.load(path) as stored:
            weights = [stored[f"w{k}"] for k in range(3)]
            biases = [stored[f"b{k}"] for k in range(3)]
    else:
        trained = MLPClassifier(HIDDEN, max_iter=epochs, random_state=seed).fit(X, labels)
        weights, biases = trained.coefs_, trained.intercepts_
        if path is not None:
            named = {f"w{k}": w for k, w in enumerate(weights)} | {f"b{k}": b for k, b in enumerate(biases)}
            np.savez(path, **named)
    if len(weights[-1][0]) == 1:
        raise ValueError("two classes have one output")
    chosen = np.random.default_rng(seed).choice(len(X), CALIBRATION, replace=False)
    return Trained(onnx_perceptron(weights, biases), X[chosen], X_test, np.searchsorted(classes, data.y_test))


def conv_net(seed: int, folder: Path | None, *, n_train: int = 10_000, epochs: int = 4) -> Trained:
    """Two convolutions (8 and 16 filters, 5×5) with pooling and a head, trained by Adam on MNIST."""
    data = load_dataset("mnist", seed=seed, n_train=n_train, n_test="all", size=None)
    labels = np.asarray(data.y_train, dtype=np.intp)
    shape = AnnealedConvNet(n_filters=(8, 16), kernel_size=5, pool_size=2, random_state=seed)
    drawn = shape._blank_features(seed).fit(data.X_train)
    path = None if folder is None else folder / f"conv-{seed}.npz"
    if path is not None and path.exists():
        with np.load(path) as stored:
            weights = dict(stored)
    else:
        filters = [join_filters(*layer) for layer in zip(drawn.filters_, drawn.biases_, strict=True)]
        images = Images(drawn.as_images(data.X_train), labels, 10)
        net = ConvNet(images, drawn.network_, filters, [0, 1], 1e-4, seed=seed)
        head = np.zeros((drawn.network_.n_features + 1, 10))
        weights = train_adam(net, net.first_weights(head), rate=0.005, epochs=epochs, seed=seed).weights
        if path is not None:
            np.savez(path, **weights)
    layers = [split_filters(weights[layer_name(k)], shape) for k, shape in enumerate(drawn.network_.layers)]
    X, X_test = (np.asarray(part, np.float32)[:, None] for part in (data.X_train, data.X_test))
    chosen = np.random.default_rng(seed).choice(len(X), CALIBRATION, replace=False)
    return Trained(onnx_conv_net(layers, weights[HEAD]), X[chosen], X_test, np.asarray(data.y_test, dtype=np.intp))


def onnx_perceptron(weights: list[np.ndarray], biases: list[np.ndarray]) -> Any:
    """Gemm and Relu in turn."""
    nodes, constants, last = [], [], "x"
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        constants += [_constant(f"w{k}", weight), _constant(f"b{k}", bias)]
        nodes.append(helper.make_node("Gemm", [last, f"w{k}", f"b{k}"], [f"h{k}"], name=f"layer{k + 1}"))
        last = f"h{k}"
        if k < len(weights) - 1:
            nodes.append(helper.make_node("Relu", [last], [f"r{k}"], name=f"relu{k + 1}"))
            last = f"r{k}"
    return _model(nodes, constants, ["N", len(weights[0])], last)


def onnx_conv_net(layers: list[tuple[np.ndarray, np.ndarray]], head: np.ndarray) -> Any:
    """Conv, Relu and MaxPool in turn, Flatten, Gemm."""
    nodes, constants, last = [], [], "x"
    for k, (filters, biases) in enumerate(layers):
        constants += [_constant(f"w{k}", filters), _constant(f"b{k}", biases)]
        nodes += [
            helper.make_node("Conv", [last, f"w{k}", f"b{k}"], [f"c{k}"], name=f"conv{k + 1}"),
            helper.make_node("Relu", [f"c{k}"], [f"r{k}"], name=f"relu{k + 1}"),
            helper.make_node("MaxPool", [f"r{k}"], [f"p{k}"], name=f"pool{k + 1}", kernel_shape=[2, 2], strides=[2, 2]),
        ]
        last = f"p{k}"
    constants += [_constant("head_w", head[:-1]), _constant("head_b", head[-1])]
    nodes += [
        helper.make_node("Flatten", [last], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "head_w", "head_b"], ["y"], name="head"),
    ]
    return _model(nodes, constants, ["N", 1, 28, 28], "y")


def _constant(name: str, values: np.ndarray) -> Any:
    return numpy_helper.from_array(np.ascontiguousarray(values, dtype=np.float32), name)


def _model(nodes: list[Any], constants: list[Any], shape: list[Any], output: str) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", "C"])]
    graph = helper.make_graph(nodes, "network", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
