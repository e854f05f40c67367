"""A curvature of blocks along the diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from annealfit.metric import Metric, read_only


class BlockMetric(Metric):
    """A metric of blocks along the diagonal: what does not couple is neither stored nor multiplied.

    Samplers that know nothing of blocks find them in `matrix`, among zeros.

    >>> metric = BlockMetric([Metric([[2.0, 0.5], [0.5, 1.0]]), Metric([[4.0]])])
    >>> metric.size, metric.solve(np.array([[0.0, 0.0, 8.0]])).round(6).tolist()
    (3, [[0.0, 0.0, 2.0]])
    """

    def __init__(self, metrics: Sequence[Metric]) -> None:
        ends = np.cumsum([metric.size for metric in metrics]).tolist()
        slices = [slice(end - metric.size, end) for metric, end in zip(metrics, ends, strict=True)]
        self.__dict__.update(_blocks=tuple(zip(slices, metrics, strict=True)), _parts={})

    _blocks: tuple[tuple[slice, Metric], ...]

    @property
    def size(self) -> int:
        """The number of parameters, `D`."""
        return self._blocks[-1][0].stop

    @property
    def blocks(self) -> Sequence[tuple[slice, Metric]]:
        """The blocks, in the order of their parameters."""
        return self._blocks

    @cached_property
    def packed(self) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """The entries of all blocks' matrices in one line, and where blocks end, among parameters and entries."""
        entries = np.concatenate([metric.matrix.ravel() for _, metric in self.blocks])
        ends = np.cumsum([[metric.size, metric.size**2] for _, metric in self.blocks], axis=0)
        return read_only(entries), np.concatenate([[[0, 0]], ends])

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """All of it, (D, D), zeros included: made when somebody asks."""
        return self._assembled([metric.matrix for _, metric in self.blocks])

    @cached_property
    def diagonal(self) -> NDArray[np.float64]:
        """`G_jj`, shape (D,)."""
        return read_only(np.concatenate([metric.diagonal for _, metric in self.blocks]))

    @cached_property
    def row_sums(self) -> NDArray[np.float64]:
        """`G1`, shape (D,)."""
        return read_only(np.concatenate([metric.row_sums for _, metric in self.blocks]))

    @cached_property
    def row_norms(self) -> NDArray[np.float64]:
        """`√Σ_i G_ij²`, shape (D,)."""
        return read_only(np.concatenate([metric.row_norms for _, metric in self.blocks]))

    @cached_property
    def largest_coupling(self) -> float:
        """The largest absolute entry off the diagonal."""
        return max(metric.largest_coupling for _, metric in self.blocks)

    @cached_property
    def is_convex(self) -> bool:
        """Whether every block is."""
        return all(metric.is_convex for _, metric in self.blocks)

    @cached_property
    def inverse(self) -> NDArray[np.float64]:
        """`G⁻¹`."""
        return self._assembled([metric.inverse for _, metric in self.blocks])

    @cached_property
    def factor(self) -> NDArray[np.float64]:
        """The lower Cholesky factor."""
        return self._assembled([metric.factor for _, metric in self.blocks])

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`G⁻¹v` for every row of values (P, D)."""
        from annealfit import _box  # numba takes a moment to import: only when it is needed

        return _box.solve(self._packed_factors, self.packed[1], np.ascontiguousarray(values))

    @cached_property
    def _packed_factors(self) -> NDArray[np.float64]:
        return np.concatenate([metric.factor.ravel() for _, metric in self.blocks])

    def times(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`Gv` for every row of values (…, D)."""
        from annealfit import _box  # numba takes a moment to import: only when it is needed

        rows = np.ascontiguousarray(values).reshape(-1, self.size)
        return _box.multiply(*self.packed, rows).reshape(values.shape)

    def _assembled(self, matrices: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        whole = np.zeros((self.size, self.size))
        for (block, _), matrix in zip(self.blocks, matrices, strict=True):
            whole[block, block] = matrix
        return read_only(whole)
