"""Interrupted and resumed training equals uninterrupted training, bit for bit."""

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from annealfit import AnnealedClassifier
from annealfit._support.errors import CheckpointError, FileFormatError, InvalidInputError

SETTINGS = [
    {"bits": 3},
    {"bits": 1, "regularization": 1e-5, "tol": 0.0},  # the loss falls far: the curvature is worked out several times
    {
        "bits": 5,
        "curvature": "gram",
        "acceptance": "always",
        "range_policy": "fixed",
        "initialization": "uniform",
    },
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
    make = lambda **more: AnnealedClassifier(max_iter=20, random_state=5, **settings, **more)  # noqa: E731
    whole = make().fit(*blobs)
    make(checkpoint=path, checkpoint_every=10, callbacks=[lambda it: it.row["iteration"] == stop_at]).fit(*blobs)
    resumed = make(checkpoint=path, resume=True).fit(*blobs)
    assert_same(resumed, whole)


def test_a_finished_training_can_be_prolonged(blobs, tmp_path):
    path = tmp_path / "c.safetensors"
    whole = AnnealedClassifier(max_iter=15, random_state=5).fit(*blobs)
    AnnealedClassifier(max_iter=5, random_state=5, checkpoint=path).fit(*blobs)
    assert_same(AnnealedClassifier(max_iter=15, random_state=5, checkpoint=path, resume=True).fit(*blobs), whole)


def _train_for_ever(X, y, path):
    slow = [lambda iteration: time.sleep(0.01)]
    AnnealedClassifier(max_iter=100_000, random_state=5, checkpoint=path, checkpoint_every=1, callbacks=slow).fit(X, y)


def test_killed_without_warning_and_resumed(blobs, tmp_path):
    """SIGKILL at any moment leaves a whole checkpoint, because each replaces the last in one step."""
    path = tmp_path / "c.safetensors"
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_train_for_ever, args=(*blobs, path))
    process.start()
    deadline = time.monotonic() + 120
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    resumed = AnnealedClassifier(
        max_iter=10_000,
        random_state=5,
        checkpoint=path,
        resume=True,
        callbacks=[lambda it: True],  # one more iteration
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
    [({"bits": 4}, "bits"), ({"random_state": 6}, "random_state"), ({"step": 0.5}, "step")],
)
def test_a_checkpoint_of_other_settings_is_refused(blobs, tmp_path, change, named):
    path = tmp_path / "c.safetensors"
    AnnealedClassifier(max_iter=2, random_state=5, checkpoint=path).fit(*blobs)
    with pytest.raises(CheckpointError, match=f"{named} differ"):
        AnnealedClassifier(max_iter=4, checkpoint=path, resume=True, **{"random_state": 5, **change}).fit(*blobs)


def test_a_checkpoint_of_other_data_is_refused(blobs, tmp_path):
    X, y = blobs
    path = tmp_path / "c.safetensors"
    AnnealedClassifier(max_iter=2, random_state=5, checkpoint=path).fit(X, y)
    with pytest.raises(CheckpointError, match="training data differ"):
        AnnealedClassifier(max_iter=4, random_state=5, checkpoint=path, resume=True).fit(X + 1e-9, y)


def test_a_truncated_checkpoint_is_refused(blobs, tmp_path):
    path = tmp_path / "c.safetensors"
    AnnealedClassifier(max_iter=2, random_state=5, checkpoint=path).fit(*blobs)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(FileFormatError, match="cut short"):
        AnnealedClassifier(max_iter=4, random_state=5, checkpoint=path, resume=True).fit(*blobs)


def test_resume_needs_a_path(blobs):
    with pytest.raises(InvalidInputError, match="needs a checkpoint path"):
        AnnealedClassifier(resume=True).fit(*blobs)


def test_a_training_whose_seed_was_drawn_afresh_can_be_resumed(blobs, tmp_path):
    path = tmp_path / "c.safetensors"
    AnnealedClassifier(max_iter=5, checkpoint=path, tol=0).fit(*blobs)
    resumed = AnnealedClassifier(max_iter=9, checkpoint=path, resume=True, tol=0).fit(*blobs)
    assert [row["iteration"] for row in resumed.history_] == list(range(1, 10))
