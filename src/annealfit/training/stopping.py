"""When to stop, and the reason that is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.surrogate import Evaluation, TrainingSet, loss_lower_bound

# A device that answers nothing for so many iterations, each with the sampler's own retries, is not coming back soon.
UNSOLVED_ITERATIONS = 5
PLATEAU = 1e-9  # a smaller relative gain than this in `patience` iterations is none


@dataclass(frozen=True)
class Stopping:
    """Budgets and tolerances; None or 0 switches one off.

    tol: certified distance to the optimum, relative to the loss. patience: iterations without a gain.
    time_limit: seconds.
    """

    max_iter: int
    tol: float = 0.0
    patience: int | None = None
    time_limit: float | None = None

    def before_iteration(
        self,
        iteration: int,
        data: TrainingSet,
        weights: NDArray[np.float64],
        evaluation: Evaluation,
        gradients: NDArray[np.float64],
    ) -> str | None:
        """The reason not to begin another iteration after `iteration` of them, if there is one."""
        if iteration >= self.max_iter:
            return "max_iter"
        if iteration == 0 or self.tol <= 0 or data.regularization <= 0:
            return None
        allowed = self.tol * evaluation.loss
        # ‖∇f‖²/(2λ) bounds the distance where the biases are at their best. It is at hand, so it is asked first;
        # the certificate, which needs another look at the data, has the last word.
        estimate = float((gradients[:, :-1] ** 2).sum()) / (2 * data.regularization)
        if estimate <= allowed and evaluation.loss - loss_lower_bound(data, weights) <= allowed:
            return "tolerance"
        return None

    def after_iteration(self, history: list[dict[str, Any]]) -> str | None:
        """The reason to stop after the history's last row, if there is one."""
        last = history[-1]
        if self.time_limit is not None and last["seconds"] >= self.time_limit:
            return "time_limit"
        if len(history) >= UNSOLVED_ITERATIONS and not any(row["solved"] for row in history[-UNSOLVED_ITERATIONS:]):
            return "sampler"
        # Looked at once in `patience` iterations: at every one, a long training would mostly look back.
        if self.patience is not None and len(history) > self.patience and len(history) % self.patience == 0:
            solved = [row["loss"] for row in history if row["solved"]]  # an outage is no plateau
            if len(solved) > self.patience and min(solved[-self.patience :]) > min(solved[: -self.patience]) * (
                1 - PLATEAU
            ):
                return "plateau"
        return None
