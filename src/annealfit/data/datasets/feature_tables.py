"""Tables of features in files, which need not fit into memory.

features.npy, and labels in another .npy file         read in slices, never whole
npz with X, y or X_train, y_train, X_test, y_test      X of two dimensions; in memory
Parquet, a file or a folder of files                   one column of labels, all others numbers; copied once to a
                                                       file that can be read in slices
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError, require
from annealfit._support.files import read_arrays
from annealfit.data.datasets.errors import CorruptFileError, MissingDataError
from annealfit.data.datasets.loading import Dataset
from annealfit.data.datasets.subsets import Size, choose_balanced, split_stratified
from annealfit.data.rows import NpyTable, Selection, is_out_of_core
from annealfit.data.rows.tables import check_table

_BATCH_ROWS = 65536  # of a Parquet file that are in memory at once
_SINGLE = frozenset({"halffloat", "float", "int8", "uint8", "int16", "uint16", "bool"})  # exact in single precision


def is_feature_table(path: Path) -> bool:
    """Whether a file, or a folder, holds rows of features rather than images."""
    if path.is_dir():
        return any(path.glob("*.parquet"))
    if path.suffix.lower() == ".npz" and path.is_file():
        return _dimensions_in_npz(path) == 2
    return path.suffix.lower() in (".npy", ".parquet")


def _dimensions_in_npz(path: Path) -> int | None:
    """Of X or X_train, from the header alone; None where there is none, and whatever is wrong reading it says."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(name for name in ("X.npy", "X_train.npy") if name in archive.namelist())
            with archive.open(name) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                return len(read(file)[0])
    except (StopIteration, zipfile.BadZipFile, ValueError, OSError, EOFError):
        return None


def load_table(
    path: Path, labels: str | None, folder: Path, *, seed: int, n_train: Size | None, n_test: Size | None
) -> Dataset:
    """The training and test rows of a table; `labels` are a column of it, or a file.

    What comes as one part is split by the seed, with the class shares it has: a quarter to test on, unless the sizes
    say otherwise. Parquet is copied to a file in `folder`.
    """
    if not path.exists():
        raise MissingDataError(f"{path} does not exist; give a .npy, .npz or Parquet file of features")
    if path.suffix.lower() == ".npz":
        arrays = _npz_arrays(path)
        if "X_train" in arrays:
            return _parts(path, arrays, n_train, n_test, seed)
        X, y = arrays["X"], arrays.get("y", np.empty(0))
    elif path.suffix.lower() == ".npy":
        X, y = _mapped(path), _labels_of(path, labels)
    else:
        X, y = _from_parquet(path, labels, folder)
    _check(path, X, y)
    classes, positions = np.unique(y, return_inverse=True)
    _check_classes(path, classes)
    usual = max(len(classes), round(len(positions) / 4))
    train, test = split_stratified(
        positions, len(classes), n_train or "all", usual if n_test is None else n_test, seed, path.stem
    )
    train, test = np.sort(train), np.sort(test)  # so that slices of them are slices of the file
    names = tuple(map(str, classes.tolist()))
    return Dataset(path.stem, _chosen(X, train), positions[train], _chosen(X, test), positions[test], names)


def _npz_arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    try:
        return read_arrays(path)
    except FileFormatError as error:
        raise CorruptFileError(str(error)) from error


def _chosen(table: Any, positions: NDArray[np.intp]) -> Any:
    return Selection(table, positions) if is_out_of_core(table) else table[positions]


def _parts(path: Path, arrays: Any, n_train: Size | None, n_test: Size | None, seed: int) -> Dataset:
    missing = {"y_train", "X_test", "y_test"} - arrays.keys()
    if missing:
        raise InvalidInputError(f"{path} has X_train but not {', '.join(sorted(missing))}; save all four")
    classes = np.unique(arrays["y_train"])
    _check_classes(path, classes)
    if not np.isin(arrays["y_test"], classes).all():
        raise InvalidInputError(f"{path}: y_test has labels that y_train does not have")
    found = []
    for number, (part, size) in enumerate((("train", n_train), ("test", n_test))):
        X, y = arrays[f"X_{part}"], arrays[f"y_{part}"]
        _check(path, X, y)
        labels = np.searchsorted(classes, y)
        chosen = choose_balanced(labels, len(classes), size or "all", seed, number, f"n_{part} of {path.stem}")
        found += [X[chosen], labels[chosen]]
    X_train, y_train, X_test, y_test = found
    return Dataset(path.stem, X_train, y_train, X_test, y_test, tuple(map(str, classes.tolist())))


def _mapped(path: Path) -> Any:
    try:
        return NpyTable(path)
    except (ValueError, EOFError) as error:
        raise CorruptFileError(f"{path} is not a whole .npy file: {error}; save it again with numpy.save") from error


def _labels_of(path: Path, labels: str | None) -> NDArray[Any]:
    if labels is None:
        raise InvalidInputError(f"{path} holds features only; name the file of their labels: --labels labels.npy")
    if not Path(labels).is_file():
        raise MissingDataError(f"the labels {labels} are not there; give a .npy file with a label per row")
    return np.array(_mapped(Path(labels))[:])


def _from_parquet(path: Path, label: str | None, folder: Path) -> tuple[Any, NDArray[Any]]:
    """Features as a .npy file that is written batch by batch, and labels in memory."""
    datasets = require("pyarrow.dataset", extra="parquet", purpose="reading Parquet")
    try:
        table = datasets.dataset(path, format="parquet", exclude_invalid_files=path.is_dir())
        count = table.count_rows()
    except (ValueError, OSError) as error:  # pyarrow's own errors are these
        raise CorruptFileError(f"{path} is not Parquet: {error}; save it again") from error
    types = {field.name: str(field.type) for field in table.schema}
    if label not in types:
        raise InvalidInputError(
            f"{path} has the columns {', '.join(list(types)[:8])}{' …' if len(types) > 8 else ''}; "
            f"name that of the labels: --labels COLUMN (it is {label!r})"
        )
    names = [name for name in types if name != label]
    wrong = [name for name in names if types[name] not in _SINGLE | {"double", "int32", "int64", "uint32", "uint64"}]
    if wrong or not names:
        raise InvalidInputError(
            f"{path}: the columns {', '.join(wrong[:5]) or '(none but the labels)'} are no numbers; every column but "
            "the labels is a feature: leave them out, or encode them"
        )
    dtype = np.float32 if all(types[name] in _SINGLE for name in names) else np.float64
    features = np.lib.format.open_memmap(folder / "features.npy", "w+", dtype, (count, len(names)))
    labels, first = [], 0
    for batch in table.to_batches(columns=[*names, label], batch_size=_BATCH_ROWS):
        for column, name in enumerate(names):
            features[first : first + len(batch), column] = batch[name].to_numpy(zero_copy_only=False)
        labels.append(np.asarray(batch[label].to_pylist()))
        first += len(batch)
    features.flush()
    return _mapped(folder / "features.npy"), np.concatenate(labels) if labels else np.empty(0)


def _check(path: Path, X: Any, y: NDArray[Any]) -> None:
    check_table(X, str(path))
    if y.ndim != 1 or len(y) != X.shape[0]:
        raise InvalidInputError(f"{path} has {X.shape[0]} rows, and the labels have shape {y.shape}; one per row")
    if y.dtype.kind not in "iubUS":
        raise InvalidInputError(f"the labels of {path} have type {y.dtype}; they must be whole numbers or strings")


def _check_classes(path: Path, classes: NDArray[Any]) -> None:
    if len(classes) < 2:
        raise InvalidInputError(f"the labels of {path} hold {len(classes)} class; at least 2 are needed")
