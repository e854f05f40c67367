"""Coordinates: the basis in which a problem's bits are chosen.

With updates `u = Tz` for an invertible `T`, the surrogate `½uᵀHu + gᵀu` is `½zᵀ(TᵀHT)z + (Tᵀg)ᵀz`: the same
quadratic, so energies, bounds and the promise of descent carry over unchanged. What changes are the bits: the grid on
which `z` is sought, the couplings, and so how hard the problem is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from annealfit.arrays import Array
from annealfit.errors import InvalidInputError
from annealfit.metric import Metric, as_real


class Coordinates(ABC):
    """A change of basis. Problems are pulled into `z`, answers are pushed back to `u`."""

    def adapted(self, objective: Any) -> Coordinates:
        """These coordinates for an objective; those that depend on its data override this."""
        return self

    @abstractmethod
    def pull_metric(self, metric: Metric) -> Metric:
        """`TᵀHT`."""

    @abstractmethod
    def pull_gradients(self, gradients: Array) -> Array:
        """`Tᵀg` of every row of gradients (P, D)."""

    @abstractmethod
    def push(self, updates: Array) -> Array:
        """`Tz` of every row of updates (P, D)."""


class RawCoordinates(Coordinates):
    """The parameters themselves, `u = z`: the paper's."""

    def pull_metric(self, metric: Metric) -> Metric:
        """The metric."""
        return metric

    def pull_gradients(self, gradients: Array) -> Array:
        """The gradients."""
        return gradients

    def push(self, updates: Array) -> Array:
        """The updates."""
        return updates


class LinearCoordinates(Coordinates):
    """`u = Tz` for an invertible matrix `T` (D, D).

    Where a problem is over the parameters of several outputs, `T` is applied to each output's.

    >>> coordinates = LinearCoordinates([[1.0, 1.0], [0.0, 2.0]])
    >>> coordinates.push(np.array([[1.0, 1.0]])).tolist()
    [[2.0, 2.0]]
    """

    def __init__(self, matrix: ArrayLike) -> None:
        self.matrix = as_real(matrix, "the matrix of coordinates", ndim=2)
        rows, columns = self.matrix.shape
        if rows != columns or np.linalg.matrix_rank(self.matrix) < rows:
            raise InvalidInputError(
                f"the matrix of coordinates has shape {self.matrix.shape} and rank "
                f"{np.linalg.matrix_rank(self.matrix)}; it must be square and invertible"
            )

    def pull_metric(self, metric: Metric) -> Metric:
        """`TᵀHT`."""
        whole = np.kron(np.eye(self._outputs_in(metric.size)), self.matrix)
        return Metric(whole.T @ metric.matrix @ whole)

    def pull_gradients(self, gradients: Array) -> Array:
        """`Tᵀg`."""
        return self._by_output(gradients, self.matrix)

    def push(self, updates: Array) -> Array:
        """`Tz`."""
        return self._by_output(updates, self.matrix.T)

    def _by_output(self, values: Array, matrix: Array) -> Array:
        self._outputs_in(values.shape[1])
        return (values.reshape(-1, len(matrix)) @ matrix).reshape(values.shape)

    def _outputs_in(self, size: int) -> int:
        outputs, rest = divmod(size, len(self.matrix))
        if rest or outputs == 0:
            raise InvalidInputError(
                f"the matrix of coordinates is for {len(self.matrix)} parameters, and an output has {size}: "
                "the features and one for the bias"
            )
        return outputs


COORDINATES: dict[str, Coordinates] = {"raw": RawCoordinates()}
COORDINATES_METHODS = ("adapted", "pull_metric", "pull_gradients", "push")
