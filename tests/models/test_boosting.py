"""QBoostClassifier against its objective, brute force and AdaBoost."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import AdaBoostClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.utils.estimator_checks import parametrize_with_checks

from annealfit import QBoostClassifier
from annealfit.models.family.boosting import MARGINS, ROUNDS
from annealfit.samplers import DimodSampler, ExactSolver


@parametrize_with_checks([QBoostClassifier(n_estimators=10)])
def test_every_check(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True)


def parts(model, X, y, weights):
    """Votes and targets as the objective has them, and the margins."""
    _, votes, targets, shares = model._prepare(X, y, weights, 0)
    np.testing.assert_allclose(shares, weights / weights.sum())
    return votes, targets, np.geomspace(1 / (2**model.bits - 1), max(votes.shape[1], 2), MARGINS)


def objective(votes, target, weights, margin, penalty, w):
    """The published objective with the best intercept: the variance of the errors is their square about the mean."""
    errors = votes @ w / margin - target
    errors = errors - np.average(errors, weights=weights)
    return np.average(errors**2, weights=weights) + penalty * np.abs(w / margin).sum()


def test_energy_is_the_objective():
    X, y = load_iris(return_X_y=True)
    weights = np.random.default_rng(0).uniform(0.5, 2, size=150)
    model = QBoostClassifier(bits=2, n_estimators=4, regularization=0.3, random_state=0)
    votes, targets, margins = parts(model, X, y, weights)
    problems = model.problems(X, y, weights)
    assert len(problems) == 3 * MARGINS
    states = np.random.default_rng(1).integers(0, 2, size=(10, problems[0].n_variables))
    w = states.reshape(10, -1, 2) @ [1, 2] / 3
    for number in (0, 5, MARGINS + 3, 3 * MARGINS - 1):
        label, margin = number // MARGINS, margins[number % MARGINS]
        values = np.array([objective(votes, targets[label], weights, margin, 0.3, each) for each in w])
        energies = problems[number].energy(states) / margin**2
        np.testing.assert_allclose(energies - energies[0], values - values[0], atol=1e-12)


def test_exact_solver_is_brute_force(cancer):
    X, y = cancer
    model = QBoostClassifier(bits=1, n_estimators=6, max_learners=6, sampler=ExactSolver(), random_state=0).fit(X, y)
    votes, (target,), margins = parts(model, X, y, np.ones(len(y)))
    states = (np.arange(2**6)[:, None] >> np.arange(6)) & 1
    wanted, losses = target, []
    for _ in range(ROUNDS):
        values = [[objective(votes, wanted, np.ones(len(y)), m, 0.04, w) for w in states[1:]] for m in margins]
        place, state = np.unravel_index(np.argmin(values), np.shape(values))
        w = states[1 + state] / margins[place]
        scores = votes @ w + np.mean(wanted - votes @ w)
        losses.append(np.mean(np.maximum(0, 1 - target * scores) ** 2) + 0.04 * w.sum())
        wanted = target * np.maximum(1, target * scores)
    assert (np.diff(losses) < 1e-12).all()
    assert losses[-1] < losses[0]
    assert model.margins_[0] == margins[place]
    np.testing.assert_allclose(model.weights_[0], w[w > 0])
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-12)


def test_half_of_the_learners_of_adaboost_do(cancer):
    X, y = cancer
    gains = []
    for seed in range(4):
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=seed, stratify=y)
        model = QBoostClassifier(random_state=seed).fit(X_train, y_train)
        assert len(model.estimators_) <= 50
        reference = AdaBoostClassifier(n_estimators=100, random_state=seed).fit(X_train, y_train)
        gains.append(model.score(X_test, y_test) - reference.score(X_test, y_test))
    assert np.mean(gains) > -0.01


def test_several_classes_and_other_learners():
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = QBoostClassifier(bits=2, n_estimators=20, max_learners=6, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.93
    assert (model.n_solves_, model.weights_.shape[0]) == (3 * MARGINS * ROUNDS, 3)
    assert np.count_nonzero(model.weights_, axis=1).max() <= 6
    other = QBoostClassifier(
        n_estimators=5, estimator=LogisticRegression(C=0.01), sampler=DimodSampler(num_sweeps=50), random_state=0
    ).fit(X, y)
    assert other.score(X, y) > 0.7


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"n_estimators": 0}, "n_estimators is 0"), ({"max_learners": 0}, "max_learners"), ({"bits": 31}, "bits")),
        ({"regularization": 9.0}, "regularization is 9.0, lower it"),
    ],
)
def test_settings_out_of_bounds(blobs, settings, message):
    with pytest.raises(ValueError, match=message):
        QBoostClassifier(**settings).fit(*blobs)
