"""From a point to problems, and from answers to updates: curvature and coordinates at work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit.coordinates import Coordinates
from annealfit.errors import InvalidInputError
from annealfit.metric import Metric
from annealfit.objectives import Objective, Point
from annealfit.problems import Problems
from annealfit.samplers.protocol import Samples

# A curvature of anybody's: asked once for an objective, it answers for every point. Arrays will do for metrics.
AnyCurvature = Callable[[Any], Callable[[Any], Sequence[Metric | ArrayLike]]]


class Surrogate:
    """The quadratic that stands for an objective near a point, in some coordinates. Made once per training."""

    def __init__(
        self,
        objective: Objective,
        curvature: AnyCurvature,
        coordinates: Coordinates,
        thin: tuple[int, int] | None = None,
    ) -> None:
        """`thin` is the most couplings that a problem may have, and the bits of its parameters."""
        self._metrics_at = curvature(objective)
        if not callable(self._metrics_at):
            raise InvalidInputError(
                f"the curvature returned {self._metrics_at!r} for the objective; expected a function of the point"
            )
        self._coordinates = coordinates.adapted(objective)
        self._thin = thin
        self._pulled: dict[Metric, Metric] = {}  # of the last point: a metric that does not change is pulled once
        self._latest: tuple[Point | None, list[Metric]] = (None, [])

    def problems(self, point: Point, ranges: NDArray[np.float64], bits: int) -> Problems:
        """The problems of an iteration that starts at the point; a single range is every problem's."""
        metrics = self._metrics(point)
        gradients = self._gradients(point, metrics)
        if len(metrics) not in (1, len(gradients)):
            raise InvalidInputError(
                f"the curvature gave {len(metrics)} metrics for {len(gradients)} problems; give one, or one for each"
            )
        widths = np.full(len(gradients), ranges[0]) if len(ranges) == 1 else ranges
        return Problems(tuple(self._pulled[metric] for metric in metrics), gradients, widths, bits)

    def _metrics(self, point: Point) -> list[Metric]:
        """The metrics at the point; asked again for the same one, as before the first iteration, it knows them."""
        if self._latest[0] is not point:
            found = self._metrics_at(point)
            if not isinstance(found, Sequence) or not found:
                raise InvalidInputError(
                    f"the curvature gave {found!r} at a point; expected a list of metrics or arrays"
                )
            metrics = [given if isinstance(given, Metric) else Metric(given) for given in found]
            _check_sizes(metrics, *point.gradients.shape)
            self._pulled = {metric: self._pulled.get(metric) or self._pull(metric) for metric in metrics}
            self._latest = point, metrics
        return self._latest[1]

    def _pull(self, metric: Metric) -> Metric:
        pulled = self._coordinates.pull_metric(metric)
        return pulled if self._thin is None else pulled.thinned(*self._thin)

    def updates(
        self, problems: Problems, answers: Sequence[Samples], solved: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The proposed updates (P, D) and their energies (P,): nothing and 0 where the solve failed.

        The energies are computed here and not the sampler's: the guarantee of descent rests on them.
        """
        if solved.all():
            chosen = problems.decode(np.stack([answer.best_bits for answer in answers]))
        else:
            chosen = np.zeros(problems.gradients.shape)
            if solved.any():
                bits = np.stack([answer.best_bits for answer in answers if answer.failure is None])
                chosen[solved] = problems.take(np.flatnonzero(solved)).decode(bits)
        return self._coordinates.push(chosen), problems.energies(chosen)

    def _gradients(self, point: Point, metrics: Sequence[Metric]) -> NDArray[np.float64]:
        if not np.isfinite(point.gradients).all():
            raise InvalidInputError(
                "the gradient overflowed: features or weights are too large; "
                "standardise the features (StandardScaler), or lower update_range"
            )
        return self._coordinates.pull_gradients(point.gradients.reshape(-1, metrics[0].size))


def _check_sizes(metrics: Sequence[Metric], blocks: int, size: int) -> None:
    for metric in metrics:
        if metric.size not in (size, blocks * size):
            raise InvalidInputError(
                f"the curvature is for {metric.size} parameters, and there are {blocks} blocks of {size} "
                "(a head's: one per output, of the features and the bias); make it for one block, or for all"
            )
