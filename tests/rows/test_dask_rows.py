"""Dask arrays in threads of this process, and on a cluster of two workers, one of which is killed."""

import os
import pickle
import signal

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from annealfit import AnnealedClassifier, Checkpoint
from annealfit._support.errors import ClusterError, InvalidInputError
from annealfit.data.rows import DaskRows, InMemoryRows
from annealfit.data.rows.on_dask import current_client
from annealfit.training.objectives import LinearHead


def table(n_rows=6000, n_features=6, n_classes=3):
    generator = np.random.default_rng(0)
    X = generator.standard_normal((n_rows, n_features)) + 1.0
    logits = X @ generator.standard_normal((n_features, n_classes))
    return X, (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)


X, Y = table()


def lazy(rows=X, labels=Y, chunks=1400):
    return da.from_array(rows, chunks=(chunks, 4)), da.from_array(labels, chunks=1100)


@pytest.fixture(scope="module")
def here():
    return AnnealedClassifier(random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made, Client(made) as client:
        yield client


@pytest.fixture(scope="module")
def in_threads():
    assert current_client() is None
    return AnnealedClassifier(random_state=0).fit(*lazy())


def test_a_training_in_threads_is_that_of_the_array(here, in_threads):
    assert in_threads.n_iter_ == here.n_iter_
    np.testing.assert_allclose(in_threads.coef_, here.coef_, rtol=1e-8)


def test_without_a_cluster_blocks_are_computed_at_every_pass():
    made = []

    def block(rows):
        made.append(len(rows))
        return rows

    source = lazy()[0].rechunk((700, 6)).map_blocks(block, dtype=float, meta=np.empty((0, 6)))
    rows = DaskRows(source, Y)
    before = len(made)
    rows.sum(lambda chunk: (chunk.moments(np.ones((1, len(chunk.labels)))),))
    assert made[before:] == pytest.approx([700] * 9, abs=301)  # the last one has 400 rows


def test_sample_weights_class_weights_and_labels_of_any_type():
    weights = np.random.default_rng(1).random(len(Y))
    names = np.array(["a", "b", "c"])[Y]
    settings = {"max_iter": 8, "tol": 0, "class_weight": "balanced", "random_state": 0}
    expected = AnnealedClassifier(**settings).fit(X, names, weights)
    found = AnnealedClassifier(**settings).fit(*lazy(labels=names), da.from_array(weights, chunks=1000))
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-8)
    assert found.classes_.tolist() == ["a", "b", "c"]
    in_memory = AnnealedClassifier(**settings).fit(lazy()[0], names, weights)  # labels and weights may be arrays
    np.testing.assert_allclose(in_memory.coef_, expected.coef_, rtol=1e-8)


def test_validation_data():
    settings = {"max_iter": 6, "tol": 0, "random_state": 0}
    expected = AnnealedClassifier(**settings).fit(X[1000:], Y[1000:], validation_data=(X[:1000], Y[:1000]))
    rows, labels = lazy()
    found = AnnealedClassifier(**settings).fit(rows[1000:], labels[1000:], validation_data=(rows[:1000], labels[:1000]))
    assert found.history_[-1]["validation_loss"] == pytest.approx(expected.history_[-1]["validation_loss"])


def test_predictions_are_lazy(here):
    rows, labels = lazy()
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        found = getattr(here, method)(rows)
        assert isinstance(found, da.Array)
        expected = getattr(here, method)(X)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.compute(), expected, rtol=1e-12)
    assert here.score(rows, labels) == here.score(X, Y)


def test_a_training_is_resumed_to_the_last_bit(tmp_path):
    settings = {"tol": 0.0, "random_state": 0}
    whole = AnnealedClassifier(max_iter=6, **settings).fit(*lazy())
    AnnealedClassifier(max_iter=3, checkpoint=Checkpoint(tmp_path / "c", every=2), **settings).fit(*lazy())
    resumed = AnnealedClassifier(max_iter=6, checkpoint=Checkpoint(tmp_path / "c", resume=True), **settings).fit(
        *lazy()
    )
    assert np.array_equal(resumed.coef_, whole.coef_)


def test_a_training_on_a_cluster_is_that_in_threads_to_the_last_bit(here, in_threads, cluster):
    assert current_client() is not None
    there = AnnealedClassifier(random_state=0).fit(*lazy())
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-8)
    assert np.array_equal(there.coef_, in_threads.coef_)


