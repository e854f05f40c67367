"""Curvatures: the quadratic part of the surrogate that stands for a linear head's loss, one function each.

A curvature is called once with the head, and returns a function of the current point that gives the metrics of the
iteration's problems: one metric of D×D for all outputs, one for each, or one over the parameters of all outputs at
once. A metric that does not depend on the point is made once and returned every time.

A function that has a `measure` besides, a number for every point, is asked again only when that number has changed
twofold: until then the metrics of the point that it was asked for last are good enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from annealfit.data.rows import Chunk, cut_grams
from annealfit.problems.coordinates import Coordinates, LazyCurvature, Origin
from annealfit.problems.curvature import BlockCurvature, Curvature
from annealfit.training.objectives.linear_head import HeadPoint, LinearHead

Curvatures = Sequence[Curvature] | Sequence[LazyCurvature]
CurvaturesAt = Callable[[HeadPoint], Curvatures]
CurvatureFunction = Callable[[LinearHead], CurvaturesAt]

# Up to so many features every parameter is coupled to every other; of more, couplings between blocks are left out.
# By measurement: docs/defaults.md.
MOST_IN_ONE_BLOCK, BLOCK = 256, 64
ROWS_PER_PARAMETER, FEWEST_ROWS = 24, 2048  # of the sample that a local curvature is worked out from


class Local:
    """The mean over outputs of the loss's Hessian, `Xᵀ diag(ω) X/N + Λ`, `ω` the mean of `π(1 − π)`; not a bound.

    All outputs share it, and it is worked out again when `measure` has changed twofold, from a sample where
    there are many rows. With many features it has blocks along the diagonal only: each a problem that fits into a
    processor's cache, or onto a chip. What is left out is left to the acceptance rule, which looks at the loss.

    A feature that is rarely not the same, as of a rare category, may never change in a sample; without curvature its
    updates would be so large that nothing else counted. What the sample lacks of its variance is added.
    """

    def __init__(self, head: LinearHead) -> None:
        n_features = head.n_parameters - 1
        count = 1 if n_features <= MOST_IN_ONE_BLOCK else -(-n_features // BLOCK)
        edges = [round(index * n_features / count) for index in range(count + 1)]
        self._blocks = [slice(first, last) for first, last in pairwise(edges)]
        width = max(block.stop - block.start for block in self._blocks)
        sampled = head.rows.sample(max(ROWS_PER_PARAMETER * width, FEWEST_ROWS))
        self._sample = LinearHead(sampled, head.regularization)
        self._lacking = np.zeros(n_features) if sampled is head.rows else lacking_variance(head, self._sample)

    def measure(self, point: HeadPoint) -> float:
        """The cross-entropy: where it is small most rows are decided, and the loss hardly bends.

        Where couplings between blocks are left out, what is left is worth a look half as often, and towards the end
        none: then it is the root of the loss, which the penalty keeps from falling further.
        """
        return point.cross_entropy if len(self._blocks) == 1 else point.loss**0.5

    def __call__(self, point: HeadPoint) -> Sequence[LocalCurvature]:
        """Not worked out yet: coordinates decide what is between the blocks."""
        return (LocalCurvature(self._sample, point.weights, self._blocks, self._lacking),)


def lacking_variance(head: LinearHead, sample: LinearHead) -> NDArray[np.float64]:
    """The variance (d,) of features in all rows that a sample of them has less than half of, and 0 for the others."""
    with np.errstate(over="ignore", invalid="ignore"):  # huge features have an error of their own
        whole, some = (given.feature_squares - given.feature_means**2 for given in (head, sample))
        # Of what is left where nearly everything cancels, nobody knows whether it is more than rounding.
        return np.where((some < 0.5 * whole) & (whole > 1e-9 * head.feature_squares), whole, 0.0)


class LocalCurvature:
    """A local curvature before it is pulled into coordinates. It depends on weights and rows alone."""

    def __init__(
        self,
        head: LinearHead,
        weights: NDArray[np.float64],
        blocks: Sequence[slice],
        lacking: NDArray[np.float64],
    ) -> None:
        """`lacking` is the variance (d,) of features that the rows of the head do not show."""
        self._head, self._weights, self._blocks, self._lacking = head, weights, blocks, lacking
        self.size = head.n_parameters

    def in_coordinates(self, coordinates: Coordinates) -> Curvature:
        """In these coordinates, and then without what is between the blocks, the bias being one by itself."""
        origin = getattr(coordinates, "origin", None)  # which an object of somebody else's need not have
        if origin is None:  # features are mixed, and so would blocks of them be
            everything, bias = slice(0, self.size - 1), slice(self.size - 1, self.size)
            whole = coordinates.pull_curvature(Curvature.worked_out(self._matrices([everything], Origin())[0]))
            return BlockCurvature([whole.part(block) for block in (*self._blocks, bias)]) if self._blocks[1:] else whole
        matrices = self._matrices(self._blocks, origin)
        if len(matrices) == 1:
            return Curvature.worked_out(matrices[0])
        parts = [*(matrix[:-1, :-1] for matrix in matrices), matrices[0][-1:, -1:]]
        return BlockCurvature([Curvature.worked_out(part) for part in parts])

    def _matrices(self, blocks: Sequence[slice], origin: Origin) -> list[NDArray[np.float64]]:
        """Of blocks of features, measured from an origin, and the bias."""
        head = self._head

        def term(chunk: Chunk) -> tuple[NDArray[np.float64]]:
            spreads = head.link.mean_spreads(chunk.step(self._weights))  # nearly the outputs will do
            return (chunk.block_grams(chunk.weighted(spreads), blocks, origin.features),)

        matrices = cut_grams(head.rows.mean(term)[0], blocks)
        for block, matrix in zip(blocks, matrices, strict=True):
            spread = matrix[-1, -1]  # the mean of ω
            matrix.reshape(-1)[: -len(matrix) : len(matrix) + 1] += head.ridge[block] + spread * self._lacking[block]
            matrix[-1] *= origin.bias_unit
            matrix[:, -1] *= origin.bias_unit
        return matrices


def gram(head: LinearHead) -> CurvaturesAt:
    """`G + Λ`: the paper's, an upper bound of the loss's curvature, twice as steep as need be."""
    return _constant(head.gram + np.diag(head.ridge))


def diagonal(head: LinearHead) -> CurvaturesAt:
    """`diag(G) + Λ`: the paper's separable alternative, blind to correlations and not a bound."""
    return _constant(np.diag(head.gram.diagonal() + head.ridge))


