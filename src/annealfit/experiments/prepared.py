"""A data set made ready for training: images, and their features, computed once for all methods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from annealfit.datasets import Dataset
from annealfit.features import RandomConvFeatures
from annealfit.objectives import LinearHead


@dataclass(frozen=True, eq=False)
class Prepared:
    """Images of both parts with their features (N, d)."""

    dataset: Dataset
    features: RandomConvFeatures  # fitted on the training images
    X_train: NDArray[np.float64]
    X_test: NDArray[np.float64]

    @classmethod
    def of(cls, dataset: Dataset, features: RandomConvFeatures) -> Prepared:
        """Fit the features on the training images and compute those of both parts."""
        return cls(dataset, features, features.fit_transform(dataset.X_train), features.transform(dataset.X_test))

    @property
    def n_classes(self) -> int:
        """Classes of the data set, C."""
        return len(self.dataset.class_names)

    def head(self, regularization: float) -> LinearHead:
        """The objective of the training part."""
        return LinearHead.of_arrays(self.X_train, self.dataset.y_train, self.n_classes, regularization)

    def test_head(self) -> LinearHead:
        """The loss on the test part, without a penalty."""
        return LinearHead.of_arrays(self.X_test, self.dataset.y_test, self.n_classes, 0.0)
