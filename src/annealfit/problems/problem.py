"""Quadratic problems over bits, stored in factored form.

The energy depends on the `D·K` bits only through the `D` decoded updates. So a problem is the curvature `G` (D×D), the
gradient `g` (D) and the encoding: `D² + D` numbers instead of `(D·K)²`. Dense QUBO matrices, Ising models and dimod's
BQMs are exports, made on request.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.arrays import as_real
from annealfit._support.errors import InvalidInputError
from annealfit.problems.curvature import Curvature
from annealfit.problems.encoding import Encoding, odd_levels

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

    shared_curvature: Curvature
    gradient: NDArray[np.float64]  # (D,)
    encoding: Encoding

    def __init__(self, curvature: ArrayLike | Curvature, gradient: ArrayLike, encoding: Encoding) -> None:
        """`curvature` (D, D) may be a `Curvature` that several problems share; `gradient` is (D,)."""
        shared = curvature if isinstance(curvature, Curvature) else Curvature(curvature)
        checked = as_real(gradient, "gradient", ndim=1).copy()
        checked.setflags(write=False)
        if len(checked) != shared.size:
            raise InvalidInputError(
                f"curvature has shape {shared.matrix.shape} and gradient {checked.shape}; "
                "expected (D, D) and (D,) with D ≥ 1"
            )
        self.__dict__.update(shared_curvature=shared, gradient=checked, encoding=encoding)

    @classmethod
    def trusted(cls, curvature: Curvature, gradient: NDArray[np.float64], encoding: Encoding) -> QuadraticProblem:
        """Make a problem of parts that are not checked."""
        problem = object.__new__(cls)
        problem.__dict__.update(shared_curvature=curvature, gradient=gradient, encoding=encoding)
        return problem

    @property
    def curvature(self) -> NDArray[np.float64]:
        """`G`, shape (D, D)."""
        return self.shared_curvature.matrix

    @property
    def metric(self) -> Curvature:
        """The name of `shared_curvature` in 0.2.0."""
        warnings.warn("problem.metric is now problem.shared_curvature", FutureWarning, stacklevel=2)
        return self.shared_curvature

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
        energies = self.shared_curvature.energies(self.gradient, np.asarray(updates))
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
        """A rigorous lower bound of the energy over all bits, for a convex curvature (see `problems.bounds`)."""
        from annealfit.problems.bounds import lower_bounds

        bound = float(lower_bounds([self])[0])
        if bound == -np.inf:
            raise InvalidInputError("the curvature has a negative eigenvalue; add a multiple of the identity to it")
        return bound

    def to_qubo(self) -> tuple[NDArray[np.float64], float]:
        """`(Q, offset)`, dense and symmetric, linear terms on the diagonal: `E(b) = bᵀQb + offset`."""
        from annealfit.problems import export

        return export.to_qubo(self)

    def to_ising(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """`(h, J, offset)` with `J` strictly upper triangular: `E = hᵀs + sᵀJs + offset`, `s = 2b − 1`."""
        from annealfit.problems import export

        return export.to_ising(self)

    def to_bqm(self) -> dimod.BinaryQuadraticModel:
        """The problem as dimod's BQM over the variables `0 … D·K − 1`."""
        from annealfit.problems import export

        return export.to_bqm(self)


