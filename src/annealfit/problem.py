"""The one currency of the package: a quadratic problem over bits, kept factored.

The energy depends on the `D·K` bits only through the `D` decoded updates. So a problem is the curvature
`G` (D×D), the gradient `g` (D) and the encoding: `D² + D` numbers instead of `(D·K)²`. Dense QUBO
matrices, Ising models and dimod's BQMs are exports, made on request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit.encoding import Encoding
from annealfit.errors import InvalidInputError

if TYPE_CHECKING:
    import dimod

# A curvature assembled by a BLAS may differ from its transpose in the last bits; more is a mistake.
_SYMMETRY_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class QuadraticProblem:
    """Minimise `E(b) = uᵀGu + 2gᵀu` over bits `b`, where `u = encoding.decode(b)`.

    `E` is twice the surrogate `s(u) = ½uᵀGu + gᵀu`, and equals the QUBO energy
    `bᵀQb + qᵀb + κ` with `Q = 4PᵀGP`, `q = 4Pᵀ(g − δG1)`, `κ = δ²·1ᵀG1 − 2δ·gᵀ1`.
    Variable `j·K + k` of the flat problem is bit `k` of parameter `j`.

    >>> problem = QuadraticProblem([[2.0, 0.5], [0.5, 1.0]], [1.0, -1.0], Encoding(bits=1, range=0.5))
    >>> problem.n_variables, problem.energy([0, 1])
    (2, -1.5)
    """

    curvature: NDArray[np.float64]
    gradient: NDArray[np.float64]
    encoding: Encoding
    # What has been worked out about the curvature, for all problems that share it.
    _shared: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        curvature = _as_real(self.curvature, "curvature", ndim=2)
        gradient = _as_real(self.gradient, "gradient", ndim=1)
        size = len(gradient)
        if size == 0 or curvature.shape != (size, size):
            raise InvalidInputError(
                f"curvature has shape {curvature.shape} and gradient {gradient.shape}; "
                "expected (D, D) and (D,) with D ≥ 1"
            )
        asymmetry = np.abs(curvature - curvature.T).max()
        if asymmetry > _SYMMETRY_TOLERANCE * np.abs(curvature).max():
            raise InvalidInputError(
                f"curvature differs from its transpose by {asymmetry:.3g}; pass (curvature + curvature.T) / 2"
            )
        # Exactly symmetric, and a copy: what is worked out about it once must stay true.
        object.__setattr__(self, "curvature", (curvature + curvature.T) / 2)
        object.__setattr__(self, "gradient", gradient)

    def with_gradient(self, gradient: NDArray[np.float64], encoding: Encoding) -> QuadraticProblem:
        """The problem with the same curvature and another gradient.

        The curvature array is shared and not checked again, which is what lets training make ten
        problems an iteration for the price of one.
        """
        problem = object.__new__(QuadraticProblem)
        for name, value in (
            ("curvature", self.curvature),
            ("gradient", gradient),
            ("encoding", encoding),
            ("_shared", self._shared),
        ):
            object.__setattr__(problem, name, value)
        return problem

    @property
    def inverse_curvature(self) -> NDArray[np.float64]:
        """`G⁻¹`, slightly damped where G is singular: the Newton step's matrix."""
        return self._once_per_curvature("inverse", _damped_inverse)

    @property
    def is_convex(self) -> bool:
        """Whether the curvature is positive semidefinite, up to the rounding of its eigenvalues."""
        return self._once_per_curvature("convex", _is_positive_semidefinite)

    @property
    def row_norms(self) -> NDArray[np.float64]:
        """`√Σ_i G_ij²`: the field that updates of size 1 and random sign make at each parameter."""
        return self._once_per_curvature("row norms", lambda curvature: np.sqrt((curvature**2).sum(axis=1)))

    def _once_per_curvature(self, name: str, compute: Callable[[NDArray[np.float64]], Any]) -> Any:
        if name not in self._shared:
            self._shared[name] = compute(self.curvature)
        return self._shared[name]

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
        updates = np.asarray(updates)
        energies = np.vecdot(updates @ self.curvature + 2 * self.gradient, updates)
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


def energies_of_updates(problems: Sequence[QuadraticProblem], updates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The energy of each problem's own update, a row of `updates` (P, D)."""
    energies = np.empty(len(problems))
    for positions in group_by_curvature(problems):
        own = updates[positions]
        gradients = np.array([problems[position].gradient for position in positions])
        energies[positions] = np.vecdot(own @ problems[positions[0]].curvature + 2 * gradients, own)
    return energies


def group_by_curvature(problems: Sequence[QuadraticProblem]) -> list[list[int]]:
    """Positions of the problems that share a curvature array and a number of bits, group by group.

    Problems of one group differ in D + 1 numbers each, so what is done to one can be done to all at once.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for position, problem in enumerate(problems):
        groups.setdefault((id(problem.curvature), problem.encoding.bits), []).append(position)
    return list(groups.values())


def _is_positive_semidefinite(curvature: NDArray[np.float64]) -> bool:
    eigenvalues = np.linalg.eigvalsh(curvature)
    return bool(eigenvalues[0] >= -1e-12 * len(curvature) * np.abs(eigenvalues).max())


def _damped_inverse(curvature: NDArray[np.float64]) -> NDArray[np.float64]:
    size = len(curvature)
    damping = 1e-10 * np.trace(curvature) / size or 1.0
    return np.linalg.inv(curvature + damping * np.eye(size))


def _as_real(values: ArrayLike, name: str, *, ndim: int) -> NDArray[np.float64]:
    try:
        array = np.ascontiguousarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} is not an array of numbers: {error}") from error
    if array.ndim != ndim:
        raise InvalidInputError(f"{name} has {array.ndim} dimensions; expected {ndim}")
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} holds NaN or infinity; check the features and weights it came from")
    return array
