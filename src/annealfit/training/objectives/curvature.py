"""Curvatures: the quadratic part of the surrogate of a linear head's loss, one function each.

A curvature is called once with the head, and returns a function of the current point that gives the matrices of the
iteration's problems: one D×D matrix for all outputs, one for each output, or one over the parameters of all outputs. A
matrix that does not depend on the point is made once.

If that function has a `measure`, a number for every point, it is called again only when the number has changed by a
factor of 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Any

import numpy as np

from annealfit._support.arrays import Array
from annealfit.data.rows import Chunk
from annealfit.problems.coordinates import MANY_FEATURES, Coordinates, Origin
from annealfit.problems.curvature import BlockCurvature, Curvature
from annealfit.training.objectives.linear_head import HeadPoint, LinearHead

CurvatureAt = Callable[[HeadPoint], Sequence[Any]]  # of matrices, Curvature or LazyCurvature

# Chosen by measurement: docs/defaults.md.
BLOCK = 64  # features that are coupled, where there are many
# Of the sample that a local curvature is computed from.
ROWS_PER_PARAMETER, FEWEST_ROWS, ROWS_FOR_BLOCKS = 24, 2048, 1024
# A block's features are alone if the squared correlations of one with the others add up to less than this, on average.
LEAST_COUPLING = 0.1


class Local:
    """The mean over outputs of the Hessian, `Xᵀ diag(ω) X/N + Λ`, ω the mean of `π(1 − π)`; not a bound.

    All outputs share it, and it is computed from a sample of many rows. With many features it is block-diagonal: each
    block fits into a processor's cache, or onto a chip. Couplings between blocks are left to the acceptance rule, and
    so are those within a block whose features are hardly correlated: then the problem has no couplings there, and the
    best level of every parameter is known without a search.

    A feature that is rarely different from a constant may be constant in the sample. Without curvature its updates
    would dwarf all others, so the variance that the sample lacks is added.
    """

    def __init__(self, head: LinearHead) -> None:
        n_features = head.n_parameters - 1
        count = 1 if n_features <= MANY_FEATURES else -(-n_features // BLOCK)
        edges = [round(index * n_features / count) for index in range(count + 1)]
        self.blocks = [slice(first, last) for first, last in pairwise(edges)]
        rows = ROWS_FOR_BLOCKS if count > 1 else max(ROWS_PER_PARAMETER * n_features, FEWEST_ROWS)
        sampled = head.rows.sample(rows)
        self.sample = head if sampled is head.rows else LinearHead(sampled, head.regularization)
        self.lacking = np.zeros(n_features) if sampled is head.rows else lacking_variance(head, self.sample)
        self._at_zero: tuple[Coordinates, list[bool], list[Array]] | None = None

    def measure(self, point: HeadPoint) -> float:
        """Return the cross-entropy, or with several blocks the root of the loss.

        Where the cross-entropy is small most rows are decided, and the loss has little curvature. With couplings left
        out a new curvature is worth half as many computations, and near the end, where the penalty dominates, none.
        """
        return point.cross_entropy if len(self.blocks) == 1 else point.loss**0.5

    def __call__(self, point: HeadPoint) -> Sequence[LocalCurvature]:
        """Return the curvature; coordinates decide which entries are needed."""
        return (LocalCurvature(self, point.weights),)

    def at_zero(self, coordinates: Coordinates, origin: Origin) -> tuple[list[bool], list[Array]]:
        """Return which blocks have correlated features in these coordinates, and their matrices at zero weights.

        Whether features are correlated is judged there, so that it does not depend on the course of a training.
        """
        if self._at_zero is None or self._at_zero[0] is not coordinates:
            weights = np.zeros((self.sample.n_parameters, self.sample.n_outputs))
            matrices = self.matrices(weights, self.blocks, origin)
            coupled = [_coupling(matrix[:-1, :-1]) > LEAST_COUPLING for matrix in matrices]
            self._at_zero = coordinates, coupled, list(compress(matrices, coupled))
        return self._at_zero[1:]

    def matrices(self, weights: Array, blocks: Sequence[slice], origin: Origin) -> list[Array]:
        """Return the matrices of blocks of features, measured from an origin, and the bias."""
        head = self.sample

        def term(chunk: Chunk) -> tuple[Array, ...]:
            """Σ_n a_n ω_n (x_n − o)(x_n − o)ᵀ of every block."""
            variances = head.link.mean_variances(chunk.project(weights))
            return tuple(chunk.block_grams(chunk.weighted(variances), blocks, origin.features))

        matrices = list(head.rows.mean(term))
        units = np.broadcast_to(origin.units, head.n_parameters)
        for block, matrix in zip(blocks, matrices, strict=True):
            diagonal = matrix.reshape(-1)[: -len(matrix) : len(matrix) + 1]
            diagonal += head.ridge[block] + matrix[-1, -1] * self.lacking[block]
            own = np.append(units[block], units[-1])
            matrix *= own * own[:, None]
        return matrices

    def diagonal(self, weights: Array, origin: Origin) -> Array:
        """Return the diagonal alone (D,)."""
        head = self.sample

        def term(chunk: Chunk) -> tuple[Array, float]:
            """Σ_n a_n ω_n (x_n − o)², and Σ_n a_n ω_n."""
            variances = chunk.weighted(head.link.mean_variances(chunk.project(weights)))
            return chunk.squares(variances, origin.features), variances.sum()

        squares, mean_variance = head.rows.mean(term)
        found = np.append(squares + mean_variance * self.lacking, mean_variance) + head.ridge
        return found * origin.units**2


def _coupling(matrix: Array) -> float:
    """Return the sum of the squared correlations of a feature with the others, on average."""
    scales = 1 / np.sqrt(np.maximum(matrix.diagonal(), np.finfo(float).tiny))
    correlations = matrix * scales * scales[:, None]
    return float((correlations**2).sum() / len(matrix)) - 1


def lacking_variance(head: LinearHead, sample: LinearHead) -> Array:
    """Return the variances (d,) of features of which a sample has less than half, and 0 for the others."""
    with np.errstate(over="ignore", invalid="ignore"):  # huge features have an error of their own
        whole, some = (given.feature_squares - given.feature_means**2 for given in (head, sample))
        # Where nearly everything cancels, the rest may be rounding.
        return np.where((some < 0.5 * whole) & (whole > 1e-9 * head.feature_squares), whole, 0.0)


@dataclass(frozen=True, eq=False)
class LocalCurvature:
    """A local curvature that is computed in given coordinates. It depends on weights and rows only."""

    local: Local
    weights: Array

    @property
    def size(self) -> int:
        """Number of parameters, D."""
        return self.local.sample.n_parameters

    def in_coordinates(self, coordinates: Coordinates) -> Curvature:
        """Return the curvature in these coordinates, without couplings between blocks and of the bias to blocks."""
        local, origin, blocks = self.local, getattr(coordinates, "origin", None), self.local.blocks
        if origin is None:  # the coordinates mix features: all entries are needed
            everything = [slice(0, self.size - 1)]
            (matrix,) = local.matrices(self.weights, everything, Origin())
            whole = coordinates.pull_curvature(Curvature.computed(matrix))
            bias = whole.diagonal[-1:]
            return BlockCurvature([*map(whole.part, blocks), bias]) if blocks[1:] else whole
        if len(blocks) == 1:
            return Curvature.computed(local.matrices(self.weights, blocks, origin)[0])
        coupled, matrices = local.at_zero(coordinates, origin)
        if self.weights.any() and matrices:
            matrices = local.matrices(self.weights, list(compress(blocks, coupled)), origin)
        found = iter([Curvature.computed(matrix[:-1, :-1]) for matrix in matrices])
        if all(coupled):
            return BlockCurvature([*found, matrices[0][-1:, -1]])
        diagonal = local.diagonal(self.weights, origin)
        parts = [next(found) if kept else diagonal[block] for block, kept in zip(blocks, coupled, strict=True)]
        return BlockCurvature([*parts, diagonal[-1:]])


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
