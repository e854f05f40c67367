"""Curvatures: the quadratic part of the surrogate that stands for a linear head's loss, one function each.

A curvature is called once with the head, and returns a function of the current point that gives the metrics of the
iteration's problems: one metric of D×D for all outputs, one for each, or one over the parameters of all outputs at
once. A metric that does not depend on the point is made once and returned every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from annealfit.errors import InvalidInputError
from annealfit.metric import Metric
from annealfit.objectives.linear_head import HeadPoint, LinearHead

Metrics = Sequence[Metric]
MetricsAt = Callable[[HeadPoint], Metrics]
Curvature = Callable[[LinearHead], MetricsAt]


def gram(head: LinearHead) -> MetricsAt:
    """`G + Λ`: the paper's, an upper bound of the loss's curvature, twice as steep as need be."""
    return _constant(head.gram + np.diag(head.ridge))


def diagonal(head: LinearHead) -> MetricsAt:
    """`diag(G) + Λ`: the paper's separable alternative, blind to correlations and not a bound."""
    return _constant(np.diag(head.gram.diagonal() + head.ridge))


def bound(head: LinearHead) -> MetricsAt:
    """`½G + Λ`, for two classes `¼G + Λ`: the least multiple of the Gram matrix that bounds the loss's curvature."""
    steepest = float(np.linalg.eigvalsh(head.link.steepest)[-1])
    return _constant(steepest * head.gram + np.diag(head.ridge))


def gauss_newton(head: LinearHead) -> MetricsAt:
    """`Xᵀ diag(π_c(1 − π_c)) X/N + Λ`: each output's block of the Hessian, anew at every iteration; not a bound."""
    penalty = np.diag(head.ridge)
    return lambda point: [Metric(matrix + penalty) for matrix in point.output_grams()]


def joint(head: LinearHead) -> MetricsAt:
    """`½(I − 11ᵀ/C) ⊗ G + I ⊗ Λ`: one problem over all outputs, the tightest constant bound there is."""
    penalty = np.diag(np.tile(head.ridge, head.n_outputs))
    return _constant(np.kron(head.link.steepest, head.gram).astype(np.float64) + penalty)


CURVATURES: dict[str, Curvature] = {
    "gram": gram,
    "diagonal": diagonal,
    "bound": bound,
    "gauss_newton": gauss_newton,
    "joint": joint,
}

# Curvatures that bound the loss from above: with one of these a negative surrogate is a promise.
MAJORIZERS = frozenset({gram, bound, joint})


def sparse(curvature: Curvature, max_couplings: int, bits: int) -> Curvature:
    """The curvature with each metric made sparse by `sparsify`: a looser bound on a sparser graph.

    No problem of `bits` bits per parameter has more than `max_couplings` couplings.
    """

    def build(head: LinearHead) -> MetricsAt:
        dense_at = curvature(head)
        known: dict[Metric, Metric] = {}  # of the last point: a metric that does not change is made sparse once

        def at(point: HeadPoint) -> Metrics:
            nonlocal known
            dense = dense_at(point)
            known = {metric: known.get(metric) or _thinned(metric, max_couplings, bits) for metric in dense}
            return [known[metric] for metric in dense]

        return at

    return build


def _thinned(metric: Metric, max_couplings: int, bits: int) -> Metric:
    # Bits of one parameter are coupled whatever is dropped; a pair of parameters is bits² couplings.
    within = metric.size * bits * (bits - 1) // 2
    if max_couplings < within:
        raise InvalidInputError(
            f"max_couplings is {max_couplings}; {metric.size} parameters of {bits} bits need at least "
            f"{within}: use fewer bits"
        )
    return Metric(sparsify(metric.matrix, (max_couplings - within) // bits**2))


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


def _constant(matrix: NDArray[np.float64]) -> MetricsAt:
    metrics = (Metric(matrix),)
    return lambda point: metrics
