import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annealfit.baselines import solve_logistic
from annealfit.surrogate import TrainingSet, evaluate, loss_lower_bound


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(2, 4), st.sampled_from([1e-3, 1e-1, 1.0]), st.sampled_from([0.0, 0.1, 3.0]))
def test_no_weights_have_a_lower_loss(seed, n_classes, regularization, noise):
    generator = np.random.default_rng(seed)
    labels = np.arange(40) % n_classes
    features = generator.normal(size=(40, 3)) + labels[:, None]
    data = TrainingSet.build(features, labels, n_classes, regularization)
    best = solve_logistic(data).weights
    weights = best + noise * generator.normal(size=best.shape)
    bound = loss_lower_bound(data, weights)
    optimum = evaluate(data, best).loss
    assert bound <= optimum + 1e-12
    if noise == 0:
        assert bound >= optimum * (1 - 1e-5)  # tight at the optimum, as far as lbfgs found it


def test_without_a_penalty_there_is_no_certificate():
    data = TrainingSet.build(np.zeros((4, 1)), np.array([0, 1, 0, 1]), 2, 0.0)
    assert loss_lower_bound(data, np.zeros((2, 2))) == -np.inf


def test_a_class_without_members_is_handled():
    data = TrainingSet.build(np.random.default_rng(0).normal(size=(6, 2)), np.array([0, 1, 0, 1, 0, 1]), 3, 0.1)
    assert loss_lower_bound(data, np.zeros((3, 3))) <= evaluate(data, np.zeros((3, 3))).loss


@pytest.mark.parametrize("bias", [1e2, 1e4, 1e8])
def test_extreme_weights_have_a_bound_too(bias):
    data = TrainingSet.build(np.arange(20.0)[:, None], np.array([0, 1] * 10), 2, 1e-3)
    bound = loss_lower_bound(data, np.array([[0.0, 0.0], [0.0, -bias]]))
    assert bound <= evaluate(data, solve_logistic(data).weights).loss
