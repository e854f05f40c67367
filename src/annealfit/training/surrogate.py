"""From a point to problems, and from answers to updates: curvature and coordinates at work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.errors import InvalidInputError
from annealfit.problems.coordinates import Coordinates, LazyCurvature
from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import Problems
from annealfit.samplers.protocol import Samples
from annealfit.training.objectives import Objective, Point
from annealfit.training.state import Anchor

# A curvature of anybody's: asked once for an objective, it answers for every point. Arrays will do for metrics.
CurvatureFunction = Callable[[Any], Callable[[Any], Sequence[Curvature | LazyCurvature | ArrayLike]]]

REFRESH_FACTOR = 2.0  # metrics serve until what the curvature measures a point by has changed by this factor


def _is_about(measured: float, then: float) -> bool:
    return measured == then or then / REFRESH_FACTOR < measured < then * REFRESH_FACTOR


class Surrogate:
    """The quadratic that stands for an objective near a point, in some coordinates. Made once per training."""

    def __init__(
        self,
        objective: Objective,
        curvature: CurvatureFunction,
        coordinates: Coordinates,
        thin: tuple[int, int] | None = None,
    ) -> None:
        """`thin` is the most couplings that a problem may have, and the bits of its parameters."""
        self._objective = objective
        self._metrics_at = curvature(objective)
        if not callable(self._metrics_at):
            raise InvalidInputError(
                f"the curvature returned {self._metrics_at!r} for the objective; expected a function of the point"
            )
        self._measure: Callable[[Any], float] | None = getattr(self._metrics_at, "measure", None)
        self._coordinates = coordinates.adapted(objective)
        self._thin = thin
        self._pulled: dict[Any, Curvature] = {}  # of the last point: a metric that does not change is pulled once
        self._metrics: tuple[Curvature, ...] = ()
        self._source: Point | Anchor | None = None  # what they were worked out at

    def follow(self, point: Point, anchor: Anchor | None) -> Anchor | None:
        """Have the metrics for the point at hand; returns the anchor to keep.

        Curvatures of a curvature with a measure serve for a while. The weights at which they were worked out last are
        their anchor: a training that is resumed finds them again, to the last bit.
        """
        if self._measure is None:
            if self._source is not point:
                self._work_out(point, point)
            return None
        measured = float(self._measure(point))
        if anchor is None or not _is_about(measured, anchor.measure):
            if isinstance(self._source, Anchor) and self._source.weights is point.weights:
                return self._source
            anchor = Anchor(point.weights, measured)
            self._work_out(point, anchor)
        elif self._source is not anchor:
            self._work_out(self._objective.at(anchor.weights), anchor)
        return anchor

    def problems(self, point: Point, ranges: NDArray[np.float64], bits: int, damping: float | None = None) -> Problems:
        """The problems of an iteration that starts at a point that was followed; a single range is every problem's."""
        gradients, metrics = self._gradients(point), self._metrics
        if len(metrics) not in (1, len(gradients)):
            raise InvalidInputError(
                f"the curvature gave {len(metrics)} metrics for {len(gradients)} problems; give one, or one for each"
            )
        widths = np.full(len(gradients), ranges[0]) if len(ranges) == 1 else ranges
        used = metrics if damping is None else tuple(metric.damped(damping) for metric in metrics)
        return Problems(used, gradients, widths, bits)

    def _work_out(self, point: Point, source: Point | Anchor) -> None:
        found = self._metrics_at(point)
        if not isinstance(found, Sequence) or not found:
            raise InvalidInputError(f"the curvature gave {found!r} at a point; expected a list of metrics or arrays")
        given = [_as_metric(metric) for metric in found]
        _check_sizes(given, *point.gradients.shape)
        self._pulled = {metric: self._pulled.get(metric) or self._pull(metric) for metric in given}
        self._metrics, self._source = tuple(self._pulled[metric] for metric in given), source

    def _pull(self, metric: Curvature | LazyCurvature) -> Curvature:
        if isinstance(metric, Curvature):
            pulled = self._coordinates.pull_curvature(metric)
        else:
            pulled = metric.in_coordinates(self._coordinates)
        return pulled if self._thin is None else pulled.thinned(*self._thin)

    def updates(
        self, problems: Problems, answers: Sequence[Samples], solved: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The proposed updates (P, D) and their energies (P,): nothing and 0 where the solve failed.

        The energies are computed here and not the sampler's: the guarantee of descent rests on them.
        """
        if solved.all():
            chosen = problems.decode(np.array([answer.best_bits for answer in answers]))
        else:
            chosen = np.zeros(problems.gradients.shape)
            if solved.any():
                bits = np.stack([answer.best_bits for answer in answers if answer.failure is None])
                chosen[solved] = problems.take(np.flatnonzero(solved)).decode(bits)
        return self._coordinates.push(chosen), problems.energies(chosen)

    def _gradients(self, point: Point) -> NDArray[np.float64]:
        if not np.isfinite(point.gradients).all():
            raise InvalidInputError(
                "the gradient overflowed: features or weights are too large; "
                "standardise the features (StandardScaler), or lower update_range"
            )
        return self._coordinates.pull_gradients(point.gradients.reshape(-1, self._metrics[0].size))


def _as_metric(given: Curvature | LazyCurvature | ArrayLike) -> Curvature | LazyCurvature:
    if isinstance(given, Curvature) or hasattr(given, "in_coordinates"):
        return cast(Curvature | LazyCurvature, given)
    return Curvature(given)


def _check_sizes(metrics: Sequence[Curvature | LazyCurvature], blocks: int, size: int) -> None:
    for metric in metrics:
        if metric.size not in (size, blocks * size):
            raise InvalidInputError(
                f"the curvature is for {metric.size} parameters, and there are {blocks} blocks of {size} "
                "(a head's: one per output, of the features and the bias); make it for one block, or for all"
            )
