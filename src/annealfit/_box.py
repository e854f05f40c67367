"""Coordinate descent in a box, compiled: the continuous relaxation behind `annealfit.bounds`."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def minimise(
    curvature: NDArray[np.float64],
    gradients: NDArray[np.float64],
    starts: NDArray[np.float64],
    radii: NDArray[np.float64],
    max_sweeps: int,
    relative_gap: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Minimise `vᵀGv + 2gᵀv` over |v_j| ≤ radius for P problems at once; returns `(v, lower bounds)`.

    `gradients`, `starts` and `v` are (D, P): problem last, so that the loops over problems become vector
    instructions. `radii` and the bounds are (P,). A bound is lowered by a margin that covers the rounding of its
    own evaluation.
    """
    size, count = gradients.shape
    values = starts.copy()
    residuals = gradients + curvature @ starts  # r = Gv + g, kept up to date
    bounds = np.full(count, -np.inf)
    change = np.empty(count)
    for _ in range(max_sweeps):
        for j in range(size):
            stiffness = curvature[j, j]
            for p in range(count):
                if stiffness > 0:
                    target = values[j, p] - residuals[j, p] / stiffness
                elif stiffness == 0:  # flat in this direction: the minimum is at a corner, or anywhere
                    target = -np.sign(residuals[j, p]) * radii[p]
                else:  # bent down: at the corner that the slope in the middle leads to, or at either
                    target = -radii[p] if residuals[j, p] - stiffness * values[j, p] > 0 else radii[p]
                change[p] = min(max(target, -radii[p]), radii[p]) - values[j, p]
                values[j, p] += change[p]
            for i in range(size):
                coupling = curvature[j, i]
                for p in range(count):
                    residuals[i, p] += coupling * change[p]
        settled = True
        for p in range(count):
            energy = slack = magnitude = 0.0
            for j in range(size):
                residual = residuals[j, p]
                energy += values[j, p] * (residual + gradients[j, p])
                slack += 2 * (radii[p] * abs(residual) + residual * values[j, p])
                # |r_j| is a sum of cancelling terms no larger than its parts
                magnitude += radii[p] * (abs(residual) + abs(gradients[j, p]) + curvature[j, j] * radii[p])
            margin = 8 * np.finfo(np.float64).eps * size * max_sweeps * magnitude
            bounds[p] = max(bounds[p], energy - slack - margin)
            settled &= energy - bounds[p] <= relative_gap * abs(energy) + 2 * margin
        if settled:
            break
    return values, bounds
