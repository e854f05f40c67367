"""The one currency of the package: a quadratic problem over bits, kept factored.

The energy depends on the `D·K` bits only through the `D` decoded updates. So a problem is the curvature
`G` (D×D), the gradient `g` (D) and the encoding: `D² + D` numbers instead of `(D·K)²`. Dense QUBO
matrices, Ising models and dimod's BQMs are exports, made on request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit.arrays import as_real
from annealfit.encoding import Encoding
from annealfit.errors import InvalidInputError
from annealfit.metric import Metric

if TYPE_CHECKING:
    import dimod


@dataclass(frozen=True, eq=False, init=False)
class QuadraticProblem:
    """Minimise `E(b) = uᵀGu + 2gᵀu` over bits `b`, where `u = encoding.decode(b)`.

    `E` is twice the surrogate `s(u) = ½uᵀGu + gᵀu`, and equals the QUBO energy
    `bᵀQb + qᵀb + κ` with `Q = 4PᵀGP`, `q = 4Pᵀ(g − δG1)`, `κ = δ²·1ᵀG1 − 2δ·gᵀ1`.
    Variable `j·K + k` of the flat problem is bit `k` of parameter `j`.

    >>> problem = QuadraticProblem([[2.0, 0.5], [0.5, 1.0]], [1.0, -1.0], Encoding(bits=1, range=0.5))
    >>> problem.n_variables, problem.energy([0, 1])
    (2, -1.5)
    """

    metric: Metric
    gradient: NDArray[np.float64]  # (D,)
    encoding: Encoding

    def __init__(self, curvature: ArrayLike | Metric, gradient: ArrayLike, encoding: Encoding) -> None:
        """`curvature` (D, D) may be a `Metric`, to share what is known about it; `gradient` is (D,)."""
        metric = curvature if isinstance(curvature, Metric) else Metric(curvature)
        checked = as_real(gradient, "gradient", ndim=1).copy()
        checked.setflags(write=False)
        if len(checked) != metric.size:
            raise InvalidInputError(
                f"curvature has shape {metric.matrix.shape} and gradient {checked.shape}; "
                "expected (D, D) and (D,) with D ≥ 1"
            )
        self.__dict__.update(metric=metric, gradient=checked, encoding=encoding)

    @classmethod
    def trusted(cls, metric: Metric, gradient: NDArray[np.float64], encoding: Encoding) -> QuadraticProblem:
        """The problem of parts that are known to fit: a training makes thousands of them."""
        problem = object.__new__(cls)
        problem.__dict__.update(metric=metric, gradient=gradient, encoding=encoding)
        return problem

    @property
    def curvature(self) -> NDArray[np.float64]:
        """`G`, shape (D, D)."""
        return self.metric.matrix

    @property
    def n_parameters(self) -> int:
        """The number of parameters, `D`."""
        return len(self.gradient)

    @property
    def n_variables(self) -> int:
        """The number of binary variables, `D·K`."""
        return self.n_parameters * self.encoding.bits

    @property
    def n_couplings(self) -> int:
        """The number of non-zero quadratic terms: `n(n−1)/2` for a dense curvature."""
        bits = self.encoding.bits
        coupled = int(np.count_nonzero(np.triu(self.curvature, 1)))
        curved = int(np.count_nonzero(self.curvature.diagonal()))
        return coupled * bits**2 + curved * (bits * (bits - 1) // 2)

    def decode(self, bits: ArrayLike) -> NDArray[np.float64]:
        """Updates of shape (…, D) from bits of shape (…, D, K) or (…, D·K)."""
        return self.encoding.decode(self.as_bits(bits))

    def energy(self, bits: ArrayLike) -> Any:
        """Exact energies of shape (…) of bits of shape (…, D, K) or (…, D·K)."""
        return self.energy_of_update(self.decode(bits))

    def energy_of_update(self, updates: ArrayLike) -> Any:
        """`uᵀGu + 2gᵀu` for updates of shape (…, D), on the encoding's levels or between them."""
        energies = self.metric.energies(self.gradient, np.asarray(updates))
        return float(energies) if energies.ndim == 0 else energies

    def as_bits(self, bits: ArrayLike) -> NDArray[np.uint8]:
        """The given bits as an array of shape (…, D, K); anything that is not 0 or 1 is refused."""
        given = np.asarray(bits)
        shape = (self.n_parameters, self.encoding.bits)
        if given.ndim >= 1 and given.shape[-1] == self.n_variables and given.shape[-2:] != shape:
            given = given.reshape(*given.shape[:-1], *shape)
        if given.shape[-2:] != shape:
            raise InvalidInputError(
                f"bits have shape {given.shape}; expected (…, {shape[0]}, {shape[1]}) or (…, {self.n_variables})"
            )
        with np.errstate(invalid="ignore"):  # NaN is no bit either, and is refused below
            packed = given.astype(np.uint8)
        if not np.array_equal(packed, given) or (packed > 1).any():
            raise InvalidInputError("bits must be 0 or 1; for spins use (1 + spin) / 2")
        return packed

    def lower_bound(self) -> float:
        """A rigorous lower bound of the energy over all bits, for a convex curvature (see `annealfit.bounds`)."""
        from annealfit import bounds

        return bounds.lower_bound(self)

    def to_qubo(self) -> tuple[NDArray[np.float64], float]:
        """`(Q, offset)`, dense and symmetric, linear terms on the diagonal: `E(b) = bᵀQb + offset`."""
        from annealfit import export

        return export.to_qubo(self)

    def to_ising(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """`(h, J, offset)` with `J` strictly upper triangular: `E = hᵀs + sᵀJs + offset`, `s = 2b − 1`."""
        from annealfit import export

        return export.to_ising(self)

    def to_bqm(self) -> dimod.BinaryQuadraticModel:
        """The problem as dimod's BQM over the variables `0 … D·K − 1`."""
        from annealfit import export

        return export.to_bqm(self)
