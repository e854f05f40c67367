"""A user's own data: folders of images, npz files of images, and tables of features.

folder/cat/one.png  folder/dog/two.jpg            images, one pool
folder/train/cat/…  folder/test/cat/…             images, parts as given
npz with X, y (or images, labels)                 images (N, H, W), (N, H, W, 3), or features (N, d); one pool
npz with X_train, y_train, X_test, y_test         images or features, parts as given
features.npy, and labels in another .npy file     features, read in slices, never whole
Parquet, a file or a folder of files              one column of labels, all others numbers; copied once to a .npy file
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError, require
from annealfit._support.files import check_regular, read_array_header, read_arrays
from annealfit.data.datasets.formats import CorruptFileError, MissingDataError
from annealfit.data.datasets.images import Part, Parts, readable_images
from annealfit.data.rows import NpyTable
from annealfit.data.rows.rows import chunk_bounds
from annealfit.data.rows.tables import check_table

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")

_NPZ_NAMES = ((("X_train", "y_train"), ("X_test", "y_test")), (("X", "y"),), (("images", "labels"),))
_BATCH_ROWS = 65536  # of a Parquet file that are in memory at once


class Labelled(NamedTuple):
    """Images or rows of features with a label each, as a file names them."""

    name: str
    X: Any
    y: NDArray[Any]
    columns: tuple[str, ...] = ()  # names of the features, where the file has them


def read_own(path: Path, *, skip_unreadable: bool = False) -> Parts:
    """Read a folder of images or an npz file; class names are the names of the folders, or the labels in order."""
    if path.is_dir():
        return _read_folder(path, skip_unreadable)
    if path.suffix.lower() == ".npz":
        parts = _read_npz(path)
        images = [_checked_images(path, part.name, part.X) for part in parts]
        if len({X.shape[3:] for X, _ in images}) > 1:
            raise InvalidInputError(f"{path}: X_train and X_test must both have colour or none")
        class_names, labels = _encode_labels(path, parts)
        made = [Part(own, X, white) for own, (X, white) in zip(labels, images, strict=True)]
        return Parts(made[0], made[1] if len(made) == 2 else None, class_names)
    raise InvalidInputError(f"{path} is neither a folder of images per class nor an npz file; give one of these")


def image_files(path: Path) -> list[Path]:
    """Return the path of an image, or the paths of all images below a folder, in order."""
    return _images_among(path.rglob("*"), path) if path.is_dir() else [path]


def _images_among(files: Iterable[Path], folder: Path) -> list[Path]:
    found = sorted(file for file in files if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file())
    if not found:
        raise InvalidInputError(f"{folder} has no image; put files ending in {', '.join(IMAGE_SUFFIXES)} there")
    return found


def _read_folder(path: Path, skip: bool) -> Parts:
    # Two folders named train and test are parts if they hold folders; if they hold images, they are classes.
    has_parts = _folders(path) == ["test", "train"] and bool(_folders(path / "train"))
    train = path / "train" if has_parts else path
    class_names = _folders(train)
    if len(class_names) < 2:
        raise InvalidInputError(
            f"{train} has {len(class_names)} folders; it must have at least 2, a folder of images for each class"
        )
    if has_parts and (unknown := sorted(set(_folders(path / "test")) - set(class_names))):
        raise InvalidInputError(f"{path / 'test'} has classes that train does not have: {', '.join(unknown)}")
    test = _folder_part(path / "test", class_names, skip) if has_parts else None
    return Parts(_folder_part(train, class_names, skip), test, tuple(class_names))


def _folders(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _folder_part(path: Path, class_names: Sequence[str], skip: bool) -> Part:
    folders = [path / name for name in class_names]  # a test part need not have every class
    images = [_images_among(folder.iterdir(), folder) if folder.is_dir() else [] for folder in folders]
    if not any(images):
        raise InvalidInputError(f"{path} has no folder of images; make one for each class, or remove it")
    if skip:
        kept = set(readable_images([file for files in images for file in files], skip=True))
        images = [[file for file in files if file in kept] for files in images]
    labels = np.repeat(np.arange(len(images)), [len(files) for files in images])
    return Part(labels, [file for files in images for file in files])


def _read_npz(path: Path) -> list[Labelled]:
    """Read the pool, or the training and the test part, of an npz file."""
    try:
        arrays = read_arrays(path)
    except FileFormatError as error:
        raise CorruptFileError(str(error)) from error
    for names in _NPZ_NAMES:
        if all(name in arrays for pair in names for name in pair):
            return [Labelled(X, arrays[X], arrays[y]) for X, y in names]
    raise FileFormatError(
        f"{path} has the arrays {', '.join(sorted(arrays)) or '(none)'}; it must have X and y, images and labels, "
        f"or all of X_train, y_train, X_test, y_test"
    )


def _encode_labels(path: Path, parts: Sequence[Labelled]) -> tuple[tuple[str, ...], list[NDArray[np.intp]]]:
    """Return the class names, which are the labels of the first part in order, and each part's indices of them."""
    for name, X, y, _ in parts:
        if y.ndim != 1 or len(y) != X.shape[0]:
            raise InvalidInputError(
                f"{path}: {name} has length {X.shape[0]}, and its labels have shape {y.shape}; labels must be "
                "one-dimensional, one per row or image"
            )
        if y.dtype.kind not in "iubUS":
            raise InvalidInputError(
                f"{path}: the labels of {name} have type {y.dtype}; labels must be whole numbers or strings"
            )
    classes = np.unique(parts[0].y)
    if not np.isin(parts[-1].y, classes).all():
        raise InvalidInputError(f"{path}: y_test has labels that y_train does not have")
    if len(classes) < 2:
        raise InvalidInputError(f"the labels of {path} hold {len(classes)} class; at least 2 are needed")
    return tuple(map(str, classes.tolist())), [np.searchsorted(classes, part.y) for part in parts]


