"""The walk along single parameters and soft pairs in plain NumPy, one line at a time: what the kernel has to do."""

import numpy as np
from reference_levels import draw, uniform


def moves_within(levels, direction, top):
    """Every multiple of the direction that leaves no level's range."""
    return [t for t in range(-top, top + 1) if ((levels + t * direction >= 0) & (levels + t * direction <= top)).all()]


def walk(curvature, gradients, spacings, origin, top, betas, levels, seeds, partners):
    """Levels (L, D) after a sweep for each row of betas (S, L)."""
    levels = levels.copy()
    for lane in range(len(levels)):
        counter = 0
        for beta in betas[:, lane]:
            for j in range(levels.shape[1]):
                for i in [j, *partners[j]]:
                    direction = np.zeros(levels.shape[1], dtype=np.int64)
                    direction[i] = -1 if curvature[j, i] > 0 else 1
                    direction[j] = 1
                    step = direction * spacings[lane]
                    field = curvature @ (spacings[lane] * (levels[lane] + origin)) + gradients[lane]
                    bend, slope = step @ curvature @ step, step @ field
                    allowed = moves_within(levels[lane], direction, top)
                    low, high = allowed[0], allowed[-1]
                    move = low + draw(-slope / bend - low, beta * bend, high - low, uniform(seeds[lane], counter))
                    counter += 1
                    levels[lane] += move * direction
    return levels
