"""Files of earlier versions are loaded, with the same predictions and settings."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

from annealfit import AnnealedClassifier, AnnealedConvNet, Checkpoint, Method, load_dataset
from annealfit._support.files import READABLE_VERSIONS
from annealfit.models.image_classifier import ImageClassifier
from annealfit.samplers import LevelAnnealer, SimulatedAnnealer
from annealfit.studies.records import Store
from annealfit.training.method import as_method

FOLDERS = sorted(Path(__file__).parent.glob("files-*"))
# Predictions are a few products and a softmax: only their last bits depend on the machine.
ROUNDING = {"rtol": 1e-9, "atol": 1e-12}


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request):
    return request.param


@pytest.fixture
def expected(folder):
    with np.load(folder / "expected.npz", allow_pickle=False) as stored:
        return dict(stored)


def default_method(folder):
    """The method that was the default of the version."""
    if folder.name != "files-0.1.0":
        return Method()
    return Method("bound", "raw", "line_search", "adaptive", update_range=0.1)


def default_sampler(folder):
    """The sampler that was the default of the version."""
    samplers = {"files-0.1.0": SimulatedAnnealer(), "files-version-4": LevelAnnealer(num_sweeps=3)}
    return samplers.get(folder.name, LevelAnnealer(num_sweeps=5))


def test_there_are_files_of_every_version():
    names = {"files-0.1.0"} | {f"files-version-{version}" for version in READABLE_VERSIONS[1:]}
    assert {folder.name for folder in FOLDERS} == names


def test_a_classifier_of_three_classes(folder, expected):
    clf = AnnealedClassifier.load(folder / "three-classes.safetensors")
    np.testing.assert_allclose(clf.predict_proba(load_iris(return_X_y=True)[0]), expected["three_classes"], **ROUNDING)
    assert clf.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert (clf.bits, clf.n_iter_, len(clf.history_)) == (2, 5, 5)
    names = ("coordinates", "acceptance", "range_policy", "curvature")
    method, expected = as_method(clf.method).resolved(), default_method(folder).resolved()
    assert [getattr(method, name) for name in names] == [getattr(expected, name) for name in names]


@pytest.mark.filterwarnings("ignore:sampler")
def test_a_classifier_of_two_classes(folder, expected):
    clf = AnnealedClassifier.load(folder / "two-classes.safetensors")
    X, y = load_iris(return_X_y=True)
    np.testing.assert_allclose(clf.predict_proba(X), expected["two_classes"], **ROUNDING)
    assert clf.score(X[y > 0], y[y > 0]) > 0.6


def test_a_checkpoint_is_resumed_where_it_stopped(folder, expected, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes((folder / "checkpoint.safetensors").read_bytes())
    clf = AnnealedClassifier(bits=2, random_state=1, tol=0.0, max_iter=10, checkpoint=Checkpoint(path, resume=True))
    clf.set_params(method=default_method(folder), sampler=default_sampler(folder))
    clf.fit(*load_iris(return_X_y=True))
    assert [row["iteration"] for row in clf.history_] == list(range(1, 11))
    if folder.name == "files-version-4":
        np.testing.assert_allclose(clf.coef_, expected["resumed"], **ROUNDING)
    elif folder.name == "files-0.1.0":  # the same course; multiples of a step have 16 bits today
        np.testing.assert_allclose(clf.coef_, expected["resumed"], rtol=1e-3, atol=1e-5)
    else:  # never released: since then bias, ranges and steps became others
        assert clf.history_[-1]["loss"] < clf.history_[4]["loss"]


def test_a_network_and_its_checkpoint(folder, expected, tmp_path):
    if folder.name == "files-0.1.0":
        pytest.skip("0.1.0 had no networks")
    net = AnnealedConvNet.load(folder / "network.safetensors")
    data = load_dataset("digits", seed=42)
    np.testing.assert_allclose(net.predict_proba(data.X_test), expected["network"], **ROUNDING)
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes((folder / "network-checkpoint.safetensors").read_bytes())
    net.set_params(checkpoint=path, checkpoint__resume=True, max_iter=10, sampler=default_sampler(folder))
    net.fit(data.X_train[:200], data.y_train[:200])
    assert [row["iteration"] for row in net.history_] == list(range(1, 11))


def test_an_image_classifier(folder, expected):
    model = ImageClassifier.load(folder / "images.safetensors")
    np.testing.assert_allclose(
        model.predict_proba(load_dataset("digits", seed=42).X_test), expected["images"], **ROUNDING
    )


def test_the_record_of_a_run(folder, expected):
    (record,) = Store(folder).records()
    assert record.loss == expected["record_loss"]
    assert record.spec.id == "digits-qubo_5-matched-seed42-265b2c9ac41d"
    assert len(record.history["loss"]) == 3
