"""Curvatures: the quadratic part of the surrogate of a linear head's loss, one function each.

A curvature is called once with the head, and returns a function of the current point that gives the matrices of the
iteration's problems: one D×D matrix for all outputs, one for each output, or one over the parameters of all outputs. A
matrix that does not depend on the point is made once.

If that function has a `measure`, a number for every point, it is called again only when the number has changed by a
factor of 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from annealfit._support.arrays import Array
from annealfit.data.rows import Chunk
from annealfit.problems.coordinates import Coordinates, Origin
from annealfit.problems.curvature import BlockCurvature, Curvature
from annealfit.training.objectives.linear_head import HeadPoint, LinearHead

CurvatureAt = Callable[[HeadPoint], Sequence[Any]]  # of matrices, Curvature or LazyCurvature

# Chosen by measurement: docs/defaults.md.
MOST_IN_ONE_BLOCK, BLOCK = 256, 64  # features that are all coupled; features of a block, if there are more
ROWS_PER_PARAMETER, FEWEST_ROWS = 24, 2048  # of the sample that a local curvature is computed from


class Local:
    """The mean over outputs of the Hessian, `Xᵀ diag(ω) X/N + Λ`, ω the mean of `π(1 − π)`; not a bound.

    All outputs share it, and it is computed from a sample of many rows. With many features it is block-diagonal: each
    block fits into a processor's cache, or onto a chip. Couplings between blocks are left to the acceptance rule.

    A feature that is rarely different from a constant may be constant in the sample. Without curvature its updates
    would dwarf all others, so the variance that the sample lacks is added.
    """

    def __init__(self, head: LinearHead) -> None:
        n_features = head.n_parameters - 1
        count = 1 if n_features <= MOST_IN_ONE_BLOCK else -(-n_features // BLOCK)
        edges = [round(index * n_features / count) for index in range(count + 1)]
        self._blocks = [slice(first, last) for first, last in pairwise(edges)]
        width = max(block.stop - block.start for block in self._blocks)
        sampled = head.rows.sample(max(ROWS_PER_PARAMETER * width, FEWEST_ROWS))
        self._sample = head if sampled is head.rows else LinearHead(sampled, head.regularization)
        self._lacking = np.zeros(n_features) if sampled is head.rows else lacking_variance(head, self._sample)

    def measure(self, point: HeadPoint) -> float:
        """Return the cross-entropy, or with several blocks the root of the loss.

        Where the cross-entropy is small most rows are decided, and the loss has little curvature. With couplings left
        out a new curvature is worth half as many computations, and near the end, where the penalty dominates, none.
        """
        return point.cross_entropy if len(self._blocks) == 1 else point.loss**0.5

    def __call__(self, point: HeadPoint) -> Sequence[LocalCurvature]:
        """Return the curvature; coordinates decide which entries are needed."""
        return (LocalCurvature(self._sample, point.weights, self._blocks, self._lacking),)


def lacking_variance(head: LinearHead, sample: LinearHead) -> Array:
    """Return the variances (d,) of features of which a sample has less than half, and 0 for the others."""
    with np.errstate(over="ignore", invalid="ignore"):  # huge features have an error of their own
        whole, some = (given.feature_squares - given.feature_means**2 for given in (head, sample))
        # Where nearly everything cancels, the rest may be rounding.
        return np.where((some < 0.5 * whole) & (whole > 1e-9 * head.feature_squares), whole, 0.0)


class LocalCurvature:
    """A local curvature that is computed in given coordinates. It depends on weights and rows only."""

    def __init__(self, head: LinearHead, weights: Array, blocks: Sequence[slice], lacking: Array) -> None:
        """`lacking` is the variance (d,) of features that the rows of the head do not show."""
        self._head, self._weights, self._blocks, self._lacking = head, weights, blocks, lacking
        self.size = head.n_parameters

    def in_coordinates(self, coordinates: Coordinates) -> Curvature:
        """Return the curvature in these coordinates, without couplings between blocks and of the bias to blocks."""
        origin = getattr(coordinates, "origin", None)
        if origin is None:  # the coordinates mix features: all entries are needed
            everything, bias = slice(0, self.size - 1), slice(self.size - 1, self.size)
            whole = coordinates.pull_curvature(Curvature.computed(self._matrices([everything], Origin())[0]))
            return BlockCurvature([whole.part(block) for block in (*self._blocks, bias)]) if self._blocks[1:] else whole
        matrices = self._matrices(self._blocks, origin)
        if len(matrices) == 1:
            return Curvature.computed(matrices[0])
        parts = [*(matrix[:-1, :-1] for matrix in matrices), matrices[0][-1:, -1:]]
        return BlockCurvature([Curvature.computed(part) for part in parts])

    def _matrices(self, blocks: Sequence[slice], origin: Origin) -> list[Array]:
        """Return the matrices of blocks of features, measured from an origin, and the bias."""
        head, weights = self._head, self._weights
        link = head.link

        def term(chunk: Chunk) -> tuple[Array, ...]:
            """Σ_n a_n ω_n (x_n − o)(x_n − o)ᵀ of every block."""
            variances = link.mean_variances(chunk.project(weights))
            return tuple(chunk.block_grams(chunk.weighted(variances), blocks, origin.features))

        matrices = list(head.rows.mean(term))
        for block, matrix in zip(blocks, matrices, strict=True):
            mean_variance = matrix[-1, -1]
            diagonal = matrix.reshape(-1)[: -len(matrix) : len(matrix) + 1]
            diagonal += head.ridge[block] + mean_variance * self._lacking[block]
            matrix[-1] *= origin.bias_unit
            matrix[:, -1] *= origin.bias_unit
        return matrices


def gram(head: LinearHead) -> CurvatureAt:
    """`G + Λ`: the paper's, an upper bound of the loss's curvature, twice as steep as necessary."""
    return _constant(head.gram + np.diag(head.ridge))


def diagonal(head: LinearHead) -> CurvatureAt:
    """`diag(G) + Λ`: the paper's separable alternative, which ignores correlations and is not a bound."""
    return _constant(np.diag(head.gram.diagonal() + head.ridge))


def bound(head: LinearHead) -> CurvatureAt:
    """`½G + Λ`, for two classes `¼G + Λ`: the smallest multiple of the Gram matrix that bounds the loss's curvature."""
    return _constant(head.bounding_curvature)


def gauss_newton(head: LinearHead) -> CurvatureAt:
    """`Xᵀ diag(π_c(1 − π_c)) X/N + Λ`: each output's block of the Hessian, at every iteration; not a bound."""
    penalty = np.diag(head.ridge)
    return lambda point: [Curvature(matrix + penalty) for matrix in point.output_grams()]


def joint(head: LinearHead) -> CurvatureAt:
    """`½(I − 11ᵀ/C) ⊗ G + I ⊗ Λ`: one problem over all outputs, the tightest constant bound."""
    penalty = np.diag(np.tile(head.ridge, head.n_outputs))
    return _constant(np.kron(head.link.hessian_bound, head.gram).astype(np.float64) + penalty)


def _constant(matrix: Array) -> CurvatureAt:
    curvatures = (Curvature(matrix),)
    return lambda point: curvatures


CURVATURES: dict[str, Callable[[LinearHead], CurvatureAt]] = {
    "local": Local,
    "bound": bound,
    "gram": gram,
    "joint": joint,
    "gauss_newton": gauss_newton,
    "diagonal": diagonal,
}

# Curvatures that bound the loss from above: with one of these a negative surrogate guarantees descent.
MAJORIZERS = frozenset({gram, bound, joint})
