"""QUBORidge and QUBORidgeClassifier against their objective, brute force and scikit-learn's Ridge."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from annealfit import QUBORidge, QUBORidgeClassifier
from annealfit.samplers import DimodSampler, ExactSolver


@parametrize_with_checks([QUBORidge(tol=0.0), QUBORidgeClassifier(tol=0.0)])
def test_every_check(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def small():
    generator = np.random.default_rng(3)
    X = generator.normal(size=(40, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 1.0]
    return X, X @ generator.normal(size=(3, 2)) + generator.normal(size=(40, 2)), generator.uniform(0.5, 2.0, size=40)


def objective(X, y, weights, alpha, scaled, offset):
    """`Σ ω(Xw + b − y)² + α‖w‖²` with the best b, of coefficients in standardised coordinates, plainly."""
    means, target_mean = np.average(X, axis=0, weights=weights), np.average(y, weights=weights)
    matrix = ((X - means) * weights[:, None]).T @ (X - means) + alpha * np.eye(X.shape[1])
    w = scaled / np.sqrt(np.diag(matrix)) + offset
    return weights @ (X @ w + target_mean - means @ w - y) ** 2 + alpha * w @ w


def test_energy_is_the_change_of_the_objective(small):
    X, Y, weights = small
    problems = QUBORidge(bits=4, alpha=0.7).problems(X, Y, weights)
    bits = np.random.default_rng(0).integers(0, 2, size=(20, problems[0].n_variables))
    for target, problem in enumerate(problems):
        at_zero = objective(X, Y[:, target], weights, 0.7, np.zeros(3), 0.0)
        expected = [objective(X, Y[:, target], weights, 0.7, u, 0.0) - at_zero for u in problem.decode(bits)]
        np.testing.assert_allclose(problem.energy(bits), expected, rtol=1e-9)  # sums of 40 rows


def test_one_iteration_with_an_exact_solver_is_brute_force(small):
    X, Y, _ = small
    model = QUBORidge(bits=3, max_iter=1, sampler=ExactSolver()).fit(X, Y)
    for target, problem in enumerate(model.problems(X, Y)):
        states = (np.arange(2**9)[:, None] >> np.arange(9)) & 1
        best = problem.decode(states[problem.energy(states).argmin()])
        centred = X - X.mean(axis=0)
        scales = np.sqrt(np.diag(centred.T @ centred) + 1.0)
        np.testing.assert_allclose(model.coef_[target], best / scales, rtol=1e-12)


@pytest.mark.parametrize("bits", [1, 2, 5])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_any_number_of_bits_reaches_ridge(bits, fit_intercept):
    X, y = load_diabetes(return_X_y=True)
    model = QUBORidge(bits, 0.1, fit_intercept=fit_intercept, tol=1e-10, max_iter=1000, random_state=0).fit(X, y)
    reference = Ridge(0.1, fit_intercept=fit_intercept).fit(X, y)
    # A gap of 1e-10 of the sum of squares leaves predictions within 1e-5 of its root.
    np.testing.assert_allclose(model.predict(X), reference.predict(X), atol=1e-5 * np.linalg.norm(y))
    assert model.n_iter_ < 1000


def test_the_gap_is_exact(small):
    X, Y, weights = small
    model = QUBORidge(bits=1, max_iter=3, random_state=0).fit(X, Y, weights)
    reference = Ridge(1.0).fit(X, Y, weights)

    def value(fitted, target):
        errors = fitted.predict(X)[:, target] - Y[:, target]
        return weights @ errors**2 + fitted.coef_[target] @ fitted.coef_[target]

    gaps = [value(model, target) - value(reference, target) for target in range(2)]
    assert min(gaps) > 1e-3
    np.testing.assert_allclose(model.optimality_gap_, gaps, rtol=1e-6)


def test_classifier_is_ridge_classifier(blobs):
    cancer, labels = load_breast_cancer(return_X_y=True)
    for X, y in (blobs, (StandardScaler().fit_transform(cancer), labels)):
        model, reference = QUBORidgeClassifier(tol=1e-9, random_state=0).fit(X, y), RidgeClassifier().fit(X, y)
        np.testing.assert_allclose(model.decision_function(X), reference.decision_function(X), atol=1e-3)
        assert model.n_variables_ == 3 * X.shape[1]
        assert model.n_solves_ >= model.n_iter_


def test_any_sampler_and_seed(blobs):
    X, y = blobs
    assert QUBORidgeClassifier(sampler=DimodSampler(num_sweeps=50), random_state=0).fit(X, y).score(X, y) > 0.8
    one, two = (QUBORidgeClassifier(bits=2, max_iter=3, random_state=5).fit(X, y).coef_ for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bits": 0}, "bits"),
        ({"alpha": -1}, "alpha is -1"),
        ({"update_range": 0}, "update_range"),
        ({"tol": -1}, "tol"),
    ],
)
def test_settings_out_of_bounds(blobs, settings, message):
    with pytest.raises(ValueError, match=message):
        QUBORidgeClassifier(**settings).fit(*blobs)


def test_one_class(blobs):
    with pytest.raises(ValueError, match="one class"):
        QUBORidgeClassifier().fit(blobs[0], np.zeros(60))
