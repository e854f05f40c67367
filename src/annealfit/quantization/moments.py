"""What a layer's inputs look like, in the two sums that its output error depends on: their mean and Gram matrix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from annealfit._support.arrays import Array, as_real
from annealfit._support.errors import InvalidInputError
from annealfit._support.threads import threads_for_large_product

NUMBERS_PER_CHUNK = 1 << 23  # numbers that are turned into double precision at a time: 64 MiB


@dataclass(frozen=True, eq=False)
class InputMoments:
    """Mean and Gram matrix `XᵀX/N` of a layer's inputs (N, D); no more of the inputs is needed to choose weights.

    The layer may be fed by layers that are quantised already. Then its inputs `X` are not those, `R`, that its
    outputs are to be reproduced from, and `cross` (`XᵀR/N`) and the moments of the reference say how they differ.

    >>> moments = InputMoments.of(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> moments.gram.tolist(), moments.means.tolist()
    ([[5.0, 7.0], [7.0, 10.0]], [2.0, 3.0])
    """

    gram: Array  # (D, D)
    means: Array  # (D,)
    cross: Array  # (D, D): XᵀR/N; the Gram matrix itself where there is no reference
    reference: InputMoments | None = None

    @classmethod
    def of(cls, inputs: Any, reference: Any = None) -> InputMoments:
        """The moments of inputs (N, D): an array, a memory map, a sparse matrix, or moments themselves."""
        if isinstance(inputs, InputMoments):
            if reference is not None:
                raise InvalidInputError("inputs are moments already; make them with the reference: InputMoments.of")
            return inputs
        found, wanted = _as_rows(inputs, "inputs"), None if reference is None else _as_rows(reference, "reference")
        if wanted is not None and wanted.shape != found.shape:
            raise InvalidInputError(
                f"inputs have shape {found.shape} and reference {wanted.shape}; they must be the same rows"
            )
        return cls.of_chunks((found[rows], None if wanted is None else wanted[rows]) for rows in _slices(*found.shape))

    @classmethod
    def of_chunks(cls, chunks: Iterable[tuple[Any, Any]]) -> InputMoments:
        """The moments of all rows that come in chunks, dense or sparse, each with its reference or None."""
        sums = MomentSums()
        for rows, reference in chunks:
            sums.add(rows, reference)
        return sums.moments()

    @classmethod
    def of_gram(cls, gram: ArrayLike) -> InputMoments:
        """The moments of which only the Gram matrix is known; the inputs' means count as 0."""
        matrix = as_real(gram, "gram", ndim=2)
        if len(matrix) == 0 or matrix.shape != (len(matrix), len(matrix)):
            raise InvalidInputError(f"gram has shape {matrix.shape}; expected (n_inputs, n_inputs)")
        if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-6 * float(np.abs(matrix).max())):
            raise InvalidInputError(
                f"gram differs from its transpose by {np.abs(matrix - matrix.T).max():.3g}; pass inputs.T @ inputs"
            )
        if matrix.diagonal().min() < 0:
            raise InvalidInputError(
                f"gram has {matrix.diagonal().min():.3g} on its diagonal, where sums of squares stand; "
                "pass inputs.T @ inputs"
            )
        return cls(gram=matrix, means=np.zeros(len(matrix)), cross=matrix)

    @property
    def size(self) -> int:
        """The number of inputs, `D`."""
        return len(self.gram)

    @property
    def target(self) -> InputMoments:
        """The moments of what the outputs are to be reproduced from."""
        return self.reference or self

    def centred(self) -> InputMoments:
        """The same for inputs measured from their means, which a bias can absorb."""
        target = self.target
        gram, cross = (
            matrix - np.outer(self.means, means)
            for matrix, means in ((self.gram, self.means), (self.cross, target.means))
        )
        zeros = np.zeros(self.size)
        if self.reference is None:
            return InputMoments(gram, zeros, gram)
        wanted = target.gram - np.outer(target.means, target.means)
        return InputMoments(gram, zeros, cross, InputMoments(wanted, zeros, wanted))


class MomentSums:
    """The moments of rows that come in chunks, each with its reference or without one."""

    def __init__(self) -> None:
        self._count = 0
        self._totals: list[Array] = []

    def add(self, rows: Any, reference: Any = None) -> None:
        """Count these rows (n, D) in, too."""
        parts = [_dense(part) for part in (rows, reference) if part is not None]
        first = parts[0]
        with threads_for_large_product(first.size * first.shape[1]), np.errstate(over="ignore", invalid="ignore"):
            sums = [part.sum(axis=0) for part in parts] + [part.T @ part for part in parts]
            if reference is not None:
                sums.append(first.T @ parts[1])
        if not all(np.isfinite(total).all() for total in sums):
            raise InvalidInputError("inputs hold NaN or infinity, or are too large to be squared")
        self._totals = [old + new for old, new in zip(self._totals, sums, strict=True)] if self._totals else sums
        self._count += len(first)

    def moments(self) -> InputMoments:
        """Of all rows so far."""
        if self._count == 0:
            raise InvalidInputError("inputs have no rows; give what the layer sees for some hundred images, say")
        means = [total / self._count for total in self._totals]
        if len(means) == 2:
            return InputMoments(gram=means[1], means=means[0], cross=means[1])
        reference = InputMoments(gram=means[3], means=means[1], cross=means[3])
        return InputMoments(gram=means[2], means=means[0], cross=means[4], reference=reference)


def _dense(rows: Any) -> Array:
    return np.asarray(rows.toarray() if scipy.sparse.issparse(rows) else rows, dtype=float)


def _as_rows(inputs: Any, name: str) -> Any:
    """Something of which slices are rows of numbers."""
    rows = inputs.tocsr() if scipy.sparse.issparse(inputs) else np.asanyarray(inputs)
    if rows.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name} is an array of {rows.dtype}; expected numbers")
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise InvalidInputError(
            f"{name} has shape {rows.shape}; expected (n_samples, n_inputs): flatten images, or take a convolution's "
            "patches (annealfit.quantization.convolution_moments)"
        )
    return rows


def _slices(count: int, size: int) -> Iterable[slice]:
    rows = max(1, NUMBERS_PER_CHUNK // size)
    return (slice(first, first + rows) for first in range(0, count, rows))
