"""The truth about a problem: its lowest energy, proven, or the best that is known."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit.problems.problem import Problems

TRUTH_SECONDS = 10.0  # of the search of one problem, at most


@dataclass(frozen=True, eq=False)
class Truth:
    """The lowest energies (P,) known of some problems, and which of them are proven to be the lowest there are."""

    energies: NDArray[np.float64]
    proven: NDArray[np.bool_]
    lower_bounds: NDArray[np.float64]  # the energies themselves where they are proven
    seconds: float = 0.0  # of the search of all the problems

    @property
    def is_proven(self) -> bool:
        """Whether the optimum of every problem is."""
        return bool(self.proven.all())

    def lowered(self, energies: NDArray[np.float64]) -> Truth:
        """With lower energies (P,) that somebody found; what is proven stays."""
        return replace(self, energies=np.where(self.proven, self.energies, np.minimum(self.energies, energies)))

    def is_reached(self, position: int, energies: NDArray[np.float64], target: float) -> NDArray[np.bool_]:
        """Which energies are within a relative `target` of the problem's lowest."""
        lowest = self.energies[position]
        return np.asarray(energies <= lowest + target * abs(lowest))


def find_truth(problems: Problems, time_limit: float = TRUTH_SECONDS) -> Truth:
    """Search every problem for its proven optimum, for `time_limit` seconds at most.

    Where that is too short the best found counts. A problem that is not convex is not searched: what is known of it is
    only what samplers find.

    >>> from annealfit.problems.curvature import Curvature
    >>> problems = Problems((Curvature(np.eye(2)),), np.array([[0.3, -0.1]]), np.array([1.0]), bits=1)
    >>> find_truth(problems).proven
    array([ True])
    """
    from annealfit.samplers import LatticeSolver  # here: the time limit's default is known without it

    solver = LatticeSolver(time_limit=time_limit)
    solver.prepare()
    began = time.perf_counter()
    try:
        answers = solver.solve(problems, [0] * len(problems))
    except InvalidInputError:
        unknown = np.full(len(problems), np.inf)
        return Truth(unknown, np.zeros(len(problems), dtype=bool), -unknown)
    return Truth(
        energies=np.array([answer.best_energy for answer in answers]),
        proven=np.array([answer.info["proven"] for answer in answers]),
        lower_bounds=np.array([answer.info["lower_bound"] for answer in answers]),
        seconds=time.perf_counter() - began,
    )
