"""Interrupted and resumed training equals uninterrupted training, bit for bit."""

import multiprocessing
import os
import signal
import time
from functools import partial

import numpy as np
import pytest
from estimators import annealed

from annealfit import AnnealedClassifier, Checkpoint, Method
from annealfit._support.errors import CheckpointError, FileFormatError, InvalidInputError
from annealfit.training import Decision

SETTINGS = [
    {"bits": 3},
    {"bits": 1, "regularization": 1e-5, "tol": 0.0},  # the loss decreases far: the curvature is computed several times
    {"bits": 5, "method": "literal"},
    {"bits": 2, "precision_policy": "adaptive", "range_policy": "adaptive", "acceptance": "line_search"},
]


def without_seconds(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


def assert_same(resumed, whole):
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)
    np.testing.assert_array_equal(resumed.intercept_, whole.intercept_)
    assert without_seconds(resumed.history_) == without_seconds(whole.history_)
    assert resumed.n_iter_ == whole.n_iter_


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("stop_at", [1, 7, 10, 19])
def test_stopped_and_resumed_is_uninterrupted(blobs, tmp_path, settings, stop_at):
    path = tmp_path / "c.safetensors"
    make = lambda **more: annealed(max_iter=20, random_state=5, **settings, **more)  # noqa: E731
    whole = make().fit(*blobs)
    stop = [lambda iteration: iteration.row["iteration"] == stop_at]
    make(checkpoint=Checkpoint(path, every=10), callbacks=stop).fit(*blobs)
    resumed = make(checkpoint=Checkpoint(path, resume=True)).fit(*blobs)
    assert_same(resumed, whole)


def test_a_finished_training_can_be_prolonged(blobs, tmp_path):
    path = tmp_path / "c.safetensors"
    whole = AnnealedClassifier(max_iter=15, random_state=5).fit(*blobs)
    AnnealedClassifier(max_iter=5, random_state=5, checkpoint=path).fit(*blobs)
    assert_same(
        AnnealedClassifier(max_iter=15, random_state=5, checkpoint=Checkpoint(path, resume=True)).fit(*blobs), whole
    )


def _train_endlessly(X, y, path):
    slow = [lambda iteration: time.sleep(0.01)]
    AnnealedClassifier(max_iter=100_000, random_state=5, callbacks=slow, checkpoint=Checkpoint(path, every=1)).fit(X, y)


def test_killed_without_warning_and_resumed(blobs, tmp_path):
    """SIGKILL at any moment leaves a complete checkpoint, because each replaces the last in one step."""
    path = tmp_path / "c.safetensors"
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_train_endlessly, args=(*blobs, path))
    process.start()
    deadline = time.monotonic() + 120
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    resumed = AnnealedClassifier(
        max_iter=10_000, random_state=5, callbacks=[lambda it: True], checkpoint=Checkpoint(path, resume=True)
    ).fit(*blobs)
    assert resumed.n_iter_ >= 2
    assert_same(resumed, AnnealedClassifier(max_iter=resumed.n_iter_, random_state=5).fit(*blobs))


def test_an_existing_checkpoint_is_not_overwritten(blobs, tmp_path):
    path = tmp_path / "c.safetensors"
    AnnealedClassifier(max_iter=2, random_state=5, checkpoint=path).fit(*blobs)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="resume=True"):
        AnnealedClassifier(max_iter=2, random_state=5, checkpoint=path).fit(*blobs)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"bits": 4}, "bits"),
        ({"random_state": 6}, "random_state"),
        ({"step": 0.5}, "step"),
        ({"arithmetic": "double"}, "arithmetic"),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(blobs, tmp_path, change, named):
    path = tmp_path / "c.safetensors"
    AnnealedClassifier(max_iter=2, random_state=5, checkpoint=path).fit(*blobs)
    with pytest.raises(CheckpointError, match=f"{named} differ"):
        annealed(max_iter=4, checkpoint=Checkpoint(path, resume=True), **{"random_state": 5, **change}).fit(*blobs)


def test_a_checkpoint_of_other_data_is_refused(blobs, tmp_path):
    X, y = blobs
    path = tmp_path / "c.safetensors"
    AnnealedClassifier(max_iter=2, random_state=5, checkpoint=path).fit(X, y)
    with pytest.raises(CheckpointError, match="training data differ"):
        AnnealedClassifier(max_iter=4, random_state=5, checkpoint=Checkpoint(path, resume=True)).fit(X + 1e-9, y)


