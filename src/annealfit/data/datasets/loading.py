"""`load_dataset` and `load_table`: a training and a test subset of a data set.

The seed decides which images or rows a subset has. A data set with a training and a test part gives as many of each
class as of any other; one that comes as a single pool is split with the class shares it has.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, check_number, choose
from annealfit._support.randomness import child_seed
from annealfit.data.datasets.catalogue import DATASETS
from annealfit.data.datasets.fetching import fetch, is_available, read_local
from annealfit.data.datasets.formats import DataWarning, MissingDataError
from annealfit.data.datasets.images import ImagePreparation, ImageTable, Part, Parts
from annealfit.data.datasets.own_data import read_own, read_table
from annealfit.data.rows import Selection, is_out_of_core

_MAX_SEED = 2**32 - 1  # of scikit-learn's train_test_split

Size = int | Literal["all"]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with values in [0, 1], or rows of features, and whole-number labels that index `class_names`."""

    name: str
    X_train: Any  # (N, H, W), or (N, H, W, 3) in colour; (N, d) for features; an array, or a table read in slices
    y_train: Indices
    X_test: Any
    y_test: Indices
    class_names: tuple[str, ...]
    preparation: ImagePreparation = field(default_factory=ImagePreparation)  # of the images
    images: str = "stated"  # or "published", as given to `load_dataset`
    description: str = ""  # which images these are, and how they were drawn, where they are the published ones
    feature_names: tuple[str, ...] = ()  # of the columns, where a table has names


def load_dataset(
    name: str | os.PathLike[str],
    *,
    seed: int = 42,
    images: str = "stated",
    n_train: Size | None = None,
    n_test: Size | None = None,
    size: int | None = 8,
    color: bool = False,
    resize: str = "area",
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    lazy: bool = False,
    skip_unreadable: bool = False,
) -> Dataset:
    """Load a training and a test subset, decided by `seed`, of images resized to `size` × `size`.

    Parameters
    ----------
    name : one of `annealfit.data.datasets.DATASETS`, or the path of a user's own data
        Own data are a folder with a folder of images for each class, or an npz file: see docs/datasets.md.
    seed : int
        Training images come from the official training part and test images from the official test part,
        as equally many of each class as there are. What comes as one part (digits, own data) is split
        with the class shares it has.
    images : {"stated", "published"}
        "stated" are the images that the paper's text names; "published" are those that its tables were made
        from, as inferred in docs/datasets.md. The other arguments about images must keep their defaults then,
        and `Dataset.description` says what was loaded.
    n_train, n_test : int, "all", or None
        None is the paper's number; for own data, a quarter to test on and the rest to train on.
    size : int or None
        None keeps the native size.
    color : bool
        Keep colour, (N, H, W, 3); otherwise images become grey by ITU-R 601 luma.
    resize : {"area", "bilinear", "bicubic", "lanczos", "nearest", "zoom"}
        The paper does not name its method.
    data_dir : path or None
        None is the environment variable ANNEALFIT_DATA, or else the user's cache.
    download : bool
        Fetch the data set if it is not there; without this the network is never used.
    lazy : bool
        `X_train` and `X_test` are tables that read and resize images whenever a slice is taken.
    skip_unreadable : bool
        Leave out files of a folder that are no readable images, with a warning that names them; every file is read
        once more. Otherwise an error names all of them.

    Examples
    --------
    >>> data = load_dataset("digits", seed=42)
    >>> data.X_train.shape, data.X_test.shape
    ((1000, 8, 8), (540, 8, 8))

    """
    check_number("seed", seed, Integral, minimum=0, maximum=_MAX_SEED)
    if size is not None:
        check_number("size", size, Integral, minimum=1, maximum=1024, remedy="or None for the native size")
    preparation = ImagePreparation(None if size is None else (int(size), int(size)), color, resize)
    for word, value in (("n_train", n_train), ("n_test", n_test)):
        if value is not None and not (isinstance(value, str) and value == "all"):
            check_number(word, value, Integral, minimum=0, remedy='or "all" for every image')
    if choose("images", images, ("stated", "published")) == "published":
        if (n_train, n_test, size, color, resize) != (None, None, 8, False, "area"):
            raise InvalidInputError(
                'images="published" fixes n_train, n_test, size, color and resize; leave them out, '
                'or use images="stated"'
            )
        pool = "digits" if choose("data set", name, DATASETS) == "mnist" else str(name)
        return _published(str(name), _read_named(pool, data_dir, download), int(seed), lazy)
    if isinstance(name, str) and name in DATASETS:
        title, parts = str(name), _read_named(str(name), data_dir, download)
        n_train = DATASETS[name].n_train if n_train is None else n_train
        n_test = DATASETS[name].n_test if n_test is None else n_test
    else:
        path = _own_path(name)
        title, parts = path.stem, read_own(path, skip_unreadable=skip_unreadable)
    if color and not parts.train.has_color:
        raise InvalidInputError(f"{title} has no colour; load it with color=False")
    labels = [part.labels for part in parts.given]
    chosen = _draw_subsets(title, labels, len(parts.class_names), n_train, n_test, int(seed))
    return _dataset(title, parts, chosen, preparation, lazy)


