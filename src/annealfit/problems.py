"""The problems of one iteration, stacked: what samplers are handed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from annealfit.encoding import Encoding, odd_levels
from annealfit.errors import InvalidInputError
from annealfit.metric import Metric
from annealfit.problem import QuadraticProblem


@dataclass(frozen=True, eq=False)
class Problems(Sequence[QuadraticProblem]):
    """P problems of one size: a sequence of `QuadraticProblem`, and at the same time the arrays they are made of.

    `metrics` holds one metric for all problems, or one for each.

    >>> problems = Problems((Metric(np.eye(2)),), np.array([[1.0, -1.0], [0.5, 0.0]]), np.array([0.5, 0.1]), bits=1)
    >>> len(problems), problems[1].encoding.range, problems[:1].gradients.tolist()
    (2, 0.1, [[1.0, -1.0]])
    """

    metrics: tuple[Metric, ...]  # 1 or P of them
    gradients: NDArray[np.float64]  # (P, D)
    ranges: NDArray[np.float64]  # δ of each problem, (P,)
    bits: int  # K

    def __post_init__(self) -> None:
        for array in (self.gradients, self.ranges):
            array.setflags(write=False)  # samplers of other people are handed views of them

    def __len__(self) -> int:
        return len(self.gradients)

    @overload
    def __getitem__(self, index: int) -> QuadraticProblem: ...
    @overload
    def __getitem__(self, index: slice) -> Problems: ...
    def __getitem__(self, index: int | slice) -> QuadraticProblem | Problems:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        encoding = self._encoding.with_range(float(self.ranges[index]))
        return QuadraticProblem.trusted(self.metric_of(index), self.gradients[index], encoding)

    def take(self, positions: NDArray[np.intp]) -> Problems:
        """The problems at these positions."""
        metrics = self.metrics if self.is_alike else tuple(self.metrics[position] for position in positions)
        return Problems(metrics, self.gradients[positions], self.ranges[positions], self.bits)

    def metric_of(self, index: int) -> Metric:
        """The metric of one problem."""
        return self.metrics[0 if self.is_alike else index]

    def with_ranges(self, ranges: NDArray[np.float64]) -> Problems:
        """The same problems with other ranges (P,)."""
        changed = replace(self, ranges=ranges)
        if "newton_steps" in self.__dict__:  # they do not depend on the ranges
            changed.__dict__["newton_steps"] = self.newton_steps
        return changed

    @cached_property
    def relaxations(self) -> dict[tuple[float, float], tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """What `annealfit.bounds.relax` has found for these problems, by its effort."""
        return {}

    @cached_property
    def newton_steps(self) -> NDArray[np.float64]:
        """The continuous minima without a box, `−G⁻¹g`, (P, D).

        A metric that is not convex has none; there it is how far each gradient goes against its row of G.
        """
        if self.is_alike:
            return _newton_steps(self.metric, self.gradients)
        rows = zip(self.metrics, self.gradients, strict=True)
        return np.concatenate([_newton_steps(metric, gradient[None]) for metric, gradient in rows])

    @property
    def is_alike(self) -> bool:
        """Whether all problems share one metric."""
        return len(self.metrics) == 1

    @property
    def metric(self) -> Metric:
        """The metric of all problems, where they share one."""
        if not self.is_alike:
            raise InvalidInputError(
                f"these problems have {len(self.metrics)} metrics, not one; use metric_of(position), or problem.metric"
            )
        return self.metrics[0]

    @property
    def n_parameters(self) -> int:
        """Parameters of one problem, `D`."""
        return self.gradients.shape[1]

    @property
    def levels(self) -> int:
        """Values that one parameter's update can take, `2^K`."""
        return 1 << self.bits

    @property
    def resolutions(self) -> NDArray[np.float64]:
        """The weight of the finest bit of each problem, `δ/(2^K − 1)`, shape (P,)."""
        return self.ranges / (self.levels - 1)

    @cached_property
    def _encoding(self) -> Encoding:
        return Encoding(self.bits, 1.0)

    def decode(self, bits: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Updates (P, D) from bits (P, D, K), each problem's by its own range."""
        return self.resolutions[:, None] * odd_levels(bits)

    def energies(self, updates: NDArray[np.float64]) -> NDArray[np.float64]:
        """The energy (P,) of each problem's own update, a row of `updates` (P, D)."""
        if self.is_alike:
            return self.metric.energies(self.gradients, updates)
        rows = zip(self.metrics, self.gradients, updates, strict=True)
        return np.array([metric.energies(gradient, update) for metric, gradient, update in rows])


def _newton_steps(metric: Metric, gradients: NDArray[np.float64]) -> NDArray[np.float64]:
    if metric.is_convex:
        return -metric.solve(gradients)
    norms = metric.row_norms
    return np.divide(-gradients, norms, out=np.zeros_like(gradients), where=norms > 0)


def alike(problems: Sequence[QuadraticProblem]) -> Iterator[tuple[NDArray[np.intp], Problems]]:
    """Groups of problems with a common metric and number of bits, each with its positions in the sequence.

    What is done to one problem of a group can be done to all of them at once.
    """
    if isinstance(problems, Problems):
        if problems.is_alike:
            yield np.arange(len(problems)), problems
            return
        of_metric: dict[Metric, list[int]] = {}
        for position, metric in enumerate(problems.metrics):
            of_metric.setdefault(metric, []).append(position)
        for metric, found in of_metric.items():
            yield np.array(found), Problems((metric,), problems.gradients[found], problems.ranges[found], problems.bits)
        return
    groups: dict[tuple[Metric, int], list[int]] = {}
    for position, problem in enumerate(problems):
        groups.setdefault((problem.metric, problem.encoding.bits), []).append(position)
    for (metric, bits), positions in groups.items():
        group = [problems[position] for position in positions]
        gradients = np.array([problem.gradient for problem in group])
        ranges = np.array([problem.encoding.range for problem in group], dtype=float)
        yield np.array(positions), Problems((metric,), gradients, ranges, bits)
