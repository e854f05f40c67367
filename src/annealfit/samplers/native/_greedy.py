"""Steepest descent over the levels of many problems ("lanes") on one curvature, compiled by numba."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from annealfit._support.compiled import In2, Out2, array, compiled

ROUNDING = 1e-12  # of the terms of a change's energy: a smaller gain is none
MOST_STEPS = 100  # per parameter: ends descents that rounding leads in circles


@compiled(types.void(In2, In2, types.float64, types.int64, array(types.int64, 2), Out2))
def descend_steepest(
    curvature: NDArray[np.float64],
    squares: NDArray[np.float64],
    spacing: float,
    top: int,
    levels: NDArray[np.int64],
    fields: NDArray[np.float64],
) -> None:
    """Move, one parameter at a time, the one that gains most to its best level, until none gains.

    `squares` (1, D) is `G_jj·spacing²`. Levels 0 … top (L, D) and fields `Gu + g` (L, D) are overwritten.
    """
    size = len(curvature)
    for lane in range(len(levels)):
        field, level = fields[lane], levels[lane]
        for _ in range(MOST_STEPS * size):
            best, place, move = 0.0, -1, 0
            for j in range(size):
                square, slope = squares[0, j], spacing * field[j]
                change = -1 if slope > 0 else 1
                if top > 1:
                    if square > 0:
                        change = int(min(max(np.rint(level[j] - slope / square), 0.0), float(top))) - level[j]
                    else:  # at one end or the other
                        up, down = top - level[j], -level[j]
                        change = up if up * (2 * slope + up * square) < down * (2 * slope + down * square) else down
                elif level[j] + change < 0 or level[j] + change > 1:
                    continue
                linear, own = 2 * change * slope, change * change * square
                if linear + own < best - ROUNDING * (abs(linear) + abs(own)):
                    best, place, move = linear + own, j, change
            if place < 0:
                break
            level[place] += move
            row, step = curvature[place], spacing * move
            for i in range(size):
                field[i] += step * row[i]
