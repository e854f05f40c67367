"""The Gram matrix of the augmented features, computed once for the whole training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def augment(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """`[X, 1]`: the features with a last column of ones, so that the bias is one more weight.

    >>> augment(np.zeros((2, 1))).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    return np.column_stack([features, np.ones(len(features))])


def gram(augmented: NDArray[np.float64]) -> NDArray[np.float64]:
    """`G = XᵀX/N`, shape (D, D): the paper's equation 3."""
    return augmented.T @ augmented / len(augmented)


def ridge(n_parameters: int, regularization: float) -> NDArray[np.float64]:
    """The diagonal of `Λ = λ·diag(1, …, 1, 0)`: weights are regularised, the bias is not."""
    diagonal = np.full(n_parameters, float(regularization))
    diagonal[-1] = 0.0
    return diagonal
