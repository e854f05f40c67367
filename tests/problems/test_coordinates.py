"""The bases in which bits are chosen: a basis changes the problems and not the optimum."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification
from sklearn.linear_model import LogisticRegression

from annealfit import AnnealedClassifier, Method
from annealfit._support.errors import InvalidInputError
from annealfit.problems.coordinates import COORDINATES, CentredCoordinates, LinearCoordinates
from annealfit.problems.curvature import Curvature
from annealfit.training.objectives import LinearHead

X, Y = load_iris(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)


def whitening(head):
    """The basis in which the bounding curvature is the identity: nothing is coupled."""
    values, vectors = np.linalg.eigh(head.bounding_curvature)
    return LinearCoordinates(vectors / np.sqrt(values))


@pytest.fixture(scope="module")
def head():
    return LinearHead.of_arrays(X + 3, Y, 3, regularization=1e-3)


def in_coordinates(coordinates, head):
    return coordinates.adapted(head).pull_curvature(Curvature(head.bounding_curvature)).matrix


def test_a_whitening_matrix_leaves_no_couplings(head):
    np.testing.assert_allclose(in_coordinates(whitening(head), head), np.eye(5), atol=1e-9)


def test_centred_problems_are_better_conditioned(head):
    raw, centred = (np.linalg.cond(in_coordinates(COORDINATES[name], head)) for name in ("raw", "centred"))
    assert raw > 10 * centred


@pytest.mark.parametrize("name", ["raw", "centred", "whitened"])
def test_every_basis_has_the_same_optimum(name):
    coordinates = COORDINATES.get(name) or whitening(LinearHead.of_arrays(X, Y, 3, 1e-3))
    clf = AnnealedClassifier(method=Method(coordinates=coordinates), tol=1e-6, random_state=1).fit(X, Y)
    best = LogisticRegression(C=1 / (clf.regularization * len(X)), tol=1e-9, max_iter=5000).fit(X, Y)
    np.testing.assert_allclose(clf.predict_proba(X), best.predict_proba(X), atol=0.01)


def test_centred_coordinates_need_an_objective():
    with pytest.raises(InvalidInputError, match="adapt"):
        COORDINATES["centred"].push(np.ones((1, 3)))


def test_units_of_features_are_a_change_of_basis():
    """`u = Tz` with `T = diag(s)`, and the means of the features in the row of the bias."""
    generator, outputs = np.random.default_rng(0), 2
    means, units = generator.normal(size=4), generator.uniform(0.1, 3, 5)
    coordinates = CentredCoordinates(means, units[-1], units[:-1])
    basis = np.diag(units)
    basis[-1, :-1] = -means * units[:-1]
    values, half = generator.normal(size=(3, 5)), generator.normal(size=(5, 5))
    np.testing.assert_allclose(coordinates.push(values), values @ basis.T)
    np.testing.assert_allclose(coordinates.pull_gradients(values), values @ basis)
    found = coordinates.pull_curvature(Curvature(half @ half.T)).matrix
    np.testing.assert_allclose(found, basis.T @ half @ half.T @ basis, atol=1e-12)
    several = np.tile(values, outputs)
    np.testing.assert_allclose(coordinates.push(several), np.tile(values @ basis.T, outputs))


def wide(n_features):
    """Features whose spread differs a thousandfold; one is constant."""
    generator = np.random.default_rng(n_features)
    labels = np.arange(600) % 3
    features = generator.normal(size=(600, n_features)) + 0.3 * generator.normal(size=(3, n_features))[labels]
    features *= np.geomspace(1e-2, 10, n_features)
    features[:, 7] = 1 / 3
    return LinearHead.of_arrays(features + 1, labels, 3, 1e-3), features


def test_features_of_wide_rows_have_the_units_of_their_newton_steps():
    for n_features in (256, 257):
        head, features = wide(n_features)
        coordinates = COORDINATES["centred"].adapted(head)
        if n_features == 256:
            assert coordinates.feature_units is None
            continue
        steps = features.std(axis=0) / (1e-3 + 2 / 9 * features.var(axis=0))  # π(1 − π) = 2/9 at zero weights
        steps[7] = 0
        typical = np.sqrt((steps**2).mean())
        np.testing.assert_allclose(coordinates.feature_units, np.maximum(steps / typical, 1e-3), rtol=1e-6)
        assert coordinates.bias_unit == pytest.approx(257**0.25 * 4.5 / typical)


def test_the_units_of_wide_rows_save_iterations():
    """With them three bits take as many iterations as eight; without them three times as many."""
    rows = make_classification(1000, 300, n_informative=150, n_classes=4, random_state=0)
    needed = {}
    without = CentredCoordinates(bias_unit=1.0)
    for name, bits, coordinates in (("units", 3, "centred"), ("more bits", 8, "centred"), ("without", 3, without)):
        clf = AnnealedClassifier(bits, regularization=0.01, method=Method(coordinates=coordinates), random_state=0)
        needed[name] = clf.fit(*rows).n_iter_
    assert needed["units"] <= needed["more bits"] + 5
    assert 2 * needed["units"] < needed["without"]
