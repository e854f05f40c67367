import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from annealfit import load_dataset
from annealfit._support.errors import InvalidInputError
from annealfit.data.datasets import DATASETS, CorruptFileError, DataWarning, MissingDataError
from annealfit.data.datasets.loading import choose_balanced, split_stratified


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
        ({"n_images": 0, "n_labels": 0}, InvalidInputError, "n_train of mnist is 1000; .* at most 0"),
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


# The images behind the paper's tables


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


@pytest.mark.filterwarnings("ignore::annealfit.data.datasets.DataWarning")
@pytest.mark.parametrize("name", ["kmnist", "emnist"])
def test_published_images_are_drawn_from_both_parts_and_zoomed(tmp_path, monkeypatch, name):
    """Two images of every class in each part; three of the four are drawn, so no part alone has enough."""
    monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], n_train=20, n_test=10))
    first, prefix = (1, "emnist-letters-") if name == "emnist" else (0, "")
    images, labels = np.random.default_rng(0).integers(0, 256, (40, 28, 28)), np.arange(40) % 10
    for kind, values in (("images-idx3", images), ("labels-idx1", labels + first)):
        for part, rows in (("train", values[:20]), ("test" if prefix else "t10k", values[20:])):
            write_idx(tmp_path / name / f"{prefix}{part}-{kind}-ubyte", rows)
    data = load_dataset(name, seed=3, images="published", data_dir=tmp_path)
    zoomed = [ndimage.zoom(image / 255, 8 / 28, order=1).round(9).tobytes() for image in images]  # as they are stored
    found = [image.round(9).tobytes() for image in (*data.X_train, *data.X_test)]
    assert [labels[zoomed.index(image)] for image in found] == [*data.y_train, *data.y_test]
    assert len(set(found)) == 30
    assert np.bincount(data.y_train).tolist() == [2] * 10
    assert np.bincount(data.y_test).tolist() == [1] * 10
    assert data.images == "published"
    assert data.description.startswith("40 images in one pool")
    lazy = load_dataset(name, seed=3, images="published", data_dir=tmp_path, lazy=True)
    np.testing.assert_array_equal(lazy.X_train[:], data.X_train)
    assert not np.array_equal(load_dataset(name, seed=4, images="published", data_dir=tmp_path).X_train, data.X_train)


def test_the_published_mnist_is_the_digits(tmp_path):
    data = load_dataset("mnist", seed=42, images="published", data_dir=tmp_path)  # needs none of MNIST's files
    digits = {image.tobytes() for image in load_digits().images / 16.0}
    found = {image.tobytes() for image in (*data.X_train, *data.X_test)}
    assert found <= digits
    assert (data.X_train.shape, data.X_test.shape) == ((1000, 8, 8), (500, 8, 8))
    assert np.bincount(data.y_train).tolist() == [100] * 10
    assert "digits" in data.name
    assert "digits in place of MNIST" in data.description


def test_the_published_digits_study_has_one_split():
    digits = load_digits()
    X_train, X_test, y_train, y_test = train_test_split(
        digits.images / 16.0, digits.target, test_size=0.3, random_state=42, stratify=digits.target
    )
    for seed in (42, 43):
        data = load_dataset("digits", seed=seed, images="published")
        np.testing.assert_array_equal(data.X_train, X_train[:1000])
        np.testing.assert_array_equal(data.y_train, y_train[:1000])
        np.testing.assert_array_equal(data.X_test, X_test)
        np.testing.assert_array_equal(data.y_test, y_test)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digits", {"images": "paper"}, "images is 'paper'; choose one of 'published', 'stated'"),
        ("digits", {"images": "published", "size": 16}, 'fixes n_train, n_test, size.*images="stated"'),
        ("digits", {"images": "published", "n_train": 100}, "leave them out"),
        ("own.npz", {"images": "published"}, "data set is 'own.npz'; choose one of 'cifar10'"),
    ],
)
def test_published_images_have_no_settings(name, options, message):
    with pytest.raises(InvalidInputError, match=message):
        load_dataset(name, **options)


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
        for file in source.files:
            assert file.path.startswith(f"{name}/")
            assert file.addresses
            # Nothing is fetched whose bytes are not known beforehand.
            assert file.payload_sha256 or (file.member and file.archive_sha256)


# Subsets


@given(counts=st.lists(st.integers(1, 30), min_size=2, max_size=6), data=st.data())
def test_balanced_as_far_as_the_classes_reach(counts, data):
    labels = np.repeat(np.arange(len(counts)), counts)
    size = data.draw(st.integers(len(counts), len(labels)))
    chosen = choose_balanced(labels, len(counts), size, 42, 0, "n_train")
    assert len(set(chosen.tolist())) == size
    shares = np.bincount(labels[chosen], minlength=len(counts))
    # Nobody has fewer than another by more than the odd one, unless there are no more of it.
    for share, available in zip(shares, counts, strict=True):
        assert share == available or share >= shares.max() - 1


def test_the_seed_and_the_part_decide():
    labels = np.repeat(np.arange(10), 50)
    first, again = (choose_balanced(labels, 10, 105, 7, 0, "n_train") for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, choose_balanced(labels, 10, 105, 8, 0, "n_train"))
    assert not np.array_equal(first, choose_balanced(labels, 10, 105, 7, 1, "n_test"))


@pytest.mark.parametrize("size", [0, 1, 4])
def test_sizes_of_a_part_that_do_not_fit(size):
    with pytest.raises(InvalidInputError, match=f"n_train of it is {size}; it must be at least 2 .* at most 3"):
        choose_balanced(np.array([0, 0, 1]), 2, size, 1, 0, "n_train of it")


def test_all_is_everything_in_order():
    labels = np.array([1, 0, 1])
    assert choose_balanced(labels, 2, "all", 1, 0, "n_train").tolist() == [0, 1, 2]


def test_all_of_one_pool_is_what_the_other_leaves():
    labels = np.repeat([0, 1], 10)
    train, test = split_stratified(labels, 2, "all", 6, 1, "pool")
    assert sorted([*train, *test]) == list(range(20))
    assert len(test) == 6
    with pytest.raises(InvalidInputError, match='only one can be "all"'):
        split_stratified(labels, 2, "all", "all", 1, "pool")


def test_a_class_too_small_to_split():
    with pytest.raises(InvalidInputError, match="fewer than 2 images"):
        split_stratified(np.array([0, 0, 0, 0, 1]), 2, 2, 2, 1, "pool")
