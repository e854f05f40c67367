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
Curvature = Callable[[TrainingSet], CurvatureAt]


def gram(data: TrainingSet) -> CurvatureAt:
    """`G + Λ`: the paper's, an upper bound of the loss's curvature, twice as steep as need be."""
    return _constant(data.gram + np.diag(data.ridge), data.n_classes)


def diagonal(data: TrainingSet) -> CurvatureAt:
    """`diag(G) + Λ`: the paper's separable alternative, blind to correlations and not a bound."""
    return _constant(np.diag(data.gram.diagonal() + data.ridge), data.n_classes)


def bound(data: TrainingSet) -> CurvatureAt:
    """`½G + Λ`: the least multiple of the Gram matrix that bounds the loss's curvature (Böhning 1992)."""
    return _constant(0.5 * data.gram + np.diag(data.ridge), data.n_classes)


def gauss_newton(data: TrainingSet) -> CurvatureAt:
    """`Xᵀ diag(π_c(1 − π_c)) X/N + Λ`: each class's own block of the Hessian, anew at every iteration; not a bound."""
    penalty = np.diag(data.ridge)

    def at(probabilities: NDArray[np.float64]) -> Matrices:
        n_samples = len(data.features)
        weights = probabilities * (1 - probabilities)
        return [(data.features.T * row) @ data.features / n_samples + penalty for row in weights]

    return at


def joint(data: TrainingSet) -> CurvatureAt:
    """`½(I − 11ᵀ/C) ⊗ G + I ⊗ Λ`: one problem over all classes, the tightest constant bound there is."""
    n_classes = data.n_classes
    coupling = 0.5 * (np.eye(n_classes) - 1 / n_classes)
    matrices: Matrices = [np.kron(coupling, data.gram).astype(np.float64) + np.diag(np.tile(data.ridge, n_classes))]
    return lambda probabilities: matrices


CURVATURES: dict[str, Curvature] = {
    "gram": gram,
    "diagonal": diagonal,
    "bound": bound,
    "gauss_newton": gauss_newton,
    "joint": joint,
}

# Curvatures that bound the loss from above: with one of these a negative surrogate is a promise.
MAJORIZERS = frozenset({"gram", "bound", "joint"})


def sparse(curvature: Curvature, max_pairs: int) -> Curvature:
    """The curvature with each matrix made sparse by `sparsify`: a looser bound on a sparser graph."""

    def build(data: TrainingSet) -> CurvatureAt:
        dense_at = curvature(data)
        latest: tuple[Matrices, Matrices] = ([], [])  # constant curvatures are made sparse once

        def at(probabilities: NDArray[np.float64]) -> Matrices:
            nonlocal latest
            dense = dense_at(probabilities)
            if dense is not latest[0]:
                made = {id(matrix): sparsify(matrix, max_pairs) for matrix in dense}
                latest = dense, [made[id(matrix)] for matrix in dense]
            return latest[1]

        return at

    return build


def sparsify(matrix: NDArray[np.float64], max_pairs: int) -> NDArray[np.float64]:
    """An upper bound of a curvature with at most `max_pairs` pairs of parameters coupled.

    Dropping the coupling `G_ij` and adding `|G_ij|` to both `G_ii` and `G_jj` adds the positive semidefinite
    matrix `|G_ij|·(e_i ∓ e_j)(e_i ∓ e_j)ᵀ`, so what bounded the loss still does. The largest couplings stay.

    >>> sparsify(np.array([[2.0, -1.0], [-1.0, 3.0]]), 0).tolist()
    [[3.0, 0.0], [0.0, 4.0]]
    """
    rows, columns = np.triu_indices(len(matrix), 1)
    sizes = np.abs(matrix[rows, columns])
    dropped = np.argsort(-sizes, kind="stable")[max_pairs:]
    sparse = matrix.copy()
    for i, j in zip(rows[dropped], columns[dropped], strict=True):
        sparse[i, j] = sparse[j, i] = 0.0
    np.add.at(sparse, (rows[dropped], rows[dropped]), sizes[dropped])
    np.add.at(sparse, (columns[dropped], columns[dropped]), sizes[dropped])
    return sparse


def _constant(matrix: NDArray[np.float64], n_classes: int) -> CurvatureAt:
    matrices = [matrix] * n_classes
    return lambda probabilities: matrices
