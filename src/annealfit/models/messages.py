"""Messages of a training: progress while it runs, warnings at its end. And the loading of compiled code before it."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import entr
from sklearn.exceptions import ConvergenceWarning

from annealfit.training import HistoryRow, Iteration, TrainingResult
from annealfit.training.objectives import ConvNet, LinearHead
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
_LEARNED = 0.98  # of the entropy of the classes: a training with a lower cross-entropy learned something

# Of features, whose units are told where these are passed:
_ROUNDING = 1e-12  # of the mean square: a smaller variance is that of a constant
_DENSE = 0.05  # the least (mean magnitude)² / (mean square) of a feature that is not 0 in most rows
_NARROW, _OUTWEIGHED = 1e-3, 25.0  # of the largest variance, and of λ: a variance below both is hardly used
_SMALL, _NARROW_UNIT = 100.0, 0.04  # variances together, in units of λ, of features whose own are below the latter
_WITHOUT_EFFECT = 1e-9  # of the largest variance: λ


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


def warn_of_end(estimator: AnnealedEstimator, result: TrainingResult, loss: float, objective: Any) -> None:
    """Warn if the training did not converge, depends on units, was cut short, or lacked answers of the sampler."""
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
    elif isinstance(objective, LinearHead) and (note := _note_of_units(objective)):
        warnings.warn(note, stacklevel=4)
    elif isinstance(objective, ConvNet) and _learned_nothing(objective, result.history):
        warnings.warn(
            f"the network learned nothing in {done} iterations (ended by {reason}): it answers with the shares of the "
            'classes; scale images to values from 0 to 1, or use standardize="pixels"',
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


def _learned_nothing(net: ConvNet, history: Sequence[HistoryRow]) -> bool:
    """Whether the last cross-entropy is that of the shares of the classes, or nearly."""
    shares = np.bincount(net.images.labels, net.images.weights)
    return history[-1]["cross_entropy"] > _LEARNED * float(entr(shares / shares.sum()).sum())


def _note_of_units(head: LinearHead) -> str | None:
    """Tell that units decide the result, where the penalty outweighs features, or they outweigh the penalty.

    A weight stays near 0 where its feature's variance is far below λ. Features that are 0 in most rows, as pixels at
    the edge, have small variances in any units; they are left out.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        means, squares, sizes = head.rows.columns[1][:, :-1] / head.rows.total_weight
        variances, penalty = squares - means**2, head.regularization
        varying = variances > _ROUNDING * squares
        dense = varying & (sizes**2 > _DENSE * squares)
    if not np.isfinite(squares).all() or not dense.any():
        return None
    total = float(variances[varying].sum())
    narrow = dense & (variances < np.minimum(_NARROW * variances[dense].max(), _OUTWEIGHED * penalty))
    if total < penalty or (total < _SMALL * penalty and variances[dense].mean() < _NARROW_UNIT):
        effect = "outweighs them"
    elif narrow.any():
        effect = f"keeps the weights of {narrow.sum()} of {len(narrow)} features near 0, the first is {narrow.argmax()}"
    elif 0 < penalty < _WITHOUT_EFFECT * variances.max():
        effect = "has no effect"
    else:
        return None
    low, high = np.sqrt([variances[dense].min(), variances[dense].max()])
    return (
        f"the standard deviations of features are {low:.2g} to {high:.2g}, where the penalty (regularization="
        f"{penalty:g}) {effect}; standardise the features (StandardScaler), or choose a penalty for their units"
    )


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
