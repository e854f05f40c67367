"""The heat bath over levels in plain NumPy, one draw at a time: what the compiled kernel has to do."""

import numpy as np

from annealfit._support.randomness import descend
from annealfit.samplers.native.chains import TIE


def uniform(seed, counter):
    """Number `counter` of a lane's stream."""
    return float(descend(np.array([seed], dtype=np.uint64), [counter])[0] >> np.uint64(11)) * 2.0**-53


def draw(centre, sharpness, top, value):
    """The level at which the running sum of the weights passes `value` times their total.

    They are laid out from the nearest level upward, then from it downward.
    """
    nearest = int(np.clip(np.rint(centre - TIE), 0, top))
    order = [*range(nearest, top + 1), *range(nearest - 1, -1, -1)]
    exponents = -sharpness * (np.array(order) - centre) ** 2
    sums = np.cumsum(np.exp(exponents - exponents[0]))
    return order[min(int(np.searchsorted(sums, value * sums[-1], side="right")), len(order) - 1)]


def anneal(curvature, gradients, spacings, top, betas, levels, seeds):
    """Levels (L, D) after a sweep for each row of betas (S, L)."""
    levels = levels.copy()
    for lane in range(len(levels)):
        counter = 0
        for beta in betas[:, lane]:
            for j in range(levels.shape[1]):
                field = curvature[j] @ ((levels[lane] - top / 2) * spacings[lane]) + gradients[lane, j]
                centre = levels[lane, j] - field / (curvature[j, j] * spacings[lane])
                sharpness = beta * curvature[j, j] * spacings[lane] ** 2
                levels[lane, j] = draw(centre, sharpness, top, uniform(seeds[lane], counter))
                counter += 1
    return levels
