"""`load_dataset`: a stratified training and test subset of a named data set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from annealfit.datasets.catalogue import DATASETS
from annealfit.errors import InvalidInputError, choose


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with values in [0, 1] and whole-number labels that index `class_names`."""

    name: str
    X_train: NDArray[np.float64]  # (N, H, W)
    y_train: NDArray[np.intp]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.intp]
    class_names: tuple[str, ...]


def load_dataset(name: str, *, seed: int = 42, n_train: int | None = None, n_test: int | None = None) -> Dataset:
    """A stratified split of the named data set, decided by `seed`; sizes default to the paper's.

    >>> data = load_dataset("digits", seed=42)
    >>> data.X_train.shape, data.X_test.shape
    ((1000, 8, 8), (540, 8, 8))
    """
    source = DATASETS[choose("data set", name, DATASETS)]
    images, labels = source.read()
    n_train = source.n_train if n_train is None else n_train
    n_test = source.n_test if n_test is None else n_test
    n_classes = len(source.class_names)
    if min(n_train, n_test) < n_classes or n_train + n_test > len(images):
        raise InvalidInputError(
            f"n_train={n_train} and n_test={n_test} do not fit {name}: each must be at least {n_classes} "
            f"(one image a class) and together at most {len(images)}"
        )
    X_train, X_test, y_train, y_test = train_test_split(
        images, labels, train_size=n_train, test_size=n_test, stratify=labels, random_state=seed
    )
    return Dataset(name, X_train, y_train, X_test, y_test, source.class_names)
