"""The engine of levels, compiled by numba: heat bath, descent and polish of many chains ("lanes") on one curvature.

Parameter j of a lane has the level x_j in 0 … top and the value u_j = spacing_j · (x_j + origin), with the energy
E = u'Gu + 2g'u and the field h = Gu + g. Given the others, the energy of a level is a parabola in it,

    E = G_jj · spacing_j² · (x − centre)² + constant,     centre = x_j − h_j / (G_jj · spacing_j),

so its Boltzmann weights are a discretised Gaussian. The ratio of the weights of neighbours changes by a constant
factor from one pair to the next: two exponentials give them all. One draw replaces the K flips of a K-bit code, and
there are no barriers between levels whose codes differ in many bits.

The same holds along the line of two parameters that move together, t levels up and t levels up or down:

    E(t) = stiffness · t² + 2 · slope · t + constant,     stiffness = d'Gd,     slope = d'h,     d the step of both.

Where parameters are strongly coupled, such pairs ("partners") matter: one of the two alone cannot move without paying
for what they share.

Arguments that the kernels share: entries and edges are the blocks of `Curvature.packed`; spacings (L, D); partners
(D, M) has the other parameter of M pairs, where M may be 0 and pairs across blocks are ignored. Overwritten are levels
(L, D), fields (L, D) and energies (L, B), the change of each block's energy since the lanes started. A kernel returns
soon after another thread has set stop[0]: the flag is read for every parameter. Lanes do not influence each other.
"""

import math

import numpy as np
from numba import njit, types

from annealfit._support.compiled import array, compiled, constant, splitmix
from annealfit.problems._kernels import cut_block

# Levels. Halfway between two, which is frequent in symmetric problems, counts as the lower one despite rounding.
TIE = 1e-9
# β·stiffness below which a Gaussian is 16 levels wide or more, and is drawn as such and rounded; and a weight, in
# units of the largest, below which no double-precision draw can end.
WIDE, NEGLIGIBLE = 1 / (2 * 16.0**2), 1e-18
# A pair stays where it is if its nearest move costs this much (times β) and the number drawn is below UNLIKELY: the
# weights of all moves together are then below 3·exp(−6) = 0.008 < 1/0.99 − 1 of the weight of staying.
CERTAIN, UNLIKELY = 6.0, 0.99
# A move that gains less than this share of its terms gains nothing; passes of a descent, which needs a handful.
ROUNDING, MOST_PASSES = 1e-12, 100
# Moves in a chain; and how far up it may lead, in units of its first move's curvature: docs/samplers.md.
LONGEST_CHAIN, FARTHEST_UP = 6, 0.5


@njit(nogil=True)
def _uniform(streams, counters, lane):
    """The next number of the lane's stream, in [0, 1)."""
    word = splitmix(streams[lane], counters[lane])
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
def _wide_draw(centre, sharpness, top, streams, counters, lane):
    """A Gaussian that is much wider than a level, cut to the box and rounded.

    By rejection, from what is close to it where the box lies: its tail, an exponential; a narrow part of it, a
    constant; else a Gaussian (Robert 1995).
    """
    width = math.sqrt(0.5 / sharpness) if sharpness > 0 else math.inf
    if width > 1e6 * (top + 1 + abs(centre)):
        return int(_uniform(streams, counters, lane) * (top + 1))
    low, high = (-0.5 - centre) / width, (top + 0.5 - centre) / width
    mirrored = high < 0
    if mirrored:
        low, high = -high, -low
    if low > 1e100:  # its square would overflow, and nothing but the edge has any weight
        return top if mirrored else 0
    nearest_squared = low * low if low > 0 else 0.0
    while True:
        one, two = _uniform(streams, counters, lane), _uniform(streams, counters, lane)
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
def _concave_draw(field, stiffness, spacing, beta, level, top, streams, counters, lane):
    """Where the energy is not convex in a parameter: its level or another one drawn evenly, by their weights."""
    other = int(_uniform(streams, counters, lane) * (top + 1))
    change = (other - level) * spacing
    exponent = beta * change * (2 * field + stiffness * change)  # β times what the other costs
    uniform = _uniform(streams, counters, lane)
    return other if exponent < 700 and uniform * (1 + math.exp(exponent)) < 1 else level


@njit(nogil=True)
def _move(curvature, spacing, level, field, energy, j, change):
    """Change the level of one parameter, and the fields and the energy with it."""
    row, step = curvature[j], spacing[j] * change
    energy[0] += step * (2 * field[j] + row[j] * step)
    level[j] += change
    for i in range(len(field)):
        field[i] += step * row[i]


@njit(nogil=True)
def _pair_stiffness(own, others, common, step, other_step):
    """The curvature along the line of a pair; where the two are the same but for rounding, a little above 0."""
    squares = own * step * step + others * other_step * other_step
    return max(squares + 2 * common * step * other_step, 1e-12 * squares)


@njit(nogil=True)
def _pair_reach(level, other, sign, top):
    """The least and the largest move of a pair that leaves neither's levels."""
    if sign < 0:
        return max(-level, other - top), min(top - level, other)
    return max(-level, -other), min(top - level, top - other)


