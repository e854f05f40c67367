"""The search for the proven optimum of one problem: what it starts from, how it goes on, and what it knows so far.

**What rounding can do.** Energies and bounds are sums of products that add up to no more than the problem's scale,
`edge²·Σ|A_ij| + 2·edge·Σ|b_j|`. Such a sum over n parameters, updated in a few sweeps, is off by less than
`32·ε·(n + 8)` of the scale (ε is the spacing of doubles at 1). A matrix that was found positive definite may lack
`(n + 2)·ε·tr A` of it. Both together are the margin: about 1e-12 of the scale for 20 parameters. Every bound is
lowered by it before it may prune. Energies nearer to each other than twice the margin count as the same, so that ties
need not be searched one by one. So "proven" means: no bits have a lower energy, as far as doubles can tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit.problems.bounds import TIGHT, relax
from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import Problems
from annealfit.samplers.native import _lattice

_EPSILON = float(np.finfo(float).eps)
_ROUNDING = 32 * _EPSILON  # of the scale, for each of n + 8 terms
_FIRST_SWEEPS, _OTHER_SWEEPS, _MU_FACTOR = 12, 4, 0.5  # for all parameters, for each part; how mu falls
_ROOT_ROUNDS = 30  # of a few sweeps each, for the bound that all others start from


@dataclass(frozen=True, eq=False)
class Branching:
    """What the searches of all problems with one metric share: the order of the parameters, and what follows from it.

    First is decided the parameter with the largest conditional precision, `1/(G⁻¹)_jj`, given those before it.
    """

    order: NDArray[np.intp]  # the last is decided first, (D,)
    matrix: NDArray[np.float64]  # G in this order
    factor: NDArray[np.float64]  # R with RᵀR = G + ridge
    ridge: float  # what a semidefinite curvature needs to have a factor
    slack: float  # by how much a matrix that was found positive definite may not be
    shortfall: float  # how far below 0 the curvature's smallest eigenvalue is: rounding, where it was made
    lifts: NDArray[np.float64]  # (D+1, D)

    @classmethod
    def of(cls, metric: Curvature) -> Branching:
        """The branching of a convex metric; any other is refused."""
        if not metric.is_convex:
            raise InvalidInputError(
                "the curvature has a negative eigenvalue, and the search for a proven optimum needs a convex one; "
                "use SimulatedAnnealer, or ExactSolver for up to 24 variables"
            )
        order = _order(metric.inverse)
        matrix = np.ascontiguousarray(metric.matrix[np.ix_(order, order)])
        slack = (len(matrix) + 2) * _EPSILON * float(np.trace(matrix))
        shortfall = max(0.0, -float(np.linalg.eigvalsh(matrix)[0]))
        factor, ridge = _factor(matrix, slack or 1.0)
        lifts = _largest_diagonals(matrix, slack + shortfall)
        return cls(order, matrix, factor, ridge, slack, shortfall, lifts)


def _order(inverse: NDArray[np.float64]) -> NDArray[np.intp]:
    """Parameters from the last to the first to be decided. Deciding one makes the others more precise."""
    remaining, free, order = inverse.copy(), list(range(len(inverse))), []
    rounding = len(inverse) * _EPSILON * inverse.diagonal().max()
    while free:
        position = int(remaining.diagonal().argmin())
        order.append(free.pop(position))
        variance = remaining[position, position]
        if variance > rounding:  # else nothing is left to learn
            remaining -= np.outer(remaining[position], remaining[position] / variance)
        remaining = np.delete(np.delete(remaining, position, 0), position, 1)
    return np.array(order[::-1])


def _factor(matrix: NDArray[np.float64], smallest: float) -> tuple[NDArray[np.float64], float]:
    """The upper triangular factor of the matrix, or of the matrix with the smallest ridge that makes it have one."""
    ridge = 0.0
    while True:
        try:
            return np.asarray(np.linalg.cholesky(matrix + ridge * np.eye(len(matrix))).T, dtype=float), ridge
        except np.linalg.LinAlgError:
            ridge = max(10 * ridge, smallest)


def _largest_diagonals(matrix: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
    """For every i a diagonal d ≥ 0 of large sum such that A − diag(d) has no negative eigenvalue: row i of (D+1, D).

    A is the first i rows and columns of the matrix with the ridge. The sum is maximised with `mu·log det(A − diag(d))`
    added to it, mu falling, which keeps to the inside; in the end all but the ridge is taken. A diagonal
    for i parameters does for fewer of them, so every part but the largest starts from the one before.
    """
    size, mu = len(matrix), 0.0
    lifts, inner = np.zeros((size + 1, size)), np.zeros(size)
    for count in range(size, 0, -1):
        part, inner = matrix[:count, :count] + ridge * np.eye(count), inner[:count]
        try:
            inverse = np.linalg.inv(part - np.diag(inner))
        except np.linalg.LinAlgError:  # no room for any diagonal, or rounding left none
            inner = np.zeros(count)
            continue
        sweeps = _OTHER_SWEEPS if mu else _FIRST_SWEEPS
        mu = mu / _MU_FACTOR**sweeps if mu else 0.5 / inverse.diagonal().min()
        for _ in range(sweeps):
            _lattice.raise_diagonal(inverse, inner, mu)
            mu *= _MU_FACTOR
        outer = inner.copy()
        _lattice.raise_diagonal(inverse, outer, ridge)
        for diagonal in (outer, inner):  # rounding may have led too far
            if diagonal.min() >= 0 and _is_positive(part - np.diag(diagonal)):
                lifts[count, :count] = diagonal
                break
        else:
            inner = np.zeros(count)
    return lifts


def _is_positive(matrix: NDArray[np.float64]) -> bool:
    if not np.isfinite(matrix).all():  # of which Cholesky's algorithm does not complain
        return False
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


class Search:
    """The search for the optimum of one problem. It can be left after any number of nodes, and gone on with."""

    def __init__(self, branching: Branching, problem: Problems) -> None:
        """`problem` is a single one, with the metric that the branching was made for."""
        self._order, self._bits = branching.order, problem.bits
        self._lattice, centres = _lattice_of(branching, problem)
        minimum = relax(problem, **TIGHT)[0][0][self._order] / problem.resolutions[0]
        self._stack = _stack_of(self._lattice, centres, minimum)
        self.is_finished = bool(self._stack.floors[-1] >= self.energy - self._lattice.tolerance)

    def advance(self, max_nodes: int) -> None:
        """Search on for so many nodes, or to the end."""
        if not self.is_finished:
            self.is_finished = bool(_lattice.advance(self._lattice, self._stack, max_nodes))

    @property
    def energy(self) -> float:
        """The energy of the best bits so far."""
        return float(self._stack.counters[_lattice.BEST])

    @property
    def nodes(self) -> int:
        """How many times a parameter was set to a level so far."""
        return int(self._stack.counters[_lattice.NODES])

    def best_bits(self) -> NDArray[np.uint8]:
        """The best bits so far, (D, K)."""
        levels = np.empty(len(self._stack.best), dtype=np.int64)
        levels[self._order] = (self._stack.best + self._lattice.edge) / 2
        return ((levels[:, None] >> np.arange(self._bits)) & 1).astype(np.uint8)

    def lower_bound(self) -> float:
        """A number that no energy is below: the least bound of what is still open, or the best energy itself.

        Open are, at every node on the path, the levels that were not tried yet. A level further out has a higher ball
        bound, so the next one's holds for all of them; and so does the floor of the node.
        """
        if self.is_finished:
            return self.energy
        lattice, stack = self._lattice, self._stack
        lowest = self.energy - lattice.tolerance  # what was pruned is not below
        for i in range(int(stack.counters[_lattice.POSITION]), len(stack.levels)):
            ball = _lattice.next_level(lattice, stack, i)[1] - lattice.offset - lattice.ball_error
            lowest = min(lowest, max(float(stack.floors[i]), ball))
        return lowest


def _lattice_of(branching: Branching, problem: Problems) -> tuple[_lattice.Lattice, NDArray[np.float64]]:
    """The problem in units of its resolution, and where its parameters would be without box and levels."""
    resolution, edge = float(problem.resolutions[0]), float(problem.levels - 1)
    matrix, factor = branching.matrix * resolution**2, branching.factor * resolution
    gradient = problem.gradients[0][branching.order] * resolution
    size, diagonal = len(gradient), factor.diagonal()
    shift = np.linalg.solve(factor.T, -gradient)
    offset = float(shift @ shift)

    corner = size * edge**2 * resolution**2  # the largest |u|² there is; a difference of two has up to 4 times that
    scale = edge**2 * np.abs(matrix).sum() + 2 * edge * np.abs(gradient).sum()
    rounding = _ROUNDING * (size + 8)
    margin = rounding * scale + 4 * corner * branching.slack
    # The rows of R(z − c) can be larger than the energies that their squares make up: by Cauchy and Schwarz up to
    # n·tr A, and by the offset. A ridge ρ adds ρ|u|² to the energy.
    rows = size * edge**2 * np.trace(matrix) + offset
    lattice = _lattice.Lattice(
        matrix=matrix,
        gradient=gradient,
        lifts=branching.lifts * resolution**2,
        weights=diagonal**2,
        pulls=np.ascontiguousarray((factor / diagonal[:, None]).T),
        edge=edge,
        offset=offset,
        tolerance=float(2 * margin),
        ball_error=float(rounding * (scale + rows) + corner * branching.ridge),
        level_error=float(margin + 4 * corner * branching.shortfall),
    )
    return lattice, shift / diagonal


def _stack_of(lattice: _lattice.Lattice, centres: NDArray[np.float64], minimum: NDArray[np.float64]) -> _lattice.Stack:
    """The stack at the root: the best levels known are those nearest to the relaxed minimum, improved one by one."""
    size = len(centres)
    rows, squares = np.zeros((8, size)), np.zeros((3, size, size))
    stack = _lattice.Stack(np.zeros(3), *rows[:7], *squares, rows[7])  # type: ignore[call-arg]
    stack.best[:] = [_lattice.nearest_level(value, lattice.edge) for value in minimum]
    _lattice.descend_levels(lattice.matrix, lattice.gradient, stack.best, lattice.edge)
    energy = stack.best @ (lattice.matrix @ stack.best + 2 * lattice.gradient)
    stack.counters[[_lattice.BEST, _lattice.POSITION]] = energy, size - 1
    stack.centres[-1], stack.fields[-1], stack.relaxed[-1] = centres, lattice.gradient, minimum
    stack.floors[-1] = -np.inf
    for _ in range(_ROOT_ROUNDS):
        bound = _lattice.raise_bound(lattice, size, stack.fields[-1], stack.relaxed[-1], stack.residuals, np.inf)
        stack.floors[-1] = max(stack.floors[-1], bound - lattice.level_error)
    _lattice.open_levels(lattice, stack, size - 1)
    return stack
