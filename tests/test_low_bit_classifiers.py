"""`quantize` of our classifiers: low-bit copies, layer after layer, with and without data and labels."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import NotFittedError

from annealfit import AnnealedClassifier, AnnealedConvNet
from annealfit._support.errors import InvalidInputError
from annealfit.quantization import Annealed, Refinement, convolution_moments, quantize_layer

QUICK = Annealed(num_sweeps=30, num_reads=1)
SHORT = Refinement(max_steps=6)


def along_the_loss(model, X):
    """Settings with which `quantize_layer` keeps the probabilities of a model."""
    p = model.predict_proba(X)
    return {"method": QUICK, "damping": 0.01, "output_weights": np.diag(p.mean(axis=0)) - p.T @ p / len(p)}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600] / 16, y[:600]


@pytest.fixture(scope="module")
def classifier(digits):
    return AnnealedClassifier(max_iter=25, random_state=0).fit(*digits)


@pytest.fixture(scope="module")
def network(digits):
    X, y = digits
    settings = {"n_filters": (3, 4), "kernel_size": (3, 2), "pool_size": (1, 2), "max_iter": 15, "random_state": 0}
    return AnnealedConvNet(standardize="pixels", **settings).fit(X.reshape(-1, 8, 8), y)


def test_a_copy_with_two_values_per_class(classifier, digits):
    X, y = digits
    before = classifier.coef_.copy()
    small = classifier.quantize(X, bits=1, method=QUICK)
    assert isinstance(small, AnnealedClassifier)
    for row in small.coef_:
        assert len(np.unique(np.abs(row))) == 1
    np.testing.assert_array_equal(classifier.coef_, before)
    assert not hasattr(classifier, "quantization_")
    alone = quantize_layer(classifier.coef_.T, X, bits=1, bias=classifier.intercept_, **along_the_loss(classifier, X))
    np.testing.assert_array_equal(small.quantization_.layers["head"].levels, alone.levels)
    np.testing.assert_allclose(small.coef_, alone.weights.T, rtol=1e-12)
    np.testing.assert_allclose(small.intercept_, alone.bias, rtol=1e-9)
    assert small.quantization_.packed_bytes == 80 + 40
    assert small.quantization_.losses == []
    assert small.score(X, y) > 0.8
    assert small.optimality_gap_ == np.inf


def test_labels_lower_the_loss(classifier, digits):
    X, y = digits
    small = classifier.quantize(X, y, bits=1, method=QUICK, refinement=SHORT)
    losses = small.quantization_.losses
    assert (np.diff(losses) < 0).all()
    assert losses[-1] < 0.9 * losses[0]
    np.testing.assert_array_equal(small.coef_, (small.quantization_.head.scales * small.quantization_.head.levels).T)


def test_without_rows_weights_go_to_the_nearest_level(classifier):
    small = classifier.quantize(bits=4)
    wanted = quantize_layer(classifier.coef_.T, bits=4, method="nearest")
    np.testing.assert_array_equal(small.quantization_.head.levels, wanted.levels)
    np.testing.assert_array_equal(small.intercept_, classifier.intercept_)


def test_sparse_rows_and_two_classes():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    classifier = AnnealedClassifier(max_iter=20, random_state=0).fit(X, y)
    dense, sparse = (
        classifier.quantize(rows, y, bits=2, levels="ternary", method=QUICK, refinement=SHORT)
        for rows in (X, scipy.sparse.csr_array(X))
    )
    np.testing.assert_array_equal(dense.quantization_.head.levels, sparse.quantization_.head.levels)
    assert dense.coef_.shape == (1, 30)
    assert set(np.unique(dense.quantization_.head.levels)) <= {-1, 0, 1}
    assert dense.score(X, y) > 0.93


def test_a_network_layer_by_layer(network, digits, tmp_path):
    X, y = digits
    images = X.reshape(-1, 8, 8)
    small = network.quantize(images, bits=2, method=QUICK)
    report = small.quantization_
    assert list(report.layers) == ["conv1", "conv2", "head"]
    # The first layer sees the scaled pixels: its levels are those of their patches.
    scaled = network.features_.pixel_scaler_.transform(X).reshape(-1, 1, 8, 8)
    filters = network.filters_[0]
    alone = quantize_layer(
        filters.reshape(len(filters), -1).T,
        convolution_moments(scaled, 3),
        bits=2,
        bias=network.biases_[0],
        method=QUICK,
    )
    np.testing.assert_array_equal(report.layers["conv1"].levels, alone.levels)
    np.testing.assert_allclose(small.filters_[0].reshape(len(filters), -1).T, alone.weights, rtol=1e-12)
    # The head sees the features of the quantised filters.
    inputs, reference = small.features_.transform(images), network.features_.transform(images)
    settings = along_the_loss(network, images) | {"reference": reference, "bias": network.intercept_}
    head = quantize_layer(network.coef_.T, inputs, bits=2, **settings)
    assert report.layers["head"].error == pytest.approx(head.error, rel=1e-3)
    path = tmp_path / "small.safetensors"
    small.save(path)
    np.testing.assert_array_equal(AnnealedConvNet.load(path).predict(images), small.predict(images))
    refined = network.quantize(images, y, bits=2, method=QUICK, refinement=SHORT)
    assert refined.quantization_.losses[-1] < refined.quantization_.losses[0]
    eight = network.quantize(images, bits=8, method="gptq")
    assert (eight.predict(images) == network.predict(images)).mean() > 0.99


def test_bad_input(classifier, digits):
    X, y = digits
    with pytest.raises(NotFittedError):
        AnnealedClassifier().quantize(X)
    with pytest.raises(InvalidInputError, match="labels without X"):
        classifier.quantize(None, y)
    with pytest.raises(InvalidInputError, match=r"labels \[77\]"):
        classifier.quantize(X, np.append(y[1:], 77), bits=1, method="gptq")
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier.quantize(X, y[:5], bits=1, method="gptq")
    with pytest.raises(ValueError, match="features"):
        classifier.quantize(X[:, :5])
    with pytest.raises(InvalidInputError, match="needs to know what the layer sees"):
        classifier.quantize(bits=1, method="annealed")
    with pytest.raises(InvalidInputError, match="bits is 0"):
        classifier.quantize(X, bits=0)