def _dataset(
    title: str, parts: Parts, chosen: tuple[Indices, Indices], preparation: ImagePreparation, lazy: bool, **words: Any
) -> Dataset:
    """Read the chosen images of the training and the test part, or of the one pool."""
    sources = parts.train, parts.test or parts.train
    (X_train, y_train), (X_test, y_test) = (
        (ImageTable(part, own, preparation), part.labels[own]) for part, own in zip(sources, chosen, strict=True)
    )
    images = (X_train, X_test) if lazy else (X_train[:], X_test[:])
    return Dataset(title, images[0], y_train, images[1], y_test, parts.class_names, preparation, **words)


PUBLISHED_PREPARATION = ImagePreparation((8, 8), resize="zoom", grey="mean")


def _published(name: str, parts: Parts, seed: int, lazy: bool) -> Dataset:
    """Return the images behind the paper's row `name`, drawn from all `parts` as one pool.

    The digits study has one split for all seeds. How the other rows drew from their pools is not known: training
    images are drawn as from a training part, and test images from what is left.
    """
    labels = np.concatenate([part.labels for part in parts.given])
    images = np.concatenate([np.asarray(part.images) for part in parts.given])
    what, source, n_classes = f"{len(labels):,} images in one pool", DATASETS[name], len(parts.class_names)
    if name == "emnist":
        images, what = images.transpose(0, 2, 1), f"{what}, transposed as they are stored"
    if name == "mnist":
        what = f"scikit-learn's digits in place of MNIST, {what}"
    if name == "digits":
        train, test = split_stratified(labels, n_classes, "all", source.n_test, 42, name)
        train, what = train[: source.n_train], f"{what}; the same split for every seed"
    else:
        train = choose_balanced(labels, n_classes, source.n_train, seed, 0, f"n_train of {name}")
        rest = np.delete(np.arange(len(labels)), train)
        test = rest[choose_balanced(labels[rest], n_classes, source.n_test, seed, 1, f"n_test of {name}")]
        what = f"{what}; as many of each class, drawn by the seed"
    pool = Parts(Part(labels, images, parts.train.white), None, parts.class_names)
    title = f"{name} as published" + (" (scikit-learn's digits)" if name == "mnist" else "")
    words = {"images": "published", "description": what}
    return _dataset(title, pool, (train, test), PUBLISHED_PREPARATION, lazy, **words)


def _read_named(name: str, data_dir: str | os.PathLike[str] | None, download: bool) -> Parts:
    if download and not is_available(name, data_dir):
        fetch(name, data_dir=data_dir)
    parts = read_local(name, data_dir)
    if parts.remarks:
        warnings.warn(
            f"{name}: the local files are not the complete official data, or cannot be confirmed to be: "
            f"{'; '.join(parts.remarks)}. Results may differ from published ones; "
            f"`annealfit datasets fetch {name} --force` replaces the files",
            DataWarning,
            stacklevel=3,
        )
    return parts


def _own_path(name: str | os.PathLike[str]) -> Path:
    """Return the path of own data, or raise naming the data sets where it cannot be one."""
    path = Path(name) if name and isinstance(name, str | os.PathLike) else None
    if path is None or (name == path.name and not path.suffix and not path.exists()):
        choose("data set", name, DATASETS)
    elif not path.exists():
        raise MissingDataError(
            f"there is no {'file' if path.suffix else 'folder'} {name}; give a folder with a folder of images per "
            f"class, an npz file, or one of {', '.join(DATASETS)}"
        )
    return Path(name)


