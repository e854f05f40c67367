"""When to stop, and the reason that is recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from annealfit.training.history import HistoryRow
from annealfit.training.objectives import Point
from annealfit.training.state import TrainingState

# A device that answers nothing for so many iterations, each with the sampler's own retries, is not coming back soon.
UNSOLVED_ITERATIONS = 5
PLATEAU = 1e-9  # a smaller relative gain than this in `patience` iterations is none


STALL_FRACTION = 0.25  # of the gap: where the loss falls by more at an iteration, it has not arrived
CHECK_GROWTH = 1.2  # from one longer look for a certificate to the next, iterations grow by this factor


def _is_now_and_then(iteration: int) -> bool:
    """Whether it is one of a growing series: so all longer looks together are no more than a share of the training.

    >>> [iteration for iteration in range(2, 40) if _is_now_and_then(iteration)]
    [2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 19, 23, 27, 32, 39]
    """
    return iteration > 1 and int(math.log(iteration, CHECK_GROWTH)) > int(math.log(iteration - 1, CHECK_GROWTH))


@dataclass(frozen=True)
class Stopping:
    """Budgets and tolerances; None or 0 switches one off.

    tol: certified distance to the optimum, relative to the loss. patience: iterations without a gain, of the loss
    or, with `on_validation`, on the validation data. time_limit: seconds.
    """

    max_iter: int
    tol: float = 0.0
    patience: int | None = None
    time_limit: float | None = None
    on_validation: bool = False

    def before_iteration(self, iteration: int, point: Point, history: Sequence[HistoryRow]) -> str | None:
        """The reason not to begin another iteration after `iteration` of them, if there is one."""
        is_last = iteration >= self.max_iter
        if iteration > 0 and self.tol > 0 and self._has_arrived(point, history, is_last=is_last):
            return "tolerance"
        return "max_iter" if is_last else None

    def _has_arrived(self, point: Point, history: Sequence[HistoryRow], *, is_last: bool) -> bool:
        """Whether the tolerance is certified: at a glance; or now and then, where the loss hardly falls, at length."""
        gap = self.tol * point.loss
        if point.is_within(gap):
            return True
        look_closer = getattr(point, "is_proven_within", None)
        if look_closer is None or -history[-1]["loss_change"] > STALL_FRACTION * gap:
            return False
        return (is_last or _is_now_and_then(len(history))) and bool(look_closer(gap))

    def after_iteration(self, state: TrainingState, history: Sequence[HistoryRow]) -> str | None:
        """The reason to stop after the history's last row, if there is one."""
        if len(history) >= UNSOLVED_ITERATIONS and not any(row["solved"] for row in history[-UNSOLVED_ITERATIONS:]):
            return "sampler"
        return self.before_resuming(state, history)

    def before_resuming(self, state: TrainingState, history: Sequence[HistoryRow]) -> str | None:
        """The reason not to go on with a training that has this history: it ended there, and would end elsewhere.

        A sampler that gave no answers is no such reason: it may be back.
        """
        if not history:
            return None
        if self.time_limit is not None and history[-1]["seconds"] >= self.time_limit:
            return "time_limit"
        if self.patience is None:
            return None
        if self.on_validation and state.best is not None:
            return "validation" if state.iteration - state.best.iteration >= self.patience else None
        return "plateau" if self._is_plateau(history, self.patience) else None

    def _is_plateau(self, history: Sequence[HistoryRow], patience: int) -> bool:
        # Looked at once in `patience` iterations: at every one, a long training would mostly look back.
        if len(history) <= patience or len(history) % patience:
            return False
        losses = [row["loss"] for row in history if row["solved"]]  # an outage is no plateau
        return len(losses) > patience and min(losses[-patience:]) > min(losses[:-patience]) * (1 - PLATEAU)