def _checked_images(path: Path, name: str, images: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Return images (N, H, W) or (N, H, W, 3), and the value of white: the largest of their type, or 1."""
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    if images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)) or 0 in images.shape:
        raise InvalidInputError(f"{path}: {name} has shape {images.shape}; it must be (N, H, W) or (N, H, W, 3)")
    white = {"uint8": 255.0, "uint16": 65535.0, "bool": 1.0}.get(images.dtype.name)
    if white is not None:
        return images, white
    if images.dtype.kind != "f":
        raise InvalidInputError(
            f"{path}: {name} has type {images.dtype}; use uint8, uint16, or floating point in [0, 1]"
        )
    low, high = float(images.min()), float(images.max())
    if not (low >= 0.0 and high <= 1.0):  # false for NaN too
        raise InvalidInputError(f"{path}: {name} goes from {low:g} to {high:g}; divide it so that it is in [0, 1]")
    return images, 1.0


def is_feature_table(path: Path) -> bool:
    """Whether a file, or a folder, holds rows of features rather than images."""
    if path.is_dir():
        return any(path.glob("*.parquet"))
    if path.suffix.lower() != ".npz" or not path.is_file():
        return path.suffix.lower() in (".npy", ".parquet")
    try:
        with zipfile.ZipFile(path) as archive:
            name = "X.npy" if "X.npy" in archive.namelist() else "X_train.npy"
            with archive.open(name) as file:
                return len(read_array_header(file)[0]) == 2
    except (KeyError, zipfile.BadZipFile, ValueError, OSError, EOFError):
        return False  # reading the file says what is wrong with it


def read_table(
    path: Path, labels: str | None, folder: Path
) -> tuple[tuple[str, ...], list[tuple[Any, NDArray[np.intp]]], tuple[str, ...]]:
    """Return the class names of a table, rows (N, d) and labels (N,) of its pool or its two parts, and column names.

    `labels` is a column of a Parquet table, or the file of the labels of a .npy file. Parquet is copied to a file in
    `folder`.
    """
    suffix = path.suffix.lower()
    if not path.exists():
        raise MissingDataError(f"{path} does not exist; give a .npy, .npz or Parquet file of features")
    if suffix == ".npz":
        parts = _read_npz(path)
    elif suffix == ".npy" and labels is None:
        raise InvalidInputError(f"{path} holds features only; name the file of their labels: --labels labels.npy")
    elif suffix == ".npy":
        parts = [Labelled("the table", _mapped(path), np.array(_mapped(Path(str(labels)))[:]))]
    else:
        parts = [_read_parquet(path, labels, folder)]
    for part in parts:
        check_table(part.X, str(path))
        _check_finite(path, part)
    if parts[0].X.shape[1] != parts[-1].X.shape[1]:
        raise InvalidInputError(
            f"{path}: {parts[0].name} has {parts[0].X.shape[1]} columns and {parts[-1].name} {parts[-1].X.shape[1]}; "
            "rows to train and to test on must have the same features"
        )
    class_names, encoded = _encode_labels(path, parts)
    return class_names, [(part.X, own) for part, own in zip(parts, encoded, strict=True)], parts[0].columns


def read_rows(path: Path, columns: Sequence[str] = ()) -> Any:
    """Return rows of features (N, d) without labels: of a .npy, .npz or Parquet file, or else of lines of CSV.

    Of an npz file the array `X` is taken, or `X_test`, or the only one. Of a file that names its columns, those of
    these names are taken, in this order.
    """
    if not path.exists():
        raise MissingDataError(f"{path} does not exist; give a table of features")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        arrays = read_arrays(path)
        name = next((name for name in ("X", "X_test", *arrays) if name in arrays), "X")
        if name not in arrays or (len(arrays) > 1 and name not in ("X", "X_test")):
            raise InvalidInputError(f"{path} has the arrays {', '.join(arrays) or '(none)'}; the rows must be named X")
        rows: Any = arrays[name]
    elif suffix == ".npy":
        rows = _mapped(path)
    elif suffix == ".parquet":
        with _named_parquet(path):
            table = require("pandas", extra="parquet", purpose="reading Parquet files").read_parquet(path)
        rows = table.iloc[:, _places(path, [*map(str, table.columns)], columns)].to_numpy()
    else:
        rows = _csv_rows(path, columns)
    check_table(rows, str(path))
    return rows


def _places(path: Path, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the places of the wanted columns among the names of a file; without wanted ones all."""
    if not wanted:
        return [*range(len(names))]
    wrong = [name for name in wanted if names.count(name) != 1]
    if wrong:
        raise InvalidInputError(
            f"{path} has {'no' if wrong[0] not in names else 'more than one'} column {wrong[0]!r}; the model was "
            f"trained on the columns {', '.join(wanted[:8])}{' …' if len(wanted) > 8 else ''}"
        )
    return [names.index(name) for name in wanted]


def _csv_rows(path: Path, columns: Sequence[str]) -> NDArray[np.float64]:
    """Return lines of numbers; a first line without any number is a heading."""
    check_regular(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, cells) for cells in reader if any(cells)]
    except (csv.Error, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is not a CSV file: {error}") from error
    first = lines[0][1] if lines else []
    places = [*range(len(first))]
    if lines and not any(map(_is_number, first)):
        places = _places(path, [cell.strip() for cell in lines.pop(0)[1]], columns)
    rows: list[list[float]] = []
    for number, cells in lines:
        if len(cells) != len(first):
            raise FileFormatError(f"{path}, line {number} has {len(cells)} numbers, the first line {len(first)}")
        if wrong := [place for place in places if not (_is_number(cells[place]) and isfinite(float(cells[place])))]:
            raise FileFormatError(
                f"{path}, line {number}: {cells[wrong[0]]!r} is no finite number; rows are numbers with commas between"
            )
        rows.append([float(cells[place]) for place in places])
    if not rows:
        raise FileFormatError(f"{path} has no rows of numbers")
    return np.array(rows)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # which Python ignores in numbers


def _check_finite(path: Path, part: Labelled) -> None:
    for first, last in chunk_bounds(part.X, 1):
        wrong = np.argwhere(~np.isfinite(part.X[first:last]))
        if len(wrong):
            row, column = wrong[0] + [first, 0]
            raise InvalidInputError(
                f"{path}: {part.name} has NaN, infinity or a missing value in row {row} (from 0), column {column}; "
                "fill or leave out such rows"
            )


def _mapped(path: Path) -> NpyTable:
    if not path.exists():
        raise MissingDataError(f"{path} is not there; give a .npy file, of the features or with a label per row")
    check_regular(path)
    try:
        return NpyTable(path)
    except (ValueError, EOFError) as error:
        has_objects = any(word in str(error) for word in ("pickle", "Python objects"))  # NumPy names unsafe remedies
        reason = "it is none, or holds Python objects, which are never unpickled" if has_objects else error
        raise CorruptFileError(f"{path} is not a whole .npy file: {reason}; save it again with numpy.save") from error


@contextmanager
def _named_parquet(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError) as error:  # the bases of pyarrow's errors
        reason = str(error).partition("\n")[0]
        raise CorruptFileError(f"{path} is not Parquet, or damaged: {reason}; save it again") from error


def _read_parquet(path: Path, label: str | None, folder: Path) -> Labelled:
    """Copy the features batch by batch to a .npy file in `folder`, and read the labels into memory."""
    datasets = require("pyarrow.dataset", extra="parquet", purpose="reading Parquet")
    if not path.is_dir():
        check_regular(path)
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    with _named_parquet(path):
        table = datasets.dataset([str(file) for file in files], format="parquet")
        count, names = table.count_rows(), table.schema.names
    if label not in names:
        raise InvalidInputError(
            f"{path} has the columns {', '.join(names[:8])}{' …' if len(names) > 8 else ''}; "
            f"name that of the labels: --labels COLUMN (it is {label!r})"
        )
    names.remove(label)
    kinds = {name: np.dtype(table.schema.field(name).type.to_pandas_dtype()) for name in names}
    wrong = [name for name, kind in kinds.items() if kind.kind not in "fiub"]
    if wrong or not names:
        raise InvalidInputError(
            f"{path}: the columns {', '.join(wrong[:5]) or '(none but the labels)'} are no numbers; every column but "
            "the labels is a feature: leave them out, or encode them"
        )
    dtype = np.result_type(np.float32, *kinds.values())  # single precision where it is exact
    labels: list[NDArray[Any]] = []

    def blocks() -> Iterator[NDArray[Any]]:
        for batch in table.to_batches(columns=[*names, label], batch_size=_BATCH_ROWS):
            labels.append(np.asarray(batch[label].to_pylist()))
            yield np.column_stack([batch[name].to_numpy(zero_copy_only=False) for name in names])

    with _named_parquet(path):
        features = NpyTable.write(folder / "features.npy", (count, len(names)), dtype, blocks())
    return Labelled("the table", features, np.concatenate(labels) if labels else np.empty(0), tuple(names))