@njit(nogil=True)
def _shift_two(field, change, row, other_change, other):
    for k in range(len(field)):
        field[k] += change * row[k] + other_change * other[k]


@njit(nogil=True)
def _descend(curvature, first, partners, top, spacing, level, field, energy, stop):
    """Move every parameter in turn, alone and in its pairs, to its best level; returns whether one moved."""
    improved = False
    for j in range(len(field)):
        if stop[0]:
            return False
        change = _best_change(curvature[j, j], spacing[j], field[j], level[j], top)
        if change != 0:
            improved = True
            _move(curvature, spacing, level, field, energy, j, change)
        for partner in partners[first + j]:
            i = partner - first
            if not 0 <= i < len(field):
                continue
            sign = -1 if curvature[j, i] > 0 else 1
            step, other_step = spacing[j], sign * spacing[i]
            stiff = _pair_stiffness(curvature[j, j], curvature[i, i], curvature[j, i], step, other_step)
            slope = step * field[j] + other_step * field[i]
            if 2 * abs(slope) <= stiff:
                continue
            low, high = _pair_reach(level[j], level[i], sign, top)
            move = int(min(max(np.rint(-slope / stiff - TIE), float(low)), float(high)))
            linear, square = 2 * slope * move, stiff * move * move
            if linear + square < -ROUNDING * (abs(linear) + square):
                improved = True
                energy[0] += linear + square
                level[j] += move
                level[i] += sign * move
                _shift_two(field, move * step, curvature[j], move * other_step, curvature[i])
    return improved


@njit(nogil=True)
def _best_change(stiffness, spacing, field, level, top):
    """By how many levels to move one parameter, the others as they are; 0 unless it gains more than rounding could."""
    if stiffness > 0:
        centre = level - field / (stiffness * spacing)
        chosen = int(min(max(np.rint(centre - TIE), 0.0), float(top)))
    else:  # at one end or the other
        chosen = 0 if 2 * (field - stiffness * spacing * level) + stiffness * (spacing * top) > 0 else top
    step = spacing * (chosen - level)
    linear, square = 2 * step * field, step * step * stiffness
    return chosen - level if linear + square < -ROUNDING * (abs(linear) + abs(square)) else 0


@njit(nogil=True)
def _is_among(value, values, count):
    for k in range(count):  # noqa: SIM110 (numba has no generators)
        if values[k] == value:
            return True
    return False


@njit(nogil=True)
def _best_chain(curvature, stiffnesses, ratios, spacing, top, level, field, j, slopes, places, changes):
    """The number of moves of a chain that lower the energy most; 0 if none does.

    The chain begins with parameter j, by a level in the direction of its slope; each move is followed by the one of
    another parameter that costs least then, and that may make good what was lost (Kernighan and Lin). The chain ends
    where it has cost more than such chains make good. Moves are written to places and changes; slopes is scratch.
    """
    place, change, slope = j, -1 if field[j] > 0 else 1, field[j]
    if not 0 <= level[j] + change <= top:
        return 0
    best, best_length, total, size = 0.0, 0, 0.0, 0.0
    limit = FARTHEST_UP * stiffnesses[j]
    for step in range(LONGEST_CHAIN):
        square, linear = stiffnesses[place], 2 * change * (ratios[place] * slope)
        total += square + linear
        size += abs(square) + abs(linear)
        if total < best and total < -ROUNDING * size:
            best, best_length = total, step + 1
        places[step], changes[step] = place, change
        row, moved, before = curvature[place], spacing[place] * change, slopes if step else field
        least, place = limit - total, -1
        for i in range(len(row)):
            slopes[i] = before[i] + moved * row[i]
            cost = stiffnesses[i] - 2 * (ratios[i] * abs(slopes[i]))
            if cost < least:
                direction = -1 if slopes[i] > 0 else 1
                if 0 <= level[i] + direction <= top and not _is_among(i, places, step + 1):
                    least, place, change, slope = cost, i, direction, slopes[i]
        if place < 0:
            break
    return best_length


@njit(nogil=True)
def _descend_by_chains(curvature, first, partners, top, spacing, level, field, energy, stop):
    """Take chains that lower the energy, from each parameter in turn, until none does from any."""
    size = len(field)
    stiffnesses, ratios, slopes = np.empty(size), np.empty(size), np.empty(size)
    places, changes = np.empty(LONGEST_CHAIN, np.int64), np.empty(LONGEST_CHAIN, np.int64)
    for i in range(size):  # energies of chains are in units of the first spacing
        ratios[i] = spacing[i] / spacing[0]
        stiffnesses[i] = ratios[i] * (spacing[i] * curvature[i, i])
    in_vain = 0
    for attempt in range(MOST_PASSES * size):
        j = attempt % size
        if stop[0]:
            return
        length = _best_chain(curvature, stiffnesses, ratios, spacing, top, level, field, j, slopes, places, changes)
        for step in range(length):
            _move(curvature, spacing, level, field, energy, places[step], changes[step])
        in_vain = 0 if length else in_vain + 1
        if in_vain == size:
            # A chain may have left a parameter at the wrong end, where the energy is concave in it.
            if not _descend(curvature, first, partners, top, spacing, level, field, energy, stop):
                return
            in_vain = 0


