"""A user's own data: a folder with a folder of images for each class, or an npz file.

folder/cat/one.png  folder/dog/two.jpg            one pool, split by seed
folder/train/cat/…  folder/test/cat/…             parts as given
npz with X, y (or images, labels)                 one pool, split by seed
npz with X_train, y_train, X_test, y_test         parts as given
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit._support.files import read_arrays
from annealfit.data.datasets.errors import CorruptFileError
from annealfit.data.datasets.images import read_image
from annealfit.data.datasets.parts import Part, Parts, array_part

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})

_POOL_NAMES = (("X", "y"), ("images", "labels"))
_PART_NAMES = ("X_train", "y_train", "X_test", "y_test")


def read_own(path: Path) -> Parts:
    """The images and labels at a path; class names are the folders' names, or the labels in order."""
    if path.is_dir():
        return _read_folder(path)
    if path.suffix.lower() == ".npz":
        return _read_npz(path)
    raise InvalidInputError(f"{path} is neither a folder of images per class nor an npz file; give one of these")


def _read_folder(path: Path) -> Parts:
    # Two folders of these names are parts if they hold folders; if they hold images, they are classes.
    if _names(path) == ("test", "train") and _names(path / "train"):
        names = _class_names(path / "train")
        if unknown := sorted(set(_names(path / "test")) - set(names)):
            raise InvalidInputError(f"{path / 'test'} has classes that train does not have: {', '.join(unknown)}")
        return Parts(_folder_part(path / "train", names), _folder_part(path / "test", names), names)
    names = _class_names(path)
    return Parts(_folder_part(path, names), None, names)


def _names(path: Path) -> tuple[str, ...]:
    """Names of the folders in a folder, in order."""
    return tuple(sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")))


def _class_names(path: Path) -> tuple[str, ...]:
    names = _names(path)
    if len(names) < 2:
        raise InvalidInputError(
            f"{path} has {len(names)} folders; it must have at least 2, a folder of images for each class"
        )
    return names


def _folder_part(path: Path, class_names: tuple[str, ...]) -> Part:
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(class_names):
        folder = path / name
        if not folder.is_dir():
            continue  # a test part need not have every class
        images = sorted(file for file in folder.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
        if not images:
            raise InvalidInputError(
                f"{folder} has no image; put files ending in {', '.join(sorted(IMAGE_SUFFIXES))} there, or remove it"
            )
        files += images
        labels += [label] * len(images)
    if not files:
        raise InvalidInputError(f"{path} has no folder of images; make one for each class, or remove it")

    def pick(indices: NDArray[np.intp]) -> Iterator[NDArray[np.float64]]:
        for index in indices:
            yield read_image(files[index])[None]

    return Part(np.array(labels, dtype=np.intp), pick, has_color=True)


def image_files(path: Path) -> list[Path]:
    """The image files that a path means: itself, or those below a folder, in order."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file())
    if not found:
        raise InvalidInputError(f"{path} has no image; put files ending in {', '.join(sorted(IMAGE_SUFFIXES))} there")
    return found


def _read_npz(path: Path) -> Parts:
    try:
        arrays = read_arrays(path)
    except FileFormatError as error:
        raise CorruptFileError(str(error)) from error
    if set(_PART_NAMES) <= arrays.keys():
        X_train, y_train, X_test, y_test = (arrays[name] for name in _PART_NAMES)
        classes = np.unique(_check_labels(path, "y_train", y_train))
        if not np.isin(_check_labels(path, "y_test", y_test), classes).all():
            raise InvalidInputError(f"{path}: y_test has labels that y_train does not have")
        train = _npz_part(path, "X_train", X_train, y_train, classes)
        test = _npz_part(path, "X_test", X_test, y_test, classes)
        if X_train.shape[3:] != X_test.shape[3:]:
            raise InvalidInputError(
                f"{path}: X_train {X_train.shape} and X_test {X_test.shape} must both have colour or none"
            )
    else:
        pairs = [pair for pair in _POOL_NAMES if set(pair) <= arrays.keys()]
        if not pairs:
            raise FileFormatError(
                f"{path} has the arrays {', '.join(sorted(arrays)) or '(none)'}; it must have X and y, "
                f"images and labels, or {', '.join(_PART_NAMES)}"
            )
        images, labels = pairs[0]
        classes = np.unique(_check_labels(path, labels, arrays[labels]))
        train, test = _npz_part(path, images, arrays[images], arrays[labels], classes), None
    if len(classes) < 2:
        raise InvalidInputError(f"{path} has {len(classes)} class; at least 2 are needed")
    return Parts(train, test, tuple(str(name) for name in classes.tolist()))


def _check_labels(path: Path, name: str, labels: NDArray[Any]) -> NDArray[Any]:
    if labels.ndim != 1:
        raise InvalidInputError(
            f"{path}: {name} has shape {labels.shape}; labels must be one-dimensional, one per image"
        )
    if labels.dtype.kind not in "iubUS":
        raise InvalidInputError(f"{path}: {name} has type {labels.dtype}; labels must be whole numbers or strings")
    return labels


def _npz_part(path: Path, name: str, images: NDArray[Any], labels: NDArray[Any], classes: NDArray[Any]) -> Part:
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    if images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)) or 0 in images.shape:
        raise InvalidInputError(f"{path}: {name} has shape {images.shape}; it must be (N, H, W) or (N, H, W, 3)")
    if len(images) != len(labels):
        raise InvalidInputError(f"{path}: {name} has {len(images)} images but there are {len(labels)} labels")
    white = {"uint8": 255.0, "uint16": 65535.0, "bool": 1.0}.get(images.dtype.name)
    if white is None:
        if images.dtype.kind != "f":
            raise InvalidInputError(
                f"{path}: {name} has type {images.dtype}; use uint8, uint16, or floating point in [0, 1]"
            )
        low, high = float(images.min()), float(images.max())
        if not (low >= 0.0 and high <= 1.0):  # not a number fails too
            raise InvalidInputError(f"{path}: {name} goes from {low:g} to {high:g}; divide it so that it is in [0, 1]")
        white = 1.0
    return array_part(images, np.searchsorted(classes, labels), white)
