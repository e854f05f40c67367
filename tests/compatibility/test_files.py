"""Files written by earlier versions still load, and mean what they meant."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

from annealfit import AnnealedClassifier, AnnealedConvNet, load_dataset
from annealfit._support.files import READABLE_VERSIONS
from annealfit.models.image_classifier import ImageClassifier
from annealfit.samplers import LevelAnnealer, SimulatedAnnealer
from annealfit.studies.records import Store

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


def usual(folder):
    """The settings that a version had where none were given."""
    if folder.name != "files-0.1.0":
        then = {"coordinates": "centred", "acceptance": "second_direction", "range_policy": "relaxation"}
        return then | {"sampler": LevelAnnealer(num_sweeps=5)}
    then = {"coordinates": "raw", "acceptance": "line_search", "range_policy": "adaptive"}
    return then | {"curvature": "bound", "update_range": 0.1, "sampler": SimulatedAnnealer()}


def test_there_are_files_of_every_version():
    names = {"files-0.1.0"} | {f"files-version-{version}" for version in READABLE_VERSIONS[1:]}
    assert {folder.name for folder in FOLDERS} == names


def test_a_classifier_of_three_classes(folder, expected):
    clf = AnnealedClassifier.load(folder / "three-classes.safetensors")
    np.testing.assert_allclose(clf.predict_proba(load_iris(return_X_y=True)[0]), expected["three_classes"], **ROUNDING)
    assert clf.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert (clf.bits, clf.n_iter_, len(clf.history_)) == (2, 5, 5)
    names = ("coordinates", "acceptance", "range_policy")
    assert [getattr(clf, name) for name in names] == [usual(folder)[name] for name in names]


@pytest.mark.filterwarnings("ignore:sampler")
def test_a_classifier_of_two_classes(folder, expected):
    clf = AnnealedClassifier.load(folder / "two-classes.safetensors")
    X, y = load_iris(return_X_y=True)
    np.testing.assert_allclose(clf.predict_proba(X), expected["two_classes"], **ROUNDING)
    assert clf.score(X[y > 0], y[y > 0]) > 0.6


def test_a_checkpoint_is_resumed_where_it_stopped(folder, expected, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes((folder / "checkpoint.safetensors").read_bytes())
    clf = AnnealedClassifier(bits=2, random_state=1, tol=0.0, max_iter=10, checkpoint=path, resume=True)
    clf.set_params(**usual(folder))
    clf.fit(*load_iris(return_X_y=True))
    assert [row["iteration"] for row in clf.history_] == list(range(1, 11))
    if folder.name != "files-0.1.0":  # never released: since then bias, ranges and steps became others
        assert clf.history_[-1]["loss"] < clf.history_[4]["loss"]
    else:
        np.testing.assert_allclose(clf.coef_, expected["resumed"], **ROUNDING)


def test_a_network_and_its_checkpoint(folder, expected, tmp_path):
    if folder.name == "files-0.1.0":
        pytest.skip("0.1.0 knew no networks")
    net = AnnealedConvNet.load(folder / "network.safetensors")
    data = load_dataset("digits", seed=42)
    np.testing.assert_allclose(net.predict_proba(data.X_test), expected["network"], **ROUNDING)
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes((folder / "network-checkpoint.safetensors").read_bytes())
    net.set_params(checkpoint=path, resume=True, max_iter=10, sampler=usual(folder)["sampler"])
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
