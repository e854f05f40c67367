"""Coordinates: the basis in which a problem's bits are chosen.

With updates `u = Tz` for an invertible `T`, the surrogate `½uᵀHu + gᵀu` is `½zᵀ(TᵀHT)z + (Tᵀg)ᵀz`: the same
quadratic, so energies, bounds and the promise of descent carry over unchanged. What changes are the bits: the grid on
which `z` is sought, the couplings, and so how hard the problem is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from annealfit._support.arrays import Array, as_real
from annealfit._support.errors import InvalidInputError, check_number
from annealfit.problems.curvature import Curvature


class Origin(NamedTuple):
    """Where features are measured from (d,), None for 0, and the unit in which the bias is."""

    features: Array | None = None
    bias_unit: float = 1.0


class Coordinates(ABC):
    """A change of basis. Problems are pulled into `z`, answers are pushed back to `u`."""

    def adapted(self, objective: Any) -> Coordinates:
        """These coordinates for an objective; those that depend on its data override this."""
        return self

    @property
    def origin(self) -> Origin | None:
        """Where features are measured from, if these coordinates do no more than that; None where they mix features."""
        return None

    @abstractmethod
    def pull_curvature(self, metric: Curvature) -> Curvature:
        """`TᵀHT`."""

    @abstractmethod
    def pull_gradients(self, gradients: Array) -> Array:
        """`Tᵀg` of every row of gradients (P, D)."""

    @abstractmethod
    def push(self, updates: Array) -> Array:
        """`Tz` of every row of updates (P, D)."""


class LazyCurvature(Protocol):
    """A metric that is worked out in coordinates only, where parts of it are not needed."""

    size: int

    def in_coordinates(self, coordinates: Coordinates) -> Curvature:
        """The metric in these coordinates."""


class RawCoordinates(Coordinates):
    """The parameters themselves, `u = z`: the paper's."""

    @property
    def origin(self) -> Origin:
        """0."""
        return Origin()

    def pull_curvature(self, metric: Curvature) -> Curvature:
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

    def pull_curvature(self, metric: Curvature) -> Curvature:
        """`TᵀHT`."""
        whole = np.kron(np.eye(self._outputs_in(metric.size)), self.matrix)
        return Curvature(whole.T @ metric.matrix @ whole)

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


class CentredCoordinates(Coordinates):
    """Features measured from their means, and the bias in a unit of its own: `u_w = z_w`, `u_b = βz_b − μᵀz_w`.

    Features that are all positive have a large common mode, which couples everything to everything; measured from
    their means they have not. The bias is not regularised, so it absorbs the means at no cost: the loss, the optimum
    and the predictions are the same.

    One range is for all parameters of an output. In units of the features' spread σ the bias bends the loss as much
    as one weight does, and so is coupled as strongly on a device; in units of σ√d it moves the outputs as far as all
    weights do together. The unit β = σd^¼ is between the two, and by measurement better than either.
    """

    def __init__(self, means: ArrayLike | None = None, bias_unit: float | None = None) -> None:
        """Both are taken from the objective's rows if they are not given; with means alone the unit is 1."""
        self.means = None if means is None else as_real(means, "the means of the features", ndim=1)
        self.bias_unit = bias_unit
        if bias_unit is not None:
            check_number("bias_unit", bias_unit, above=0)

    def adapted(self, objective: Any) -> CentredCoordinates:
        """With the means of the objective's rows, and the unit that suits their spread where it knows it."""
        if self.means is not None:
            return self
        means, unit = objective.feature_means, self.bias_unit
        if unit is None:
            unit = getattr(objective, "feature_spread", 1.0) * len(means) ** 0.25
        return CentredCoordinates(means, unit)

    @property
    def origin(self) -> Origin:
        """The means."""
        return Origin(self._means, self._unit)

    def pull_curvature(self, metric: Curvature) -> Curvature:
        """`TᵀHT`."""
        half = self._pulled(metric.matrix)
        return Curvature.worked_out(self._pulled(half.T))

    def pull_gradients(self, gradients: Array) -> Array:
        """`Tᵀg`: of the weights less the means times that of the bias, and β times that."""
        return self._pulled(gradients)

    def push(self, updates: Array) -> Array:
        """`Tz`: β times the bias, less what the means make of the weights."""
        pushed = self._by_output(updates).copy()
        pushed[..., -1] *= self._unit
        pushed[..., -1] -= pushed[..., :-1] @ self._means
        return pushed.reshape(updates.shape)

    def _pulled(self, values: Array) -> Array:
        by_output = self._by_output(values).copy()
        by_output[..., :-1] -= by_output[..., -1:] * self._means
        by_output[..., -1] *= self._unit
        return by_output.reshape(values.shape)

    def _by_output(self, values: Array) -> Array:
        """Values (P, outputs · D) as (P, outputs, D)."""
        size = len(self._means) + 1
        if values.shape[1] % size:
            raise InvalidInputError(f"there are means of {size - 1} features, and an output has {values.shape[1] - 1}")
        return values.reshape(len(values), -1, size)

    @property
    def _means(self) -> Array:
        if self.means is None:
            raise InvalidInputError("centred coordinates need the means of the features; adapt them to an objective")
        return self.means

    @property
    def _unit(self) -> float:
        return 1.0 if self.bias_unit is None else self.bias_unit


class WhitenedCoordinates(Coordinates):
    """Centred, and then in a basis in which the bound's curvature `½G + Λ` is nearer to the identity.

    With `H` that curvature, `T = H^(−power/2)`. At power 1 nothing is coupled to anything: every parameter is decided
    by itself, there is nothing to anneal and nothing to embed. In between the couplings shrink.
    """

    def __init__(self, power: float = 1.0) -> None:
        check_number("power", power, minimum=0, maximum=1)
        self.power = power

    def adapted(self, objective: Any) -> Coordinates:
        """With the curvature of the objective's rows."""
        centred = CentredCoordinates(bias_unit=1.0).adapted(objective)
        values, vectors = np.linalg.eigh(centred.pull_curvature(Curvature(objective.bounding_curvature)).matrix)
        # Features that are constant or copies of others have no curvature to scale by.
        scales = np.maximum(values, 1e-10 * values[-1]) ** (-self.power / 2)
        return LinearCoordinates(centred.push((vectors * scales) @ vectors.T).T)

    def pull_curvature(self, metric: Curvature) -> Curvature:
        """Only of an objective."""
        raise _not_adapted()

    def pull_gradients(self, gradients: Array) -> Array:
        """Only of an objective."""
        raise _not_adapted()

    def push(self, updates: Array) -> Array:
        """Only of an objective."""
        raise _not_adapted()


def _not_adapted() -> InvalidInputError:
    return InvalidInputError("these coordinates depend on the data: call adapted(objective) first")


COORDINATES: dict[str, Coordinates] = {
    "raw": RawCoordinates(),
    "centred": CentredCoordinates(),
    "partly_whitened": WhitenedCoordinates(0.5),
    "whitened": WhitenedCoordinates(),
}
COORDINATES_METHODS = ("adapted", "pull_curvature", "pull_gradients", "push")
