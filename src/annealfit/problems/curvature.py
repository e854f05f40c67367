"""Curvature: a symmetric matrix, checked once, with its derived quantities computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.arrays import Array, as_real
from annealfit._support.errors import InvalidInputError
from annealfit._support.threads import threads_for_large_product

_SYMMETRY_TOLERANCE = 1e-8  # products of a BLAS may differ from their transpose in the last bits; more is a mistake


@dataclass(frozen=True, eq=False, init=False)
class Curvature:
    """The quadratic part `G` of one problem or of many. Problems that share a `Curvature` object are solved together.

    `matrix` (D, D) is an exactly symmetric, read-only copy.

    >>> curvature = Curvature([[2.0, 0.5], [0.5, 1.0]])
    >>> curvature.size, curvature.is_convex, curvature.row_sums.tolist()
    (2, True, [2.5, 1.5])
    """

    matrix: Array
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
        self.__dict__.update(matrix=read_only((given + given.T) / 2), _parts={})

    @classmethod
    def computed(cls, matrix: Array) -> Curvature:
        """Make a curvature of a matrix that is symmetric up to rounding by construction."""
        symmetric = (matrix + matrix.T) / 2
        with np.errstate(invalid="ignore"):
            is_finite = np.isfinite(symmetric.sum())
        if not is_finite:
            as_real(symmetric, "curvature", ndim=2)  # raises the error that says what is wrong
        return cls._of_symmetric(symmetric)

    @classmethod
    def _of_symmetric(cls, matrix: Array) -> Curvature:
        curvature = object.__new__(cls)
        curvature.__dict__.update(matrix=read_only(matrix), _parts={})
        return curvature

    @property
    def size(self) -> int:
        """Number of parameters, D."""
        return len(self.matrix)

    @property
    def blocks(self) -> Sequence[tuple[slice, Curvature]]:
        """Parameters that are coupled to each other only, with their curvature: here one block."""
        return ((slice(0, self.size), self),)

    @cached_property
    def packed(self) -> tuple[Array, NDArray[np.intp]]:
        """Entries of the matrices of all blocks in one line, and the edges of blocks (B, 3), for compiled code.

        The edges are a block's first and last + 1 parameter, and its first entry.
        """
        return self.matrix.reshape(-1), np.array([[0, self.size, 0]])

    @property
    def alone(self) -> tuple[NDArray[np.intp], Array]:
        """Parameters that are coupled to no other, which belong to no block, and their curvatures."""
        return np.empty(0, np.intp), np.empty(0)

    @cached_property
    def diagonal(self) -> Array:
        """`G_jj` (D,)."""
        return self.matrix.diagonal()

    @cached_property
    def row_sums(self) -> Array:
        """`G1` (D,)."""
        return read_only(self.matrix.sum(axis=1))

    @cached_property
    def row_norms(self) -> Array:
        """`√Σ_i G_ij²` (D,): the field at each parameter from updates of size 1 and random sign."""
        return read_only(np.sqrt((self.matrix**2).sum(axis=1)))

    @cached_property
    def largest_coupling(self) -> float:
        """Largest absolute entry off the diagonal; 0 for a single parameter."""
        return float(np.abs(self.matrix - np.diag(self.diagonal)).max())

    @cached_property
    def typical_stiffness(self) -> float:
        """Mean of the non-zero `G_jj`, or of the row norms if G is not convex; 1 if all are 0."""
        stiffness = self.diagonal if self.is_convex else self.row_norms
        return float(stiffness.sum() / max(np.count_nonzero(stiffness), 1)) or 1.0

    @cached_property
    def is_convex(self) -> bool:
        """Whether `G` is positive semidefinite, up to the rounding of its eigenvalues.

        A Cholesky factorisation of G plus a small multiple of the identity decides, at a tenth of the cost of
        eigenvalues.
        """
        if self._plain_factor is not None:
            return True
        margin = 1e-12 * self.size * float(np.abs(self.matrix).sum(axis=1).max())  # relative to a bound of eigenvalues
        return _cholesky(self.matrix, margin or 1.0) is not None

    @cached_property
    def inverse(self) -> Array:
        """`G⁻¹`, slightly damped where G is singular."""
        with threads_for_large_product(self.size**3):
            inverse = np.linalg.inv(self.matrix + self._damping * np.eye(self.size))
        return read_only(inverse.astype(np.float64, copy=False))

    @cached_property
    def factor(self) -> Array:
        """Lower Cholesky factor of a convex `G`, slightly damped where G is singular."""
        plain = self._plain_factor
        factor = _cholesky(self.matrix, self._damping) if plain is None else plain
        if factor is None:
            raise InvalidInputError("the curvature has a negative eigenvalue; add a multiple of the identity to it")
        return read_only(factor)

    @cached_property
    def _plain_factor(self) -> Array | None:
        """Factor of G itself, unless it does not exist or has a pivot near 0."""
        factor = _cholesky(self.matrix, 0.0)
        return None if factor is None or factor.diagonal().min() ** 2 < self._damping else factor

    @cached_property
    def _damping(self) -> float:
        return 1e-10 * float(np.trace(self.matrix)) / self.size or 1.0

    def solve(self, values: Array) -> Array:
        """Return `G⁻¹v` for every row of values (P, D)."""
        from scipy.linalg.lapack import dpotrs  # LAPACK itself: SciPy's checks take longer than a small solve

        return dpotrs(self.factor, values.T, lower=True)[0].T

    def part(self, block: slice) -> Curvature:
        """Return the curvature of consecutive parameters, made once for every block."""
        key = block.start, block.stop
        if key not in self._parts:
            self._parts[key] = Curvature._of_symmetric(np.ascontiguousarray(self.matrix[block, block]))
        return self._parts[key]

    def damped(self, share: float) -> Curvature:
        """Return the curvature with this share of the mean of the diagonal added to the diagonal."""
        more = share * float(self.diagonal.mean()) or share  # a matrix of zeros has no scale
        return Curvature(self.matrix + more * np.eye(self.size))

    def without_rounding(self, share: float) -> Curvature:
        """Return the curvature without couplings below this share of `√(G_ii G_jj)`; blocks keep all of theirs."""
        scales = np.sqrt(np.abs(self.diagonal))
        kept = np.where(np.abs(self.matrix) < share * scales * scales[:, None], 0.0, self.matrix)
        return self if np.array_equal(kept, self.matrix) else Curvature.computed(kept)

    def thinned(self, max_couplings: int, bits: int) -> Curvature:
        """Return an upper bound of the curvature whose problems of `bits` bits have at most so many couplings."""
        within = self.size * bits * (bits - 1) // 2  # couplings of the bits of one parameter are never dropped
        if max_couplings < within:
            raise InvalidInputError(
                f"max_couplings is {max_couplings}; {self.size} parameters of {bits} bits need at least "
                f"{within}: use fewer bits"
            )
        return Curvature(sparsify(self.matrix, (max_couplings - within) // bits**2))

    def times(self, values: Array) -> Array:
        """Return `Gv` for every row of values (…, D)."""
        return values @ self.matrix

    def energies(self, gradients: Array, updates: Array) -> Array:
        """Return `uᵀGu + 2gᵀu` (…) for gradients and updates (…, D)."""
        return np.vecdot(self.times(updates) + 2 * gradients, updates)


def read_only(array: Array) -> Array:
    """Make an array read-only and return it."""
    array.setflags(write=False)
    return array


def _cholesky(matrix: Array, margin: float) -> Array | None:
    """Return the lower factor of the matrix plus a multiple of the identity; None if there is none."""
    from scipy.linalg.lapack import dpotrf

    with threads_for_large_product(len(matrix) ** 3 / 3):
        raised = matrix + margin * np.eye(len(matrix)) if margin else matrix.copy()
        factor, failed = dpotrf(raised.T, lower=True, overwrite_a=True)  # the transpose is in LAPACK's order
        return None if failed else factor


def sparsify(matrix: Array, max_pairs: int) -> Array:
    """Return an upper bound of a curvature with at most `max_pairs` coupled pairs of parameters, the largest ones.

    Dropping the coupling `G_ij` and adding `|G_ij|` to both `G_ii` and `G_jj` adds the positive semidefinite matrix
    `|G_ij|·(e_i ∓ e_j)(e_i ∓ e_j)ᵀ`, so a bound of the loss stays one.

    >>> sparsify(np.array([[2.0, -1.0], [-1.0, 3.0]]), 0).tolist()
    [[3.0, 0.0], [0.0, 4.0]]
    """
    rows, columns = np.triu_indices(len(matrix), 1)
    sizes = np.abs(matrix[rows, columns])
    dropped = np.argsort(-sizes, kind="stable")[max_pairs:]
    i, j, sizes = rows[dropped], columns[dropped], sizes[dropped]
    sparse = matrix.copy()
    sparse[i, j] = sparse[j, i] = 0.0
    added = np.bincount(i, sizes, len(matrix)) + np.bincount(j, sizes, len(matrix))
    sparse[np.diag_indices_from(sparse)] += added
    return sparse


def _joined(name: str) -> cached_property[Array]:
    """Return a property that joins an array (D,) of every block; of parameters alone it is their curvature."""

    def join(whole: BlockCurvature) -> Array:
        joined = np.empty(whole.size)
        joined[whole.alone[0]] = np.abs(whole.alone[1]) if name == "row_norms" else whole.alone[1]
        for block, part in whole.blocks:
            joined[block] = getattr(part, name)
        return read_only(joined)

    return cached_property(join)


def _assembled(name: str, of_alone: Callable[[Array], Array]) -> cached_property[Array]:
    """Return a property that is a block-diagonal matrix (D, D) of a matrix of every block."""

    def assemble(whole: BlockCurvature) -> Array:
        matrix, (places, values) = np.zeros((whole.size, whole.size)), whole.alone
        matrix[places, places] = of_alone(values)
        for block, part in whole.blocks:
            matrix[block, block] = getattr(part, name)
        return read_only(matrix)

    return cached_property(assemble)


class BlockCurvature(Curvature):
    """A block-diagonal curvature: zeros between blocks are neither stored nor multiplied.

    Parameters that are coupled to no other are given as an array of their curvatures, and belong to no block. Samplers
    that do not use blocks find the full matrix in `matrix`.

    >>> curvature = BlockCurvature([Curvature([[2.0, 0.5], [0.5, 1.0]]), np.array([4.0, 1.0])])
    >>> curvature.size, curvature.solve(np.array([[0.0, 0.0, 8.0, 3.0]])).round(6).tolist()
    (4, [[0.0, 0.0, 2.0, 3.0]])
    """

    _blocks: tuple[tuple[slice, Curvature], ...]
    _alone: tuple[NDArray[np.intp], Array]
    _size: int
    matrix = _assembled("matrix", np.asarray)
    inverse = _assembled("inverse", lambda alone: 1 / _away_from_zero(alone))
    factor = _assembled("factor", lambda alone: np.sqrt(_away_from_zero(alone)))
    diagonal, row_sums, row_norms = _joined("diagonal"), _joined("row_sums"), _joined("row_norms")

    def __init__(self, parts: Sequence[Curvature | Array]) -> None:
        ends = np.cumsum([len(part) if isinstance(part, np.ndarray) else part.size for part in parts]).tolist()
        blocks, places, values = [], [np.empty(0, np.intp)], [np.empty(0)]
        for first, last, part in zip([0, *ends], ends, parts, strict=False):
            if isinstance(part, np.ndarray):
                places.append(np.arange(first, last))
                values.append(part)
            else:
                blocks.append((slice(first, last), part))
        alone = np.concatenate(places), read_only(np.concatenate(values))
        self.__dict__.update(_blocks=tuple(blocks), _alone=alone, _size=ends[-1], _parts={})

    @property
    def blocks(self) -> Sequence[tuple[slice, Curvature]]:
        """The blocks, in the order of their parameters."""
        return self._blocks

    @property
    def alone(self) -> tuple[NDArray[np.intp], Array]:
        """Parameters that are coupled to no other, and their curvatures."""
        return self._alone

    @property
    def size(self) -> int:
        """Number of parameters, D."""
        return self._size

    @cached_property
    def packed(self) -> tuple[Array, NDArray[np.intp]]:
        """Entries of the matrices of all blocks in one line, and the edges of blocks (B, 3)."""
        return _packed([(block, part.matrix) for block, part in self.blocks])

    @cached_property
    def _packed_factors(self) -> tuple[Array, NDArray[np.intp]]:
        return _packed([(block, part.factor) for block, part in self.blocks])

    @cached_property
    def largest_coupling(self) -> float:
        """Largest absolute entry off the diagonal."""
        return max((part.largest_coupling for _, part in self.blocks), default=0.0)

    @cached_property
    def is_convex(self) -> bool:
        """Whether every block is convex."""
        return all(part.is_convex for _, part in self.blocks) and bool((self.alone[1] >= 0).all())

    def solve(self, values: Array) -> Array:
        """Return `G⁻¹v` for every row of values (P, D)."""
        from annealfit.problems import _kernels  # numba takes a moment to load

        places, alone = self.alone
        return _kernels.solve(*self._packed_factors, places, _away_from_zero(alone), np.ascontiguousarray(values))

    def without_rounding(self, share: float) -> Curvature:
        """Return the curvature."""
        return self

    def times(self, values: Array) -> Array:
        """Return `Gv` for every row of values (…, D)."""
        from annealfit.problems import _kernels

        rows = np.ascontiguousarray(values).reshape(-1, self.size)
        return _kernels.multiply(*self.packed, *self.alone, rows).reshape(values.shape)


def _away_from_zero(alone: Array) -> Array:
    return np.maximum(alone, 1e-10 * alone.mean() or 1.0) if (alone == 0).any() else alone


def _packed(matrices: Sequence[tuple[slice, Array]]) -> tuple[Array, NDArray[np.intp]]:
    starts = np.cumsum([0, *(matrix.size for _, matrix in matrices)])
    edges = [[block.start, block.stop, start] for (block, _), start in zip(matrices, starts.tolist(), strict=False)]
    entries = np.concatenate([np.empty(0), *(matrix.ravel() for _, matrix in matrices)])
    return read_only(entries), np.array(edges, np.intp).reshape(-1, 3)
