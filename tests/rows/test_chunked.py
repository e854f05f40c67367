"""Rows that are read in slices: the same training as in memory, and never all of them at once."""

import tracemalloc

import h5py
import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.linear_model import LogisticRegression

from annealfit import AnnealedClassifier
from annealfit._support.errors import InvalidInputError
from annealfit.data.rows import ChunkedRows, InMemoryRows, MappedTable, Selection, is_out_of_core
from annealfit.training.objectives import LinearHead
from annealfit.training.objectives.streaming import StreamedPoint


def table(n_rows=3000, n_features=6, n_classes=3, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((n_rows, n_features)) + 1.0
    logits = X @ generator.standard_normal((n_features, n_classes))
    return X, (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)


@pytest.fixture
def mapped(tmp_path):
    def save(array, name="table"):
        np.save(tmp_path / f"{name}.npy", array)
        return np.load(tmp_path / f"{name}.npy", mmap_mode="r")

    return save


def heads(n_classes, weighted, chunk_rows=700):
    X, y = table(n_classes=n_classes)
    weights = np.random.default_rng(1).random(len(y)) if weighted else None
    in_memory = InMemoryRows(X, y, n_classes, weights)
    passing = ChunkedRows(X, y, n_classes, weights, chunk_rows=chunk_rows)
    return LinearHead(in_memory, 1e-2), LinearHead(passing, 1e-2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_sum_is_that_of_rows_in_memory(n_classes, weighted):
    """Up to rounding: sums in another order."""
    kept, passing = heads(n_classes, weighted)
    generator = np.random.default_rng(2)
    weights, before = generator.standard_normal((2, kept.n_parameters, kept.n_outputs))
    here, there = kept.at(weights), passing.at(weights)
    assert isinstance(there, StreamedPoint)
    assert there.loss == pytest.approx(here.loss, rel=1e-13)
    assert there.accuracy == pytest.approx(here.accuracy, rel=1e-13)
    np.testing.assert_allclose(there.gradients, here.gradients, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(there.output_grams(), here.output_grams(), rtol=1e-11)
    np.testing.assert_allclose(passing.gram, kept.gram, rtol=1e-12)
    np.testing.assert_allclose(passing.feature_means, kept.feature_means, rtol=1e-12)
    np.testing.assert_allclose(passing.rows.class_shares, kept.rows.class_shares, rtol=1e-12)
    updates = generator.standard_normal((kept.n_outputs, kept.n_parameters))
    spans = [head.at(weights).span(updates, head.at(before)) for head in (kept, passing)]
    np.testing.assert_allclose(spans[1].curvature_along(), spans[0].curvature_along(), rtol=1e-11)
    multiples = generator.random((2, kept.n_outputs))
    assert spans[1].at(multiples).loss == pytest.approx(spans[0].at(multiples).loss, rel=1e-12)


def test_the_gradient_is_that_of_the_loss():
    _, head = heads(3, weighted=True)
    shape = (head.n_parameters, head.n_outputs)

    def loss(flat):
        return head.at(flat.reshape(shape)).loss

    def slope(flat):
        return head.at(flat.reshape(shape)).gradients.T.ravel()

    assert check_grad(loss, slope, np.full(shape[0] * shape[1], 0.1)) < 1e-6


def test_the_bound_holds_and_is_tight_at_the_optimum():
    """A bound from four steps of balancing is a bound, and where the weights are best it is the loss."""
    X, y = table()
    head = LinearHead(ChunkedRows(X, y, 3, chunk_rows=900), 1e-2)
    best = LogisticRegression(C=1 / (1e-2 * len(y)), tol=1e-10, max_iter=1000).fit(X, y)
    point = head.at(np.vstack([best.coef_.T, best.intercept_]))
    assert point.loss - 1e-8 < point.lower_bound() <= point.loss + 1e-12
    away = head.at(np.random.default_rng(0).standard_normal((7, 3)))
    assert away.lower_bound() <= point.loss


def test_single_precision_stays_and_sums_are_double():
    X, y = table(20000)
    rows = ChunkedRows(X.astype(np.float32), y, 3, chunk_rows=3000)
    chunk = next(iter(rows.chunks()))
    assert chunk.features.dtype == chunk.project(np.zeros((7, 3))).dtype == np.float32
    assert chunk.moments(np.ones((1, 3000))).dtype == chunk.gram().dtype == np.float64
    here = LinearHead.of_arrays(X, y, 3, 1e-3).at(np.full((7, 3), 0.3))
    there = LinearHead(rows, 1e-3).at(np.full((7, 3), 0.3))
    assert there.loss == pytest.approx(here.loss, rel=1e-6)  # 24 bits of a number, and of products with it
    np.testing.assert_allclose(there.gradients, here.gradients, atol=1e-6)


def test_a_training_is_that_of_the_array_in_memory(mapped):
    X, y = table()
    here = AnnealedClassifier(random_state=0).fit(X, y)
    there = AnnealedClassifier(random_state=0).fit(mapped(X), y)
    assert there.n_iter_ == here.n_iter_
    assert there.stop_reason_ == here.stop_reason_ == "tolerance"
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-8)
    again = AnnealedClassifier(random_state=0).fit(mapped(X), y)
    assert np.array_equal(again.coef_, there.coef_)


def test_the_size_of_chunks_matters_only_to_rounding():
    X, y = table()
    fits = [
        AnnealedClassifier(random_state=0).fit(ChunkedRows(X, y, 3, chunk_rows=size)).coef_ for size in (64, 1000, 5000)
    ]
    np.testing.assert_allclose(fits[0], fits[1], rtol=1e-8)
    np.testing.assert_allclose(fits[0], fits[2], rtol=1e-8)


def test_validation_weights_and_classes_as_in_memory(mapped):
    X, y = table()
    weights = np.random.default_rng(3).integers(0, 3, len(y)).astype(float)
    settings = {"max_iter": 10, "validation_fraction": 0.2, "class_weight": "balanced", "random_state": 0}
    here = AnnealedClassifier(**settings).fit(X, y, weights)
    there = AnnealedClassifier(**settings).fit(mapped(X), y, weights)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-8)
    assert there.history_[-1]["validation_accuracy"] == pytest.approx(here.history_[-1]["validation_accuracy"])


def test_labels_of_any_type_and_two_classes(mapped):
    X, y = table(n_classes=2)
    names = np.array(["no", "yes"])[y]
    clf = AnnealedClassifier(max_iter=5, random_state=0).fit(mapped(X), names)
    assert clf.coef_.shape == (1, 6)
    assert clf.score(mapped(X), names) == clf.score(X, names) > 0.7


def test_predictions_chunk_by_chunk(mapped, monkeypatch):
    monkeypatch.setattr("annealfit.data.rows.tables.CHUNK_BYTES", 64)
    X, y = table()
    clf = AnnealedClassifier(max_iter=5, random_state=0).fit(X, y)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        np.testing.assert_allclose(getattr(clf, method)(mapped(X)), getattr(clf, method)(X), rtol=1e-12)


def test_an_hdf5_file(tmp_path):
    X, y = table()
    with h5py.File(tmp_path / "table.h5", "w") as file:
        data = file.create_dataset("features", data=X, chunks=(100, 3), compression="gzip")
        assert is_out_of_core(data)
        there = AnnealedClassifier(max_iter=5, random_state=0).fit(data, file.create_dataset("labels", data=y))
        here = AnnealedClassifier(max_iter=5, random_state=0).fit(X, y)
        np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-8)
        assert np.array_equal(there.predict(data), here.predict(X))


