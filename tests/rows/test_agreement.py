"""The same rows give the same weights, to the rounding of double precision, wherever and however they are stored."""

import dask.array as da
import joblib
import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits, load_iris, load_wine, make_blobs
from sklearn.model_selection import GridSearchCV, cross_validate

from annealfit import AnnealedClassifier, Method
from annealfit.data.rows import ChunkedRows, InMemoryRows

WIDTHS = [6, 99, 100, 101, 300]  # single-precision products begin with 100 features
N = 700


def table(n_features, n_classes, dtype=float, n_rows=N):
    """Rows of overlapping classes, whose features differ in scale and are not centred."""
    generator = np.random.default_rng(n_features + n_classes)
    y = generator.permutation(n_rows) % n_classes
    scales = 10.0 ** generator.uniform(-1, 0.5, n_features)
    X = generator.standard_normal((n_rows, n_features)) + 0.3 * generator.standard_normal((n_classes, n_features))[y]
    return ((X + 2) * scales).astype(dtype), y


def sample_weights(n_rows=N):
    return np.random.default_rng(1).uniform(0.2, 3, n_rows)


def assert_same(found, expected):
    assert (found.n_iter_, found.stop_reason_) == (expected.n_iter_, expected.stop_reason_)
    largest = np.abs(expected.coef_).max()
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-9, atol=1e-9 * largest)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, rtol=1e-9, atol=1e-9 * largest)
    np.testing.assert_allclose(found.optimality_gap_, expected.optimality_gap_, rtol=1e-5, atol=1e-12)
    losses = [[row["loss"] for row in clf.history_] for clf in (found, expected)]
    np.testing.assert_allclose(*losses, rtol=1e-11)


@pytest.fixture
def stored(tmp_path):
    """Every other way to store features, by name; the rows of one that is an object carry labels and weights."""

    def ways(X, y, n_classes, weights):
        np.save(tmp_path / "table.npy", X)
        chunks = {
            f"chunks of {size} rows": ChunkedRows(X, y, n_classes, weights, chunk_rows=size) for size in (64, 333)
        }
        mapped = np.load(tmp_path / "table.npy", mmap_mode="r")
        return {"memory map": mapped, "Dask": da.from_array(X, chunks=(171, 50)), **chunks}

    return ways


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n_features", "n_classes"), [(width, 2 + index % 2) for index, width in enumerate(WIDTHS)])
def test_a_fit_does_not_depend_on_where_the_rows_are(stored, n_features, n_classes, weighted, dtype):
    X, y = table(n_features, n_classes, dtype)
    weights = sample_weights() if weighted else None
    expected = AnnealedClassifier(random_state=0).fit(X.astype(float), y, weights)
    assert expected.stop_reason_ == "tolerance"
    for name, given in stored(X, y, n_classes, weights).items():
        own = () if name.startswith("chunks") else (y, weights)
        assert_same(AnnealedClassifier(random_state=0).fit(given, *own), expected)


def equal_classes(n_classes, n_features, spread=4.0):
    """Classes of equal size: at zero weights the gradient of every bias, and its coupling to the features, is 0."""
    X, y = make_blobs([200] * n_classes, n_features, cluster_std=spread, random_state=n_features)
    return X + 3, y


SETS = {
    "iris": lambda: load_iris(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),  # features of 0.1 to 1000
    "digits": lambda: load_digits(return_X_y=True),
    "equal classes": lambda: equal_classes(10, 30),
    "equal classes, single precision": lambda: equal_classes(5, 100),
    "far apart, single precision": lambda: equal_classes(5, 100, spread=1.5),  # a small loss: badly conditioned steps
}


@pytest.mark.parametrize("bits", [1, 3])
@pytest.mark.parametrize("name", SETS)
def test_rounding_decides_nothing(name, bits):
    """Sums in another order differ in their last bits. No choice of a level or of a step rests on those."""
    X, y = SETS[name]()
    expected = AnnealedClassifier(bits, random_state=0, max_iter=100).fit(X, y)
    for size in (37, 64, 333):
        rows = ChunkedRows(X, y, len(np.unique(y)), chunk_rows=size)
        assert_same(AnnealedClassifier(bits, random_state=0, max_iter=100).fit(rows), expected)


