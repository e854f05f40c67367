"""Streamed rows: the sums of rows in memory, never all rows at once, and every kind of table."""

import os
import tracemalloc

import h5py
import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.linear_model import LogisticRegression

from annealfit import AnnealedClassifier, Checkpoint
from annealfit._support.errors import InvalidInputError
from annealfit.data.rows import ChunkedRows, InMemoryRows, MappedTable, NpyTable, Selection, is_out_of_core
from annealfit.training.objectives import LinearHead, softmax


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


def heads(n_classes, weighted, chunk_rows=700, n_features=6):
    X, y = table(n_classes=n_classes, n_features=n_features)
    weights = np.random.default_rng(1).random(len(y)) if weighted else None
    in_memory = InMemoryRows(X, y, n_classes, weights)
    streamed = ChunkedRows(X, y, n_classes, weights, chunk_rows=chunk_rows)
    return LinearHead(in_memory, 1e-2), LinearHead(streamed, 1e-2)


@pytest.mark.parametrize("n_features", [6, 120])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_sum_is_that_of_rows_in_memory(n_classes, weighted, n_features):
    """Up to the rounding of sums in another order."""
    kept, streamed = heads(n_classes, weighted, n_features=n_features)
    assert kept.rows.is_single == streamed.rows.is_single == (n_features >= 100)
    generator = np.random.default_rng(2)
    weights, before = 0.1 * generator.standard_normal((2, kept.n_parameters, kept.n_outputs))
    here, there = kept.at(weights), streamed.at(weights)
    assert there.loss == pytest.approx(here.loss, rel=1e-13)
    assert there.exact_loss == pytest.approx(here.exact_loss, rel=1e-13)
    assert there.accuracy == pytest.approx(here.accuracy, rel=1e-13)
    np.testing.assert_allclose(there.gradients, here.gradients, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(there.output_grams(), here.output_grams(), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(streamed.gram, kept.gram, rtol=1e-12)
    np.testing.assert_allclose(streamed.feature_means, kept.feature_means, rtol=1e-12)
    np.testing.assert_allclose(streamed.rows.class_shares, kept.rows.class_shares, rtol=1e-12)
    updates = generator.standard_normal((kept.n_outputs, kept.n_parameters))
    directions = np.stack([updates, here.step_from(before)])
    found = [point.curvature_along(directions, before) for point in (here, there)]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-11, atol=1e-13 * found[0].max())
    assert there.moved(updates).loss == pytest.approx(here.moved(updates).loss, rel=1e-12)


def test_the_gradient_is_that_of_the_loss():
    _, head = heads(3, weighted=True)
    shape = (head.n_parameters, head.n_outputs)

    def loss(flat):
        return head.at(flat.reshape(shape)).loss

    def slope(flat):
        return head.at(flat.reshape(shape)).gradients.T.ravel()

    assert check_grad(loss, slope, np.full(shape[0] * shape[1], 0.1)) < 1e-6


def test_the_bound_holds_and_is_tight_at_the_optimum():
    """Streamed rows have a certificate of a few passes; at the optimum it is the loss."""
    X, y = table()
    head = LinearHead(ChunkedRows(X, y, 3, chunk_rows=900), 1e-2)
    best = LogisticRegression(C=1 / (1e-2 * len(y)), tol=1e-10, max_iter=1000).fit(X, y)
    point = head.at(np.vstack([best.coef_.T, best.intercept_]))
    assert point.loss - 1e-8 < point.lower_bound() <= point.loss + 1e-12
    away = head.at(np.random.default_rng(0).standard_normal((7, 3)))
    assert away.lower_bound() <= point.loss


def test_tables_in_single_precision_are_not_converted_as_a_whole():
    X, y = table(20_000, n_features=120)
    rows = ChunkedRows(X.astype(np.float32), y, 3, chunk_rows=3000)
    chunk = next(iter(rows.chunks()))
    assert chunk.features.dtype == np.float32
    sums = chunk.project(np.zeros((121, 3))), chunk.moments(np.ones((1, 3000))), chunk.gram()
    assert {array.dtype for array in sums} == {np.dtype(np.float64)}


def test_a_training_is_the_same_at_every_run(mapped):
    X, y = table()
    one, two = (AnnealedClassifier(random_state=0).fit(mapped(X), y) for _ in range(2))
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_validation_sample_weights_and_class_weights_are_as_in_memory(mapped):
    X, y = table()
    weights = np.random.default_rng(3).integers(0, 3, len(y)).astype(float)
    settings = {"max_iter": 10, "validation_fraction": 0.2, "class_weight": "balanced", "random_state": 0}
    here = AnnealedClassifier(**settings).fit(X, y, weights)
    there = AnnealedClassifier(**settings).fit(mapped(X), y, weights)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-8)
    assert there.history_[-1]["validation_accuracy"] == pytest.approx(here.history_[-1]["validation_accuracy"])


