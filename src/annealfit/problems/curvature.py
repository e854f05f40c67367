"""A curvature matrix, checked once, with what is worked out about it once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.arrays import as_real
from annealfit._support.errors import InvalidInputError
from annealfit._support.threads import threads_for_large_product

# A curvature assembled by a BLAS may differ from its transpose in the last bits; more is a mistake.
_SYMMETRY_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False, init=False)
class Curvature:
    """The quadratic part `G` of one problem or of many, and what they all would otherwise work out for themselves.

    `matrix` (D, D) is an exactly symmetric copy that cannot be written to: what was worked out stays true. Problems
    that share a `Curvature` object are solved together.

    >>> metric = Curvature([[2.0, 0.5], [0.5, 1.0]])
    >>> metric.size, metric.is_convex, metric.row_sums.tolist()
    (2, True, [2.5, 1.5])
    """

    matrix: NDArray[np.float64]
    _parts: dict[tuple[int, int], Curvature] = field(repr=False)

    def __init__(self, matrix: ArrayLike) -> None:
        given = as_real(matrix, "curvature", ndim=2)
        if len(given) == 0 or given.shape != (len(given), len(given)):
            raise InvalidInputError(f"curvature has shape {given.shape}; expected (D, D) with D ≥ 1")
        asymmetry = np.abs(given - given.T).max()
        if asymmetry > _SYMMETRY_TOLERANCE * np.abs(given).max():
            raise InvalidInputError(
                f"curvature differs from its transpose by {asymmetry:.3g}; pass (curvature + curvature.T) / 2"
            )
        symmetric = (given + given.T) / 2
        symmetric.setflags(write=False)
        self.__dict__.update(matrix=symmetric, _parts={})

    @property
    def size(self) -> int:
        """The number of parameters, `D`."""
        return len(self.matrix)

    @property
    def blocks(self) -> Sequence[tuple[slice, Curvature]]:
        """Parameters that are coupled to each other alone, with their metric: here all of them together."""
        return ((slice(0, self.size), self),)

    @cached_property
    def packed(self) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """The entries of all blocks' matrices in one line, and where blocks end (B + 1, 2): for compiled code.

        Edges are positions among the parameters, and among the entries.
        """
        return self.matrix.reshape(-1), np.array([[0, 0], [self.size, self.size**2]])

    @cached_property
    def diagonal(self) -> NDArray[np.float64]:
        """`G_jj`, shape (D,)."""
        return self.matrix.diagonal()

    @cached_property
    def row_sums(self) -> NDArray[np.float64]:
        """`G1`, shape (D,)."""
        return read_only(self.matrix.sum(axis=1))

    @cached_property
    def row_norms(self) -> NDArray[np.float64]:
        """`√Σ_i G_ij²`, shape (D,): the field that updates of size 1 and random sign make at each parameter."""
        return read_only(np.sqrt((self.matrix**2).sum(axis=1)))

    @cached_property
    def largest_coupling(self) -> float:
        """The largest absolute entry off the diagonal; 0 for a single parameter."""
        return float(np.abs(self.matrix - np.diag(self.diagonal)).max())

    @cached_property
    def typical_stiffness(self) -> float:
        """The mean of `G_jj` where it is not 0; of the row norms, where G is not convex; 1 where all are 0."""
        stiffness = self.diagonal if self.is_convex else self.row_norms
        return float(stiffness.sum() / max(np.count_nonzero(stiffness), 1)) or 1.0

    @cached_property
    def is_convex(self) -> bool:
        """Whether `G` is positive semidefinite, up to the rounding of its eigenvalues.

        It is if a Cholesky factorisation of a little more than it succeeds, which is a tenth of an eigenvalue
        problem's work.
        """
        if self._plain_factor is not None:  # which is needed soon, and says as much
            return True
        margin = 1e-12 * self.size * float(np.abs(self.matrix).sum(axis=1).max())  # no eigenvalue is larger than that
        return _cholesky(self.matrix, margin or 1.0) is not None

    @cached_property
    def inverse(self) -> NDArray[np.float64]:
        """`G⁻¹`, slightly damped where G is singular: the Newton step's matrix."""
        with threads_for_large_product(self.size**3):
            inverse = np.linalg.inv(self.matrix + self._damping * np.eye(self.size))
        return read_only(inverse.astype(np.float64, copy=False))

    @cached_property
    def factor(self) -> NDArray[np.float64]:
        """The lower Cholesky factor of `G`, slightly damped where G is singular; only of a convex one."""
        if self._factor is None:
            raise InvalidInputError("the curvature has a negative eigenvalue; add a multiple of the identity to it")
        return read_only(self._factor)

    @cached_property
    def _factor(self) -> NDArray[np.float64] | None:
        plain = self._plain_factor
        return _cholesky(self.matrix, self._damping) if plain is None else plain

    @cached_property
    def _plain_factor(self) -> NDArray[np.float64] | None:
        """The factor of G itself, where there is one that no pivot of is next to nothing."""
        factor = _cholesky(self.matrix, 0.0)
        return None if factor is None or factor.diagonal().min() ** 2 < self._damping else factor

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`G⁻¹v` for every row of values (P, D)."""
        from scipy.linalg.lapack import dpotrs  # here: what only names problems does not wait for SciPy

        # Straight to LAPACK: a metric may have many small blocks, and SciPy's checks take longer than they do.
        return dpotrs(self.factor, values.T, lower=True)[0].T

    @cached_property
    def _damping(self) -> float:
        return 1e-10 * float(np.trace(self.matrix)) / self.size or 1.0

    def part(self, block: slice) -> Curvature:
        """The metric of consecutive parameters alone, made once for every block."""
        key = block.start, block.stop
        if key not in self._parts:
            self._parts[key] = Curvature._of_symmetric(np.ascontiguousarray(self.matrix[block, block]))
        return self._parts[key]

    @classmethod
    def worked_out(cls, matrix: NDArray[np.float64]) -> Curvature:
        """Of a matrix that differs from its transpose by nothing but rounding, which need not be asked again."""
        symmetric = (matrix + matrix.T) / 2
        with np.errstate(invalid="ignore"):
            is_finite = np.isfinite(symmetric.sum())
        if not is_finite:
            as_real(symmetric, "curvature", ndim=2)  # which says what is wrong
        return cls._of_symmetric(symmetric)

    @classmethod
    def _of_symmetric(cls, matrix: NDArray[np.float64]) -> Curvature:
        """Of a matrix that needs no check, and that nobody else has."""
        metric = object.__new__(cls)
        metric.__dict__.update(matrix=read_only(matrix), _parts={})
        return metric

    def damped(self, share: float) -> Curvature:
        """The metric and so much of the mean of its diagonal, added to the diagonal (Levenberg and Marquardt)."""
        more = share * float(self.diagonal.mean()) or share  # a matrix of zeros has no scale of its own
        return Curvature(self.matrix + more * np.eye(self.size))

    def thinned(self, max_couplings: int, bits: int) -> Curvature:
        """An upper bound of the metric whose problems of `bits` bits per parameter have at most so many couplings."""
        # Bits of one parameter are coupled whatever is dropped; a pair of parameters is bits² couplings.
        within = self.size * bits * (bits - 1) // 2
        if max_couplings < within:
            raise InvalidInputError(
                f"max_couplings is {max_couplings}; {self.size} parameters of {bits} bits need at least "
                f"{within}: use fewer bits"
            )
        return Curvature(sparsify(self.matrix, (max_couplings - within) // bits**2))

    def times(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`Gv` for every row of values (…, D)."""
        return values @ self.matrix

    def energies(self, gradients: NDArray[np.float64], updates: NDArray[np.float64]) -> NDArray[np.float64]:
        """`uᵀGu + 2gᵀu`, shape (…), for gradients and updates of shape (…, D)."""
        return np.vecdot(self.times(updates) + 2 * gradients, updates)


