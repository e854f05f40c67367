"""A heat bath over levels, compiled by numba: many chains ("lanes") on problems that share a curvature.

Parameter j of a lane has the level x_j in 0 … top and the value u_j = spacing · (x_j − top/2), with the energy
E = u'Gu + 2g'u. Given the others, the energy of a level is a parabola in it,

    E = G_jj · spacing² · (x − centre)² + constant,     centre = x_j − h_j / (G_jj · spacing),     h = Gu + g,

so its Boltzmann weights are a discretised Gaussian. The ratio of the weights of neighbours changes by a constant
factor from one pair to the next: two exponentials give them all. One draw replaces the K flips of a K-bit code, and
there are no barriers between levels whose codes differ in many bits.
"""

import math

import numpy as np
from numba import njit

from annealfit.problems._kernels import cut_block
from annealfit.samplers.native._kernel import splitmix
from annealfit.samplers.native.chains import TIE

WIDE = 1 / (2 * 16.0**2)
"""Below this, times β, the Gaussian is 16 levels wide or more: it is drawn as such and rounded."""

NEGLIGIBLE = 1e-18
"""A weight, in units of the largest, below which no double-precision draw can end."""


@njit(nogil=True, cache=True)
def first_levels(minima, spacings, top, bits, seeds, reads, levels, updates, lane_seeds):
    """Where the reads of problems begin: at the minima (P, D) over the box, rounded; or anywhere, where there are none.

    There is a seed (P,) and a spacing (P,) for each problem. levels (P·reads, D), the updates that they stand for, and
    the lanes' own seeds (P·reads,) are overwritten.
    """
    for lane in range(len(levels)):
        problem = lane // reads
        seed, spacing = splitmix(seeds[problem], lane % reads), spacings[problem]
        lane_seeds[lane] = splitmix(seed, 1)
        anywhere = splitmix(seed, 0)
        for j in range(levels.shape[1]):
            if len(minima):
                place = minima[problem, j] / spacing + (0.5 * top - TIE)
                levels[lane, j] = int(np.rint(min(max(place, 0.0), float(top))))
            else:
                levels[lane, j] = splitmix(anywhere, j) >> np.uint64(64 - bits)
            updates[lane, j] = (levels[lane, j] - 0.5 * top) * spacing


@njit(nogil=True, cache=True)
def read_levels(levels, spacings, top, bits, updates):
    """The bits (L, D, K) of levels (L, D), the finest first, and their updates (L, D), both overwritten."""
    for lane in range(len(levels)):
        for j in range(levels.shape[1]):
            level = levels[lane, j]
            for k in range(bits.shape[2]):
                bits[lane, j, k] = (level >> k) & 1
            updates[lane, j] = (level - 0.5 * top) * spacings[lane]


@njit(nogil=True, cache=True)
def anneal_levels(entries, edges, spacings, top, betas, levels, fields, seeds, counters):
    """Sweep over all parameters once for each row of `betas` (S, L), block by block.

    The curvature's blocks (see `Curvature.packed`), spacings (L,) and the seeds (L,) uint64 are read; levels (L, D)
    int64, fields h (L, D) and the number of draws so far (L,) uint64 are overwritten. Lanes do not influence each
    other.
    """
    for block in range(len(edges) - 1):
        first, last, curvature = cut_block(entries, edges, block)
        for sweep in range(len(betas)):
            for j in range(len(curvature)):
                stiffness, row = curvature[j, j], curvature[j]
                for lane in range(len(levels)):
                    field = fields[lane, first:last]
                    level, spacing, beta = levels[lane, first + j], spacings[lane], betas[sweep, lane]
                    if stiffness > 0:
                        centre = level - field[j] / (stiffness * spacing)
                        sharpness = beta * stiffness * spacing * spacing
                        if sharpness < WIDE and top > 64:
                            chosen = _wide_draw(centre, sharpness, top, seeds, counters, lane)
                        else:
                            chosen = _draw(centre, sharpness, top, _uniform(seeds, counters, lane))
                    else:
                        chosen = _pair_draw(field[j], stiffness, spacing, beta, level, top, seeds, counters, lane)
                    if chosen != level:
                        levels[lane, first + j] = chosen
                        change = (chosen - level) * spacing
                        for i in range(len(row)):
                            field[i] += change * row[i]


@njit(nogil=True)
def _uniform(seeds, counters, lane):
    """The next number of the lane's stream, in [0, 1)."""
    word = splitmix(seeds[lane], counters[lane])
    counters[lane] += np.uint64(1)
    return (word >> np.uint64(11)) * 2.0**-53


