from functools import partial

import numpy as np
import pytest

from annealfit.studies import execute
from annealfit.studies.execute import run_all
from annealfit.studies.records import Record, RunSpec, Store

SPECS = [
    RunSpec("digits", "classical", 1),
    RunSpec("digits", "optimum", 1),
    RunSpec("digits", "qubo", 1, "annealfit", 2, max_iter=10),
    RunSpec("digits", "qubo", 2, "matched", 5, max_iter=5),
]


def in_turn(specs):
    return (execute.execute(spec) for spec in specs)


def contents(store):
    """All that a record says except how long things took."""
    found = {}
    for record in store.records():
        history = {name: column.tolist() for name, column in record.history.items() if name != "seconds"}
        probabilities = record.sample_probabilities.tolist()
        found[record.spec.id] = (record.error, record.loss, record.train, record.test, history, probabilities)
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("undisturbed"))
    outcome = run_all(SPECS, store, in_turn)
    assert (outcome.already, outcome.done, outcome.failed) == (0, 4, 0)
    return contents(store)


def test_records_do_not_depend_on_the_number_of_workers(tmp_path, undisturbed):
    run_all(SPECS, Store(tmp_path), partial(execute.on_this_machine, n_jobs=2))
    assert contents(Store(tmp_path)) == undisturbed


def test_published_images_have_the_published_filters_and_one_split_of_digits():
    first, second = (
        execute.execute(RunSpec("digits", "qubo", seed, "annealfit", 2, max_iter=3, images="published"))
        for seed in (1, 2)
    )
    np.testing.assert_array_equal(first.sample_images, second.sample_images)
    specs = [RunSpec("digits", "classical", seed, images="published") for seed in (1, 2)]
    features = [execute._prepare(spec).features for spec in specs]
    np.testing.assert_array_equal(*(found.filters_[0] for found in features))
    assert first.loss != second.loss  # the seed still decides the initial weights


def test_what_is_done_is_not_done_again(tmp_path):
    store = Store(tmp_path)
    run_all(SPECS[:2], store, in_turn)
    asked = []
    outcome = run_all(SPECS, store, lambda specs: (asked.append(spec) or execute.execute(spec) for spec in specs))
    assert set(asked) == set(SPECS[2:])
    assert (outcome.already, outcome.done) == (2, 2)


def test_a_failed_run_is_recorded_and_the_others_go_on_and_it_is_tried_again(tmp_path, monkeypatch):
    store = Store(tmp_path)
    broken = RunSpec("digits", "qubo", 1, "matched", 99)
    outcome = run_all([broken, SPECS[1]], store, in_turn)
    assert (outcome.done, outcome.failed) == (1, 1)
    assert "at most 30" in store.records([broken])[0].error
    assert not store.is_done(broken)
    assert store.is_done(SPECS[1])


def test_a_damaged_record_is_as_good_as_none(tmp_path, undisturbed):
    store = Store(tmp_path)
    run_all(SPECS[:1], store, in_turn)
    path = store.path(SPECS[0])
    path.write_bytes(path.read_bytes()[:-7])
    assert not store.is_done(SPECS[0])
    run_all(SPECS[:1], store, in_turn)
    assert contents(store) == {SPECS[0].id: undisturbed[SPECS[0].id]}


def test_a_record_says_what_the_tables_need(tmp_path):
    store = Store(tmp_path)
    run_all(SPECS[2:3], store, in_turn)
    (record,) = store.records(SPECS[2:3])
    assert isinstance(record, Record)
    assert record.confusion.sum() == 540
    np.testing.assert_allclose(record.recall.mean(), record.test["recall"], rtol=1e-12)
    assert record.sample_images.shape == (10, 8, 8)
    assert record.sample_labels.tolist() == list(range(10))
    np.testing.assert_allclose(record.sample_probabilities.sum(axis=1), 1, rtol=1e-12)
    assert (
        len(record.history["loss"]) == len(record.history["accuracy"]) <= 10
    )  # fewer where it was certified to be done
    assert record.class_names == tuple("0123456789")
