"""Arrays in memory that are not what they say: refused before compiled code reads outside of them."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_iris

from annealfit import AnnealedClassifier
from annealfit._support.errors import InvalidInputError

X, SPECIES = load_iris(return_X_y=True)


def damaged(kind, attribute, place, value):
    array = getattr(scipy.sparse, kind)(X)
    getattr(array, attribute)[place] = value
    return array


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "csc_array"])
@pytest.mark.parametrize(
    ("attribute", "place", "value"), [("indices", 7, 10**6), ("indices", 7, -1), ("indptr", 2, 10**6), ("indptr", 2, 0)]
)
def test_indices_outside_of_a_sparse_array(kind, attribute, place, value):
    rows = damaged(kind, attribute, place, value)
    with pytest.raises(InvalidInputError, match="its indices lead outside"):
        AnnealedClassifier(max_iter=1).fit(rows, SPECIES)
    with pytest.raises(InvalidInputError, match="its indices lead outside"):
        AnnealedClassifier(max_iter=1, random_state=0, tol=0.0).fit(X, SPECIES).predict(rows)


def test_masked_values_are_not_read():
    rows = np.ma.masked_greater(X, 7.0)
    with pytest.raises(InvalidInputError, match="masked values"):
        AnnealedClassifier(max_iter=1).fit(rows, SPECIES)
    nothing_masked = np.ma.masked_array(X, mask=False)
    model = AnnealedClassifier(max_iter=3, random_state=0)
    np.testing.assert_array_equal(model.fit(nothing_masked, SPECIES).coef_, model.fit(X, SPECIES).coef_)
