"""A certificate for every solve: a lower bound of the energy over all bits.

For any `v` in the box [−δ, δ]^D, with `r = Gv + g` and a convex `G`,

    E(u) ≥ E(v) − 2 Σ_j (δ|r_j| + r_j v_j)   for all u in the box,

because `E(u) ≥ E(v) + 2rᵀ(u − v)` and each term is smallest at a corner. The bound holds for every `v`
and is tight at the minimum over the box, so `v` comes from a few sweeps of coordinate descent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from annealfit.problems.problem import Problems, QuadraticProblem, group_by_curvature

# The bound of every iteration of a training: quick, and tight enough to tell annealers apart.
QUICK = {"max_sweeps": 30, "relative_gap": 1e-3}
# Late in a training a quick bound can be loose by a factor of 2; to rate samplers, more sweeps are worth it.
TIGHT = {"max_sweeps": 1000, "relative_gap": 1e-6}


def lower_bounds(
    problems: Sequence[QuadraticProblem], *, tight: bool = False, max_sweeps: int | None = None
) -> NDArray[np.float64]:
    """Return the lower bound of each problem (P,), −∞ where the curvature is not convex.

    More sweeps give a tighter bound; `tight` uses up to 1000.

    >>> from annealfit.problems.encoding import Encoding
    >>> lower_bounds([QuadraticProblem([[2.0]], [-1.0], Encoding(bits=3, range=1.0))]).round(3)  # of 2u² − 2u
    array([-0.5])
    """
    effort = {**(TIGHT if tight else QUICK), **({} if max_sweeps is None else {"max_sweeps": max_sweeps})}
    bounds = np.empty(len(problems))
    for positions, group in group_by_curvature(problems):
        _, bounds[positions] = relax(group, **effort)
    return bounds


def box_minimum(problem: QuadraticProblem) -> NDArray[np.float64]:
    """Return the continuous update in [−δ, δ]^D that minimises the energy, to a relative gap of 1e-6 or 1000 sweeps.

    If the curvature is not convex it is a local minimum of coordinate descent from 0.
    """
    ((_, group),) = group_by_curvature([problem])
    return relax(group, **TIGHT)[0][0]


def relax(
    problems: Problems, max_sweeps: float, relative_gap: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return continuous minima (P, D) of problems with a common curvature, and lower bounds (P,).

    The result is cached: samplers start from it, and certificates use it again.
    """
    from annealfit.problems import _kernels  # numba takes a moment to load

    known = problems.relaxations
    if (max_sweeps, relative_gap) in known:
        return known[max_sweeps, relative_gap]
    curvature = problems.shared_curvature
    # The Newton step is the minimum if it stays inside the box.
    starts = problems.newton_steps if curvature.is_convex else np.zeros(problems.gradients.shape)
    given = np.ascontiguousarray(problems.gradients), np.ascontiguousarray(starts), problems.ranges
    minima, bounds = _kernels.minimise(*curvature.packed, *curvature.alone, *given, float(max_sweeps), relative_gap)
    if not curvature.is_convex:
        bounds = np.full(len(problems), -np.inf)
    known[max_sweeps, relative_gap] = minima, bounds
    return minima, bounds


def compile_kernel() -> None:
    """Load the compiled code."""
    from annealfit.problems import _kernels  # noqa: F401
