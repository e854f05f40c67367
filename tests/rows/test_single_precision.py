"""Products in single precision: their error, what they fall back on, and what is computed in double all the same."""

import gc
import weakref

import dask.array as da
import numpy as np
import pytest

from annealfit import AnnealedClassifier, Checkpoint, Method
from annealfit.data.rows import ChunkedRows, DaskRows, DenseChunk, InMemoryRows, SingleChunk
from annealfit.models.baselines import solve_logistic
from annealfit.training.objectives import LinearHead

N, D, OUTPUTS = 1100, 120, 4
UNIT = 2.0**-24  # relative rounding of a number in single precision


def features(offset=0.0, scale=1.0, n_rows=N):
    return scale * (offset + np.random.default_rng(0).standard_normal((n_rows, D)))


def labelled(X):
    logits = (X - X.mean(axis=0)) @ np.random.default_rng(1).standard_normal((X.shape[1], OUTPUTS)) / X.std()
    return (0.3 * logits + np.random.default_rng(2).gumbel(size=logits.shape)).argmax(axis=1)


def chunk_of(X):
    labels = np.zeros(len(X), dtype=np.intp)
    rows = InMemoryRows(X, labels, OUTPUTS)
    assert rows.is_single
    (chunk,) = rows.chunks()
    assert isinstance(chunk, SingleChunk)
    return chunk


# Errors of the products, against NumPy in double precision


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])  # of the weights
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])  # of the features
@pytest.mark.parametrize("offset", [0.0, 1.0, -1e6])  # in units of their spread
def test_outputs_have_the_error_of_single_precision_of_the_distance_from_the_centre(offset, scale, size):
    """Two roundings of the factors of a product, one of the product, and one of each of d sums."""
    X = features(offset, scale)
    chunk = chunk_of(X)
    weights = size * np.random.default_rng(3).standard_normal((D + 1, OUTPUTS))
    distances = X - chunk.centre
    exact = distances @ weights[:-1] + (chunk.centre @ weights[:-1] + weights[-1])
    margin = (D + 4) * UNIT * (np.abs(distances) @ np.abs(weights[:-1]))
    # The product with the centre is in double precision.
    margin += 1e-13 * (np.abs(chunk.centre) @ np.abs(weights[:-1]) + np.abs(weights[-1]))
    found = chunk.project(weights)
    assert found.dtype == np.float64
    assert (np.abs(found.T - exact) <= margin).all()
    assert np.abs(found.T - exact).max() > 0  # it is single precision


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("offset", [0.0, -1e6])
def test_moments_have_one_rounding_of_every_feature(offset, size):
    """Sums are in double precision."""
    X = features(offset)
    chunk = chunk_of(X)
    values = size * np.random.default_rng(4).standard_normal((OUTPUTS, N))
    found = chunk.moments(values) / size
    values = values / size
    exact = values @ np.column_stack([X, np.ones(N)])
    margin = UNIT * np.abs(values) @ np.abs(X - chunk.centre)
    margin += 1e-12 * (np.abs(values) @ np.abs(X))
    assert (np.abs(found - exact)[:, :-1] <= margin).all()
    np.testing.assert_allclose(found[:, -1], exact[:, -1], rtol=0, atol=1e-12 * np.abs(values).sum())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_everything_else_is_in_double_precision(dtype):
    X = features(3.0).astype(dtype)
    X[:, 1] = X[:, 0]  # singular
    generator = np.random.default_rng(5)
    labels, weights = np.arange(N) % OUTPUTS, generator.random(N)
    single = SingleChunk(X, labels, weights, np.median(X[:15].astype(float), axis=0))
    double = DenseChunk(X, labels, weights)
    values, outputs = generator.random(N), generator.standard_normal((OUTPUTS, N))
    blocks, origin = [slice(0, 50), slice(50, D)], generator.standard_normal(D)
    pairs = [
        [chunk.exact_project(np.full((D + 1, OUTPUTS), 0.1)) for chunk in (single, double)],
        [chunk.exact_moments(outputs) for chunk in (single, double)],
        [chunk.gram() for chunk in (single, double)],
        [chunk.gram(values) for chunk in (single, double)],
        [chunk.column_sums() for chunk in (single, double)],
    ]
    for given in (None, origin):
        grams = [chunk.block_grams(values, blocks, given) for chunk in (single, double)]
        pairs += list(zip(*grams, strict=True))
    for found, expected in pairs:
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


