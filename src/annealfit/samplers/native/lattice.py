"""LatticeSolver: the proven optimum of a convex problem, by branch and bound over the levels of its parameters.

**Rounding.** Energies and bounds are sums of products that add up to no more than the problem's scale,
`edge²·Σ|A_ij| + 2·edge·Σ|b_j|`. Such a sum over n parameters, updated in a few sweeps, is off by less than
`32·ε·(n + 8)` of the scale (ε is the spacing of doubles at 1). A matrix that was found positive definite may lack
`(n + 2)·ε·tr A` of it. Both together are the margin: about 1e-12 of the scale for 20 parameters. Every bound is
lowered by it before it may prune. Energies nearer to each other than twice the margin count as the same, so that ties
need not be searched one by one. So "proven" means: no bits have a lower energy, as far as doubles can tell.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, check_number
from annealfit.problems.bounds import TIGHT, compile_kernel, relax
from annealfit.problems.curvature import Curvature
from annealfit.problems.encoding import bits_of, levels_of
from annealfit.problems.problem import Problems, QuadraticProblem, group_by_curvature
from annealfit.samplers.native.annealing import Limit, Stop, in_threads, new_flag
from annealfit.samplers.native.levels import LevelAnnealer
from annealfit.samplers.protocol import Sampler, Samples, SolveInfo

_WORK_PER_CHUNK = 2e7  # multiplications before compiled code is left to read the clock: about 50 ms
_EPSILON = float(np.finfo(float).eps)
_ROUNDING = 32 * _EPSILON  # of the scale, for each of n + 8 terms
_FIRST_SWEEPS, _OTHER_SWEEPS, _MU_FACTOR = 12, 4, 0.5  # for all parameters, for each part; how mu falls
_ROOT_ROUNDS = 30  # of a few sweeps each, for the bound that all others start from
_NEWTON_STEPS = 20  # at most, to the minimum over the box; two or three are usual
_MOST_PARTS = 128  # of the parameters that have a diagonal of their own


@dataclass(frozen=True)
class LatticeSolver(Sampler):
    """The proven optimum of convex problems, by branch and bound over the levels of the parameters.

    One read per problem: the best bits found. `info["proven"]` says whether they are the optimum, `info["gap"]` by how
    much they can be above it at most (0 if proven), `info["lower_bound"]` and `info["nodes"]` what the search knows
    and what it took. Nothing is random; how far a search gets in a time limit depends on the machine.

    Parameters
    ----------
    time_limit : float or None
        Seconds per problem after which its search ends early, with the best bits so far.
    max_nodes : int or None
        The same by the number of nodes, so that answers do not depend on the machine.
    num_threads : int or None
        Problems that are searched side by side; None is as many as this process may use.
    interrupt_function : callable or None
        Called about twenty times per second; a true answer ends all searches early in the same way.

    Examples
    --------
    >>> from annealfit.problems.encoding import Encoding
    >>> problem = QuadraticProblem([[2.0, 0.5], [0.5, 1.0]], [1.0, -1.0], Encoding(bits=3, range=1.0))
    >>> samples = LatticeSolver().sample(problem)
    >>> round(samples.best_energy, 3), samples.info["proven"], samples.info["gap"]
    (-2.122, True, 0.0)

    """

    time_limit: float | None = 10.0
    max_nodes: int | None = None
    num_threads: int | None = None
    interrupt_function: Stop | None = field(default=None, repr=False)

    neutral_settings: ClassVar[frozenset[str]] = frozenset({"num_threads", "interrupt_function"})

    def __post_init__(self) -> None:
        Limit.of(self.time_limit, self.interrupt_function)  # for its checks
        for name in ("max_nodes", "num_threads"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), Integral, minimum=1)

    def prepare(self) -> None:
        """Load the compiled code."""
        from annealfit.samplers.native import _lattice, _levels  # noqa: F401 (loaded when they are imported)

        compile_kernel()

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """Search every problem; the seeds are not used."""
        self.prepare()  # so that no time limit is spent on compiling
        began = time.perf_counter()
        tasks: list[tuple[int, Branching, Problems]] = []
        for positions, group in group_by_curvature(problems):
            branching = Branching.of(group.shared_curvature)
            tasks += [(position, branching, group[k : k + 1]) for k, position in enumerate(positions.tolist())]
        prepared, stop, lock = time.perf_counter(), new_flag(), threading.Lock()

        def search(task: tuple[int, Branching, Problems]) -> tuple[int, Search]:
            """Search one problem, in chunks, until it is finished or a limit is reached."""
            position, branching, problem = task
            limit = Limit.of(self.time_limit, is_interrupted)
            found = Search(branching, problem)
            chunk = max(1, int(_WORK_PER_CHUNK / (problem.n_parameters**2 + 50)))
            nodes = chunk
            while nodes and not (found.is_finished or (limit and limit.is_reached())):
                nodes = chunk if self.max_nodes is None else min(chunk, self.max_nodes - found.nodes)
                found.advance(nodes)
            return position, found

        def is_interrupted() -> bool:
            if self.interrupt_function is not None and not stop[0]:
                with lock:
                    stop[0] = stop[0] or bool(self.interrupt_function())
            return bool(stop[0])

        searches = dict(in_threads(search, tasks, self.num_threads, stop))
        seconds: SolveInfo = {
            "preprocessing_seconds": prepared - began,
            "sampling_seconds": time.perf_counter() - prepared,
        }
        return [_answer(problem, searches[position], seconds) for position, problem in enumerate(problems)]


def _answer(problem: QuadraticProblem, search: Search, seconds: SolveInfo) -> Samples:
    bits = search.best_bits()[None]
    energies = problem.energy(bits)
    energy, proven = float(energies[0]), search.is_finished
    lower_bound = energy if proven else min(search.lower_bound(), energy)
    info: SolveInfo = {
        **seconds,
        "proven": proven,
        "gap": energy - lower_bound,
        "lower_bound": lower_bound,
        "nodes": search.nodes,
    }
    return Samples(bits, energies, info)


@dataclass(frozen=True, eq=False)
class Branching:
    """What the searches of problems with one curvature share: the order of the parameters, and what follows from it.

    First is decided the parameter with the largest conditional precision, `1/(G⁻¹)_jj`, given those before it.
    """

    order: NDArray[np.intp]  # the last is decided first, (D,)
    matrix: Array  # G in this order
    slack: float  # by how much a matrix that was found positive definite may not be
    least: float  # the smallest eigenvalue; a little below 0 by rounding, where the curvature was made
    lifts: Array  # (D+1, D)

    @classmethod
    def of(cls, curvature: Curvature) -> Branching:
        """The branching of a convex curvature; any other is refused."""
        if not curvature.is_convex:
            raise InvalidInputError(
                "the curvature has a negative eigenvalue, and the search for a proven optimum needs a convex one; "
                "use SimulatedAnnealer, or ExactSolver for up to 24 variables"
            )
        order = _order(curvature.inverse)
        matrix = np.ascontiguousarray(curvature.matrix[np.ix_(order, order)])
        slack = (len(matrix) + 2) * _EPSILON * float(np.trace(matrix))
        least = float(np.linalg.eigvalsh(matrix)[0])
        return cls(order, matrix, slack, least, _largest_diagonals(matrix, slack + max(-least, 0.0)))


def _order(inverse: Array) -> NDArray[np.intp]:
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


def _factor(matrix: Array, smallest: float) -> tuple[Array, float]:
    """The upper triangular factor of the matrix, or of the matrix with the smallest ridge that makes it have one."""
    ridge = 0.0
    while True:
        try:
            return np.asarray(np.linalg.cholesky(matrix + ridge * np.eye(len(matrix))).T, dtype=float), ridge
        except np.linalg.LinAlgError:
            ridge = max(10 * ridge, smallest)


def _largest_diagonals(matrix: Array, ridge: float) -> Array:
    """For every i a diagonal d ≥ 0 of large sum such that A − diag(d) has no negative eigenvalue: row i of (D+1, D).

    A is the first i rows and columns of the matrix with the ridge. The sum is maximised with `mu·log det(A − diag(d))`
    added to it, mu falling, which keeps to the inside; in the end all but the ridge is taken. A diagonal
    for i parameters does for fewer of them, so every part but the largest starts from the one before, and of many
    parts some are left with that.
    """
    from annealfit.samplers.native import _lattice

    size, mu = len(matrix), 0.0
    lifts, inner = np.zeros((size + 1, size)), np.zeros(size)
    stride = 1 + size // _MOST_PARTS
    for count in range(size, 0, -stride):
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
                for fewer in range(max(count - stride, 0) + 1, count + 1):
                    lifts[fewer, :fewer] = diagonal[:fewer]
                break
        else:
            inner = np.zeros(count)
    return lifts


def _is_positive(matrix: Array) -> bool:
    if not np.isfinite(matrix).all():  # of which Cholesky's algorithm does not complain
        return False
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


class Search:
    """The search for the optimum of one problem. It can be left after any number of nodes, and continued."""

    def __init__(self, branching: Branching, problem: Problems) -> None:
        """`problem` is a single one, with the curvature that the branching was made for."""
        from annealfit.samplers.native import _lattice  # numba takes a moment to load

        self._kernels, self._order, self._bits = _lattice, branching.order, problem.bits
        first = levels_of(LevelAnnealer(num_sweeps=0).solve(problem, [0])[0].best_bits)
        best = 2 * first[self._order].astype(np.float64) - (problem.levels - 1)
        self._lattice, minimum, centres, energy = _lattice_of(branching, problem, best)
        rows, squares = np.zeros((8, len(best))), np.zeros((3, len(best), len(best)))
        self._stack = stack = _lattice.Stack(np.zeros(3), *rows[:7], *squares, rows[7])  # type: ignore[call-arg]
        stack.best[:] = best
        stack.counters[_lattice.BEST] = energy
        stack.centres[-1], stack.fields[-1], stack.relaxed[-1] = centres, self._lattice.gradient, minimum
        _lattice.open_root(self._lattice, stack, _ROOT_ROUNDS)
        stack.floors[-1] = max(stack.floors[-1], -self._lattice.offset - self._lattice.level_error)
        self.is_finished = bool(stack.floors[-1] >= self.energy - self._lattice.tolerance)

    def advance(self, max_nodes: int) -> None:
        """Search on for so many nodes, or to the end."""
        self.is_finished = self._kernels.advance(self._lattice, self._stack, max_nodes)

    @property
    def energy(self) -> float:
        """The energy of the best bits so far."""
        return float(self._stack.counters[self._kernels.BEST])

    @property
    def nodes(self) -> int:
        """How many times a parameter was set to a level so far."""
        return int(self._stack.counters[self._kernels.NODES])

    def best_bits(self) -> NDArray[np.uint8]:
        """The best bits so far, (D, K)."""
        levels = np.empty(len(self._stack.best), dtype=np.int64)
        levels[self._order] = (self._stack.best + self._lattice.edge) / 2
        return bits_of(levels, self._bits)

    def lower_bound(self) -> float:
        """A number that no energy is below."""
        return self.energy if self.is_finished else self._kernels.lower_bound(self._lattice, self._stack)


def _lattice_of(branching: Branching, problem: Problems, best: Array) -> tuple[Any, Array, Array, float]:
    """The problem in units of its resolution; its minimum over the box, and as centres; the energy of known levels."""
    from annealfit.samplers.native import _lattice

    resolution, edge = float(problem.resolutions[0]), float(problem.levels - 1)
    matrix = branching.matrix * resolution**2
    gradient = problem.gradients[0][branching.order] * resolution
    size, energy = len(gradient), float(best @ (matrix @ best + 2 * gradient))

    corner = size * edge**2 * resolution**2  # the largest |u|² there is; a difference of two has up to 4 times that
    scale = edge**2 * np.abs(matrix).sum() + 2 * edge * np.abs(gradient).sum()
    rounding = _ROUNDING * (size + 8)
    margin = rounding * scale + 4 * corner * branching.slack

    start = relax(problem, **TIGHT)[0][0][branching.order] / resolution
    minimum, slopes, bound = _box_minimum(matrix, gradient, edge, start, margin)
    gap = max(energy - bound, 0.0) + 2 * margin
    # A level at the distance t from a minimum at the edge costs at least 2|s|t. What costs more than the gap is not
    # searched; up to this `reach` 2|s|t is at least 2|s|t²/reach, which adds to the curvature.
    costs = np.where(np.abs(minimum) == edge, 2 * np.maximum(-slopes * np.sign(minimum), 0.0), 0.0)
    steps = np.floor(np.divide(gap, 2 * costs, out=np.full(size, edge), where=costs > 0))
    reach = 2 * np.clip(steps, 1, edge)
    factor, ridge = _factor(matrix + np.diag(costs / reach), branching.slack * resolution**2 or 1.0)
    # Rounding moves all rows of R(z − x) together by no more than `moved`, and RᵀR by less than ε·n·tr RᵀR, as a ridge
    # does. Both matter where the squares of the rows add up to the gap: there |z − x|² is at most `far`.
    diagonal, trace = factor.diagonal(), float(np.square(factor).sum())
    least = (branching.least - branching.slack) * resolution**2
    far = min(gap / least if least > 0 else np.inf, 4 * size * edge**2)
    moved = rounding * edge * np.sqrt(size * trace)
    lattice = _lattice.Lattice(
        matrix=matrix,
        gradient=gradient,
        lifts=branching.lifts * resolution**2,
        weights=diagonal**2,
        pulls=np.ascontiguousarray((factor / diagonal[:, None]).T),
        edge=edge,
        offset=-bound,
        tolerance=float(2 * margin),
        ball_error=float(margin + moved * (2 * np.sqrt(gap) + moved) + far * (rounding * size * trace + ridge)),
        level_error=float(margin + 4 * corner * max(-branching.least, 0.0)),
    )
    return lattice, minimum, factor @ minimum / diagonal, energy


def _box_minimum(matrix: Array, gradient: Array, edge: float, x: Array, enough: float) -> tuple[Array, Array, float]:
    """The minimum over the box, half the energy's slopes there, and the certificate of `problems.bounds`.

    Newton steps of the parameters that are inside, until certificate and energy are near enough or do not come nearer.
    """
    best, found = -np.inf, (x, x)
    for _ in range(_NEWTON_STEPS):
        slopes = matrix @ x + gradient
        apart = 2 * float(edge * np.abs(slopes).sum() + slopes @ x)
        bound = float(x @ (slopes + gradient)) - apart
        if not bound > best:
            break
        best, found = bound, (x, slopes)
        if apart <= enough:
            break
        inside = (np.abs(x) < edge) | (slopes * x > 0)
        outer = np.where(inside, 0.0, x)
        step = np.linalg.lstsq(matrix[np.ix_(inside, inside)], -(gradient + matrix @ outer)[inside])[0]
        x = outer
        x[inside] = np.clip(step, -edge, edge)
    return *found, best
