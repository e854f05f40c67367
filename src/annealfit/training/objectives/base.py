"""What training asks of an objective: nothing about rows, classes or layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import SideBySide


class Span(Protocol):
    """The points that a line search, or one in several directions, chooses from.

    Every block has a multiple of its own in each of the m directions: multiples are arrays (m, blocks). A span may
    have `at_without_class_mean` beside `at`: the point there without the mean over blocks, where that changes only
    the penalty.
    """

    directions: NDArray[np.float64]  # (m, blocks, parameters of a block)

    def curvature_along(self) -> NDArray[np.float64]:
        """The second derivatives of the loss in the multiples, (m·blocks, m·blocks).

        Where there are very many blocks, groups of neighbours may share their multiples: (m·groups, m·groups), the
        groups as `group_starts` makes them.
        """

    def at(self, multiples: NDArray[np.float64]) -> Point:
        """The point that these multiples lead to."""


def group_starts(blocks: int, groups: int) -> NDArray[np.intp]:
    """The first block of each of so many groups of neighbours, as equal as can be.

    >>> group_starts(5, 2).tolist(), group_starts(3, 3).tolist()
    ([0, 2], [0, 1, 2])
    """
    return np.arange(groups) * blocks // groups


class Point(Protocol):
    """An objective at some weights.

    Its parameters come in blocks of one size, one per output of a layer; gradients and updates are arrays (blocks,
    parameters of a block) in the same order.
    """

    weights: NDArray[np.float64]  # of whatever shape the objective gives them
    loss: float  # what training minimises

    @property
    def gradients(self) -> NDArray[np.float64]:
        """The gradient of the loss, block by block."""

    def span(self, updates: NDArray[np.float64], previous: Any = None) -> Span:
        """Where multiples of an update of all blocks lead, and of the step from a previous point to this one."""

    def moved(self, updates: NDArray[np.float64]) -> Point:
        """The point that an update of all blocks leads to."""

    def is_within(self, gap: float) -> bool:
        """Whether the loss is certified to be at most `gap` above its least value."""

    def lower_bound(self) -> float:
        """A number no larger than the least loss; −∞ where there is no such certificate."""

    def cached_outputs(self) -> NDArray[np.float64] | SideBySide | None:
        """What a point knows from its way here and would not find again to the last bit; None if nothing."""

    def figures(self) -> Mapping[str, float]:
        """What the history says of the point: `loss` first, and whatever else its readers want to see."""


class PlainPoint:
    """A base for points of your own, which have `span` and `cached_outputs` from it.

    What it needs are `weights`, `gradients`, `moved` and `bends(directions)`: the second derivatives of the loss in
    the multiples of directions (m, blocks, parameters of a block), as in `Span.curvature_along`.
    """

    def span(self: Any, updates: NDArray[np.float64], previous: Any = None) -> PlainSpan:
        """A span that asks the point itself."""
        steps = [] if previous is None else [(self.weights - previous.weights).reshape(updates.shape)]
        return PlainSpan(self, np.stack([updates, *steps]))

    def cached_outputs(self) -> None:
        """Nothing."""
        return None


@dataclass(frozen=True, eq=False)
class PlainSpan:
    """A span that asks the point, every time."""

    point: Any
    directions: NDArray[np.float64]

    def curvature_along(self) -> NDArray[np.float64]:
        """The point's."""
        return self.point.curvature_along(self.directions)

    def at(self, multiples: NDArray[np.float64]) -> Point:
        """The point, moved."""
        return self.point.moved((multiples[..., None] * self.directions).sum(axis=0))


class Objective(Protocol):
    """A loss, and how heavy a look at it is."""

    @property
    def multiplications(self) -> float:
        """Of the largest matrix product that a look at a point takes: decides how many threads are worth it."""

    def at(self, weights: NDArray[np.float64], /) -> Point:
        """The point of these weights; with what a point of them cached_outputs as a second argument, if points do."""


ONLY = ""  # the name of the part of an objective that has but one


class Turns(Protocol):
    """An objective whose parameters come in parts that are trained in turn, as the layers of a network are.

    A point of it shows one part: its blocks, gradients and spans, while the other parts stay as they are. The loss is
    the same whichever part is shown.
    """

    @property
    def multiplications(self) -> float:
        """As an objective's."""

    @property
    def parts(self) -> Sequence[str]:
        """The names of the parts, each once."""

    def turn(self, iteration: int) -> str:
        """The part that the iteration, counted from 0, is about."""

    def columns(self, iteration: int) -> Mapping[str, Any]:
        """What the iteration's row of the history says about whose turn it was."""

    def at(self, part: str, weights: Mapping[str, NDArray[np.float64]], cached_outputs: Any = None) -> Point:
        """The point of the weights of all parts, one of which it shows."""

    def turned(self, point: Point, part: str, iteration: int) -> Point:
        """The same weights, with the part shown whose turn it is in the iteration."""

    def objective(self, point: Point) -> Any:
        """The objective that is left while only the part that the point shows may change: a curvature is asked for it.

        The same object as long as the other parts stay as they are.
        """

    def earlier(self, part: str, previous: Any, point: Point | None) -> Any:
        """What a span is told of the point that the part was at before its last step.

        `previous` has its `weights` and what it `cached_outputs`; `point` is the point itself, if available.
        """


class OneTurn:
    """An objective that is all of one part."""

    parts: tuple[str, ...] = (ONLY,)

    def __init__(self, objective: Objective) -> None:
        self._objective = objective

    @property
    def multiplications(self) -> float:
        """The objective's."""
        return self._objective.multiplications

    def turn(self, iteration: int) -> str:
        """The only one."""
        return ONLY

    def columns(self, iteration: int) -> dict[str, Any]:
        """Nothing."""
        return {}

    def at(self, part: str, weights: Mapping[str, NDArray[np.float64]], cached_outputs: Any = None) -> Point:
        """The objective's point."""
        at: Any = self._objective.at
        return at(weights[part]) if cached_outputs is None else at(weights[part], cached_outputs)

    def turned(self, point: Point, part: str, iteration: int) -> Point:
        """The point."""
        return point

    def objective(self, point: Point) -> Objective:
        """The objective."""
        return self._objective

    def earlier(self, part: str, previous: Any, point: Point | None) -> Point:
        """The point, which knows more than its weights."""
        return self.at(part, {part: previous.weights}, previous.cached_outputs) if point is None else point


def in_turns(objective: Any) -> Turns:
    """Any objective as one that is trained in turns."""
    return objective if hasattr(objective, "turned") else OneTurn(objective)
