"""Classical competitors on the same features: the paper's SGD, and the convex optimum."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from annealfit.errors import InvalidInputError
from annealfit.surrogate import TrainingSet, evaluate, gradient

# The paper does not give its learning rate. Over seeds 42–46 of digits, full-batch descent for 1000 steps
# at this rate ends within 3 points of the paper's classical row (82.2 / 79.8 %); see docs/baselines.md.
SGD_RATE = 0.3


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """Weights of shape (D, C) with the bias in the last row, and a row a step."""

    weights: NDArray[np.float64]
    history: list[dict[str, Any]]
    seconds: float


def train_sgd(
    data: TrainingSet,
    initial_weights: NDArray[np.float64],
    *,
    rate: float = SGD_RATE,
    steps: int = 1000,
) -> BaselineResult:
    """Gradient descent over the full batch, the paper's classical baseline: `W ← W − rate·∇f(W)`."""
    if not np.isfinite(rate) or rate <= 0:
        raise InvalidInputError(f"the learning rate is {rate!r}; it must be a finite number above 0")
    started = time.perf_counter()
    weights, history = initial_weights, []
    evaluation = evaluate(data, weights)
    for step in range(1, steps + 1):
        weights = weights - rate * gradient(data, weights, evaluation.probabilities).T
        evaluation = evaluate(data, weights)
        history.append(
            {
                "iteration": step,
                "loss": evaluation.loss,
                "cross_entropy": evaluation.cross_entropy,
                "accuracy": evaluation.accuracy,
                "seconds": time.perf_counter() - started,
            }
        )
    return BaselineResult(weights, history, time.perf_counter() - started)


def solve_logistic(data: TrainingSet) -> BaselineResult:
    """The optimum of the same regularised loss, by scikit-learn's `LogisticRegression(C = 1/(λN))`."""
    if data.regularization <= 0:
        raise InvalidInputError("logistic regression at λ = 0 may have no finite optimum; use regularization above 0")
    started = time.perf_counter()
    features = data.features[:, :-1]
    inverse_penalty = 1 / (data.regularization * len(features))
    if data.n_classes == 2:
        # scikit-learn's single logit z is our pair (−z/2, z/2), whose penalty is half as large.
        inverse_penalty *= 2
    # tol far below the default: this row is the yardstick of "how far from done".
    model = LogisticRegression(C=inverse_penalty, tol=1e-8, max_iter=10_000)
    model.fit(features, data.labels)
    weights = np.vstack([model.coef_.T, model.intercept_])
    if data.n_classes == 2:
        weights = np.hstack([-weights / 2, weights / 2])
    return BaselineResult(weights, [], time.perf_counter() - started)
