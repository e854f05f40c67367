"""Curvature variants, one function each.

A variant is called once with the training set and returns a function of the current probabilities that
gives the matrices of the problems of one iteration. C matrices of D×D mean one problem a class; one
matrix of (C·D)×(C·D) means one problem over all classes. Variants that do not depend on the
probabilities return the same array object every time, which samplers use to share work.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from annealfit.surrogate.loss import TrainingSet

Matrices = list[NDArray[np.float64]]
CurvatureAt = Callable[[NDArray[np.float64]], Matrices]


def gram(data: TrainingSet) -> CurvatureAt:
    """`G + Λ`: the paper's, an upper bound of the loss's curvature, twice as steep as need be."""
    return _constant(data.gram + np.diag(data.ridge), data.n_classes)


def diagonal(data: TrainingSet) -> CurvatureAt:
    """`diag(G) + Λ`: the paper's separable alternative, blind to correlations and not a bound."""
    return _constant(np.diag(data.gram.diagonal() + data.ridge), data.n_classes)


CURVATURES: dict[str, Callable[[TrainingSet], CurvatureAt]] = {
    "gram": gram,
    "diagonal": diagonal,
}


def _constant(matrix: NDArray[np.float64], n_classes: int) -> CurvatureAt:
    matrices = [matrix] * n_classes
    return lambda probabilities: matrices
