"""Labels and targets that are none: one error for all estimators."""

import numpy as np
import pytest

from annealfit import QUBOSVC, AnnealedRBM, QBoostClassifier, QUBORidge, QUBORidgeClassifier
from annealfit._support.errors import InvalidInputError

X = np.random.default_rng(0).normal(size=(40, 3))
HALVES = np.arange(40) % 2


@pytest.mark.parametrize("kind", [QUBORidgeClassifier, QUBOSVC, QBoostClassifier, AnnealedRBM])
def test_labels_of_several_types_are_refused(kind):
    with pytest.raises(InvalidInputError, match="types int, str"):
        kind().fit(X, np.array([1, "a"], dtype=object)[HALVES])


@pytest.mark.parametrize("targets", [np.array(["a", "b"])[HALVES], np.array([b"a", b"b"])[HALVES]])
def test_targets_that_are_no_numbers_are_refused(targets):
    with pytest.raises(InvalidInputError, match="y is not an array of numbers"):
        QUBORidge().fit(X, targets)
