"""The bases in which bits are chosen: what whitening promises, and that no basis changes the optimum."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from annealfit import AnnealedClassifier
from annealfit._support.errors import InvalidInputError
from annealfit.problems.coordinates import COORDINATES, WhitenedCoordinates
from annealfit.problems.curvature import Curvature
from annealfit.training.objectives import LinearHead

X, Y = load_iris(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)


@pytest.fixture(scope="module")
def head():
    return LinearHead.of_arrays(X + 3, Y, 3, regularization=1e-3)


def in_coordinates(coordinates, head):
    return coordinates.adapted(head).pull_curvature(Curvature(head.bounding_curvature)).matrix


def test_whitened_problems_couple_nothing(head):
    np.testing.assert_allclose(in_coordinates(WhitenedCoordinates(), head), np.eye(5), atol=1e-9)


def test_half_whitened_problems_are_between(head):
    spread = {
        name: np.linalg.cond(in_coordinates(COORDINATES[name], head)) for name in ("raw", "partly_whitened", "whitened")
    }
    assert spread["raw"] > 10 * spread["partly_whitened"] > 10 * spread["whitened"]


def test_without_whitening_they_are_centred_with_a_unit_of_one(head):
    centred = type(COORDINATES["centred"])(bias_unit=1.0)
    np.testing.assert_allclose(
        in_coordinates(WhitenedCoordinates(power=0), head), in_coordinates(centred, head), atol=1e-12
    )


@pytest.mark.parametrize("coordinates", sorted(COORDINATES))
def test_every_basis_has_the_same_optimum(coordinates):
    clf = AnnealedClassifier(coordinates=coordinates, tol=1e-6, random_state=1).fit(X, Y)
    best = LogisticRegression(C=1 / (clf.regularization * len(X)), tol=1e-9, max_iter=5000).fit(X, Y)
    np.testing.assert_allclose(clf.predict_proba(X), best.predict_proba(X), atol=0.01)


def test_a_basis_that_depends_on_the_data_says_so():
    unadapted = WhitenedCoordinates()
    for use in (
        lambda: unadapted.push(np.ones((1, 3))),
        lambda: unadapted.pull_gradients(np.ones((1, 3))),
        lambda: unadapted.pull_curvature(Curvature(np.eye(3))),
        lambda: COORDINATES["centred"].push(np.ones((1, 3))),
    ):
        with pytest.raises(InvalidInputError, match="adapt"):
            use()