# Chunks


@pytest.mark.parametrize("size", [1, 2, 63, 64, 333])
def test_products_do_not_depend_on_the_chunks(size):
    """An output depends on its row alone: it is the same to the last bit. Sums differ by their order."""
    X = features(1.0, n_rows=700)
    whole = chunk_of(X)
    labels = whole.labels
    parts = [
        SingleChunk(X[first : first + size], labels[first : first + size], None, whole.centre, first)
        for first in range(0, len(X), size)
    ]
    generator = np.random.default_rng(6)
    weights, values = generator.standard_normal((D + 1, 7)), generator.standard_normal((7, len(X)))
    np.testing.assert_array_equal(np.hstack([part.project(weights) for part in parts]), whole.project(weights))
    found = sum(part.moments(values[:, part.start : part.start + size]) for part in parts)
    margin = 1e-14 * np.abs(values) @ np.abs(np.column_stack([X, np.ones(len(X))]))
    assert (np.abs(found - whole.moments(values)) <= margin).all()


def test_results_do_not_depend_on_threads(monkeypatch):
    X = features(1.0, n_rows=4000)
    y = labelled(X)
    monkeypatch.setattr("annealfit.data.rows.rows.WORTH_THREADS", 1.0)
    monkeypatch.setattr("annealfit.data.rows.rows.CHUNK_BYTES", 2**17)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(AnnealedClassifier(max_iter=5, tol=0, random_state=0).fit(X, y).coef_)
    np.testing.assert_array_equal(*found)


# Where single precision is not used


def all_kinds(X, arithmetic="auto"):
    """The same rows in memory, streamed and on Dask."""
    y = np.arange(len(X)) % 2
    return [
        InMemoryRows(X, y, 2, arithmetic=arithmetic),
        ChunkedRows(X, y, 2, chunk_rows=300, arithmetic=arithmetic),
        DaskRows(da.from_array(X, chunks=(400, 70)), y, arithmetic=arithmetic),
    ]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n_features", "single"), [(99, False), (100, True), (120, True)])
def test_the_number_of_features_decides_for_all_kinds_of_rows(n_features, single, dtype):
    for rows in all_kinds(features()[:, :n_features].astype(dtype)):
        assert rows.is_single == single
    for arithmetic in ("double", "numpy"):
        assert not any(rows.is_single for rows in all_kinds(features()[:, :n_features], arithmetic))


def with_constant(value):
    X = features()
    X[:, 3] = value
    return X


def with_last(value):
    """Rows of which only one, at the end, has a large or small feature; the others have zeros."""
    X = features()
    X[:, 7] = 0.0
    X[-1, 7] = value
    return X


@pytest.mark.parametrize(
    ("X", "single"),
    [
        (features(scale=1e20), False),
        (features(scale=1e-20), False),
        (with_last(1e20), False),
        (with_last(1e-20), False),
        (with_last(1e9), True),
        (with_constant(0.1), True),
        (with_constant(1e20), True),
        (with_constant(-1e60), True),
        (features(offset=1e15), True),
    ],
    ids=["all large", "all small", "one large", "one small", "an outlier", "constant", "far", "very far", "offset"],
)
def test_features_beyond_single_precision_are_computed_in_double_for_all_kinds_of_rows(X, single):
    weights = np.random.default_rng(7).standard_normal((D + 1, 1)) / np.abs(X).max(axis=0, initial=1.0).max()
    augmented = np.column_stack([X, np.ones(N)])
    for rows in all_kinds(X):
        assert rows.is_single == single
        found = np.hstack([chunk.project(weights) for chunk in rows.chunks()])
        exact = augmented @ weights
        tolerance = 1e-6 if single else 1e-13
        np.testing.assert_allclose(found.T, exact, rtol=0, atol=tolerance * (np.abs(augmented) @ np.abs(weights)).max())


def test_an_outlier_costs_no_other_row_its_digits():
    X = features()
    X[0, 5] = 1e9  # a mean of the rows would be far from all of them
    weights = np.zeros((D + 1, OUTPUTS))
    weights[5] = 1.0
    found = chunk_of(X).project(weights)
    np.testing.assert_allclose(found[0, 1:], X[1:, 5], atol=1e-5)


