"""QUBOSVC against its dual objective, brute force and scikit-learn's SVC."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from annealfit import QUBOSVC
from annealfit.models.family.svm import _alternating, _bias
from annealfit.samplers import BlockSampler, DimodSampler, ExactSolver, LevelAnnealer


@parametrize_with_checks([QUBOSVC()])
def test_every_check(estimator, check):
    check(estimator)


def dual(alpha, y, kernel, constraint):
    """The objective as Willsch et al. print it, with ξ/2."""
    return 0.5 * alpha @ (np.outer(y, y) * kernel) @ alpha - alpha.sum() + constraint / 2 * (y @ alpha) ** 2


@pytest.fixture
def tiny():
    generator = np.random.default_rng(2)
    return generator.normal(size=(8, 2)), np.array([0, 0, 0, 1, 1, 1, 0, 1])


def test_energy_is_twice_the_dual(tiny):
    X, labels = tiny
    X, labels = X[_alternating(labels)], labels[_alternating(labels)]  # the order of the problem's parameters
    y, kernel = 2.0 * labels - 1, rbf_kernel(X, gamma=0.5)
    model = QUBOSVC(bits=3, C=2.0, gamma=0.5, constraint=0.3)
    (problem,) = model.problems(X, labels)
    states = np.random.default_rng(0).integers(0, 2, size=(20, 24))
    alphas = y * (problem.decode(states) + y)  # around the middle, yC/2
    assert alphas.min() >= -1e-12
    assert alphas.max() <= 2 + 1e-12
    values = np.array([dual(alpha, y, kernel, 0.3) for alpha in alphas])
    energies = problem.energy(states)
    np.testing.assert_allclose(energies - energies[0], 2 * (values - values[0]), atol=1e-12)


def test_exact_solver_is_brute_force(tiny):
    X, labels = tiny
    y, kernel = 2.0 * labels - 1, rbf_kernel(X, gamma=0.5)
    model = QUBOSVC(bits=2, gamma=0.5, sampler=ExactSolver()).fit(X, labels)
    levels = np.array(np.meshgrid(*[np.arange(4) / 3] * 8)).reshape(8, -1).T
    values = [dual(alpha, y, kernel, 0.1) for alpha in levels]
    best = levels[np.argmin(values)]
    found = np.zeros(8)
    found[model.support_] = model.dual_coef_[0]
    np.testing.assert_allclose(found, y * best, atol=1e-12)
    np.testing.assert_array_equal(X[model.support_], model.support_vectors_)
    assert model.energies_[0] == pytest.approx(2 * min(values))
    assert model.lower_bounds_[0] <= model.energies_[0]


def test_many_bits_approach_svc():
    X, labels = make_moons(80, noise=0.2, random_state=1)
    sampler = LevelAnnealer(num_sweeps=300)
    model = QUBOSVC(bits=12, constraint=1.0, sampler=sampler, random_state=0).fit(X, labels)
    reference = SVC(tol=1e-8).fit(X, labels)
    # The constraint is a penalty here, which allows yᵀα ≈ b/ξ: scores of size 1 differ in the second decimal.
    np.testing.assert_allclose(model.decision_function(X), reference.decision_function(X), atol=0.03)
    assert model.energies_[0] - model.lower_bounds_[0] < 1e-4 * abs(model.energies_[0])


def test_two_bits_classify_as_well_as_svc():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model, reference = QUBOSVC(random_state=0).fit(X[:400], y[:400]), SVC().fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) >= reference.score(X[400:], y[400:]) - 0.01
    assert model.lower_bounds_[0] <= model.energies_[0] <= 0.98 * model.lower_bounds_[0]  # both below 0


@pytest.mark.parametrize("sampler", [BlockSampler(LevelAnnealer(), 40, sweeps=4), DimodSampler(num_sweeps=100)])
def test_several_classes_with_other_samplers(blobs, sampler):
    X, y = blobs
    model = QUBOSVC(kernel="linear", sampler=sampler, n_answers=2, random_state=0).fit(X, y)
    assert model.score(X, y) > SVC(kernel="linear").fit(X, y).score(X, y) - 0.1
    assert (model.n_solves_, model.n_variables_, model.decision_function(X).shape) == (6, 120, (60, 3))


def test_the_bias_minimises_the_hinge_loss():
    generator = np.random.default_rng(1)
    for positive in range(1, 12):
        signs = np.where(np.arange(12) < positive, 1.0, -1.0)
        scores = generator.normal(size=12)
        grid = np.linspace(-5, 5, 2001)
        losses = np.maximum(0, 1 - signs * (scores + grid[:, None])).sum(axis=1)
        own = np.maximum(0, 1 - signs * (scores + _bias(scores, signs))).sum()
        assert own <= losses.min() + 1e-12


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"C": 0}, "C is 0"), ({"kernel": "poly"}, "kernel"), ({"gamma": -1}, "gamma"), ({"bits": 0}, "bits")],
)
def test_settings_out_of_bounds(blobs, settings, message):
    with pytest.raises(ValueError, match=message):
        QUBOSVC(**settings).fit(*blobs)


def test_too_many_rows():
    with pytest.raises(ValueError, match="the limit is 10000 rows"):
        QUBOSVC().fit(np.zeros((10001, 1)), np.arange(10001) % 2)
