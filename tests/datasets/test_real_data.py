"""The data sets themselves, where they are: ANNEALFIT_DATA, or a folder shared/data beside the repository."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from annealfit import load_dataset
from annealfit.data.datasets import DATASETS, DataWarning, is_available

SHARED = Path(__file__).parents[3] / "shared" / "data"
DIRECTORY = os.environ.get("ANNEALFIT_DATA") or (str(SHARED) if SHARED.is_dir() else None)


def load(name, **options):
    if DIRECTORY is None or not is_available(name, DIRECTORY):
        pytest.skip(f"{name} is not there: set ANNEALFIT_DATA, or run `annealfit datasets fetch {name}`")
    return load_dataset(name, data_dir=DIRECTORY, **options)


NAMES = sorted(set(DATASETS) - {"digits"})


@pytest.mark.filterwarnings("ignore::annealfit.data.datasets.DataWarning")
@pytest.mark.parametrize("name", NAMES)
def test_subsets_of_the_paper(name):
    data = load(name, seed=7)
    assert data.X_train.shape == (1000, 8, 8)
    assert data.X_test.shape == (500, 8, 8)
    assert data.X_train.min() >= 0
    assert 0.9 < data.X_train.max() <= 1
    assert np.bincount(data.y_train).tolist() == [100] * 10
    assert np.bincount(data.y_test).tolist() == [50] * 10
    assert len(data.class_names) == 10
    other = load(name, seed=8)
    assert not np.array_equal(data.X_train, other.X_train)


@pytest.mark.filterwarnings("ignore::annealfit.data.datasets.DataWarning")
@pytest.mark.parametrize("name", ["emnist", "kmnist", "mnist"])
def test_no_image_is_in_both_parts(name):
    data = load(name, n_train="all", n_test="all", size=None)
    train = {image.tobytes() for image in data.X_train}
    assert not any(image.tobytes() in train for image in data.X_test)


@pytest.mark.parametrize("name", ["fashion_mnist", "kmnist", "mnist"])
def test_official_files_are_known_as_such(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        data = load(name, n_train="all", n_test="all", size=1)
    assert (len(data.y_train), len(data.y_test)) == (60_000, 10_000)


@pytest.mark.parametrize("name", ["cifar10", "emnist"])
def test_one_warning_where_files_cannot_be_confirmed(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load(name)
        load(name)  # from memory, and still not official
    messages = [str(warning.message) for warning in caught if warning.category is DataWarning]
    if not messages:
        pytest.skip(f"{name} is complete and official here")
    assert len(messages) == 2
    assert messages[0] == messages[1]
    assert f"datasets fetch {name}" in messages[0]
    assert {Path(warning.filename).name for warning in caught} == {Path(__file__).name}  # it points at the caller


@pytest.mark.filterwarnings("ignore::annealfit.data.datasets.DataWarning")
def test_letters_stand_upright():
    data = load("emnist", n_train="all", size=None)
    means = {name: data.X_train[data.y_train == index].mean(axis=0) for index, name in enumerate(data.class_names)}
    down, right = np.mgrid[:28, :28] - 13.5
    moments = {
        name: [float((mean * m).sum() / mean.sum()) for m in (down, right, down**2, right**2)]
        for name, mean in means.items()
    }
    # Three facts that no reflection or quarter turn of the alphabet shares.
    assert moments["I"][2] > 2 * moments["I"][3]  # I is tall, not wide
    assert moments["C"][1] < 0  # C has its back on the left
    assert moments["F"][0] < 0  # F has its bars at the top


@pytest.mark.filterwarnings("ignore::annealfit.data.datasets.DataWarning")
def test_photographs_have_their_colours():
    data = load("cifar10", n_train="all", size=None, color=True)
    assert data.X_train.shape[1:] == (32, 32, 3)
    ship, frog = (
        data.X_train[data.y_train == data.class_names.index(name)].mean(axis=(0, 1, 2)) for name in ("ship", "frog")
    )
    assert ship[2] > ship[0]  # water and sky are blue
    assert frog[2] < min(frog[0], frog[1])  # grass and earth are not
    grey = load("cifar10", n_train="all", size=None)
    np.testing.assert_allclose(grey.X_train, data.X_train @ [0.299, 0.587, 0.114])
    with pytest.raises(ValueError, match="no colour"):
        load("mnist", color=True)
