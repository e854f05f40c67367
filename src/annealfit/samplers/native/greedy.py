"""GreedyDescent: the nearest local minimum from the lowest levels, for very many small problems."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar

import numpy as np

from annealfit._support.errors import check_number
from annealfit.problems.encoding import bits_of
from annealfit.problems.problem import Problems, QuadraticProblem, group_by_curvature
from annealfit.samplers.native.annealing import in_threads, new_flag
from annealfit.samplers.native.levels import LevelChains
from annealfit.samplers.protocol import Sampler, Samples, SolveInfo

LANES_PER_TASK = 256


@dataclass(frozen=True)
class GreedyDescent(Sampler):
    """Descent from the lowest level of every parameter, each time along the one that gains most. No chance is in it.

    Where a level above the lowest means "in use", as in sparse coding, this is matching pursuit: few parameters are
    moved, and those that explain most come first. A problem of 47 bits takes microseconds.

    Parameters
    ----------
    chains : bool
        Go on by chains of moves (`LevelChains.polish`), which leave most local minima, at ten times the cost.
    num_threads : int or None
        Threads over problems; None is as many as this process may use. Results do not depend on it.

    Examples
    --------
    >>> from annealfit.problems.encoding import Encoding
    >>> problem = QuadraticProblem([[2.0, 0.5], [0.5, 1.0]], [1.0, -1.0], Encoding(bits=3, range=1.0))
    >>> round(GreedyDescent().sample(problem).best_energy, 3)
    -2.122

    """

    chains: bool = False
    num_threads: int | None = None

    neutral_settings: ClassVar[frozenset[str]] = frozenset({"num_threads"})

    def __post_init__(self) -> None:
        if self.num_threads is not None:
            check_number("num_threads", self.num_threads, Integral, minimum=1)

    def prepare(self) -> None:
        """Load the compiled code."""
        from annealfit.samplers.native import _greedy, _levels  # noqa: F401 (loaded when they are imported)

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """Descend in every problem, one read each; the seeds are not used."""
        self.prepare()
        answers: dict[int, Samples] = {}
        for positions, group in group_by_curvature(problems):
            for spacing in np.unique(group.resolutions):
                same = np.flatnonzero(group.resolutions == spacing)
                part = group if len(same) == len(group) else group.take(same)
                answers.update(zip(positions[same].tolist(), self._descend(part, 2 * float(spacing)), strict=True))
        return [answers[position] for position in range(len(problems))]

    def _descend(self, problems: Problems, spacing: float) -> list[Samples]:
        """Return the answers of problems with one curvature and one distance between levels."""
        from annealfit.samplers.native import _greedy

        began, curvature, top = time.perf_counter(), problems.shared_curvature, problems.levels - 1
        levels = np.zeros(problems.gradients.shape, dtype=np.int64)
        fields = problems.gradients - 0.5 * top * spacing * curvature.row_sums
        squares, flag = spacing**2 * curvature.diagonal[None].copy(), new_flag()

        def descend(first: int) -> None:
            lanes = slice(first, first + LANES_PER_TASK)
            _greedy.descend_steepest(curvature.matrix, squares, spacing, top, levels[lanes], fields[lanes])

        in_threads(descend, range(0, len(levels), LANES_PER_TASK), self.num_threads, flag)
        if self.chains:
            steps, seeds = np.full(levels.shape, spacing), np.zeros(len(levels), dtype=np.uint64)
            chains = LevelChains(
                curvature, problems.gradients, steps, -0.5 * top, top, levels, seeds, num_threads=self.num_threads
            )
            chains.polish(with_chains=True)
            levels = chains.levels
        bits = bits_of(levels, problems.bits)
        energies = problems.energies(problems.decode(bits))
        info: SolveInfo = {"sampling_seconds": time.perf_counter() - began}
        return [Samples(bits[p : p + 1], energies[p : p + 1], info) for p in range(len(bits))]
