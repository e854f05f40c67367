import numpy as np
import pytest
import scipy.special
from scipy.optimize import approx_fprime
from sklearn.metrics import accuracy_score, log_loss

from annealfit.surrogate import CURVATURES, TrainingSet, evaluate, gradient, softmax


@pytest.fixture
def data():
    generator = np.random.default_rng(0)
    return TrainingSet.build(generator.normal(size=(30, 4)), generator.integers(0, 3, 30), 3, regularization=0.1)


def test_gram_is_that_of_the_augmented_features(data):
    augmented = np.column_stack([data.features[:, :-1], np.ones(30)])
    np.testing.assert_allclose(data.gram, sum(np.outer(row, row) for row in augmented) / 30, rtol=1e-12)
    assert np.array_equal(data.gram, data.gram.T)


def test_gradient_is_the_derivative_of_the_loss(data):
    weights = np.random.default_rng(1).normal(size=(5, 3))
    numerical = approx_fprime(weights.ravel(), lambda w: evaluate(data, w.reshape(5, 3)).loss, 1e-7)
    analytic = gradient(data, weights, evaluate(data, weights).probabilities)
    np.testing.assert_allclose(analytic.T.ravel(), numerical, atol=1e-5)  # forward differences of step 1e-7


def test_the_bias_is_not_regularised(data):
    weights = np.zeros((5, 3))
    weights[-1] = 5.0
    assert evaluate(data, weights).penalty == 0
    weights[0, 0] = 2.0
    assert evaluate(data, weights).penalty == pytest.approx(0.5 * 0.1 * 4)


@pytest.mark.parametrize("scale", [1e3, 1e100])
def test_large_logits_do_not_overflow(data, scale):
    weights = np.random.default_rng(2).normal(size=(5, 3)) * scale
    evaluation = evaluate(data, weights)
    assert np.isfinite(evaluation.probabilities).all()
    assert np.isfinite(evaluation.cross_entropy)
    assert np.isfinite(gradient(data, weights, evaluation.probabilities)).all()


def test_softmax_is_scipys():
    logits = np.random.default_rng(3).normal(size=(4, 6)) * 50
    np.testing.assert_allclose(softmax(logits), scipy.special.softmax(logits, axis=0), rtol=1e-12)


def test_cross_entropy_and_accuracy_are_scikit_learns(data):
    weights = np.random.default_rng(4).normal(size=(5, 3))
    evaluation = evaluate(data, weights)
    expected = log_loss(data.labels, evaluation.probabilities.T, labels=range(3))
    np.testing.assert_allclose(evaluation.cross_entropy, expected, rtol=1e-9)
    assert evaluation.accuracy == accuracy_score(data.labels, (data.features @ weights).argmax(axis=1))


def test_a_tie_goes_to_the_first_class(data):
    assert evaluate(data, np.zeros((5, 3))).accuracy == np.mean(data.labels == 0)


def test_curvature_gram_and_diagonal(data):
    penalty = 0.1 * np.diag([1, 1, 1, 1, 0])
    probabilities = evaluate(data, np.zeros((5, 3))).probabilities
    gram = CURVATURES["gram"](data)(probabilities)
    np.testing.assert_array_equal(gram[0], data.gram + penalty)
    assert len(gram) == 3
    assert gram[0] is gram[1]
    diagonal = CURVATURES["diagonal"](data)(probabilities)
    np.testing.assert_array_equal(diagonal[2], np.diag(np.diag(data.gram)) + penalty)