def test_anything_with_a_shape_and_row_slices():
    X, y = table()
    read = []

    class Foreign:
        shape, dtype = X.shape, X.dtype

        def __getitem__(self, rows):
            assert isinstance(rows, slice)
            read.append(rows.stop - rows.start)
            return X[rows].tolist()

    AnnealedClassifier(max_iter=2, random_state=0).fit(Foreign(), y)
    assert len(read) > 4


def test_a_mapped_file_is_never_in_memory_whole(mapped):
    X, y = table(400_000, 20, 3)
    file = mapped(X)
    size, y = X.nbytes, y.astype(np.int8)
    del X
    AnnealedClassifier(max_iter=1, random_state=0).fit(*table(50))  # compiled
    tracemalloc.start()
    clf = AnnealedClassifier(max_iter=2, tol=0, random_state=0).fit(file, y)
    clf.predict(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.6 * size  # of 64 MB: chunks, and the labels as numbers and as positions


def test_views_of_a_mapped_file_are_known_as_such(mapped):
    file = mapped(np.zeros((4, 2)))
    assert is_out_of_core(file)
    assert is_out_of_core(file[1:])
    assert is_out_of_core(np.asarray(file))
    assert not is_out_of_core(np.array(file))
    assert not is_out_of_core(file[[0, 1]])
    assert not is_out_of_core([[1.0]])


def test_a_training_is_resumed_to_the_last_bit(mapped, tmp_path):
    X, y = table()
    settings = {"tol": 0.0, "random_state": 0, "checkpoint_every": 2}
    whole = AnnealedClassifier(max_iter=9, **settings).fit(mapped(X), y)
    path = tmp_path / "checkpoint"
    AnnealedClassifier(max_iter=5, checkpoint=path, **settings).fit(mapped(X), y)
    resumed = AnnealedClassifier(max_iter=9, checkpoint=path, resume=True, **settings).fit(mapped(X), y)
    assert np.array_equal(resumed.coef_, whole.coef_)
    assert resumed.n_iter_ == 9


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number_is_found_by_row_and_column(mapped, wrong):
    X, y = table()
    X[2345, 4] = wrong
    with pytest.raises(InvalidInputError, match="row 2345, column 4"):
        AnnealedClassifier().fit(mapped(X), y)
    clf = AnnealedClassifier(max_iter=1).fit(*table())
    with pytest.raises(ValueError, match="X contains"):
        clf.predict(mapped(X))


def test_wrong_shapes_are_told(mapped):
    X, y = table()
    with pytest.raises(InvalidInputError, match="3000 rows and y 2999 labels"):
        AnnealedClassifier().fit(mapped(X), y[1:])
    with pytest.raises(InvalidInputError, match="expected 2D"):
        AnnealedClassifier().fit(mapped(X[:, None]), y)
    with pytest.raises(InvalidInputError, match="real numbers"):
        AnnealedClassifier().fit(mapped(X.astype(complex)), y)
    clf = AnnealedClassifier(max_iter=1).fit(mapped(X), y)
    with pytest.raises(ValueError, match="expecting 6 features"):
        clf.predict(mapped(X[:, :5]))


def test_selections_and_mapped_tables_stack():
    X, _ = table(100)
    positions = np.array([0, 7, 8, 50, 99])
    chosen = Selection(MappedTable(X, lambda rows: rows[:, :2] * 2, 2, np.float64), positions)
    assert chosen.shape == (5, 2)
    assert np.array_equal(chosen[1:4], X[[7, 8, 50], :2] * 2)
    assert chosen[5:9].shape == (0, 2)


def test_a_line_search_of_very_many_rows_asks_some_of_them(monkeypatch):
    """Which ones depends on nothing but their number; the step is nearly the same, and the loss decides as before."""
    X, y = table(n_rows=20_000)
    kept = LinearHead(InMemoryRows(X, y, 3), 1e-2)
    monkeypatch.setattr("annealfit.training.objectives.linear_head._ROWS_FOR_BENDS", 4000)
    spans = []
    for chunk_rows in (700, 5000):
        head = LinearHead(ChunkedRows(X, y, 3, chunk_rows=chunk_rows), 1e-2)
        assert head.rows_for_bends.total_weight == 5024  # every fourth 64 rows
        start = np.zeros((kept.n_parameters, 3))
        spans.append(head.at(start).span(-head.at(start).gradients).curvature_along())
    np.testing.assert_allclose(spans[0], spans[1], rtol=1e-12)
    exact = kept.at(start).span(-kept.at(start).gradients).curvature_along()
    np.testing.assert_allclose(spans[0], exact, atol=0.05 * exact.max())  # 1/√5024 is 0.014
    some = AnnealedClassifier(random_state=0).fit(Selection(X, np.arange(len(X))), y)
    assert some.stop_reason_ == "tolerance"
    losses = [row["loss"] for row in some.history_]
    assert (np.diff(losses) <= 0).all()
    assert losses[-1] == pytest.approx(AnnealedClassifier(random_state=0).fit(X, y).history_[-1]["loss"], rel=1e-4)


@pytest.mark.parametrize("n_features", [6, 120])
@pytest.mark.parametrize("weighted", [False, True])
def test_very_many_rows_in_memory_are_several_chunks(n_features, weighted, monkeypatch, tmp_path):
    """The training is that of one chunk up to rounding; a checkpoint of one goes on in the other."""
    X, y = table(n_rows=2000, n_features=n_features)
    weights = np.random.default_rng(1).random(len(y)) if weighted else None
    one = InMemoryRows(X, y, 3, weights)
    whole = AnnealedClassifier(random_state=0).fit(X, y, sample_weight=weights)
    monkeypatch.setattr("annealfit.data.rows.in_memory.MANY_ROWS", 2000)
    monkeypatch.setattr("annealfit.data.rows.tables.CHUNK_BYTES", 2**16)
    many = InMemoryRows(X, y, 3, weights)
    assert len(list(one.chunks())) == 1 < len(list(many.chunks()))
    assert many.digest() == one.digest()
    np.testing.assert_allclose(many.class_shares, one.class_shares, rtol=1e-13)
    parts = AnnealedClassifier(random_state=0).fit(X, y, sample_weight=weights)
    assert parts.n_iter_ == whole.n_iter_
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-8, atol=1e-10)
    path = tmp_path / "half.safetensors"
    AnnealedClassifier(random_state=0, max_iter=3, tol=0, checkpoint=path).fit(X, y, sample_weight=weights)
    resumed = AnnealedClassifier(random_state=0, max_iter=6, tol=0, checkpoint=path, resume=True)
    resumed.fit(X, y, sample_weight=weights)
    straight = AnnealedClassifier(random_state=0, max_iter=6, tol=0).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(resumed.coef_, straight.coef_)
