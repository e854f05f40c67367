"""Coordinates: the basis in which a problem's bits are chosen.

With updates `u = Tz` for an invertible `T`, the surrogate `½uᵀHu + gᵀu` is `½zᵀ(TᵀHT)z + (Tᵀg)ᵀz`: the same
quadratic function, so energies, bounds and the guarantee of descent do not change. The grid of `z` and the couplings
do, and so does the difficulty of the problem.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from annealfit._support.arrays import Array, as_real
from annealfit._support.errors import InvalidInputError, check_number
from annealfit.problems.curvature import Curvature

MANY_FEATURES = 256  # beyond, every feature has a unit of its own, and the local curvature is computed in blocks


class Origin(NamedTuple):
    """The point (d,) that features are measured from, None for 0, and the units of all parameters (D,)."""

    features: Array | None = None
    units: Array | float = 1.0


class Coordinates(ABC):
    """A change of basis: problems are transformed to `z`, updates back to `u`."""

    def adapted(self, objective: Any) -> Coordinates:
        """Return these coordinates for an objective; coordinates that depend on its data override this."""
        return self

    @property
    def origin(self) -> Origin | None:
        """The origin, if these coordinates only shift features and scale parameters; None if they mix features."""
        return None

    @abstractmethod
    def pull_curvature(self, curvature: Curvature) -> Curvature:
        """Return `TᵀHT`."""

    @abstractmethod
    def pull_gradients(self, gradients: Array) -> Array:
        """Return `Tᵀg` of every row of gradients (P, D)."""

    @abstractmethod
    def push(self, updates: Array) -> Array:
        """Return `Tz` of every row of updates (P, D)."""


class LazyCurvature(Protocol):
    """A curvature that is computed in given coordinates, without the parts that are not needed there."""

    size: int

    def in_coordinates(self, coordinates: Coordinates) -> Curvature:
        """Return the curvature in these coordinates."""


class RawCoordinates(Coordinates):
    """The parameters themselves, `u = z`: the paper's."""

    @property
    def origin(self) -> Origin:
        """The origin 0."""
        return Origin()

    def pull_curvature(self, curvature: Curvature) -> Curvature:
        """Return the curvature."""
        return curvature

    def pull_gradients(self, gradients: Array) -> Array:
        """Return the gradients."""
        return gradients

    def push(self, updates: Array) -> Array:
        """Return the updates."""
        return updates


class LinearCoordinates(Coordinates):
    """`u = Tz` for an invertible matrix `T` (D, D).

    In a problem over the parameters of several outputs, `T` is applied to each output.

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

    def pull_curvature(self, curvature: Curvature) -> Curvature:
        """Return `TᵀHT`."""
        whole = np.kron(np.eye(self._outputs_in(curvature.size)), self.matrix)
        return Curvature(whole.T @ curvature.matrix @ whole)

    def pull_gradients(self, gradients: Array) -> Array:
        """Return `Tᵀg`."""
        return self._by_output(gradients, self.matrix)

    def push(self, updates: Array) -> Array:
        """Return `Tz`."""
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


class CentredCoordinates(Coordinates):
    """Features measured from their means, in units of their own: `u_j = s_j z_j`, `u_b = βz_b − μᵀu_w`.

    Positive features have a large common mode, which couples all parameters; measured from their means they have none.
    The bias is not regularised, so it absorbs the means: loss, optimum and predictions are the same.

    All parameters of an output share one range. In units of the spread σ of the features the curvature of the bias is
    that of one weight; in units of σ√d the bias moves the outputs as far as all weights together. The unit β = σd^¼ is
    between the two, and by measurement better than either. Where the penalty λ outweighs the rows, whose curvature is
    σ²/4 at most, 2√λ takes the place of σ.

    The unit of a weight is 1. With many features, which often differ by orders of magnitude in their spread (the words
    of texts), it is the size of the step that is to be expected: `LinearHead.expected_steps`.
    """

    def __init__(
        self, means: ArrayLike | None = None, bias_unit: float | None = None, feature_units: ArrayLike | None = None
    ) -> None:
        """All are computed from the rows of the objective if they are not given; with means only the units are 1."""
        self.means = None if means is None else as_real(means, "the means of the features", ndim=1)
        self.bias_unit = bias_unit
        self.feature_units = None if feature_units is None else as_real(feature_units, "the units of features", ndim=1)
        if bias_unit is not None:
            check_number("bias_unit", bias_unit, above=0)

    def adapted(self, objective: Any) -> CentredCoordinates:
        """Return coordinates with the means and the spread of the objective's rows."""
        if self.means is not None:
            return self
        means, unit, units = objective.feature_means, self.bias_unit, self.feature_units
        if unit is None and len(means) > MANY_FEATURES and hasattr(objective, "expected_steps"):
            *units, unit = objective.expected_steps
        elif unit is None:
            spread, penalty = getattr(objective, "feature_spread", 1.0), getattr(objective, "regularization", 0.0)
            unit = max(spread, 2 * math.sqrt(penalty)) * len(means) ** 0.25
        return CentredCoordinates(means, unit, units)

    @property
    def origin(self) -> Origin:
        """The means of the features, and all units."""
        return Origin(self._means, self._units)

    def pull_curvature(self, curvature: Curvature) -> Curvature:
        """Return `TᵀHT`."""
        half = self._pulled(curvature.matrix)
        return Curvature.computed(self._pulled(half.T))

    def pull_gradients(self, gradients: Array) -> Array:
        """Return `Tᵀg`: subtract the means times the gradient of the bias, and multiply by the units."""
        return self._pulled(gradients)

    def push(self, updates: Array) -> Array:
        """Return `Tz`: multiply by the units, and subtract `μᵀu_w` from the bias."""
        pushed = self._by_output(updates) * self._units
        pushed[..., -1] -= pushed[..., :-1] @ self._means
        return pushed.reshape(updates.shape)

    def _pulled(self, values: Array) -> Array:
        by_output = self._by_output(values).copy()
        by_output[..., :-1] -= by_output[..., -1:] * self._means
        by_output *= self._units
        return by_output.reshape(values.shape)

    def _by_output(self, values: Array) -> Array:
        """Reshape values (P, outputs · D) to (P, outputs, D)."""
        size = len(self._means) + 1
        if values.shape[1] % size:
            raise InvalidInputError(f"there are means of {size - 1} features, and an output has {values.shape[1] - 1}")
        return values.reshape(len(values), -1, size)

    @property
    def _means(self) -> Array:
        if self.means is None:
            raise InvalidInputError("centred coordinates need the means of the features; adapt them to an objective")
        return self.means

    @cached_property
    def _units(self) -> Array:
        features = np.ones(len(self._means)) if self.feature_units is None else self.feature_units
        return np.append(features, 1.0 if self.bias_unit is None else self.bias_unit)


COORDINATES: dict[str, Coordinates] = {"raw": RawCoordinates(), "centred": CentredCoordinates()}
COORDINATES_METHODS = ("adapted", "pull_curvature", "pull_gradients", "push")
