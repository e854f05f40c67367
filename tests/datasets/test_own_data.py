import json
import os
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from annealfit import load_dataset
from annealfit._support.errors import FileFormatError, InvalidInputError, MissingDependencyError
from annealfit.cli import app
from annealfit.data.datasets import CorruptFileError, DataWarning, MissingDataError, load_table
from annealfit.data.datasets.own_data import read_table

GENERATOR = np.random.default_rng(1)
IMAGES = GENERATOR.integers(0, 256, (24, 6, 5), dtype=np.uint8)
LABELS = np.arange(24) % 3


@pytest.fixture
def npz(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "own.npz", **arrays)
        return tmp_path / "own.npz"

    return save


# npz


@pytest.mark.parametrize("names", [("X", "y"), ("images", "labels")])
def test_one_pool_is_split_by_seed(npz, names):
    path = npz(**dict(zip(names, (IMAGES, LABELS), strict=True)))
    data = load_dataset(path, seed=3, size=None)
    assert data.name == "own"
    assert data.class_names == ("0", "1", "2")
    assert (len(data.X_train), len(data.X_test)) == (18, 6)  # a quarter to test on
    both = np.concatenate([data.X_train, data.X_test])
    np.testing.assert_array_equal(np.unique(both, axis=0), np.unique(IMAGES / 255, axis=0))
    assert np.bincount(data.y_test).tolist() == [2, 2, 2]
    again, other = load_dataset(str(path), seed=3), load_dataset(str(path), seed=4)
    np.testing.assert_array_equal(again.y_train, data.y_train)
    assert again.X_train.shape == (18, 8, 8)
    assert not np.array_equal(other.X_train, again.X_train)


def test_parts_are_kept_and_names_are_the_labels(npz):
    words = np.array(["b", "a", "c"])[LABELS]
    data = load_dataset(npz(X_train=IMAGES, y_train=words, X_test=IMAGES[:4], y_test=words[:4]), size=None)
    assert data.class_names == ("a", "b", "c")
    assert data.y_test.tolist() == [1, 0, 2, 1]
    np.testing.assert_array_equal(data.X_train, IMAGES / 255)


@pytest.mark.parametrize(
    ("images", "white"),
    [
        (IMAGES, 255),
        (IMAGES.astype(np.uint16) * 257, 65535),
        (IMAGES > 100, 1),
        (IMAGES / 255, 1),
        (IMAGES[..., None], 255),
    ],
)
def test_types_of_pixels(npz, images, white):
    data = load_dataset(npz(X=images, y=LABELS), n_train="all", n_test=3, size=None)
    expected = {(image.reshape(6, 5) / white).tobytes() for image in images}
    assert {image.tobytes() for image in data.X_train} <= expected


def test_colour(npz):
    colour = GENERATOR.random((24, 4, 4, 3))
    path = npz(X=colour, y=LABELS)
    assert load_dataset(path, color=True, size=2).X_train.shape == (18, 2, 2, 3)
    assert load_dataset(path, size=2).X_train.shape == (18, 2, 2)
    with pytest.raises(InvalidInputError, match="no colour"):
        load_dataset(npz(X=IMAGES, y=LABELS), color=True)


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({"X": IMAGES}, FileFormatError, "has the arrays X; it must have X and y"),
        ({}, FileFormatError, r"\(none\)"),
        ({"X": IMAGES, "y": LABELS[:-1]}, InvalidInputError, "X has length 24, and its labels have shape \\(23,\\)"),
        ({"X": IMAGES, "y": LABELS[:, None]}, InvalidInputError, "one-dimensional"),
        ({"X": IMAGES, "y": LABELS.astype(float)}, InvalidInputError, "whole numbers or strings"),
        ({"X": IMAGES, "y": np.zeros(24, int)}, InvalidInputError, "1 class; at least 2"),
        ({"X": IMAGES.reshape(24, -1), "y": LABELS}, InvalidInputError, r"shape \(24, 30\)"),
        ({"X": np.zeros((24, 4, 4, 2)), "y": LABELS}, InvalidInputError, "it must be"),
        ({"X": np.zeros((0, 4, 4)), "y": LABELS[:0]}, InvalidInputError, "shape"),
        ({"X": IMAGES.astype(int), "y": LABELS}, InvalidInputError, "int64; use uint8"),
        ({"X": IMAGES.astype(float), "y": LABELS}, InvalidInputError, r"divide it so that it is in \[0, 1\]"),
        ({"X": np.full((24, 4, 4), np.nan), "y": LABELS}, InvalidInputError, "goes from nan"),
        ({"X": np.array([object()] * 24), "y": LABELS}, CorruptFileError, "never unpickled"),
        (
            {"X_train": IMAGES, "y_train": LABELS, "X_test": IMAGES, "y_test": LABELS + 1},
            InvalidInputError,
            "y_test has labels that y_train does not",
        ),
    ],
)
def test_bad_npz(npz, arrays, error, message):
    with pytest.raises(error, match=message):
        load_dataset(npz(**arrays))