def test_labels_of_any_type_with_two_classes(mapped):
    X, y = table(n_classes=2)
    names = np.array(["no", "yes"])[y]
    clf = AnnealedClassifier(max_iter=5, random_state=0).fit(mapped(X), names)
    assert clf.coef_.shape == (1, 6)
    assert clf.score(mapped(X), names) == clf.score(X, names) > 0.7


def test_predictions_of_chunks_are_those_of_the_array(mapped, monkeypatch):
    monkeypatch.setattr("annealfit.data.rows.rows.CHUNK_BYTES", 64)
    X, y = table()
    clf = AnnealedClassifier(max_iter=5, random_state=0).fit(X, y)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        np.testing.assert_allclose(getattr(clf, method)(mapped(X)), getattr(clf, method)(X), rtol=1e-12)


def test_a_training_on_an_hdf5_file(tmp_path):
    X, y = table()
    with h5py.File(tmp_path / "table.h5", "w") as file:
        data = file.create_dataset("features", data=X, chunks=(100, 3), compression="gzip")
        assert is_out_of_core(data)
        there = AnnealedClassifier(max_iter=5, random_state=0).fit(data, file.create_dataset("labels", data=y))
        here = AnnealedClassifier(max_iter=5, random_state=0).fit(X, y)
        np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-8)
        assert np.array_equal(there.predict(data), here.predict(X))


def test_a_training_on_any_object_with_a_shape_and_row_slices():
    X, y = table()
    read = []

    class Table:
        shape, dtype = X.shape, X.dtype

        def __getitem__(self, rows):
            assert isinstance(rows, slice)
            read.append(rows.stop - rows.start)
            return X[rows].tolist()

    AnnealedClassifier(max_iter=2, random_state=0).fit(Table(), y)
    assert len(read) > 4


def test_a_memory_map_is_never_in_memory_as_a_whole(mapped):
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
    assert peak < 0.6 * size  # of 64 MB: chunks, labels, and their positions


def test_views_of_a_memory_map_are_recognised(mapped):
    file = mapped(np.zeros((4, 2)))
    assert is_out_of_core(file)
    assert is_out_of_core(file[1:])
    assert is_out_of_core(np.asarray(file))
    assert not is_out_of_core(np.array(file))
    assert not is_out_of_core(file[[0, 1]])
    assert not is_out_of_core([[1.0]])


def test_a_training_is_resumed_to_the_last_bit(mapped, tmp_path):
    X, y = table()
    settings = {"tol": 0.0, "random_state": 0}
    whole = AnnealedClassifier(max_iter=9, **settings).fit(mapped(X), y)
    path = tmp_path / "checkpoint"
    AnnealedClassifier(max_iter=5, checkpoint=Checkpoint(path, every=2), **settings).fit(mapped(X), y)
    resumed = AnnealedClassifier(max_iter=9, checkpoint=Checkpoint(path, resume=True), **settings).fit(mapped(X), y)
    assert np.array_equal(resumed.coef_, whole.coef_)
    assert resumed.n_iter_ == 9


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_nan_and_infinity_are_reported_by_row_and_column(mapped, wrong):
    X, y = table()
    X[2345, 4] = wrong
    with pytest.raises(InvalidInputError, match="row 2345, column 4"):
        AnnealedClassifier().fit(mapped(X), y)
    clf = AnnealedClassifier(max_iter=1).fit(*table())
    with pytest.raises(ValueError, match="X contains"):
        clf.predict(mapped(X))


def test_wrong_shapes_are_refused(mapped):
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


