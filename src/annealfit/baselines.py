"""Classical competitors on the same features: the paper's SGD, and the convex optimum."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from annealfit.errors import InvalidInputError
from annealfit.objectives import LinearHead
from annealfit.threads import blas_threads
from annealfit.training.history import HistoryRow

# The paper does not give its learning rate. Over seeds 42–46 of digits, full-batch descent for 1000 steps
# at this rate ends within 3 points of the paper's classical row (82.2 / 79.8 %); see docs/baselines.md.
SGD_RATE = 0.3


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """Weights of shape (D, outputs) with the bias in the last row, and a row per step."""

    weights: NDArray[np.float64]
    history: list[HistoryRow]
    seconds: float


def train_sgd(
    head: LinearHead,
    initial_weights: NDArray[np.float64],
    *,
    rate: float = SGD_RATE,
    steps: int = 1000,
) -> BaselineResult:
    """Gradient descent over the full batch, the paper's classical baseline: `W ← W − rate·∇f(W)`."""
    if not np.isfinite(rate) or rate <= 0:
        raise InvalidInputError(f"the learning rate is {rate!r}; it must be a finite number above 0")
    started = time.perf_counter()
    history: list[HistoryRow] = []
    with blas_threads(head.multiplications):
        point = head.at(initial_weights)
        for step in range(1, steps + 1):
            point = head.at(point.weights - rate * point.gradients.T)
            row: HistoryRow = {
                "iteration": step,
                "loss": point.loss,
                "cross_entropy": point.cross_entropy,
                "accuracy": point.accuracy,
                "seconds": time.perf_counter() - started,
            }
            history.append(row)
    return BaselineResult(point.weights, history, time.perf_counter() - started)


def solve_logistic(X: ArrayLike, y: ArrayLike, regularization: float) -> BaselineResult:
    """The optimum of the same regularised loss, by scikit-learn's `LogisticRegression(C = 1/(λN))`."""
    if regularization <= 0:
        raise InvalidInputError("logistic regression at λ = 0 may have no finite optimum; use regularization above 0")
    started = time.perf_counter()
    # tol far below the default: this row is the yardstick of "how far from done".
    model = LogisticRegression(C=1 / (regularization * np.shape(X)[0]), tol=1e-8, max_iter=10_000)
    with blas_threads(float(np.prod(np.shape(X)))):
        model.fit(X, y)
    weights = np.vstack([model.coef_.T, model.intercept_])
    return BaselineResult(weights, [], time.perf_counter() - started)
