"""BinaryMatrixFactorization against its objective, brute force and the conditions of the optimum."""

import numpy as np
import pytest
from scipy.optimize import nnls
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from annealfit import BinaryMatrixFactorization
from annealfit.models.family.codes import fitted_dictionary
from annealfit.samplers import DimodSampler, ExactSolver


@parametrize_with_checks([BinaryMatrixFactorization(8)])
def test_every_check(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600]


@pytest.mark.parametrize("bits", [1, 2])
def test_energy_is_the_objective(digits, bits):
    X, y = digits
    model = BinaryMatrixFactorization(6, bits, max_iter=2, random_state=0).fit(X, y)
    assert model.components_.min() >= 0
    states = np.random.default_rng(1).integers(0, 2, size=(10, 6 * bits))
    codes = states.reshape(10, 6, bits) @ (1 << np.arange(bits)) / (2**bits - 1)
    for row, problem in zip(X[:5], model.problems(X[:5]), strict=True):
        values = ((row - codes @ model.components_) ** 2).sum(axis=1)
        energies = problem.energy(states)
        np.testing.assert_allclose(energies - energies[0], values - values[0], atol=1e-9 * row @ row)


def test_exact_codes_are_brute_force(digits):
    X = digits[0][:100]
    model = BinaryMatrixFactorization(8, max_iter=4, sampler=ExactSolver(), random_state=0).fit(X)
    every = (np.arange(2**8)[:, None] >> np.arange(8)) & 1
    values = ((X[:, None] - every @ model.components_) ** 2).sum(axis=2)
    rest = X - model.inverse_transform(model.transform(X))
    np.testing.assert_allclose((rest**2).sum(axis=1), values.min(axis=1), rtol=1e-9)
    assert (np.diff(model.objective_) <= 1e-12).all()  # neither codes nor W let it rise


def test_sweeps_over_the_components_are_nonnegative_least_squares():
    generator = np.random.default_rng(0)
    codes, rows = generator.integers(0, 2, size=(30, 4)).astype(float), generator.normal(size=(30, 3))
    fitted = np.zeros((4, 3))
    for _ in range(200):
        fitted = fitted_dictionary(rows, codes, fitted, lowest=0.0)
    for column in range(3):
        np.testing.assert_allclose(fitted[:, column], nnls(codes, rows[:, column])[0], atol=1e-10)


def test_labels_are_learned():
    X, y = load_digits(return_X_y=True)
    model = BinaryMatrixFactorization(100, random_state=0).fit(X[:1200], y[:1200])
    assert model.score(X[1200:], y[1200:]) > 0.85
    assert (model.n_solves_, model.n_variables_) == (11 * 1200, 100)
    cancer, labels = load_breast_cancer(return_X_y=True)
    names = np.array(["malignant", "benign"])[labels]
    two = BinaryMatrixFactorization(12, 2, sampler=DimodSampler(num_sweeps=30), max_iter=2, random_state=0)
    two.fit(cancer[:200], names[:200])
    assert two.decision_function(cancer).shape == (569,)
    assert two.score(cancer[200:], names[200:]) > 0.8


def test_without_labels_there_is_nothing_to_predict(digits):
    model = (
        BinaryMatrixFactorization(4, max_iter=1).fit(*digits).fit(digits[0])
    )  # the labels of an earlier fit are gone
    with pytest.raises(NotFittedError, match="fit with labels first"):
        model.predict(digits[0])


def test_input_out_of_bounds(digits):
    X, y = digits
    with pytest.raises(ValueError, match="Negative values"):
        BinaryMatrixFactorization().fit(-X, y)
    for settings, message in (({"label_weight": -1}, "label_weight is -1"), ({"max_iter": -1}, "max_iter is -1")):
        with pytest.raises(ValueError, match=message):
            BinaryMatrixFactorization(**settings).fit(X, y)
