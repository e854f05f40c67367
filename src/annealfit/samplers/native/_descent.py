"""The end of a read over levels, compiled by numba: moves of one parameter, and chains of moves, that lower the energy.

Levels, spacings and fields are as in `annealfit.samplers.native._levels`.
"""

import numpy as np
from numba import njit

from annealfit.problems._kernels import cut_block
from annealfit.samplers.native.chains import TIE

ROUNDING = 1e-12
"""A move that gains less than this share of its parts gains nothing."""

MOST_PASSES = 100
"""Over all parameters, of a descent that a handful ends."""

LONGEST_CHAIN, FARTHEST_UP = 6, 0.5
"""Moves in a chain; and how far up it may lead, in units of how its first move bends the energy: docs/annealer.md."""


@njit(nogil=True, cache=True)
def polish_levels(entries, edges, spacings, top, levels, fields, with_chains):
    """Descend until no move of one parameter lowers the energy, nor, `with_chains`, a chain of moves by a level each.

    Nor does any pair of such moves then, where the curvature is convex: one of the two goes where the slope leads, and
    is followed by its best partner.
    """
    for block in range(len(edges) - 1):
        first, last, curvature = cut_block(entries, edges, block)
        size = last - first
        slopes, is_used = np.empty(size), np.empty(size, np.bool_)
        places, changes = np.empty(LONGEST_CHAIN, np.int64), np.empty(LONGEST_CHAIN, np.int64)
        for lane in range(len(levels)):
            level, field, spacing = levels[lane, first:last], fields[lane, first:last], spacings[lane]
            for _ in range(MOST_PASSES):
                if not _settle_all(curvature, spacing, top, level, field):
                    break
            if not with_chains:
                continue
            j, in_vain = 0, 0
            for _ in range(MOST_PASSES * size):
                length = _best_chain(curvature, spacing, top, level, field, j, slopes, is_used, places, changes)
                for step in range(length):
                    _move(curvature, spacing, level, field, places[step], changes[step])
                in_vain = 0 if length else in_vain + 1
                j = (j + 1) % size
                # What a chain has moved may leave a parameter at the wrong end, where the energy bends down.
                if in_vain == size and not _settle_all(curvature, spacing, top, level, field):
                    break
                in_vain %= size


@njit(nogil=True)
def _settle_all(curvature, spacing, top, level, field):
    """Move every parameter in turn to its best level; whether one moved."""
    improved = False
    for j in range(len(field)):
        improved |= _settle(curvature, spacing, top, level, field, j)
    return improved


@njit(nogil=True)
def _best_chain(curvature, spacing, top, level, field, j, slopes, is_used, places, changes):
    """How many moves of a chain lower the energy most; 0 if none does.

    The chain begins with parameter j, by a level in the direction of its slope; and each move is followed by that of
    another parameter that costs least then, by which what was lost is made good (Kernighan and Lin). It is given up
    where it has cost more than such chains make good. Moves are in places and changes; slopes and is_used are for
    working out.
    """
    for i in range(len(field)):
        slopes[i], is_used[i] = field[i], False
    limit = FARTHEST_UP * spacing * curvature[j, j]
    place, change = j, -1 if field[j] > 0 else 1
    best, best_length, total, size = 0.0, 0, 0.0, 0.0  # energies are in units of the spacing
    if not 0 <= level[j] + change <= top:
        return 0
    for step in range(LONGEST_CHAIN):
        bend, slope = spacing * curvature[place, place], 2 * change * slopes[place]
        total += bend + slope
        size += abs(bend) + abs(slope)
        if total < best and total < -ROUNDING * size:
            best, best_length = total, step + 1
        is_used[place], places[step], changes[step] = True, place, change
        row = curvature[place]
        for i in range(len(row)):
            slopes[i] += spacing * change * row[i]
        least, place = limit - total, -1
        for i in range(len(row)):
            cost = spacing * curvature[i, i] - 2 * abs(slopes[i])
            if cost < least and not is_used[i]:
                direction = -1 if slopes[i] > 0 else 1
                if 0 <= level[i] + direction <= top:
                    least, place, change = cost, i, direction
        if place < 0:
            break
    return best_length


@njit(nogil=True)
def _settle(curvature, spacing, top, level, field, j):
    """Move one parameter to its best level; whether it moved."""
    stiffness = curvature[j, j]
    if stiffness > 0:
        centre = level[j] - field[j] / (stiffness * spacing)
        chosen = int(min(max(np.rint(centre - TIE), 0.0), float(top)))
    else:  # at one end or the other
        change = spacing * top
        chosen = 0 if 2 * (field[j] - stiffness * spacing * level[j]) + stiffness * change > 0 else top
    if chosen == level[j]:
        return False
    step = spacing * (chosen - level[j])
    linear, bend = 2 * step * field[j], step * step * stiffness
    if linear + bend >= -ROUNDING * (abs(linear) + abs(bend)):
        return False
    _move(curvature, spacing, level, field, j, chosen - level[j])
    return True


@njit(nogil=True)
def _move(curvature, spacing, level, field, j, change):
    """Change the level of one parameter, and the fields with it."""
    level[j] += change
    row = curvature[j]
    for i in range(len(field)):
        field[i] += spacing * change * row[i]