@pytest.mark.parametrize("size", [1e11, 1e14])
def test_heavy_rows_of_large_features_do_not_overflow(size):
    X = size * np.random.default_rng(9).standard_normal((3000, 130))
    rows = InMemoryRows(X, np.arange(3000) % 2, 2, np.full(3000, 9e8))
    (gram,) = rows.mean(lambda chunk: tuple(chunk.block_grams(chunk.weights, [slice(0, 130)])))
    assert np.isfinite(gram).all()


# Trainings


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_loss_and_gap_of_a_training_are_those_of_double_precision(offset):
    X = features(offset)
    y = labelled(X)
    fitted = AnnealedClassifier(random_state=0).fit(X, y)
    assert fitted.stop_reason_ == "tolerance"
    weights = np.vstack([fitted.coef_.T, fitted.intercept_])
    exact = LinearHead.of_arrays(X, y, OUTPUTS, fitted.regularization, arithmetic="double").at(weights)
    best = LinearHead.of_arrays(X - offset, y, OUTPUTS, fitted.regularization, arithmetic="double")
    optimum = best.at(solve_logistic(X - offset, y, fitted.regularization).weights).loss
    assert exact.loss - fitted.optimality_gap_ <= optimum
    assert fitted.optimality_gap_ <= fitted.tol * exact.loss
    # The history has the loss of outputs in single precision.
    assert fitted.history_[-1]["loss"] == pytest.approx(exact.loss, rel=1e-6)
    losses = [row["loss"] for row in fitted.history_]
    assert (np.diff(losses) < 0).all()


def test_the_gap_after_early_stopping_is_that_of_the_best_weights_in_double_precision():
    X = features(1e4)
    y = labelled(X)
    settings = {"max_iter": 40, "regularization": 1e-3, "tol": 0.0, "patience": 5, "random_state": 0}
    clf = AnnealedClassifier(early_stopping=True, **settings).fit(X[::2], y[::2], validation_data=(X[1::2], y[1::2]))
    assert clf.best_iteration_ < clf.n_iter_
    head = LinearHead.of_arrays(X[::2], y[::2], OUTPUTS, 1e-3, arithmetic="double")
    point = head.at(np.vstack([clf.coef_.T, clf.intercept_]))
    assert clf.optimality_gap_ == pytest.approx(point.loss - point.lower_bound(), rel=1e-10)


def test_single_and_double_precision_reach_the_same_optimum():
    X = features(2.0)
    y = labelled(X)
    single, double = (
        AnnealedClassifier(random_state=0, tol=1e-6, method=Method(arithmetic=arithmetic)).fit(X, y)
        for arithmetic in ("auto", "double")
    )
    assert single.stop_reason_ == double.stop_reason_ == "tolerance"
    np.testing.assert_allclose(single.coef_, double.coef_, atol=1e-2 * np.abs(double.coef_).max())
    assert not np.array_equal(single.coef_, double.coef_)


def test_a_resumed_training_is_the_same_to_the_last_bit(tmp_path):
    X = features(2.0)
    y = labelled(X)
    path = tmp_path / "half.safetensors"
    AnnealedClassifier(random_state=0, max_iter=4, tol=0, checkpoint=path).fit(X, y)
    resumed = AnnealedClassifier(random_state=0, max_iter=9, tol=0, checkpoint=Checkpoint(path, resume=True)).fit(X, y)
    straight = AnnealedClassifier(random_state=0, max_iter=9, tol=0).fit(X, y)
    np.testing.assert_array_equal(resumed.coef_, straight.coef_)
    assert resumed.optimality_gap_ == straight.optimality_gap_


@pytest.mark.parametrize("shape", [(60, 5), (N, D)])
def test_a_fitted_classifier_keeps_no_rows(shape):
    """Without the garbage collector of cycles: rows may be much of the memory."""
    X = features()[: shape[0], : shape[1]].copy()
    y, rows = labelled(X), weakref.ref(X)
    gc.collect()
    gc.disable()
    try:
        fitted = AnnealedClassifier(max_iter=5, random_state=0).fit(X, y)
        del X
        assert rows() is None
    finally:
        gc.enable()
    assert fitted.n_iter_ == 5
