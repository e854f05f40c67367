"""`load_dataset`: a training and a test subset of a data set, by name or from a user's own files."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, check_number, choose
from annealfit.data.datasets import resizing
from annealfit.data.datasets.catalogue import DATASETS
from annealfit.data.datasets.errors import DataWarning, MissingDataError
from annealfit.data.datasets.fetching import fetch
from annealfit.data.datasets.image_tables import ImageTable, prepared_images
from annealfit.data.datasets.images import ImagePreparation
from annealfit.data.datasets.local_files import LocalData, data_directory, is_available, read_local
from annealfit.data.datasets.own_data import read_own
from annealfit.data.datasets.parts import Part, Parts
from annealfit.data.datasets.subsets import Size, check_size, choose_balanced, split_stratified

# scikit-learn's split takes no larger seed.
_MAX_SEED = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with values in [0, 1], or rows of features, and whole-number labels that index `class_names`."""

    name: str
    X_train: Any  # (N, H, W), or (N, H, W, 3) in colour; (N, d) where they are features; an array, or read in slices
    y_train: NDArray[np.intp]
    X_test: Any
    y_test: NDArray[np.intp]
    class_names: tuple[str, ...]
    preparation: ImagePreparation = field(default_factory=ImagePreparation)  # what was done to the images


def load_dataset(
    name: str | os.PathLike[str],
    *,
    seed: int = 42,
    n_train: Size | None = None,
    n_test: Size | None = None,
    size: int | None = 8,
    color: bool = False,
    resize: str = "area",
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    lazy: bool = False,
) -> Dataset:
    """A stratified training and test subset, decided by `seed`, of images resized to `size` × `size`.

    Parameters
    ----------
    name : one of `annealfit.data.datasets.DATASETS`, or the path of a user's own data
        Own data are a folder with a folder of images for each class, or an npz file: see `own_data`.
    seed : int
        Training images come from the official training part and test images from the official test part,
        as equally many of each class as there are. What comes as one part (digits, own data) is split
        with the class shares it has.
    n_train, n_test : int, "all", or None
        None is the paper's number; for own data, a quarter to test on and the rest to train on.
    size : int or None
        None keeps the native size.
    color : bool
        Keep colour, (N, H, W, 3); otherwise images become grey by ITU-R 601 luma.
    resize : {"area", "bilinear", "bicubic", "lanczos", "nearest"}
        See `resizing`; the paper does not name its method.
    data_dir : path or None
        None is the environment variable ANNEALFIT_DATA, or else the user's cache.
    download : bool
        Fetch the data set if it is not there; without this the network is never used.
    lazy : bool
        Images are read and resized at every look, some at a time: `X_train` and `X_test` are tables that give slices.

    Examples
    --------
    >>> data = load_dataset("digits", seed=42)
    >>> data.X_train.shape, data.X_test.shape
    ((1000, 8, 8), (540, 8, 8))

    """
    check_number("seed", seed, Integral, minimum=0, maximum=_MAX_SEED)
    choose("resize", resize, resizing.METHODS)
    if size is not None:
        check_number("size", size, Integral, minimum=1, maximum=1024, remedy="or None for the native size")
    for word, value in (("n_train", n_train), ("n_test", n_test)):
        if value is not None:
            check_size(word, value)
    title, parts, defaults = _find(name, data_dir, download)
    if color and not parts.train.has_color:
        raise InvalidInputError(f"{title} has no colour; load it with color=False")
    n_train, n_test = (default if n is None else n for n, default in zip((n_train, n_test), defaults, strict=True))
    (train, chosen_train), (test, chosen_test) = _subsets(title, parts, n_train, n_test, int(seed))
    preparation = ImagePreparation(None if size is None else (int(size), int(size)), color, resize)
    images = ImageTable if lazy else prepared_images
    return Dataset(
        title,
        images(train, chosen_train, preparation),
        train.labels[chosen_train],
        images(test, chosen_test, preparation),
        test.labels[chosen_test],
        parts.class_names,
        preparation,
    )


def _find(
    name: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None, download: bool
) -> tuple[str, Parts, tuple[Size, Size]]:
    """Title, images and default subset sizes of what `name` means."""
    if isinstance(name, str) and name in DATASETS:
        source = DATASETS[name]
        local = _read_named(str(name), data_dir, download)
        if local.remarks:
            warnings.warn(
                f"{name}: the local files are not the complete official data, or cannot be confirmed to be: "
                f"{'; '.join(local.remarks)}. Results may differ from published ones; "
                f"`annealfit datasets fetch {name} --force` replaces the files",
                DataWarning,
                stacklevel=3,
            )
        return str(name), local.parts, (source.n_train, source.n_test)
    if not name or not isinstance(name, str | os.PathLike):
        choose("data set", name, DATASETS)  # raises, naming all of them
    path = Path(name)
    if not path.exists():
        if isinstance(name, str) and not path.suffix and os.path.basename(name) == name:
            choose("data set", name, DATASETS)
        kind = "file" if path.suffix else "folder"
        raise MissingDataError(
            f"there is no {kind} {name}; give a folder with a folder of images per class, an npz file, or one of "
            f"{', '.join(DATASETS)}"
        )
    parts = read_own(path)
    if parts.test is not None:
        return path.stem, parts, ("all", "all")
    return path.stem, parts, ("all", max(len(parts.class_names), round(len(parts.train.labels) / 4)))


def _read_named(name: str, data_dir: str | os.PathLike[str] | None, download: bool) -> LocalData:
    if not DATASETS[name].files:
        return LocalData(DATASETS[name].read({}), ())
    if download and not is_available(name, data_dir):
        fetch(name, data_dir=data_dir)
    return read_local(name, data_directory(data_dir))


def _subsets(
    name: str, parts: Parts, n_train: Size, n_test: Size, seed: int
) -> tuple[tuple[Part, NDArray[np.intp]], tuple[Part, NDArray[np.intp]]]:
    n_classes = len(parts.class_names)
    if parts.test is None:
        train, test = split_stratified(parts.train.labels, n_classes, n_train, n_test, seed, name)
        return (parts.train, train), (parts.train, test)
    train = choose_balanced(parts.train.labels, n_classes, n_train, seed, 0, f"n_train of {name}")
    test = choose_balanced(parts.test.labels, n_classes, n_test, seed, 1, f"n_test of {name}")
    return (parts.train, train), (parts.test, test)