def test_rounding_decides_nothing_with_a_bounding_curvature():
    X, y = equal_classes(4, 30)
    expected = AnnealedClassifier(method="descent", random_state=0, max_iter=60).fit(X, y)
    for size in (37, 64, 333):
        clf = AnnealedClassifier(method="descent", random_state=0, max_iter=60)
        assert_same(clf.fit(ChunkedRows(X, y, 4, chunk_rows=size)), expected)


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("n_features", [6, 120])
def test_a_fit_does_not_depend_on_the_chunks_in_memory(n_features, n_classes, monkeypatch):
    X, y = table(n_features, n_classes)
    whole = AnnealedClassifier(random_state=0).fit(X, y, sample_weights())
    assert len(list(InMemoryRows(X, y, n_classes).chunks())) == 1
    monkeypatch.setattr("annealfit.data.rows.rows.WORTH_THREADS", 1)
    monkeypatch.setattr("annealfit.data.rows.rows.CHUNK_BYTES", 2**12)
    monkeypatch.setattr("annealfit.data.rows.rows.FEWEST_ROWS", 16)
    assert len(list(InMemoryRows(X, y, n_classes).chunks())) > 3
    assert_same(AnnealedClassifier(random_state=0).fit(X, y, sample_weights()), whole)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_fit_does_not_depend_on_the_order_of_the_array(order):
    X, y = table(120, 3)
    expected = AnnealedClassifier(random_state=0).fit(X, y)
    found = AnnealedClassifier(random_state=0).fit(np.require(X, requirements=order), y)
    np.testing.assert_array_equal(found.coef_, expected.coef_)


def test_sparse_rows_are_trained_like_a_dense_copy():
    """To rounding, where both are computed in double precision; else to that of single precision."""
    generator = np.random.default_rng(0)
    X, y = table(300, 3)
    X[generator.random(X.shape) < 0.9] = 0
    for arithmetic, tolerance in (("double", 1e-9), ("auto", 1e-5)):
        method = Method(arithmetic=arithmetic)
        sparse, dense = (
            AnnealedClassifier(method=method, random_state=0).fit(given, y) for given in (scipy.sparse.csr_array(X), X)
        )
        assert (sparse.n_iter_, sparse.stop_reason_) == (dense.n_iter_, "tolerance")
        np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=0, atol=tolerance * np.abs(dense.coef_).max())


@pytest.mark.parametrize("n_features", [6, 120])
def test_a_digest_does_not_depend_on_where_the_rows_are(n_features):
    X, y = table(n_features, 3)
    expected = InMemoryRows(X, y, 3, sample_weights()).digest()
    for size in (64, 333):
        assert ChunkedRows(X, y, 3, sample_weights(), chunk_rows=size).digest() == expected
    assert InMemoryRows(X + 1e-12, y, 3, sample_weights()).digest() != expected


@pytest.mark.parametrize("n_features", [30, 130])
def test_a_fit_does_not_depend_on_the_number_of_jobs(n_features):
    """joblib memory-maps the arrays that it sends to other processes."""
    X, y = table(n_features, 3, n_rows=1200)
    estimator = AnnealedClassifier(random_state=0)
    here = cross_validate(estimator, X, y, cv=3, return_estimator=True)["estimator"]
    there = cross_validate(estimator, X, y, cv=3, return_estimator=True, n_jobs=2)["estimator"]
    for one, two in zip(here, there, strict=True):
        assert_same(two, one)
    mapped = joblib.Parallel(n_jobs=2, max_nbytes=1)(joblib.delayed(estimator.fit)(X, y) for _ in range(2))
    for one in mapped:
        assert_same(one, estimator.fit(X, y))


@pytest.mark.parametrize("n_features", [30, 130])
def test_a_grid_search_does_not_depend_on_the_number_of_jobs(n_features):
    X, y = table(n_features, 3, n_rows=1200)
    grid = {"bits": [2, 3], "method__acceptance": ["subspace", "line_search"]}
    searches = [
        GridSearchCV(AnnealedClassifier(max_iter=30, random_state=0), grid, cv=2, n_jobs=jobs).fit(X, y)
        for jobs in (1, 2)
    ]
    scores = [search.cv_results_["mean_test_score"] for search in searches]
    np.testing.assert_array_equal(*scores)
    assert searches[0].best_params_ == searches[1].best_params_
    np.testing.assert_allclose(searches[0].best_estimator_.coef_, searches[1].best_estimator_.coef_, rtol=1e-9)
