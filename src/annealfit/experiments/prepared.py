"""A data set made ready for training: images or rows, and their features, computed once for all methods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from annealfit.datasets import Dataset
from annealfit.features import RandomConvFeatures, RowScaler
from annealfit.objectives import LinearHead
from annealfit.rows import NpyTable, is_out_of_core
from annealfit.rows.tables import chunk_bounds


@dataclass(frozen=True, eq=False)
class Prepared:
    """Images, or rows, of both parts with their features (N, d): arrays, or tables that are read in slices."""

    dataset: Dataset
    features: RandomConvFeatures | RowScaler | None  # fitted on the training part; None where rows are features
    X_train: Any
    X_test: Any

    @classmethod
    def of(cls, dataset: Dataset, features: RandomConvFeatures | RowScaler) -> Prepared:
        """Fit the features on the training part and compute those of both parts."""
        return cls(dataset, features, features.fit_transform(dataset.X_train), features.transform(dataset.X_test))

    @classmethod
    def of_rows(cls, dataset: Dataset) -> Prepared:
        """Rows that are features already."""
        return cls(dataset, None, dataset.X_train, dataset.X_test)

    @classmethod
    def on_disk(cls, dataset: Dataset, features: RandomConvFeatures, folder: Path) -> Prepared:
        """Features in single precision, written to files of a folder some at a time, and read from there in slices."""
        features.fit(dataset.X_train)
        parts = ("train", dataset.X_train), ("test", dataset.X_test)
        return cls(dataset, features, *(_written(features, X, folder / f"{name}.npy") for name, X in parts))

    @property
    def n_classes(self) -> int:
        """Classes of the data set, C."""
        return len(self.dataset.class_names)

    @property
    def is_in_memory(self) -> bool:
        """Whether the features are."""
        return not is_out_of_core(self.X_train)

    def head(self, regularization: float) -> LinearHead:
        """The objective of the training part."""
        return LinearHead.of_arrays(self.X_train, self.dataset.y_train, self.n_classes, regularization)

    def test_head(self) -> LinearHead:
        """The loss on the test part, without a penalty."""
        return LinearHead.of_arrays(self.X_test, self.dataset.y_test, self.n_classes, 0.0)


def _written(features: RandomConvFeatures, images: Any, path: Path) -> Any:
    file = np.lib.format.open_memmap(path, "w+", np.float32, (len(images), features.n_features_out_))
    values = int(np.prod(images.shape[1:]))
    for first, last in chunk_bounds(images, max(values, features.n_features_out_)):
        file[first:last] = features.transform(images[first:last])
    file.flush()
    return NpyTable(path)
