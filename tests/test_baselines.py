import numpy as np
import pytest

from annealfit.baselines import solve_logistic, train_sgd
from annealfit.errors import InvalidInputError
from annealfit.objectives import LinearHead


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_logistic_optimum_is_where_our_gradient_vanishes(blobs, n_classes):
    X, y = blobs
    head = LinearHead.of_arrays(X, y % n_classes, n_classes, 1e-2)
    slope = head.at(solve_logistic(X, y % n_classes, 1e-2).weights).gradients
    assert np.abs(slope).max() < 1e-5  # lbfgs stops near 1e-6


def test_sgd_approaches_the_optimum_from_above(blobs):
    X, y = blobs
    head = LinearHead.of_arrays(X, y, 3, 1e-2)
    result = train_sgd(head, np.zeros((5, 3)), rate=0.2, steps=2000)
    best = head.at(solve_logistic(X, y, 1e-2).weights).loss
    losses = [row["loss"] for row in result.history]
    assert len(losses) == 2000
    assert losses == sorted(losses, reverse=True)
    assert best <= losses[-1] <= best * 1.01


def test_bad_baselines(blobs):
    X, y = blobs
    with pytest.raises(InvalidInputError, match="above 0"):
        solve_logistic(X, y, 0.0)
    with pytest.raises(InvalidInputError, match="learning rate"):
        train_sgd(LinearHead.of_arrays(X, y, 3, 0.0), np.zeros((5, 3)), rate=0)