def test_selections_of_mapped_tables():
    X, _ = table(100)
    positions = np.array([0, 7, 8, 50, 99])
    chosen = Selection(MappedTable(X, lambda rows: rows[:, :2] * 2, 2, np.float64), positions)
    assert chosen.shape == (5, 2)
    assert np.array_equal(chosen[1:4], X[[7, 8, 50], :2] * 2)
    assert chosen[5:9].shape == (0, 2)


KINDS = {
    "memory": InMemoryRows,
    "chunks of 700": lambda *given: ChunkedRows(*given, chunk_rows=700),
    "chunks of 5000": lambda *given: ChunkedRows(*given, chunk_rows=5000),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_features", [6, 120])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_line_search_of_very_many_rows_uses_groups_of_64_at_fixed_positions(
    kind, n_features, weighted, monkeypatch
):
    X, y = table(20_000, n_features)
    weights = np.random.default_rng(1).uniform(0.5, 2, len(y)) if weighted else None
    monkeypatch.setattr("annealfit.training.objectives.linear_head.LINE_SEARCH_ROWS", 4000)
    chosen = np.flatnonzero(np.arange(len(y)) // 64 % 4 == 0)
    head = LinearHead(KINDS[kind](X, y, 3, weights), 1e-2)
    generator = np.random.default_rng(3)
    start, updates = (
        0.1 * generator.standard_normal((n_features + 1, 3)),
        generator.standard_normal((3, n_features + 1)),
    )
    found = head.at(start).curvature_along(updates[None])
    # Σ_n a_n zᵀ(diag π_n − π_nπ_nᵀ)z / Σ_n a_n + Λ over the chosen rows, in NumPy.
    augmented = np.column_stack([X, np.ones(len(X))])[chosen]
    own = np.ones(len(chosen)) if weights is None else weights[chosen]
    probabilities, changes = softmax((augmented @ start).T), updates @ augmented.T
    shares = probabilities * changes
    expected = (np.diag((own * shares * changes).sum(axis=1)) - (own * shares) @ shares.T) / own.sum()
    expected += np.diag((head.ridge * updates**2).sum(axis=1))
    # From 100 features on, outputs are computed in single precision.
    np.testing.assert_allclose(found, expected, rtol=1e-11 if n_features < 100 else 1e-5, atol=1e-12)


def test_a_training_with_a_thinned_line_search_converges(monkeypatch):
    X, y = table(20_000)
    expected = AnnealedClassifier(random_state=0).fit(X, y).history_[-1]["loss"]
    monkeypatch.setattr("annealfit.training.objectives.linear_head.LINE_SEARCH_ROWS", 4000)
    some = AnnealedClassifier(random_state=0).fit(Selection(X, np.arange(len(X))), y)
    assert some.stop_reason_ == "tolerance"
    losses = [row["loss"] for row in some.history_]
    assert (np.diff(losses) <= 0).all()
    assert losses[-1] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("n_features", [6, 120])
def test_a_checkpoint_of_an_array_is_resumed_with_a_memory_map_of_it(n_features, mapped, tmp_path):
    X, y = table(2000, n_features)
    path = tmp_path / "half.safetensors"
    settings = {"random_state": 0, "tol": 0}
    AnnealedClassifier(max_iter=3, checkpoint=path, **settings).fit(X, y)
    resumed = AnnealedClassifier(max_iter=6, checkpoint=Checkpoint(path, resume=True), **settings).fit(mapped(X), y)
    straight = AnnealedClassifier(max_iter=6, **settings).fit(X, y)
    np.testing.assert_allclose(resumed.coef_, straight.coef_, rtol=1e-9)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_file_that_becomes_shorter_ends_the_training_with_an_error(tmp_path, wrapped):
    """Reading beyond the end of a mapped file would kill the process."""
    path = tmp_path / "X.npy"
    np.save(path, np.random.default_rng(0).normal(size=(1000, 20)))
    table, labels = np.load(path, mmap_mode="r"), np.arange(1000) % 2
    shorten = [lambda iteration: os.truncate(path, 4096)]
    with pytest.raises(InvalidInputError, match=r"X\.npy became shorter"):
        AnnealedClassifier(random_state=0, tol=0, callbacks=shorten).fit(NpyTable(path) if wrapped else table, labels)
