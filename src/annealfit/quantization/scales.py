"""Scales that suit the weights alone: what rounding to the nearest level, and GPTQ, start from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit.quantization.grids import Grid

_CANDIDATES = np.geomspace(0.03, 1.0, 24)  # of the scale at which the largest weight is the largest level
_FITS = 5  # of scale and levels in turn, from the best candidate


def scales_of_weights(weights: Array, grid: Grid, starts: NDArray[np.intp]) -> Array:
    """The scale of each output and group (P, G) with the least squared rounding error of its weights (P, D).

    A search over 24 candidates, then scale and levels fitted to each other in turn. Weights that are all 0 have the
    scale 0.

    >>> grid = Grid.of(bits=1)
    >>> scales_of_weights(np.array([[0.5, -0.5, 1.0, -1.0]]), grid, np.array([0])).tolist()
    [[0.75]]
    """
    lengths = np.diff(starts, append=weights.shape[1])
    largest = np.maximum.reduceat(np.abs(weights), starts, axis=1) / grid.reach
    best, least = largest, np.full(largest.shape, np.inf)
    for share in _CANDIDATES:
        scales, errors = share * largest, _errors(weights, grid, starts, lengths, share * largest)
        best, least = np.where(errors < least, scales, best), np.minimum(errors, least)
    for _ in range(_FITS):
        levels = _levels(weights, grid, lengths, best)
        products, squares = (np.add.reduceat(part * levels, starts, axis=1) for part in (weights, levels))
        best = np.where((squares > 0) & (products > 0), products / np.maximum(squares, 1e-300), best)
    return best


def _levels(weights: Array, grid: Grid, lengths: NDArray[np.intp], scales: Array) -> NDArray[np.int64]:
    spread = np.repeat(scales, lengths, axis=1)
    return grid.at(grid.nearest(np.divide(weights, spread, out=np.zeros_like(weights), where=spread > 0)))


def _errors(weights: Array, grid: Grid, starts: NDArray[np.intp], lengths: NDArray[np.intp], scales: Array) -> Array:
    rest = weights - np.repeat(scales, lengths, axis=1) * _levels(weights, grid, lengths, scales)
    return np.add.reduceat(rest**2, starts, axis=1)
