"""The heat bath over levels in plain NumPy, one line at a time: what the compiled kernel has to do."""

import numpy as np

from annealfit._support.randomness import child_seed

TIE = 1e-9  # of levels: halfway between two is the lower one


def uniform(seed, counter):
    """Number `counter` of the stream that a lane with this seed draws from."""
    return (child_seed(int(seed), 1, counter) >> 11) * 2.0**-53


def draw(centre, sharpness, top, value):
    """The level at which the running sum of the weights passes `value` times their total.

    They are laid out from the nearest level upward, then from it downward.
    """
    nearest = int(np.clip(np.rint(centre - TIE), 0, top))
    order = [*range(nearest, top + 1), *range(nearest - 1, -1, -1)]
    exponents = -sharpness * (np.array(order) - centre) ** 2
    sums = np.cumsum(np.exp(exponents - exponents[0]))
    return order[min(int(np.searchsorted(sums, value * sums[-1], side="right")), len(order) - 1)]


def direction_of(curvature, j, i):
    """One level up for parameter j, and for its partner i up or down, as their coupling suggests."""
    direction = np.zeros(len(curvature), dtype=np.int64)
    direction[i] = -1 if curvature[j, i] > 0 else 1
    direction[j] = 1
    return direction


def moves_within(levels, direction, top):
    """Every multiple of the direction that leaves no level's range."""
    return [t for t in range(-top, top + 1) if ((levels + t * direction >= 0) & (levels + t * direction <= top)).all()]


def anneal(curvature, gradients, spacings, origin, top, betas, levels, seeds, partners):
    """Levels (L, D) after a sweep for each row of betas (S, L), with spacings (L, D) and partners (D, M)."""
    levels = levels.copy()
    for lane in range(len(levels)):
        counter = 0
        for beta in betas[:, lane]:
            for j in range(levels.shape[1]):
                for i in [j, *partners[j]]:
                    direction = direction_of(curvature, j, i)
                    step = direction * spacings[lane]
                    field = curvature @ (spacings[lane] * (levels[lane] + origin)) + gradients[lane]
                    bend, slope = step @ curvature @ step, step @ field
                    allowed = moves_within(levels[lane], direction, top)
                    low, high = allowed[0], allowed[-1]
                    move = low + draw(-slope / bend - low, beta * bend, high - low, uniform(seeds[lane], counter))
                    counter += 1
                    levels[lane] += move * direction
    return levels