@dataclass(frozen=True, eq=False)
class Problems(Sequence[QuadraticProblem]):
    """P problems of one size, as arrays: a sequence of `QuadraticProblem`.

    `curvatures` holds one `Curvature` for all problems, or one for each.

    >>> problems = Problems((Curvature(np.eye(2)),), np.array([[1.0, -1.0], [0.5, 0.0]]), np.array([0.5, 0.1]), bits=1)
    >>> len(problems), problems[1].encoding.range, problems[:1].gradients.tolist()
    (2, 0.1, [[1.0, -1.0]])
    """

    curvatures: tuple[Curvature, ...]  # 1 or P of them
    gradients: NDArray[np.float64]  # (P, D)
    ranges: NDArray[np.float64]  # δ of each problem, (P,)
    bits: int  # K

    def __post_init__(self) -> None:
        for array in (self.gradients, self.ranges):
            array.setflags(write=False)  # samplers get views of them

    def __len__(self) -> int:
        return len(self.gradients)

    @overload
    def __getitem__(self, index: int) -> QuadraticProblem: ...
    @overload
    def __getitem__(self, index: slice) -> Problems: ...
    def __getitem__(self, index: int | slice) -> QuadraticProblem | Problems:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        encoding = self._encoding.with_range(float(self.ranges[index]))
        return QuadraticProblem.trusted(self.curvature_of(index), self.gradients[index], encoding)

    def take(self, positions: NDArray[np.intp]) -> Problems:
        """Return the problems at these positions."""
        curvatures = self.curvatures if self.shares_curvature else tuple(self.curvatures[each] for each in positions)
        return Problems(curvatures, self.gradients[positions], self.ranges[positions], self.bits)

    def curvature_of(self, index: int) -> Curvature:
        """Return the curvature of one problem."""
        return self.curvatures[0 if self.shares_curvature else index]

    def with_ranges(self, ranges: NDArray[np.float64]) -> Problems:
        """Return the same problems with other ranges (P,)."""
        changed = Problems(self.curvatures, self.gradients, ranges, self.bits)
        if "newton_steps" in self.__dict__:  # they do not depend on the ranges
            changed.__dict__["newton_steps"] = self.newton_steps
        return changed

    @cached_property
    def relaxations(self) -> dict[tuple[float, float], tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Results of `annealfit.problems.bounds.relax` for these problems, by its limits."""
        return {}

    @cached_property
    def newton_steps(self) -> NDArray[np.float64]:
        """Continuous minima without a box, `−G⁻¹g` (P, D); if G is not convex, `−g_j` over the norm of row j."""
        if self.shares_curvature:
            return _newton_steps(self.shared_curvature, self.gradients)
        rows = zip(self.curvatures, self.gradients, strict=True)
        return np.concatenate([_newton_steps(curvature, gradient[None]) for curvature, gradient in rows])

    @property
    def shares_curvature(self) -> bool:
        """Whether all problems share one curvature."""
        return len(self.curvatures) == 1

    @property
    def shared_curvature(self) -> Curvature:
        """The curvature that all problems share."""
        if not self.shares_curvature:
            raise InvalidInputError(
                f"these problems have {len(self.curvatures)} curvatures; use curvature_of(position)"
            )
        return self.curvatures[0]

    @property
    def n_parameters(self) -> int:
        """Parameters of one problem, `D`."""
        return self.gradients.shape[1]

    @property
    def levels(self) -> int:
        """Number of values of one parameter, `2^K`."""
        return 1 << self.bits

    @property
    def resolutions(self) -> NDArray[np.float64]:
        """Weight of the finest bit of each problem, `δ/(2^K − 1)` (P,)."""
        return self.ranges / (self.levels - 1)

    @cached_property
    def _encoding(self) -> Encoding:
        return Encoding(self.bits, 1.0)

    def decode(self, bits: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return updates (P, D) of bits (P, D, K), each with the range of its problem."""
        return self.resolutions[:, None] * odd_levels(bits)

    def energies(self, updates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the energies (P,) of one update per problem, (P, D)."""
        if self.shares_curvature:
            return self.shared_curvature.energies(self.gradients, updates)
        rows = zip(self.curvatures, self.gradients, updates, strict=True)
        return np.array([curvature.energies(gradient, update) for curvature, gradient, update in rows])


def _newton_steps(curvature: Curvature, gradients: NDArray[np.float64]) -> NDArray[np.float64]:
    if curvature.is_convex:
        return -curvature.solve(gradients)
    norms = curvature.row_norms
    return np.divide(-gradients, norms, out=np.zeros_like(gradients), where=norms > 0)


def group_by_curvature(problems: Sequence[QuadraticProblem]) -> Iterator[tuple[NDArray[np.intp], Problems]]:
    """Yield groups of problems with a common curvature and number of bits, each with its positions."""
    if isinstance(problems, Problems) and problems.shares_curvature:
        yield np.arange(len(problems)), problems
        return
    groups: dict[tuple[Curvature, int], list[int]] = {}
    for position, problem in enumerate(problems):
        groups.setdefault((problem.shared_curvature, problem.encoding.bits), []).append(position)
    for (curvature, bits), positions in groups.items():
        group = [problems[position] for position in positions]
        gradients = np.array([problem.gradient for problem in group])
        ranges = np.array([problem.encoding.range for problem in group], dtype=float)
        yield np.array(positions), Problems((curvature,), gradients, ranges, bits)
