"""Messages of a training: progress while it runs, warnings when it ends early, a word while code is compiled."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from annealfit.training import HistoryRow, Iteration, TrainingResult
from annealfit.training.trainer import Callback

if TYPE_CHECKING:
    from annealfit.models.base import AnnealedEstimator

# Ends of a training by something else than its stopping rules.
CUT_SHORT = {
    "interrupted": "was interrupted",
    "budget": "used up the sampler's budget",
    "sampler": "ended because the sampler solved nothing any more",
}

_SECONDS_BETWEEN_LINES = 1.0


@contextmanager
def narrating(verbose: int, max_iter: int) -> Iterator[list[Callback]]:
    """Yield the callback that writes a line about once per second, or at `verbose` 2 for every iteration.

    The line of the last iteration is written however the training ends.
    """
    last, unwritten = time.monotonic(), ""

    def on_iteration(iteration: Iteration) -> None:
        nonlocal last, unwritten
        row = iteration.row
        where = f"  {row['layer']}" if "layer" in row else ""
        validation = f"  validation {row['validation_accuracy']:.1%}" if "validation_accuracy" in row else ""
        unwritten = (
            f"iteration {row['iteration']}/{max_iter}{where}  loss {row['loss']:.6g}  "
            f"accuracy {row['accuracy']:.1%}{validation}\n"
        )
        if verbose >= 2 or time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            sys.stdout.write(unwritten)
            last, unwritten = time.monotonic(), ""

    try:
        yield [on_iteration] if verbose else []
    finally:
        sys.stdout.write(unwritten)


def warn_of_end(estimator: AnnealedEstimator, result: TrainingResult, loss: float) -> None:
    """Warn if the training did not converge, was cut short, or lacked answers of the sampler."""
    gap, reason, done = estimator.optimality_gap_, result.stop_reason, result.state.iteration
    tol = estimator.tol
    if reason in ("max_iter", "plateau", "time_limit") and 0 < tol * loss < gap < np.inf:
        warnings.warn(
            f"after {done} iterations (ended by {reason}) the loss {loss:.6g} is only certified to be within "
            f"{gap:.2g} of the optimum (tol asks for {tol * loss:.2g}); standardise the "
            "features (StandardScaler), raise max_iter, or raise tol",
            ConvergenceWarning,
            stacklevel=4,
        )
    if reason in ("budget", "sampler"):
        warnings.warn(
            f"training {CUT_SHORT[reason]} after {done} of {estimator.max_iter} iterations; "
            "the classifier holds the weights that were reached",
            stacklevel=4,
        )
    warn_of_failures(result.history)


def warn_of_failures(history: Sequence[HistoryRow]) -> None:
    """Warn of iterations in which problems were not solved."""
    unsolved = [row for row in history if row["failures"]]
    if unsolved:
        warnings.warn(
            f"in {len(unsolved)} of {len(history)} iterations the sampler failed to solve some problems, whose "
            f"weights then stayed as they were (history_, column failures; the last: {unsolved[-1]['failures']})",
            stacklevel=5,
        )


@cache
def load_compiled_code() -> None:
    """Load the compiled code of a default fit before any clock runs: importing a module of kernels does."""
    for module in ("problems._kernels", "data.rows._kernels"):
        import_module(f"annealfit.{module}")
