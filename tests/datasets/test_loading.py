import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from annealfit import load_dataset
from annealfit._support.errors import InvalidInputError
from annealfit.data.datasets import DATASETS, CorruptFileError, DataWarning, MissingDataError
from annealfit.data.datasets.unpacking import PACKINGS


def test_digits_split_of_the_paper():
    data = load_dataset("digits", seed=42)
    assert data.X_train.shape == (1000, 8, 8)
    assert data.X_test.shape == (540, 8, 8)
    assert data.class_names == tuple("0123456789")
    assert data.X_train.min() == 0
    assert data.X_train.max() == 1
    for labels, size in ((data.y_train, 1000), (data.y_test, 540)):
        shares = np.bincount(labels, minlength=10) / size
        assert np.abs(shares - 0.1).max() < 0.01  # stratified: as in the whole set


def test_train_and_test_do_not_overlap_and_the_seed_decides():
    data, again, other = (load_dataset("digits", seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(data.X_train, again.X_train)
    assert not np.array_equal(data.y_train, other.y_train)
    images = {image.tobytes() for image in data.X_train}
    assert not images & {image.tobytes() for image in data.X_test}


@pytest.mark.parametrize("sizes", [{"n_train": 5}, {"n_test": 0}, {"n_train": 1500}])
def test_sizes_that_do_not_fit(sizes):
    with pytest.raises(InvalidInputError, match="at least 10, .* at most the 1797"):
        load_dataset("digits", **sizes)


def test_an_unknown_name_lists_the_known():
    with pytest.raises(InvalidInputError, match="'digits'"):
        load_dataset("imagenet")


def test_digits_are_those_the_published_results_were_made_with():
    digits = load_digits()
    expected = train_test_split(
        digits.images / 16.0, digits.target, train_size=1000, test_size=540, stratify=digits.target, random_state=42
    )
    data = load_dataset("digits", seed=42)
    for found, wanted in zip((data.X_train, data.X_test, data.y_train, data.y_test), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)  # bit for bit
        assert found.dtype == wanted.dtype


def test_digits_in_another_size():
    data, small = load_dataset("digits"), load_dataset("digits", size=4)
    np.testing.assert_allclose(small.X_test, data.X_test.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)))
    assert load_dataset("digits", size=11, resize="lanczos").X_test.max() <= 1  # overshoot is cut off
    np.testing.assert_array_equal(load_dataset("digits", size=None).X_test, data.X_test)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"size": 0}, "size is 0.*None for the native size"),
        ({"resize": "cubic"}, "resize is 'cubic'; choose one of 'area'"),
        ({"n_train": "most"}, "n_train is 'most'.*\"all\""),
        ({"color": True}, "digits has no colour"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(InvalidInputError, match=message):
        load_dataset("digits", **options)


@pytest.mark.parametrize("name", ["", None, 3])
def test_what_is_no_name_at_all(name):
    with pytest.raises(InvalidInputError, match="'digits'"):
        load_dataset(name)


def test_files_that_changed_are_read_again(tmp_path):
    write_mnist(tmp_path, white=100)
    options = {"data_dir": tmp_path, "n_train": 10, "n_test": 10}
    with pytest.warns(DataWarning, match="mnist/train-images.*the official is ba891046e650"):
        assert load_dataset("mnist", **options).X_train.max() == pytest.approx(100 / 255)
    write_mnist(tmp_path, white=200)
    with pytest.warns(DataWarning):
        assert load_dataset("mnist", **options).X_train.max() == pytest.approx(200 / 255)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n_images": 0, "n_labels": 0}, CorruptFileError, "no image of the classes 0, 1"),
        ({"n_labels": 19}, CorruptFileError, "20 images, .* 19 labels"),
        ({"first_label": 1}, CorruptFileError, "label 10; its labels go from 0 to 9"),
    ],
)
def test_files_that_contradict_each_other(tmp_path, change, error, message):
    write_mnist(tmp_path, **change)
    with pytest.raises(error, match=message):
        load_dataset("mnist", data_dir=tmp_path)


def test_missing_files_are_named_with_the_remedy(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / "mnist/t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(MissingDataError, match="mnist/t10k-labels.*`annealfit datasets fetch mnist`.*ANNEALFIT_DATA"):
        load_dataset("mnist", data_dir=tmp_path)


def write_mnist(directory, white=255, n_images=20, n_labels=20, first_label=0):
    """Twenty images a part, unpacked as some loaders leave them."""
    (directory / "mnist").mkdir(exist_ok=True)
    for part in ("train", "t10k"):
        images = bytes([0, 0, 8, 3, 0, 0, 0, n_images, 0, 0, 0, 28, 0, 0, 0, 28]) + bytes([white]) * (
            n_images * 28 * 28
        )
        labels = bytes([0, 0, 8, 1, 0, 0, 0, n_labels]) + bytes(n % 10 + first_label for n in range(n_labels))
        (directory / f"mnist/{part}-images-idx3-ubyte").write_bytes(images)
        (directory / f"mnist/{part}-labels-idx1-ubyte").write_bytes(labels)


def test_nothing_optional_is_needed_to_import_and_load_digits():
    blocked = "import sys; sys.modules.update(dict.fromkeys(['pooch', 'PIL', 'requests'])); "
    program = blocked + "import annealfit.data.datasets as d; print(d.load_dataset('digits').X_train.shape)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(1000, 8, 8)"


def test_every_entry_of_the_catalogue_is_complete():
    for name, source in DATASETS.items():
        assert source.description
        assert source.citation
        assert len(source.class_names) == 10
        paths = [file.path for file in source.files]
        assert len(set(paths)) == len(paths)
        for download in source.downloads:
            assert download.addresses
            assert download.packing in PACKINGS
            # Nothing is fetched whose bytes are not known beforehand.
            assert download.sha256 or all(file.payload_sha256 for file in download.files)
            for file in download.files:
                assert file.path.startswith(f"{name}/")
                assert bool(file.member) == (download.packing != "none")
