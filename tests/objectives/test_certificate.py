import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annealfit.baselines import solve_logistic
from annealfit.objectives import LinearHead


@settings(max_examples=120)
@given(st.integers(0, 2**32), st.integers(2, 4), st.sampled_from([1e-3, 1e-1, 1.0]), st.sampled_from([0.0, 0.1, 3.0]))
def test_no_weights_have_a_lower_loss(seed, n_classes, regularization, noise):
    generator = np.random.default_rng(seed)
    labels = np.arange(40) % n_classes
    features = generator.normal(size=(40, 3)) + labels[:, None]
    head = LinearHead.of_arrays(features, labels, n_classes, regularization)
    best = solve_logistic(features, labels, regularization).weights
    bound = head.at(best + noise * generator.normal(size=best.shape)).lower_bound()
    optimum = head.at(best).loss
    assert bound <= optimum + 1e-12
    if noise == 0:
        assert bound >= optimum * (1 - 1e-5)  # tight at the optimum, as far as lbfgs found it


@given(st.integers(0, 2**32), st.integers(2, 4))
def test_with_weights_too(seed, n_classes):
    """Whole weights are repeated rows, whose optimum scikit-learn finds."""
    generator = np.random.default_rng(seed)
    labels = np.arange(30) % n_classes
    features = generator.normal(size=(30, 3)) + labels[:, None]
    weights = generator.integers(1, 4, size=30)
    head = LinearHead.of_arrays(features, labels, n_classes, 0.01, weights.astype(float))
    best = solve_logistic(np.repeat(features, weights, axis=0), np.repeat(labels, weights), 0.01).weights
    point = head.at(best)
    assert point.loss * (1 - 1e-5) <= point.lower_bound() <= point.loss + 1e-12
    assert point.is_within(1e-5 * point.loss)
    assert not head.at(best + 0.5).is_within(1e-5 * point.loss)


def test_without_a_penalty_there_is_no_certificate():
    head = LinearHead.of_arrays(np.zeros((4, 1)), np.array([0, 1, 0, 1]), 2, 0.0)
    assert head.at(np.zeros((2, 1))).lower_bound() == -np.inf
    assert not head.at(np.zeros((2, 1))).is_within(1e9)


def test_a_class_without_members_is_handled():
    features = np.random.default_rng(0).normal(size=(6, 2))
    head = LinearHead.of_arrays(features, np.array([0, 1, 0, 1, 0, 1]), 3, 0.1)
    point = head.at(np.zeros((3, 3)))
    assert -np.inf < point.lower_bound() <= point.loss


@pytest.mark.parametrize("bias", [1e2, 1e4, 1e8])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_extreme_weights_have_a_bound_too(bias, n_classes):
    features, labels = np.arange(30.0)[:, None], np.arange(30) % n_classes
    head = LinearHead.of_arrays(features, labels, n_classes, 1e-3)
    weights = np.zeros((2, head.n_outputs))
    weights[-1, -1] = -bias
    bound = head.at(weights).lower_bound()
    assert np.isfinite(bound)
    assert bound <= head.at(solve_logistic(features, labels, 1e-3).weights).loss
