"""Curvatures: the quadratic part of the surrogate that stands for a linear head's loss, one function each.

A curvature is called once with the head, and returns a function of the current point that gives the metrics of the
iteration's problems: one metric of D×D for all outputs, one for each, or one over the parameters of all outputs at
once. A metric that does not depend on the point is made once and returned every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

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


def _constant(matrix: NDArray[np.float64]) -> MetricsAt:
    metrics = (Metric(matrix),)
    return lambda point: metrics
