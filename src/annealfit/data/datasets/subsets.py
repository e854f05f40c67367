"""Which images make a subset: decided by the seed alone, with every class fairly represented."""

from __future__ import annotations

from numbers import Integral
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, check_number
from annealfit._support.randomness import child_seed

Size = int | Literal["all"]
Indices = NDArray[np.intp]


def check_size(name: str, size: object) -> None:
    """Raise unless `size` is a whole number or "all"."""
    if not (isinstance(size, str) and size == "all"):
        check_number(name, size, Integral, minimum=0, remedy='or "all" for every image')


def choose_balanced(labels: Indices, n_classes: int, size: Size, seed: int, part: int, what: str) -> Indices:
    """Indices of `size` images, as equally many of each class as there are; a class that runs out leaves its share.

    `part` keeps the draws of training and test apart; "all" is every image in the order of the files.

    >>> labels = np.array([0, 0, 0, 1, 1, 1])
    >>> labels[choose_balanced(labels, 2, 4, 42, 0, "n_train")].tolist().count(1)
    2
    """
    if size == "all":
        return np.arange(len(labels))
    if not n_classes <= size <= len(labels):
        raise InvalidInputError(
            f"{what} is {size}; it must be at least {n_classes} (one image per class) and at most {len(labels)}"
        )
    generator = np.random.default_rng(child_seed(seed, part))
    shares = _shares(np.bincount(labels, minlength=n_classes), size, generator.permutation(n_classes))
    chosen = [
        generator.permutation(np.flatnonzero(labels == index))[:share] for index, share in enumerate(shares.tolist())
    ]
    return generator.permutation(np.concatenate(chosen))


def _shares(available: Indices, size: int, order: Indices) -> Indices:
    """How many of each class: all equal, but none above what is there; the remainder goes by `order`, one each."""
    shares = np.zeros_like(available)
    while left := size - int(shares.sum()):
        open_classes = order[shares[order] < available[order]]  # all have equally many so far
        if left < len(open_classes):
            shares[open_classes[:left]] += 1
        else:
            each = shares[open_classes] + left // len(open_classes)
            shares[open_classes] = np.minimum(each, available[open_classes])
    return shares


def split_stratified(
    labels: Indices, n_classes: int, n_train: Size, n_test: Size, seed: int, name: str
) -> tuple[Indices, Indices]:
    """Indices of a training and a test subset of one pool, each with the class shares of the pool.

    "all" is every image the other subset does not take.
    """
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
    from sklearn.model_selection import train_test_split  # here: scikit-learn is not needed to name a data set

    chosen = train_test_split(np.arange(total), train_size=train, test_size=test, stratify=labels, random_state=seed)
    return chosen[0], chosen[1]
