"""The bases in which bits are chosen: a basis changes the problems and not the optimum."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from annealfit import AnnealedClassifier, Method
from annealfit._support.errors import InvalidInputError
from annealfit.problems.coordinates import COORDINATES, LinearCoordinates
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
