"""Products with rows: by compiled code of our own where outputs are few and features many, else by a BLAS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.threads import WORTH_THREADS, blas_threads, in_order
from annealfit.data.rows.base import cut_grams, gram_sizes

# By measurement (`python -m benchmarks.products`): outside of these a BLAS is as quick, or quicker.
FEWEST_FEATURES = 100
OUTPUTS = range(2, 16)
MOST_FEATURES_FOR_MOMENTS, LANES = 512, 16  # in single precision, whole vectors of them
WIDEST_BLOCK = 64  # of Gram matrices
_PARTS = 8  # of rows that are worth threads


def are_ours(features: NDArray[Any], n_outputs: int) -> bool:
    """Whether so many outputs of the features (n, d) are worked out here."""
    return (
        features.shape[1] >= FEWEST_FEATURES
        and n_outputs in OUTPUTS
        and features.flags.c_contiguous
        and features.dtype in (np.float32, np.float64)
    )


def project(features: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """`WXᵀ`, (O, n), of features (n, d) and weights (O, d) of one type.

    >>> project(np.ones((3, 100)), np.full((2, 100), 0.5)).tolist()
    [[50.0, 50.0, 50.0], [50.0, 50.0, 50.0]]
    """
    if not are_ours(features, len(weights)):
        outputs = np.empty((len(weights), len(features)), features.dtype)

        def part(bounds: tuple[int, int]) -> None:
            np.matmul(weights, features[slice(*bounds)].T, out=outputs[:, slice(*bounds)])

    else:
        from annealfit.data.rows import _products  # numba takes a moment to load

        padded = _padded(weights)
        outputs = np.empty((len(padded), len(features)), features.dtype)

        def part(bounds: tuple[int, int]) -> None:
            rows = slice(*bounds)
            _products.project_rows(features[rows], padded, outputs[:, rows])

    if outputs.size * features.shape[1] < WORTH_THREADS:
        part((0, len(features)))
    else:
        for _ in in_order(part, _parts(len(features))):
            pass
    return outputs[: len(weights)]


def _parts(count: int) -> list[tuple[int, int]]:
    """Where parts of so many rows begin and end: the same ones however many threads there are, and so the same sums."""
    parts = min(_PARTS, count)
    return list(pairwise((np.arange(parts + 1) * count // parts).tolist()))


def moments(features: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """`VX`, (O, d), of features (n, d) and values (O, n); in single precision only where both are.

    >>> moments(np.ones((3, 1)), np.array([[1.0, 2.0, 3.0]])).tolist()
    [[6.0]]
    """
    part = _part_of_moments(features, values)
    if values.size * features.shape[1] < WORTH_THREADS:
        return part((0, len(features)))
    found, *others = in_order(part, _parts(len(features)))
    for other in others:
        found += other
    return found


def _part_of_moments(features: NDArray[Any], values: NDArray[Any]) -> Callable[[tuple[int, int]], NDArray[Any]]:
    """What works out `VX` of some of the rows."""
    size = features.shape[1]
    are_single = features.dtype == values.dtype == np.float32  # values in double precision want a sum in it
    if are_single and are_ours(features, len(values)) and _fits_lanes(size):
        from annealfit.data.rows import _products

        padded = _padded(values)

        def ours(bounds: tuple[int, int]) -> NDArray[Any]:
            found, rows = np.zeros((len(padded), size)), slice(*bounds)
            _products.add_moments(features[rows], padded[:, rows], found)
            return found[: len(values)]

        return ours

    def theirs(bounds: tuple[int, int]) -> NDArray[Any]:
        rows = slice(*bounds)
        # A product with a vector is another one, several times as fast as that with a matrix of one row.
        return (values[0, rows] @ features[rows])[None] if len(values) == 1 else values[:, rows] @ features[rows]

    return theirs


def _fits_lanes(size: int) -> bool:
    return size <= MOST_FEATURES_FOR_MOMENTS and size % LANES == 0


def _padded(values: NDArray[Any]) -> NDArray[Any]:
    """As many rows as compiled code works on at once, the last ones empty."""
    from annealfit.data.rows import _products  # numba takes a moment to load

    missing = -len(values) % _products.OUTPUTS_AT_ONCE
    if not missing:
        return np.ascontiguousarray(values)
    return np.ascontiguousarray(np.concatenate([values, np.zeros((missing, values.shape[1]), values.dtype)]))


def block_grams(
    features: NDArray[Any], values: NDArray[Any], blocks: Sequence[slice], origin: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    """`Xᵀ diag(v) X` of each block of the features (n, …) and a 1, for values (n,) of at least 0: see `cut_grams`.

    Features are measured from `origin` (d,), or from 0.

    >>> block_grams(np.array([[2.0, 5.0], [1.0, 7.0]]), np.array([1.0, 4.0]), [slice(0, 1)]).tolist()
    [8.0, 6.0, 6.0, 5.0]
    """
    roots, sizes = np.sqrt(values), gram_sizes(blocks)
    entries = np.empty(sum(size**2 for size in sizes))
    start = np.zeros(features.shape[1], roots.dtype) if origin is None else origin.astype(roots.dtype, copy=False)
    is_narrow = max(sizes) <= WIDEST_BLOCK + 1 and features.dtype == roots.dtype and features.flags.c_contiguous

    def work_out(item: tuple[slice, NDArray[np.float64]]) -> None:
        block, gram = item
        if is_narrow:
            from annealfit.data.rows import _products

            _products.gram_of_block(features, start, roots, block.start, block.stop, gram)
            return
        part, own = np.empty((len(roots), len(gram)), roots.dtype), features[:, block]
        np.multiply(own if origin is None else own - start[block], roots[:, None], out=part[:, :-1])
        part[:, -1] = roots
        gram[:] = part.T @ part  # the same array twice, which NumPy knows to be half the work

    items = list(zip(blocks, cut_grams(entries, blocks), strict=True))
    if len(blocks) * len(values) * max(sizes) ** 2 < WORTH_THREADS:
        with blas_threads(0):  # many small products: not what more threads were allowed for
            for item in items:
                work_out(item)
    else:
        for _ in in_order(work_out, items):
            pass
    return entries


@cache
def compile_for(dtype: np.dtype[Any]) -> None:
    """Have the compiled code at hand, so that no clock measures the compiler."""
    ones = np.ones((2, FEWEST_FEATURES), dtype)
    project(ones, ones)