def read_only(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """The array itself, which cannot be written to any more: what was worked out once is shared by many."""
    array.setflags(write=False)
    return array


def _cholesky(matrix: NDArray[np.float64], margin: float) -> NDArray[np.float64] | None:
    """The lower factor of the matrix and a multiple of the identity; None where there is none."""
    from scipy.linalg.lapack import dpotrf  # for many small blocks SciPy's checks take longer than this does

    with threads_for_large_product(len(matrix) ** 3 / 3):
        raised = matrix + margin * np.eye(len(matrix)) if margin else matrix.copy()
        # Transposed it is the same, and in the order that LAPACK writes into.
        factor, failed = dpotrf(raised.T, lower=True, overwrite_a=True)
        return None if failed else factor


def sparsify(matrix: NDArray[np.float64], max_pairs: int) -> NDArray[np.float64]:
    """An upper bound of a curvature with at most `max_pairs` pairs of parameters coupled.

    Dropping the coupling `G_ij` and adding `|G_ij|` to both `G_ii` and `G_jj` adds the positive semidefinite
    matrix `|G_ij|·(e_i ∓ e_j)(e_i ∓ e_j)ᵀ`, so what bounded the loss still does. The largest couplings stay.

    >>> sparsify(np.array([[2.0, -1.0], [-1.0, 3.0]]), 0).tolist()
    [[3.0, 0.0], [0.0, 4.0]]
    """
    rows, columns = np.triu_indices(len(matrix), 1)
    sizes = np.abs(matrix[rows, columns])
    dropped = np.argsort(-sizes, kind="stable")[max_pairs:]
    sparse = matrix.copy()
    for i, j in zip(rows[dropped], columns[dropped], strict=True):
        sparse[i, j] = sparse[j, i] = 0.0
    np.add.at(sparse, (rows[dropped], rows[dropped]), sizes[dropped])
    np.add.at(sparse, (columns[dropped], columns[dropped]), sizes[dropped])
    return sparse


class BlockCurvature(Curvature):
    """A metric of blocks along the diagonal: what does not couple is neither stored nor multiplied.

    Samplers that know nothing of blocks find them in `matrix`, among zeros.

    >>> metric = BlockCurvature([Curvature([[2.0, 0.5], [0.5, 1.0]]), Curvature([[4.0]])])
    >>> metric.size, metric.solve(np.array([[0.0, 0.0, 8.0]])).round(6).tolist()
    (3, [[0.0, 0.0, 2.0]])
    """

    def __init__(self, metrics: Sequence[Curvature]) -> None:
        ends = np.cumsum([metric.size for metric in metrics]).tolist()
        slices = [slice(end - metric.size, end) for metric, end in zip(metrics, ends, strict=True)]
        self.__dict__.update(_blocks=tuple(zip(slices, metrics, strict=True)), _parts={})

    _blocks: tuple[tuple[slice, Curvature], ...]

    @property
    def size(self) -> int:
        """The number of parameters, `D`."""
        return self._blocks[-1][0].stop

    @property
    def blocks(self) -> Sequence[tuple[slice, Curvature]]:
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
        from annealfit.problems import _kernels  # numba takes a moment to import: only when it is needed

        return _kernels.solve(self._packed_factors, self.packed[1], np.ascontiguousarray(values))

    @cached_property
    def _packed_factors(self) -> NDArray[np.float64]:
        return np.concatenate([metric.factor.ravel() for _, metric in self.blocks])

    def times(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`Gv` for every row of values (…, D)."""
        from annealfit.problems import _kernels  # numba takes a moment to import: only when it is needed

        rows = np.ascontiguousarray(values).reshape(-1, self.size)
        return _kernels.multiply(*self.packed, rows).reshape(values.shape)

    def _assembled(self, matrices: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        whole = np.zeros((self.size, self.size))
        for (block, _), matrix in zip(self.blocks, matrices, strict=True):
            whole[block, block] = matrix
        return read_only(whole)