@njit(nogil=True)
def _draw(centre, sharpness, top, uniform):
    """A level with probability ∝ exp(−sharpness · (level − centre)²), exactly.

    The levels are laid out from the nearest one upward, then from it downward.
    """
    nearest = int(min(max(np.rint(centre - TIE), 0.0), float(top)))
    offset = nearest - centre
    # Of the second nearest, beyond the nearest's; a centre outside of the levels has them all on one side.
    cost = sharpness * (1 - 2 * abs(offset) if abs(offset) < 0.6 else 1 + 2 * abs(offset))
    # The others weigh at most 2.4·exp(−cost) together, and the series is below exp: mostly no need to know more.
    if sharpness >= 1 and uniform * (1 + 2.4 / (1 + cost * (1 + cost * (0.5 + cost / 6)))) < 1:
        return nearest
    shrinkage = math.exp(-2 * sharpness)
    first_up = math.exp(-sharpness * (1 + 2 * offset)) if nearest < top else 0.0
    first_down = math.exp(-sharpness * (1 - 2 * offset)) if nearest > 0 else 0.0
    total = 1.0 + _tail(first_up, shrinkage, top - nearest) + _tail(first_down, shrinkage, nearest)
    left = uniform * total - 1.0
    if left < 0:
        return nearest
    weight, ratio, level = first_up, first_up * shrinkage, nearest
    while weight > NEGLIGIBLE and level < top:
        level += 1
        left -= weight
        if left < 0:
            return level
        weight *= ratio
        ratio *= shrinkage
    weight, ratio, level = first_down, first_down * shrinkage, nearest
    while weight > NEGLIGIBLE and level > 0:
        level -= 1
        left -= weight
        if left < 0:
            return level
        weight *= ratio
        ratio *= shrinkage
    return nearest  # the sum was rounded


@njit(nogil=True)
def _tail(weight, shrinkage, count):
    """The weights of the levels on one side: each ratio is the last one times `shrinkage`."""
    total, ratio = 0.0, weight * shrinkage
    for _ in range(count):
        if weight <= NEGLIGIBLE:
            break
        total += weight
        weight *= ratio
        ratio *= shrinkage
    return total


@njit(nogil=True)
def _wide_draw(centre, sharpness, top, seeds, counters, lane):
    """A Gaussian that is much wider than a level, cut to the box and rounded.

    By rejection, from what is close to it where the box lies: its tail, an exponential; a narrow part of it, a
    constant; else a Gaussian (Robert 1995).
    """
    width = math.sqrt(0.5 / sharpness) if sharpness > 0 else math.inf
    if width > 1e6 * (top + 1 + abs(centre)):
        return int(_uniform(seeds, counters, lane) * (top + 1))
    low, high = (-0.5 - centre) / width, (top + 0.5 - centre) / width
    mirrored = high < 0
    if mirrored:
        low, high = -high, -low
    if low > 1e100:  # its square would overflow, and nothing but the edge has any weight
        return top if mirrored else 0
    nearest_squared = low * low if low > 0 else 0.0
    while True:
        one, two = _uniform(seeds, counters, lane), _uniform(seeds, counters, lane)
        if high - low < 2 and low * (high - low) < 8:  # over a steeper part a constant would hardly ever be accepted
            z = low + (high - low) * one
            accepted = two < math.exp(0.5 * (nearest_squared - z * z))
        elif low > 0.5:
            rate = 0.5 * (low + math.sqrt(low * low + 4))
            z = low - math.log(1 - one) / rate
            accepted = z <= high and two < math.exp(-0.5 * (z - rate) ** 2)
        else:
            z = math.sqrt(-2 * math.log(1 - one)) * math.cos(2 * math.pi * two)
            accepted = low <= z <= high
        if accepted:
            value = centre + width * (-z if mirrored else z)
            return int(min(max(np.rint(value), 0.0), float(top)))


@njit(nogil=True)
def _pair_draw(field, stiffness, spacing, beta, level, top, seeds, counters, lane):
    """Where the energy does not bend up: the level or another one chosen evenly, by their weights."""
    other = int(_uniform(seeds, counters, lane) * (top + 1))
    change = (other - level) * spacing
    exponent = beta * change * (2 * field + stiffness * change)  # β times what the other costs
    uniform = _uniform(seeds, counters, lane)
    return other if exponent < 700 and uniform * (1 + math.exp(exponent)) < 1 else level