def load_table(
    path: Path, labels: str | None, folder: Path, *, seed: int, n_train: Size | None, n_test: Size | None
) -> Dataset:
    """Load the training and test rows of a table of features; `labels` is a column of it, or a file.

    One pool is split as images are. Parquet is copied to a file in `folder`.
    """
    check_number("seed", seed, Integral, minimum=0, maximum=_MAX_SEED)
    class_names, parts, feature_names = read_table(path, labels, folder)
    chosen = _draw_subsets(path.stem, [y for _, y in parts], len(class_names), n_train, n_test, seed)
    if len(parts) == 1:
        chosen = np.sort(chosen[0]), np.sort(chosen[1])  # then slices of a subset are slices of the file
    (X_train, y_train), (X_test, y_test) = (
        (Selection(X, own) if is_out_of_core(X) else X[own], y[own])
        for (X, y), own in zip((parts[0], parts[-1]), chosen, strict=True)
    )
    return Dataset(path.stem, X_train, y_train, X_test, y_test, class_names, feature_names=feature_names)


def _draw_subsets(
    name: str, labels: Sequence[Indices], n_classes: int, n_train: Size | None, n_test: Size | None, seed: int
) -> tuple[Indices, Indices]:
    """Draw indices of a training and a test subset: of two parts one each, or both from one pool.

    None is all of a part; of a pool it is a quarter to test on, and the rest to train on.
    """
    n_train = "all" if n_train is None else n_train
    if len(labels) == 2:
        n_test = "all" if n_test is None else n_test
        train = choose_balanced(labels[0], n_classes, n_train, seed, 0, f"n_train of {name}")
        return train, choose_balanced(labels[1], n_classes, n_test, seed, 1, f"n_test of {name}")
    n_test = max(n_classes, round(len(labels[0]) / 4)) if n_test is None else n_test
    return split_stratified(labels[0], n_classes, n_train, n_test, seed, name)


def choose_balanced(labels: Indices, n_classes: int, size: Size, seed: int, part: int, what: str) -> Indices:
    """Draw `size` indices, equally many of each class; a class that runs out leaves its share to the others.

    `part` keeps the draws of training and test apart; "all" is every index in order.
    """
    if size == "all":
        return np.arange(len(labels))
    if not n_classes <= size <= len(labels):
        raise InvalidInputError(
            f"{what} is {size}; it must be at least {n_classes} (one image per class) and at most {len(labels)}"
        )
    generator = np.random.default_rng(child_seed(seed, part))
    available, order = np.bincount(labels, minlength=n_classes), generator.permutation(n_classes)
    # In every round each class that has an image left gives one, in this order.
    classes = np.repeat(order, available[order])
    rounds = np.concatenate([np.arange(count) for count in available[order]])
    shares = np.bincount(classes[np.argsort(rounds, kind="stable")[:size]], minlength=n_classes)
    chosen = [generator.permutation(np.flatnonzero(labels == index))[:share] for index, share in enumerate(shares)]
    return generator.permutation(np.concatenate(chosen))


def split_stratified(
    labels: Indices, n_classes: int, n_train: Size, n_test: Size, seed: int, name: str
) -> tuple[Indices, Indices]:
    """Draw two subsets of one pool, each with the pool's class shares; "all" is what the other one leaves."""
    if n_train == "all" and n_test == "all":
        raise InvalidInputError(f'{name} comes as one part: of n_train and n_test only one can be "all"')
    total = len(labels)
    train = total - int(n_test) if n_train == "all" else int(n_train)
    test = total - train if n_test == "all" else int(n_test)
    if min(train, test) < n_classes or train + test > total:
        raise InvalidInputError(
            f"{train} images to train on and {test} to test (n_train, n_test) do not fit {name}: each must be at "
            f"least {n_classes}, one per class, and together at most the {total} there are"
        )
    if np.bincount(labels, minlength=n_classes).min() < 2:
        raise InvalidInputError(
            f"a class of {name} has fewer than 2 images; each needs one to train on and one to test"
        )
    from sklearn.model_selection import train_test_split  # slow to import, and not needed to list the data sets

    chosen = train_test_split(np.arange(total), train_size=train, test_size=test, stratify=labels, random_state=seed)
    return chosen[0], chosen[1]