def test_terms_that_are_sent_are_small_and_rows_are_not_sent(cluster, monkeypatch):
    """A term holds weights of 3 · 7 numbers a few times; the rows are hundreds of kilobytes."""
    sizes = []
    of_rows = DaskRows.sum

    def measured(self, term):
        sizes.append(len(cloudpickle.dumps(term)))
        return of_rows(self, term)

    monkeypatch.setattr(DaskRows, "sum", measured)
    rows = DaskRows(*lazy())
    AnnealedClassifier(max_iter=3, tol=0, random_state=0).fit(rows)
    assert len(sizes) > 6
    assert max(sizes) < 10_000 < X.nbytes / 20
    with pytest.raises(InvalidInputError, match="cannot be sent"):
        pickle.dumps(rows)


def test_a_killed_worker_does_not_change_the_result(in_threads, cluster):
    victim = next(iter(cluster.run(os.getpid).values()))

    def kill(iteration):
        if iteration.row["iteration"] == 3:
            os.kill(victim, signal.SIGKILL)

    there = AnnealedClassifier(random_state=0, callbacks=[kill]).fit(*lazy())
    assert there.n_iter_ > 3
    assert np.array_equal(there.coef_, in_threads.coef_)
    with pytest.raises(ProcessLookupError):
        os.kill(victim, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((lazy()[0], None), "y to be passed"),
        ((lazy()[0], Y[1:]), r"y has shape \(5999,\); expected \(6000,\)"),
        ((lazy()[0][lazy()[0][:, 0] > 0], Y), "compute_chunk_sizes"),
        ((lazy()[0][:, 0], Y), "expected 2D"),
        ((lazy(np.where(X > 3.9, np.nan, X))[0], Y), "NaN or infinity"),
        ((lazy()[0], np.zeros(6000, int)), "one class only"),
        ((lazy()[0], Y, -np.ones(6000)), "at least 0"),
        ((lazy()[0], Y, np.ones(6000) + 1j), "real numbers"),
        ((lazy()[0], Y, np.where(Y == 1, np.inf, 1.0)), "finite"),
        ((lazy()[0], np.where(Y == 1, np.inf, 0.0)), "hold inf"),
        ((lazy()[0], Y + 0j), "complex"),
        ((lazy()[0], np.where(Y == 1, None, Y.astype(object))), "types NoneType, int"),
        ((lazy()[0], np.where(Y == 1, "a", Y.astype(object))), "types int, str"),
    ],
)
def test_arrays_that_cannot_be_trained_on_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message), dask.config.set(scheduler="synchronous"):
        AnnealedClassifier().fit(*arguments)


@pytest.mark.parametrize("gone", ["client", "scheduler", "workers"])
def test_a_cluster_that_goes_away_ends_the_training_with_an_error(gone):
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as made, Client(made) as client:

        def leave(iteration):
            if gone == "workers":
                made.sync(made.workers[0].close)
            else:
                {"client": client, "scheduler": made}[gone].close()

        expected = "no workers for 0 seconds|without any running" if gone == "workers" else "client was closed"
        with (
            dask.config.set({"distributed.scheduler.no-workers-timeout": 0}),
            pytest.raises(ClusterError, match=expected),
        ):
            AnnealedClassifier(random_state=0, tol=0, callbacks=[leave]).fit(*lazy())


@pytest.mark.parametrize("weighted", [False, True])
def test_the_thinned_rows_of_a_line_search_are_those_of_the_array(weighted, monkeypatch):
    monkeypatch.setattr("annealfit.training.objectives.linear_head.LINE_SEARCH_ROWS", 1000)
    weights = np.random.default_rng(0).random(len(Y)) if weighted else None
    updates = np.random.default_rng(1).standard_normal((3, 7))
    heads = [LinearHead(rows, 1e-2) for rows in (DaskRows(*lazy(), weights), InMemoryRows(X, Y, 3, weights))]
    found, expected = (head.at(np.zeros((7, 3))).curvature_along(updates[None]) for head in heads)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_sample_is_that_of_the_array():
    weights = np.random.default_rng(0).random(len(Y))
    found, expected = (rows.sample(500) for rows in (DaskRows(*lazy(), weights), InMemoryRows(X, Y, 3, weights)))
    assert found.digest() == expected.digest()
