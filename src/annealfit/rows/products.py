"""Products with rows: by compiled code of our own where outputs are few and features many, else by a BLAS."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.threads import WORTH_THREADS, blas_threads, in_order

# By measurement (`python -m benchmarks.products`): outside of these a BLAS is as quick, or quicker.
FEWEST_FEATURES = 100
OUTPUTS = range(2, 16)
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
        return weights @ features.T
    from annealfit.rows import _products  # numba takes a moment to load

    missing = -len(weights) % _products.OUTPUTS_AT_ONCE
    padded = np.concatenate([weights, np.zeros((missing, weights.shape[1]), weights.dtype)])
    outputs = np.empty((len(padded), len(features)), features.dtype)

    def part(bounds: tuple[int, int]) -> None:
        rows = slice(*bounds)
        _products.project_rows(features[rows], padded, outputs[:, rows])

    if outputs.size * features.shape[1] < WORTH_THREADS:
        part((0, len(features)))
        return outputs[: len(weights)]
    count = min(_PARTS, len(features))
    for _ in in_order(part, list(pairwise((np.arange(count + 1) * len(features) // count).tolist()))):
        pass
    return outputs[: len(weights)]


def moments(features: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """`VX`, (O, d), of features (n, d) and values (O, n) of one type.

    >>> moments(np.ones((3, 1)), np.array([[1.0, 2.0, 3.0]])).tolist()
    [[6.0]]
    """
    # A product with a vector is another one, several times as fast as that with a matrix of one row.
    return (values[0] @ features)[None] if len(values) == 1 else values @ features


def block_grams(features: NDArray[Any], values: NDArray[Any], blocks: Sequence[slice]) -> list[NDArray[Any]]:
    """`Xᵀ diag(v) X` of each block of the features (n, …) and a 1, for values (n,) of at least 0.

    >>> block_grams(np.array([[2.0, 5.0], [1.0, 7.0]]), np.array([1.0, 4.0]), [slice(0, 1)])[0].tolist()
    [[8.0, 6.0], [6.0, 5.0]]
    """
    roots = np.sqrt(values)[:, None]
    width = 1 + max(block.stop - block.start for block in blocks)
    grams = []
    with blas_threads(len(values) * width**2):  # many small products: not what more threads were allowed for
        for block in blocks:
            part = np.empty((len(roots), block.stop - block.start + 1), roots.dtype)
            np.multiply(features[:, block], roots, out=part[:, :-1])
            part[:, -1:] = roots
            grams.append(part.T @ part)  # the same array twice, which NumPy knows to be half the work
    return grams


@cache
def compile_for(dtype: np.dtype[Any]) -> None:
    """Have the compiled code at hand, so that no clock measures the compiler."""
    ones = np.ones((2, FEWEST_FEATURES), dtype)
    project(ones, ones)