def test_a_truncated_checkpoint_is_refused(blobs, tmp_path):
    path = tmp_path / "c.safetensors"
    AnnealedClassifier(max_iter=2, random_state=5, checkpoint=path).fit(*blobs)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(FileFormatError, match="cut short"):
        AnnealedClassifier(max_iter=4, random_state=5, checkpoint=Checkpoint(path, resume=True)).fit(*blobs)


def test_resume_needs_a_path(blobs):
    with pytest.raises(InvalidInputError, match="needs a checkpoint path"):
        AnnealedClassifier(checkpoint=Checkpoint(None, resume=True)).fit(*blobs)


def test_a_training_with_a_random_seed_can_be_resumed(blobs, tmp_path):
    path = tmp_path / "c.safetensors"
    AnnealedClassifier(max_iter=5, checkpoint=path, tol=0).fit(*blobs)
    resumed = AnnealedClassifier(max_iter=9, tol=0, checkpoint=Checkpoint(path, resume=True)).fit(*blobs)
    assert [row["iteration"] for row in resumed.history_] == list(range(1, 10))


@pytest.mark.parametrize("n_features", [6, 120])
def test_the_size_of_a_checkpoint_does_not_depend_on_the_data(tmp_path, n_features):
    """It holds weights, the state of the policies and the history; of the data it has a digest."""
    generator = np.random.default_rng(0)
    centres, sizes = generator.normal(size=(3, n_features)), []
    for count in (100, 10_000):
        y = np.arange(count) % 3
        X = generator.normal(size=(count, n_features)) + centres[y]
        path = tmp_path / f"{count}.safetensors"
        AnnealedClassifier(max_iter=5, tol=0, random_state=0, checkpoint=path).fit(X, y)
        sizes.append(path.stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 64  # numbers as text differ in length


# Policies of one's own


class Hidden:
    """An acceptance rule with its setting in a private attribute."""

    def __init__(self, step):
        self._step = step

    def __call__(self, proposal):
        chosen = proposal.energies < 0
        return Decision(
            chosen if proposal.after(chosen, self._step).loss < proposal.loss else ~chosen & chosen, self._step
        )

    def rule(self, proposal):
        return self(proposal)


def with_default(default):
    def rule(proposal, step=default):
        return Hidden(step)(proposal)

    return rule


def with_keyword_default(default):
    def rule(proposal, *, step=default):
        return Hidden(step)(proposal)

    return rule


def with_closure(step):
    return lambda proposal: Hidden(step)(proposal)


def nested(step):
    return partial(Hidden.__call__, Hidden(step))


@pytest.mark.parametrize(
    "make",
    [Hidden, lambda step: Hidden(step).rule, with_default, with_keyword_default, with_closure, nested],
    ids=["private attribute", "bound method", "default", "keyword default", "closure", "partial"],
)
def test_a_policy_that_differs_anywhere_is_another_training(blobs, tmp_path, make):
    path = tmp_path / "c.safetensors"
    AnnealedClassifier(max_iter=2, random_state=5, method=Method(acceptance=make(0.5)), checkpoint=path).fit(*blobs)
    again = {"max_iter": 3, "random_state": 5, "checkpoint": Checkpoint(path, resume=True)}
    with pytest.raises(CheckpointError, match="acceptance differ"):
        AnnealedClassifier(method=Method(acceptance=make(0.25)), **again).fit(*blobs)
    assert AnnealedClassifier(method=Method(acceptance=make(0.5)), **again).fit(*blobs).n_iter_ == 3


class WithSlots:
    """A rule whose attributes cannot be listed."""

    __slots__ = ("step",)

    def __call__(self, proposal):
        return Decision(proposal.energies < 0)


def test_a_policy_that_cannot_be_described_is_refused_with_a_checkpoint(blobs, tmp_path):
    method = Method(acceptance=WithSlots())
    with pytest.raises(InvalidInputError, match=r"WithSlots .*a method describe\(\)"):
        AnnealedClassifier(max_iter=2, method=method, checkpoint=tmp_path / "c.safetensors").fit(*blobs)
    assert AnnealedClassifier(max_iter=2, method=method).fit(*blobs).n_iter_ == 2
    deep = [1]
    for _ in range(12):
        deep = [deep]
    with pytest.raises(InvalidInputError, match="nested deeper than 8 levels"):
        AnnealedClassifier(method=Method(acceptance=Hidden(deep)), checkpoint=tmp_path / "d.safetensors").fit(*blobs)
    described = type("Described", (WithSlots,), {"describe": lambda self: {"step": 1}, "__slots__": ()})
    clf = AnnealedClassifier(max_iter=2, method=Method(acceptance=described()), checkpoint=tmp_path / "c.safetensors")
    assert clf.fit(*blobs).n_iter_ == 2
