"""Depth-first search for the lowest energy over a box of levels, compiled by numba.

A parameter is an odd whole number z_j in {-edge, ..., -1, 1, ..., edge}: its update in units of the resolution, with
edge = 2**K - 1. In these units the energy is

    E(z) = z'Az + 2b'z = |S(z - x)|**2 + 2s'(z - x) + E(x),        A = S'S,  s = Ax + b,

where x is the minimum over the box. Parameters are decided from the last to the first, each from the level nearest to
its centre outwards (the order of Schnorr and Euchner). Two bounds prune:

*   The ball bound. Where x_j is inside the box, s_j = 0; where x_j is at its edge, a level at the distance t costs at
    least 2|s_j|t >= 2|s_j|t**2 / T for t <= T, and those beyond T cost more than the best levels known. So with
    R'R = A + diag(2|s_j| / T_j), R upper triangular, E(z) >= |R(z - x)|**2 + E(x). Row k of R(z - x) depends on
    z_k, ..., z_{n-1} only, so what the decided rows add up to stays, whatever the free parameters become. It costs next
    to nothing and does not know the levels.
*   The level bound. For any x, and any D = diag(d) with d >= 0 and A - D positive semidefinite,

        z'Az + 2h'z  >=  -x'(A - D)x + sum_j min over levels t of (d_j t**2 + 2 s_j t),        s = (A - D)x + h,

    since a convex function lies above its tangents. With d = 0 it is the certificate of `problems.bounds`, which
    knows the box; the larger d, the more it knows of the levels, too. Its maximum over x is the minimum over the box
    of the energy with d_j z_j**2 replaced by its linear interpolation between levels, which a few sweeps of
    coordinate descent, started where the parent's ended, come near to. It is what keeps trees small.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, types

from annealfit._support.arrays import Array
from annealfit._support.compiled import array, compiled

# Where `Stack.counters` keeps the best energy, the parameter to be decided next, and the nodes so far.
BEST, POSITION, NODES = 0, 1, 2
SWEEPS = 3  # for one level bound: more prune little more, fewer prune less


class Lattice(NamedTuple):
    """One problem, its parameters in the order of the search; nothing here changes."""

    matrix: Array  # A, (n, n)
    gradient: Array  # b, (n,)
    lifts: Array  # (n + 1, n): row i has the d of the level bound over the first i parameters
    weights: Array  # R_kk squared, (n,)
    pulls: Array  # (n, n): R_kj / R_kk in row j, by how much z_j moves the centre of z_k
    edge: float
    offset: float  # minus the certificate of x
    tolerance: float  # energies that differ by less are the same
    ball_error: float  # how far rounding, and a ridge, may have raised a ball bound
    level_error: float  # the same of a level bound


class Stack(NamedTuple):
    """The path from the root to where the search is. Row i belongs to the node at which parameter i is decided."""

    counters: Array
    best: Array  # the best levels so far, (n,)
    levels: Array  # the levels decided, from the position on, (n,)
    below: Array  # the next level to try below the centre, (n,)
    above: Array  # and above it
    distances: Array  # what the decided rows add up to, (n,)
    floors: Array  # the highest level bound of the node and those above it, (n,)
    decided: Array  # the energy of the decided parameters by themselves, (n,)
    centres: Array  # of the free parameters, (n, n)
    fields: Array  # h of the free parameters, (n, n)
    relaxed: Array  # x of the free parameters, (n, n)
    residuals: Array  # scratch, (n,)


_LINE, _SQUARE, _REAL = array(types.float64, 1), array(types.float64, 2), types.float64
_LATTICE = types.NamedTuple((_SQUARE, _LINE, _SQUARE, _LINE, _SQUARE, *[_REAL] * 5), Lattice)
_STACK = types.NamedTuple((*[_LINE] * 8, *[_SQUARE] * 3, _LINE), Stack)


@njit(nogil=True)
def _nearest_level(value, edge):
    """The odd whole number in [-edge, edge] nearest to a value."""
    return min(max(2.0 * np.floor(value / 2.0) + 1.0, -edge), edge)


@njit(nogil=True)
def _interpolated_minimum(stiffness, slope, lift, edge):
    """Where stiffness x**2 + 2 slope x + lift p(x) is least in the box; p(x) is x**2 interpolated between levels."""
    total = stiffness + lift
    if total <= 0.0:
        return -edge if slope > 0.0 else edge
    target = -slope / total
    level = _nearest_level(target, edge)
    away = target - level
    if total * abs(away) <= lift or abs(target) >= edge or stiffness <= 0.0:
        return level
    middle = level + 1.0 if away > 0.0 else level - 1.0
    return min(max(-(slope + lift * middle) / stiffness, middle - 1.0), middle + 1.0)


@njit(nogil=True)
def raise_bound(lattice, size, field, x, residuals, enough):
    """The level bound of z'Az + 2h'z over the first `size` parameters, by a few sweeps or until it is enough.

    Overwrites x, where the descent starts and then where it ended, and the residuals, s = (A - D)x + h.
    """
    matrix, lift, edge = lattice.matrix, lattice.lifts[size], lattice.edge
    for i in range(size):
        residuals[i] = field[i] - lift[i] * x[i]
        for j in range(size):
            residuals[i] += matrix[i, j] * x[j]
    best = -np.inf
    for _ in range(SWEEPS):
        for j in range(size):
            stiffness = matrix[j, j] - lift[j]
            change = _interpolated_minimum(stiffness, residuals[j] - stiffness * x[j], lift[j], edge) - x[j]
            if change != 0.0:
                x[j] += change
                for i in range(size):
                    residuals[i] += matrix[j, i] * change
                residuals[j] -= lift[j] * change
        bound = 0.0
        for j in range(size):
            level = _interpolated_minimum(0.0, residuals[j], lift[j], edge)
            bound += level * (lift[j] * level + 2.0 * residuals[j]) - x[j] * (residuals[j] - field[j])
        best = max(best, bound)
        if best >= enough:
            break
    return best


@njit(nogil=True)
def _open_levels(lattice, stack, i):
    """Begin with the levels next to the centre of parameter i."""
    level = _nearest_level(stack.centres[i, i], lattice.edge)
    stack.below[i] = level
    stack.above[i] = level + 2.0


@njit(nogil=True)
def _next_level(lattice, stack, i):
    """The level of parameter i to try next and its distance, which is infinite if none is left."""
    centre, low, high = stack.centres[i, i], stack.below[i], stack.above[i]
    level = low if high > lattice.edge or (low >= -lattice.edge and centre - low < high - centre) else high
    if level < -lattice.edge:
        return level, np.inf
    return level, stack.distances[i] + lattice.weights[i] * (level - centre) ** 2


@njit(nogil=True)
def _decide(lattice, stack, i, level):
    """Set parameter i > 0 to a level: the row of the node below it, and its floor."""
    stack.levels[i] = level
    stack.decided[i - 1] = stack.decided[i] + level * (2.0 * stack.fields[i, i] + lattice.matrix[i, i] * level)
    for k in range(i):
        stack.fields[i - 1, k] = stack.fields[i, k] + lattice.matrix[i, k] * level
        stack.centres[i - 1, k] = stack.centres[i, k] - lattice.pulls[i, k] * level
        stack.relaxed[i - 1, k] = stack.relaxed[i, k]
    paid = stack.decided[i - 1] - lattice.level_error
    enough = stack.counters[BEST] - lattice.tolerance - paid
    bound = raise_bound(lattice, i, stack.fields[i - 1], stack.relaxed[i - 1], stack.residuals, enough)
    stack.floors[i - 1] = max(stack.floors[i], paid + bound)


@njit(nogil=True)
def _take_leaf(lattice, stack):
    """Set the last free parameter to its best level, and keep all levels if they are the best so far."""
    field, stiffness = stack.fields[0, 0], lattice.matrix[0, 0]
    level = _interpolated_minimum(0.0, field, stiffness, lattice.edge)
    stack.levels[0] = level
    energy = stack.decided[0] + level * (2.0 * field + stiffness * level)
    if energy < stack.counters[BEST]:
        stack.counters[BEST] = energy
        stack.best[:] = stack.levels


@compiled(types.void(_LATTICE, _STACK, types.int64))
def open_root(lattice, stack, rounds):
    """Begin at the root, where no parameter is decided: its floor, by so many rounds, and its first levels."""
    i = len(stack.levels) - 1
    stack.counters[POSITION] = i
    stack.floors[i] = -np.inf
    for _ in range(rounds):
        bound = raise_bound(lattice, i + 1, stack.fields[i], stack.relaxed[i], stack.residuals, np.inf)
        stack.floors[i] = max(stack.floors[i], bound - lattice.level_error)
    _open_levels(lattice, stack, i)


@compiled(types.boolean(_LATTICE, _STACK, types.int64))
def advance(lattice, stack, max_nodes):
    """Search on for so many nodes; true if nothing is left to search. Overwrites the stack."""
    size, i, nodes = len(stack.levels), int(stack.counters[POSITION]), 0
    while i < size and nodes < max_nodes:
        level, distance = _next_level(lattice, stack, i)
        if distance - lattice.offset - lattice.ball_error >= stack.counters[BEST] - lattice.tolerance:
            i += 1  # and all levels further out are worse
            continue
        nodes += 1
        if i == 0:
            _take_leaf(lattice, stack)
            i += 1
            continue
        if level == stack.below[i]:
            stack.below[i] -= 2.0
        else:
            stack.above[i] += 2.0
        _decide(lattice, stack, i, level)
        if stack.floors[i - 1] < stack.counters[BEST] - lattice.tolerance:
            i -= 1
            stack.distances[i] = distance
            _open_levels(lattice, stack, i)
    stack.counters[POSITION] = i
    stack.counters[NODES] += nodes
    return i == size


@compiled(types.float64(_LATTICE, _STACK))
def lower_bound(lattice, stack):
    """A number that no energy is below: the least bound of all that is still open.

    Open are, at every node on the path, the levels that were not tried yet. A level further out has a higher ball
    bound, so the next one's holds for all of them; and so does the floor of the node.
    """
    lowest = stack.counters[BEST] - lattice.tolerance  # what was pruned is not below
    for i in range(int(stack.counters[POSITION]), len(stack.levels)):
        ball = _next_level(lattice, stack, i)[1] - lattice.offset - lattice.ball_error
        lowest = min(lowest, max(stack.floors[i], ball))
    return lowest


@compiled(types.void(_SQUARE, _LINE, _REAL))
def raise_diagonal(inverse, diagonal, mu):
    """Set each d_j in turn to what maximises sum(d) + mu log det(A - diag(d)), d >= 0; overwrites d and the inverse.

    The best d_j is where 1 / M_jj = mu, M being the inverse of A - diag(d), which a change of d_j changes by a matrix
    of rank one.
    """
    size = len(diagonal)
    for j in range(size):
        if not inverse[j, j] > 0.0:
            continue  # by rounding, where A is nearly singular
        room = 1.0 / inverse[j, j]
        change = max(min(room - mu, room * (1.0 - 1e-12)), -diagonal[j])
        diagonal[j] += change
        column = inverse[j].copy()
        factor = change / (1.0 - change * column[j])
        for k in range(size):
            multiple = factor * column[k]
            for m in range(size):
                inverse[k, m] += multiple * column[m]