def test_damaged_npz(npz):
    path = npz(X=IMAGES, y=LABELS)
    whole = path.read_bytes()
    for content in (whole[:-30], b"", b"nonsense", whole.replace(bytes(IMAGES[0]), bytes(30))):
        path.write_bytes(content)
        with pytest.raises(CorruptFileError):
            load_dataset(path)
    with path.open("wb") as file:
        np.save(file, IMAGES)  # an npy under the name of an npz
    with pytest.raises(CorruptFileError, match="not a whole npz"):
        load_dataset(path)


def test_other_files_and_paths(tmp_path):
    with pytest.raises(MissingDataError, match="there is no folder"):
        load_dataset(tmp_path / "nowhere")
    with pytest.raises(MissingDataError, match=r"there is no file nowhere\.npz"):
        load_dataset("nowhere.npz")
    (tmp_path / "table.csv").touch()
    with pytest.raises(InvalidInputError, match="neither a folder"):
        load_dataset(tmp_path / "table.csv")


# Folders


@pytest.fixture
def pillow():
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@pytest.fixture
def folder(tmp_path, pillow):
    for name, grey in (("cat", 51), ("dog", 204)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for index in range(4):
            size = (9, 7) if index else (12, 12)
            pillow.new("RGB", size, (grey, grey, grey)).save(tmp_path / "pets" / name / f"{index}.PNG")
    (tmp_path / "pets" / "cat" / "notes.txt").touch()
    (tmp_path / "pets" / ".hidden").mkdir()
    return tmp_path / "pets"


def test_a_folder_a_class(folder):
    data = load_dataset(folder, seed=1)
    assert data.name == "pets"
    assert data.class_names == ("cat", "dog")
    assert data.X_train.shape == (6, 8, 8)
    assert data.X_test.shape == (2, 8, 8)
    for images, labels in ((data.X_train, data.y_train), (data.X_test, data.y_test)):
        np.testing.assert_allclose(images, np.array([0.2, 0.8])[labels][:, None, None] * np.ones((8, 8)))
    assert load_dataset(folder, color=True).X_train.shape == (6, 8, 8, 3)
    with pytest.raises(InvalidInputError, match=r"different sizes \(12×12, 7×9\); give a size"):
        load_dataset(folder, size=None)


def test_train_and_test_folders(folder, pillow):
    for part in ("train", "test"):
        (folder.parent / "split" / part).mkdir(parents=True)
    for name in ("cat", "dog"):
        (folder / name).rename(folder.parent / "split" / "train" / name)
    (folder.parent / "split" / "test" / "dog").mkdir()
    pillow.new("L", (8, 8), 255).save(folder.parent / "split" / "test" / "dog" / "only.png")
    data = load_dataset(folder.parent / "split")
    assert len(data.X_train) == 8
    assert data.y_test.tolist() == [1]
    (folder.parent / "split" / "test" / "dog").rename(folder.parent / "split" / "test" / "cow")
    with pytest.raises(InvalidInputError, match="does not have: cow"):
        load_dataset(folder.parent / "split")
    (folder.parent / "split" / "test" / "cow").rename(folder.parent / "cow")
    with pytest.raises(InvalidInputError, match="test has no folder of images"):
        load_dataset(folder.parent / "split")


def test_classes_may_be_called_train_and_test(folder):
    (folder / "cat").rename(folder / "train")
    (folder / "dog").rename(folder / "test")
    assert load_dataset(folder).class_names == ("test", "train")


def test_kinds_of_pixels(folder, pillow):
    for path in (folder / "cat").glob("*.PNG"):
        path.unlink()
    values = {
        "1": pillow.new("1", (4, 4), 1),
        "L": pillow.new("L", (4, 4), 255),
        "P": pillow.new("RGB", (4, 4), "white").quantize(),
        "RGBA": pillow.new("RGBA", (4, 4), (0, 0, 0, 0)),  # black ink, fully transparent: paper
        "I;16": pillow.fromarray(np.full((4, 4), 65535, np.uint16)),
    }
    for name, image in values.items():
        image.save(folder / "cat" / f"{name.replace(';', '')}.png")
    data = load_dataset(folder, n_train="all", n_test=2)
    cats = np.concatenate([data.X_train[data.y_train == 0], data.X_test[data.y_test == 0]])
    np.testing.assert_allclose(cats, np.ones((5, 8, 8)))


def test_no_classes_and_no_images(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="0 folders; it must have at least 2"):
        load_dataset(tmp_path / "empty")
    (folder / "cow").mkdir()
    with pytest.raises(InvalidInputError, match="cow has no image"):
        load_dataset(folder)


def test_an_unreadable_image_is_named(folder, pillow):
    whole = (folder / "dog" / "0.PNG").read_bytes()
    for content in (b"not an image", whole[: len(whole) // 2], b""):
        (folder / "dog" / "0.PNG").write_bytes(content)
        with pytest.raises(CorruptFileError, match=r"0.PNG is not a readable image.*repair or remove"):
            load_dataset(folder, n_train=4, n_test=4)
    (folder / "dog" / "0.PNG").unlink()
    pillow.new("F", (4, 4), 0.5).save(folder / "dog" / "0.tif")
    with pytest.raises(FileFormatError, match="32-bit pixels"):
        load_dataset(folder, n_train=4, n_test=4)


def test_a_picture_too_large_to_be_honest(folder, pillow, monkeypatch):
    monkeypatch.setattr(pillow, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(FileFormatError, match="too many pixels"):
        load_dataset(folder)


def test_without_pillow_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingDependencyError, match=r"annealfit\[images\]"):
        load_dataset(folder)


# Tables of features; tests/cli/test_train_large_data.py has the formats

ROWS = np.arange(60.0).reshape(20, 3)
WORDS = np.array(["yes", "no"] * 10)


@pytest.fixture
def divided(tmp_path):
    def save(**arrays):
        given = {"X_train": ROWS, "y_train": WORDS, "X_test": ROWS[:4] + 0.5, "y_test": WORDS[:4]}
        path = tmp_path / "rows.npz"
        np.savez(path, **{name: value for name, value in (given | arrays).items() if value is not None})
        return path

    return save


def load(path, **sizes):
    given = {"labels": None, "n_train": None, "n_test": None, "seed": 42, "folder": path.parent} | sizes
    return load_table(path, **given)


def test_the_parts_stay_as_they_are(divided):
    data = load(divided())
    assert data.class_names == ("no", "yes")
    order = np.argsort(data.X_train[:, 0])
    np.testing.assert_array_equal(data.X_train[order], ROWS)
    np.testing.assert_array_equal(np.array(data.class_names)[data.y_train[order]], WORDS)
    np.testing.assert_array_equal(np.sort(data.X_test[:, 0]), ROWS[:4, 0] + 0.5)


def test_fewer_rows_are_as_many_of_every_class(divided):
    data = load(divided(), n_train=6, n_test=2)
    assert np.bincount(data.y_train).tolist() == [3, 3]
    assert np.bincount(data.y_test).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({"y_test": None, "X_test": None}, FileFormatError, "X_train, y_train; it must have .* all of X_train, y_tr"),
        (
            {"y_test": np.array(["yes", "no", "yes", "perhaps"])},
            InvalidInputError,
            "y_test has labels that y_train does not have",
        ),
        ({"y_train": np.array(["yes"] * 20), "y_test": np.array(["yes"] * 4)}, InvalidInputError, "1 class; at least"),
        ({"y_train": WORDS[:-1]}, InvalidInputError, "X_train has length 20, and its labels have shape .19,."),
    ],
)
def test_a_part_that_cannot_be_used_says_why(divided, arrays, error, message):
    with pytest.raises(error, match=message):
        load(divided(**arrays))


def test_parts_with_other_columns_are_refused_before_a_training(tmp_path):
    rows = np.zeros((6, 3))
    np.savez(tmp_path / "t.npz", X_train=rows, y_train=[0, 1] * 3, X_test=rows[:, :2], y_test=[0, 1] * 3)
    with pytest.raises(InvalidInputError, match="X_train has 3 columns and X_test 2"):
        read_table(tmp_path / "t.npz", None, tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="named pipes are POSIX's")
@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
def test_a_pipe_is_refused_before_it_is_opened(tmp_path, suffix):
    os.mkfifo(tmp_path / f"rows.{suffix}")
    with pytest.raises(FileFormatError, match=f"rows.{suffix} is no file but a pipe"):
        read_table(tmp_path / f"rows.{suffix}", "labels", tmp_path)


def folder_with_damaged_images(tmp_path):
    from PIL import Image

    for number in range(24):
        (tmp_path / f"{number % 2}").mkdir(exist_ok=True)
        Image.fromarray(np.full((6, 6), 8 * number, np.uint8)).save(tmp_path / f"{number % 2}" / f"{number}.png")
    damaged = [tmp_path / "0" / "4.png", tmp_path / "1" / "7.png"]
    for path in damaged:
        path.write_bytes(b"damaged")
    return damaged


@pytest.mark.parametrize("lazy", [False, True])
def test_all_unreadable_images_are_named_at_once_or_left_out(tmp_path, lazy):
    pytest.importorskip("PIL")
    damaged = folder_with_damaged_images(tmp_path)
    named = ", ".join(map(str, damaged))
    with pytest.raises(CorruptFileError, match=f"2 of 24 images cannot be read: {named}"):
        load_dataset(tmp_path, n_test=4, lazy=lazy).X_train[:]
    with pytest.warns(DataWarning, match=f"2 of 24 images cannot be read: {named}; they are left out"):
        data = load_dataset(tmp_path, n_test=4, skip_unreadable=True, lazy=lazy)
    assert (len(data.X_train[:]), len(data.X_test[:])) == (18, 4)


def test_the_program_names_all_unreadable_images_or_leaves_them_out(tmp_path):
    pytest.importorskip("PIL")
    images, run = tmp_path / "images", str(tmp_path / "run")
    images.mkdir()
    folder_with_damaged_images(images)
    train = ["train", str(images), "--max-iter", "2", "--no-plots", "--no-baselines", "--out", run]
    runner = CliRunner()
    assert "2 of 24 images cannot be read" in str(runner.invoke(app, train).exception)
    assert "they are left out" in runner.invoke(app, [*train, "--skip-unreadable"]).output
    assert "2 of 24 images cannot be read" in str(runner.invoke(app, ["predict", run, str(images)]).exception)
    answers = json.loads(runner.invoke(app, ["predict", run, str(images), "--skip-unreadable", "--json"]).stdout)
    assert len(answers) == 22


def test_a_damaged_parquet_file_is_named_also_in_a_folder(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in range(2):
        table = pandas.DataFrame({"a": GENERATOR.normal(size=1000), "y": np.arange(1000) % 2})
        table.to_parquet(folder / f"{number}.parquet")
    _, [(features, labels)], _ = read_table(folder, "y", tmp_path)
    assert (features.shape, len(labels)) == ((2000, 1), 2000)
    whole = (folder / "1.parquet").read_bytes()
    for damaged in (whole[:500], whole[:4] + bytes(200) + whole[204:]):  # no footer; pages that cannot be read
        (folder / "1.parquet").write_bytes(damaged)
        for path in (folder, folder / "1.parquet"):
            with pytest.raises(CorruptFileError, match="is not Parquet, or damaged"):
                read_table(path, "y", tmp_path)


def test_a_parquet_file_with_names_that_are_no_text_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"feature": pyarrow.array([1.0, 2.0]), "y": pyarrow.array([0, 1])}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet", store_schema=False)
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content.replace(b"feature", b"\xbaeature"))
    with pytest.raises(CorruptFileError, match="is not Parquet, or damaged"):
        read_table(tmp_path / "t.parquet", "y", tmp_path)


def test_parquet_columns_of_the_same_name_are_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = [pyarrow.array([1.0, 2.0])] * 2 + [pyarrow.array([0, 1])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, ["a", "a", "y"]), tmp_path / "t.parquet")
    with pytest.raises(CorruptFileError, match="duplicate field names"):
        read_table(tmp_path / "t.parquet", "y", tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_file_that_may_not_be_read_is_not_called_damaged(npz, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", "own.npz")

    path = npz(X=IMAGES, y=LABELS)
    monkeypatch.setattr("annealfit._support.files.BoundedReader", refuse)
    with pytest.raises(PermissionError, match=r"Permission denied: 'own\.npz'"):
        load_dataset(path)


def test_a_npy_file_of_objects_is_refused_without_unsafe_advice(tmp_path):
    np.save(tmp_path / "y.npy", np.array([None, 1], dtype=object), allow_pickle=True)
    (tmp_path / "z.npy").write_bytes(b"\x00\xff")
    for name in ("y.npy", "z.npy"):
        with pytest.raises(CorruptFileError, match="or holds Python objects, which are never unpickled; save it again"):
            read_table(tmp_path / name, str(tmp_path / name), tmp_path)