def bound(head: LinearHead) -> CurvaturesAt:
    """`½G + Λ`, for two classes `¼G + Λ`: the least multiple of the Gram matrix that bounds the loss's curvature."""
    return _constant(head.bounding_curvature)


def gauss_newton(head: LinearHead) -> CurvaturesAt:
    """`Xᵀ diag(π_c(1 − π_c)) X/N + Λ`: each output's block of the Hessian, anew at every iteration; not a bound."""
    penalty = np.diag(head.ridge)
    return lambda point: [Curvature(matrix + penalty) for matrix in point.output_grams()]


def joint(head: LinearHead) -> CurvaturesAt:
    """`½(I − 11ᵀ/C) ⊗ G + I ⊗ Λ`: one problem over all outputs, the tightest constant bound there is."""
    penalty = np.diag(np.tile(head.ridge, head.n_outputs))
    return _constant(np.kron(head.link.hessian_bound, head.gram).astype(np.float64) + penalty)


CURVATURES: dict[str, CurvatureFunction] = {
    "local": Local,
    "bound": bound,
    "gram": gram,
    "joint": joint,
    "gauss_newton": gauss_newton,
    "diagonal": diagonal,
}

# Curvatures that bound the loss from above: with one of these a negative surrogate is a promise.
MAJORIZERS = frozenset({gram, bound, joint})


def _constant(matrix: NDArray[np.float64]) -> CurvaturesAt:
    metrics = (Curvature(matrix),)
    return lambda point: metrics
