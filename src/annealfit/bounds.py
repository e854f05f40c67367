"""A certificate for every solve: a lower bound of the energy that no sampler can get below.

For any `v` in the box [−δ, δ]^D, with `r = Gv + g` and a convex `G`,

    E(u) ≥ E(v) − 2 Σ_j (δ|r_j| + r_j v_j)   for all u in the box,

because `E(u) ≥ E(v) + 2rᵀ(u − v)` and each term is smallest at a corner. The bound holds for every `v`
and is tight at the minimum over the box, so `v` comes from a few sweeps of coordinate descent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from annealfit.problem import QuadraticProblem

MAX_SWEEPS = 100
RELATIVE_GAP = 1e-6  # tight enough to tell annealers apart; below it the sweeps cost more than they say


def lower_bound(problem: QuadraticProblem) -> float:
    """A number no larger than the energy of any bits of the problem, whose curvature must be convex.

    >>> from annealfit.encoding import Encoding
    >>> from annealfit.problem import QuadraticProblem
    >>> problem = QuadraticProblem([[2.0]], [-1.0], Encoding(bits=3, range=1.0))
    >>> round(problem.lower_bound(), 6)  # the minimum of 2u² − 2u, which lies between two levels
    -0.5
    """
    return float(lower_bounds([problem])[0])


def lower_bounds(problems: Sequence[QuadraticProblem]) -> NDArray[np.float64]:
    """The lower bound of each problem."""
    from annealfit import _box  # compiles on first use

    bounds = np.empty(len(problems))
    for index, problem in enumerate(problems):
        _, bounds[index] = _box.minimise(
            problem.curvature, problem.gradient, problem.encoding.range, MAX_SWEEPS, RELATIVE_GAP
        )
    return bounds


def box_minimum(problem: QuadraticProblem) -> NDArray[np.float64]:
    """The continuous update in [−δ, δ]^D that minimises the energy, to the bound's relative gap."""
    from annealfit import _box

    update, _ = _box.minimise(problem.curvature, problem.gradient, problem.encoding.range, MAX_SWEEPS, RELATIVE_GAP)
    return update
