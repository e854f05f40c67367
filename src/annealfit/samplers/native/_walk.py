"""Heat bath over levels along one parameter and along soft pairs of them, compiled: many lanes on one curvature.

Parameter j of a lane has the level x_j in 0 … top and the value u_j = spacing_j · (x_j + origin), with the energy
E = u'Gu + 2g'u and the field h = Gu + g. A move is a whole number t of steps d along one parameter, or along two that
are strongly coupled, with the sign that keeps their common energy low. Along any such line the energy is a parabola,

    E(t) = bend · t² + 2 · slope · t,     bend = d'Gd,     slope = d'h,

so a draw from its Boltzmann weights is the draw of `_levels`, whatever the line. Where inputs are correlated, the
lines of two parameters are what matters: one weight alone cannot move without paying for what the others share.
"""

import numpy as np
from numba import njit

from annealfit.samplers.native._descent import MOST_PASSES, ROUNDING
from annealfit.samplers.native._levels import TIE, _draw, _uniform

CERTAIN, UNLIKELY = 6.0, 0.99
"""A draw stays where it is if the nearest move costs this much (in units of temperature) and the number drawn is below.

The weights of all moves together are then below 3·exp(−6) = 0.008 < 1/0.99 − 1 of the weight of staying.
"""


@njit(nogil=True, cache=True)
def walk_levels(curvature, spacings, top, betas, levels, fields, seeds, counters, partners):
    """Sweep over all lines once for each row of `betas` (S, L).

    curvature (D, D), its diagonal above 0, spacings (L, D), the seeds (L,) uint64 and partners (D, M), the other
    parameter of each of M lines, are read. levels (L, D) int64, fields h (L, D) and the number of draws so far (L,)
    uint64 are overwritten. Lanes do not influence each other.
    """
    lanes, size = levels.shape
    for sweep in range(len(betas)):
        for j in range(size):
            row = curvature[j]
            for lane in range(lanes):
                level, spacing = levels[lane, j], spacings[lane, j]
                bend = row[j] * spacing * spacing
                centre = level - fields[lane, j] * spacing / bend
                chosen = _draw(centre, betas[sweep, lane] * bend, top, _uniform(seeds, counters, lane))
                if chosen != level:
                    levels[lane, j] = chosen
                    _shift(fields[lane], (chosen - level) * spacing, row)
            for i in partners[j]:
                other, sign = curvature[i], -1 if row[i] > 0 else 1
                for lane in range(lanes):
                    step, other_step = spacings[lane, j], sign * spacings[lane, i]
                    bend = _bend(row[j], other[i], row[i], step, other_step)
                    slope = step * fields[lane, j] + other_step * fields[lane, i]
                    uniform, beta = _uniform(seeds, counters, lane), betas[sweep, lane]
                    if uniform < UNLIKELY and beta * (bend - 2 * abs(slope)) > CERTAIN:
                        continue
                    low, high = _reach(levels[lane, j], levels[lane, i], sign, top)
                    if low == high:
                        continue
                    move = low + _draw(-slope / bend - low, beta * bend, high - low, uniform)
                    if move != 0:
                        levels[lane, j] += move
                        levels[lane, i] += sign * move
                        _shift_two(fields[lane], move * step, row, move * other_step, other)


@njit(nogil=True, cache=True)
def settle_levels(curvature, spacings, top, levels, fields, partners):
    """Descend until no move along any line lowers the energy; arguments as in `walk_levels`."""
    for lane in range(len(levels)):
        level, field, spacing = levels[lane], fields[lane], spacings[lane]
        for _ in range(MOST_PASSES):
            improved = False
            for j in range(len(level)):
                row, step = curvature[j], spacing[j]
                bend, slope = row[j] * step * step, step * field[j]
                move = _best_move(bend, slope, -level[j], top - level[j])
                if move != 0:
                    improved = True
                    level[j] += move
                    _shift(field, move * step, row)
                for i in partners[j]:
                    other, sign = curvature[i], -1 if row[i] > 0 else 1
                    other_step = sign * spacing[i]
                    bend = _bend(row[j], other[i], row[i], step, other_step)
                    slope = step * field[j] + other_step * field[i]
                    if 2 * abs(slope) <= bend:
                        continue
                    low, high = _reach(level[j], level[i], sign, top)
                    move = _best_move(bend, slope, low, high)
                    if move != 0:
                        improved = True
                        level[j] += move
                        level[i] += sign * move
                        _shift_two(field, move * step, row, move * other_step, other)
            if not improved:
                break


@njit(nogil=True)
def _bend(own, others, common, step, other_step):
    """The curvature along a line of two; where they are the same but for rounding, a little above 0."""
    squares = own * step * step + others * other_step * other_step
    return max(squares + 2 * common * step * other_step, 1e-12 * squares)


@njit(nogil=True)
def _reach(level, other, sign, top):
    """The least and the largest move along a line of two that leaves neither's levels."""
    if sign < 0:
        return max(-level, other - top), min(top - level, other)
    return max(-level, -other), min(top - level, top - other)


@njit(nogil=True)
def _best_move(bend, slope, low, high):
    """The move of least energy, 0 unless it gains more than rounding could."""
    move = int(min(max(np.rint(-slope / bend - TIE), float(low)), float(high)))
    linear, square = 2 * slope * move, bend * move * move
    return move if linear + square < -ROUNDING * (abs(linear) + square) else 0


@njit(nogil=True)
def _shift(field, change, row):
    for k in range(len(field)):
        field[k] += change * row[k]


@njit(nogil=True)
def _shift_two(field, change, row, other_change, other):
    for k in range(len(field)):
        field[k] += change * row[k] + other_change * other[k]