_REALS, _COUNTS, _FLAG = array(types.float64, 2), array(types.int64, 2), array(types.uint8, 1)
_MATRIX, _INDICES, _SEEDS = constant(types.float64, 2), constant(types.intp, 2), constant(types.uint64, 1)
_PROBLEM = constant(types.float64, 1), _INDICES, _MATRIX, types.int64, _INDICES
_STATE = _COUNTS, _REALS, _REALS


@compiled(types.int64(*_PROBLEM, _MATRIX, *_STATE, _SEEDS, array(types.uint64, 1), _FLAG, _REALS, _COUNTS))
def anneal_levels(
    entries, edges, spacings, top, partners, betas, levels, fields, energies, seeds, counters, stop, lowest, best
):
    """Sweep over all parameters and pairs once for each row of `betas` (S, L); returns the number of whole sweeps.

    Draws are from the stream number 1 of each lane's seed (L,), 0 being for random starts; counters (L,), the number
    of draws so far, are overwritten. So are the best levels at the ends of sweeps, best (L, D), and their energies,
    lowest (L, B), unless they have no rows.
    """
    streams = np.empty_like(counters)
    for lane in range(len(seeds)):
        streams[lane] = splitmix(seeds[lane], 1)
    for block in range(len(edges)):
        first, last, curvature = cut_block(entries, edges, block)
        for sweep in range(len(betas)):
            for j in range(last - first):
                if stop[0]:
                    break
                row, stiffness = curvature[j], curvature[j, j]
                for lane in range(len(levels)):
                    field, level = fields[lane, first:last], levels[lane, first + j]
                    spacing, beta = spacings[lane, first + j], betas[sweep, lane]
                    if stiffness > 0:
                        centre = level - field[j] / (stiffness * spacing)
                        sharpness = beta * stiffness * spacing * spacing
                        if sharpness < WIDE and top > 64:
                            chosen = _wide_draw(centre, sharpness, top, streams, counters, lane)
                        else:
                            chosen = _draw(centre, sharpness, top, _uniform(streams, counters, lane))
                    else:
                        chosen = _concave_draw(field[j], stiffness, spacing, beta, level, top, streams, counters, lane)
                    if chosen != level:
                        change = (chosen - level) * spacing
                        energies[lane, block] += change * (2 * field[j] + stiffness * change)
                        levels[lane, first + j] = chosen
                        for i in range(len(row)):
                            field[i] += change * row[i]
                for partner in partners[first + j]:
                    if not first <= partner < last:
                        continue
                    i = partner - first
                    other, sign = curvature[i], -1 if row[i] > 0 else 1
                    for lane in range(len(levels)):
                        field, level, beta = fields[lane, first:last], levels[lane, first:last], betas[sweep, lane]
                        step, other_step = spacings[lane, first + j], sign * spacings[lane, partner]
                        stiff = _pair_stiffness(stiffness, other[i], row[i], step, other_step)
                        slope = step * field[j] + other_step * field[i]
                        uniform = _uniform(streams, counters, lane)
                        if uniform < UNLIKELY and beta * (stiff - 2 * abs(slope)) > CERTAIN:
                            continue
                        low, high = _pair_reach(level[j], level[i], sign, top)
                        if low == high:
                            continue
                        move = low + _draw(-slope / stiff - low, beta * stiff, high - low, uniform)
                        if move != 0:
                            energies[lane, block] += move * (2 * slope + stiff * move)
                            level[j] += move
                            level[i] += sign * move
                            _shift_two(field, move * step, row, move * other_step, other)
            if len(lowest):
                for lane in range(len(levels)):
                    if energies[lane, block] < lowest[lane, block]:
                        lowest[lane, block] = energies[lane, block]
                        for k in range(first, last):
                            best[lane, k] = levels[lane, k]
            if stop[0]:
                return sweep if block == len(edges) - 1 else 0
    return len(betas)


@compiled(types.void(*_PROBLEM, *_STATE, _FLAG, types.boolean))
def polish_levels(entries, edges, spacings, top, partners, levels, fields, energies, stop, with_chains):
    """Descend until no move of a parameter or a pair lowers the energy, nor, `with_chains`, a chain of moves.

    A chain moves parameters by a level each. After it no pair of such moves lowers the energy either, where the
    curvature is convex: one of the two goes where the slope leads, and is followed by its best partner.
    """
    for block in range(len(edges)):
        first, last, curvature = cut_block(entries, edges, block)
        own = slice(first, last)
        for lane in range(len(levels)):
            state = spacings[lane, own], levels[lane, own], fields[lane, own], energies[lane, block : block + 1]
            for _ in range(MOST_PASSES):
                if not _descend(curvature, first, partners, top, *state, stop):
                    break
        if not with_chains:
            continue
        for lane in range(len(levels)):
            state = spacings[lane, own], levels[lane, own], fields[lane, own], energies[lane, block : block + 1]
            _descend_by_chains(curvature, first, partners, top, *state, stop)
