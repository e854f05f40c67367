"""The data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits


@dataclass(frozen=True)
class Source:
    """A data set before any subset is taken: where it comes from and how to read it."""

    description: str
    n_train: int  # subset sizes of the paper
    n_test: int
    class_names: tuple[str, ...]
    read: Callable[[], tuple[NDArray[np.float64], NDArray[np.intp]]]  # images in [0, 1], labels


def _read_digits() -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    digits = load_digits()
    return digits.images / 16.0, digits.target


DATASETS: dict[str, Source] = {
    "digits": Source(
        "8×8 handwritten digits, 1,797 images, shipped with scikit-learn",
        n_train=1000,
        n_test=540,
        class_names=tuple("0123456789"),
        read=_read_digits,
    ),
}
