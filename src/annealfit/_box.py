"""Coordinate descent in a box, compiled: the continuous relaxation behind `annealfit.bounds`."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def minimise_all(
    curvature: NDArray[np.float64],
    gradients: NDArray[np.float64],
    starts: NDArray[np.float64],
    radii: NDArray[np.float64],
    max_sweeps: int,
    relative_gap: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Minimise for every row of `gradients` and `starts` (P, D); returns the minima (P, D) and the bounds (P,)."""
    minima, bounds = np.empty_like(gradients), np.empty(len(gradients))
    for row in range(len(gradients)):
        minima[row], bounds[row] = minimise(
            curvature, gradients[row], starts[row], radii[row], max_sweeps, relative_gap
        )
    return minima, bounds


@njit(cache=True, nogil=True)
def minimise(
    curvature: NDArray[np.float64],
    gradient: NDArray[np.float64],
    start: NDArray[np.float64],
    radius: float,
    max_sweeps: int,
    relative_gap: float,
) -> tuple[NDArray[np.float64], float]:
    """Minimise `vᵀGv + 2gᵀv` over |v_j| ≤ radius, from a start inside; returns `(v, lower bound)`.

    The bound is lowered by a margin that covers the rounding of its own evaluation.
    """
    size = gradient.size
    values = start.copy()
    residual = gradient + curvature @ start  # r = Gv + g, kept up to date
    bound = -np.inf
    for _ in range(max_sweeps):
        for j in range(size):
            if curvature[j, j] > 0:
                target = values[j] - residual[j] / curvature[j, j]
            else:  # flat in this direction: the minimum is at a corner, or anywhere
                target = -np.sign(residual[j]) * radius
            change = min(max(target, -radius), radius) - values[j]
            if change != 0:
                values[j] += change
                for i in range(size):
                    residual[i] += change * curvature[j, i]
        energy = 0.0
        slack = 0.0
        magnitude = 0.0
        for j in range(size):
            energy += values[j] * (residual[j] + gradient[j])
            slack += 2 * (radius * abs(residual[j]) + residual[j] * values[j])
            # |r_j| is a sum of cancelling terms no larger than its parts
            magnitude += radius * (abs(residual[j]) + abs(gradient[j]) + curvature[j, j] * radius)
        margin = 8 * np.finfo(np.float64).eps * size * max_sweeps * magnitude
        bound = max(bound, energy - slack - margin)
        if energy - bound <= relative_gap * abs(energy) + margin:
            break
    return values, bound
