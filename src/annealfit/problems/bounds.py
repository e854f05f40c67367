"""A certificate for every solve: a lower bound of the energy that no sampler can get below.

For any `v` in the box [−δ, δ]^D, with `r = Gv + g` and a convex `G`,

    E(u) ≥ E(v) − 2 Σ_j (δ|r_j| + r_j v_j)   for all u in the box,

because `E(u) ≥ E(v) + 2rᵀ(u − v)` and each term is smallest at a corner. The bound holds for every `v`
and is tight at the minimum over the box, so `v` comes from a few sweeps of coordinate descent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import Problems, QuadraticProblem, group_by_curvature

# A bound is made at every iteration of a training: tight enough to tell annealers apart, and quick.
QUICK = {"max_sweeps": 30, "relative_gap": 1e-3}
# Late in a training a quick bound can be twice as far down as need be; to rate samplers, more sweeps are worth it.
TIGHT = {"max_sweeps": 1000, "relative_gap": 1e-6}


def lower_bound(problem: QuadraticProblem) -> float:
    """A number no larger than the energy of any bits of the problem, whose curvature must be convex.

    >>> from annealfit.problems.encoding import Encoding
    >>> problem = QuadraticProblem([[2.0]], [-1.0], Encoding(bits=3, range=1.0))
    >>> round(problem.lower_bound(), 3)  # the minimum of 2u² − 2u, which lies between two levels
    -0.5
    """
    bound = float(lower_bounds([problem])[0])
    if bound == -np.inf:
        raise InvalidInputError(
            "the curvature has a negative eigenvalue, and the bound holds for convex problems only; "
            "add a multiple of the identity to the curvature"
        )
    return bound


def lower_bounds(
    problems: Sequence[QuadraticProblem], *, tight: bool = False, max_sweeps: int | None = None
) -> NDArray[np.float64]:
    """The lower bound of each problem, shape (P,): −∞ where the curvature is not convex.

    A tight one is as high as a bound of this kind gets; fewer sweeps make a looser one in less time.
    """
    effort = {**(TIGHT if tight else QUICK), **({} if max_sweeps is None else {"max_sweeps": max_sweeps})}
    bounds = np.empty(len(problems))
    for positions, group in group_by_curvature(problems):
        _, bounds[positions] = relax(group, **effort)
    return bounds


def box_minimum(problem: QuadraticProblem) -> NDArray[np.float64]:
    """The continuous update in [−δ, δ]^D that minimises the energy, to a relative gap of 1e-6 if 1000 sweeps do.

    Where the curvature is not convex it is what coordinate descent from 0 ends in, the best corner or not.
    """
    ((_, group),) = group_by_curvature([problem])
    return relax(group, **TIGHT)[0][0]


def relax(
    problems: Problems, max_sweeps: float, relative_gap: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Continuous minima (P, D) of problems with a common metric, and lower bounds (P,).

    What was found before, with as many sweeps, is found again: samplers start from it, and certificates end with it.
    """
    from annealfit.problems import _kernels  # numba takes a moment to import: only when it is needed

    known = problems.relaxations
    if (max_sweeps, relative_gap) in known:
        return known[max_sweeps, relative_gap]
    metric = problems.metric
    # The Newton step is the answer where it stays inside the box.
    starts = problems.newton_steps if metric.is_convex else np.zeros(problems.gradients.shape)
    given = np.ascontiguousarray(problems.gradients), np.ascontiguousarray(starts), problems.ranges
    minima, bounds = _kernels.minimise(*metric.packed, *given, max_sweeps, relative_gap)
    if not metric.is_convex:
        bounds = np.full(len(problems), -np.inf)
    known[max_sweeps, relative_gap] = minima, bounds
    return minima, bounds


@cache
def compile_kernel() -> None:
    """Have the compiled code at hand, so that no clock measures the compiler."""
    lower_bounds([QuadraticProblem(np.eye(1), np.zeros(1), Encoding(bits=1, range=1.0))])
