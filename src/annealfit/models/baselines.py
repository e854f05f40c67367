"""Classical competitors: the paper's SGD and the convex optimum on the same features, Adam on the same network."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from annealfit._support.arrays import Array
from annealfit._support.errors import check_number
from annealfit._support.threads import blas_threads, in_order
from annealfit.data.rows import is_out_of_core
from annealfit.training.objectives import ConvNet, LinearHead
from annealfit.training.objectives.conv_net import HEAD, layer_name
from annealfit.training.state import HistoryRow

# The paper does not give its learning rate. Over seeds 42–46 of digits, full-batch descent for 1000 steps
# at this rate ends within 3 points of the paper's classical row (82.2 / 79.8 %); see docs/reproduce.md.
SGD_RATE = 0.3


# On digits 0.02 and 0.03 end about equally low, 0.003 and 0.01 higher: docs/convolution.md.
ADAM_RATE = 0.02
_MEANS = (0.9, 0.999)  # how much of their past Adam's means of gradients and of their squares keep
_IMAGES_AT_ONCE = 64  # a unit of work of a thread


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a training reached; seconds are those of the training alone, without loading or compiling."""

    weights: Any  # (D, outputs) with the bias in the last row, or a mapping of those of a network
    history: Sequence[Mapping[str, Any]]  # a row per step; empty for a method without steps
    seconds: float
    regularization: float
    stop_reason: str = ""
    features: Any = None  # of a network, as its training left them
    filter_penalty: float = 0.0  # ½λΣ‖filters‖² of the layers that the network trains, a part of its loss


def train_sgd(
    head: LinearHead,
    initial_weights: NDArray[np.float64],
    *,
    rate: float = SGD_RATE,
    steps: int = 1000,
) -> Fitted:
    """Gradient descent over the full batch, the paper's classical baseline: `W ← W − rate·∇f(W)`."""
    check_number("the learning rate", rate, above=0)
    started = time.perf_counter()
    history: list[HistoryRow] = []
    with blas_threads(head.multiplications):
        point = head.at(initial_weights)
        for step in range(1, steps + 1):
            point = head.at(point.weights - rate * point.gradients.T)
            row = {"iteration": step, **point.figures(), "seconds": time.perf_counter() - started}
            history.append(cast(HistoryRow, row))
    return Fitted(point.weights, history, time.perf_counter() - started, head.regularization)


def solve_logistic(X: Any, y: ArrayLike, regularization: float) -> Fitted:
    """The optimum of the same loss, by scikit-learn's `LogisticRegression(C = 1/(λN))`; a table is read whole."""
    check_number("regularization", regularization, above=0, remedy="at 0 there may be no finite optimum")
    started = time.perf_counter()
    # tol far below the default: this row is the yardstick of "how far from done".
    model = LogisticRegression(C=1 / (regularization * np.shape(X)[0]), solver="newton-cg", tol=1e-8, max_iter=1000)
    with blas_threads(float(np.prod(np.shape(X)))):
        model.fit(X[:] if is_out_of_core(X) else X, y)
    weights = np.vstack([model.coef_.T, model.intercept_])
    return Fitted(weights, [], time.perf_counter() - started, regularization)


def train_adam(
    net: ConvNet,
    initial_weights: Mapping[str, Array],
    *,
    rate: float = ADAM_RATE,
    epochs: int = 100,
    batch_size: int = 50,
    seed: int = 0,
    on_epoch: Callable[[HistoryRow], Any] | None = None,
) -> Fitted:
    """Adam (Kingma and Ba 2015) on the loss of a network, all its parts at once, from the given weights.

    The rate falls linearly to zero at the end of the last epoch. `seconds` exclude the evaluation of the loss on all
    images. `on_epoch` is called with every row; a true return value ends the training.
    """
    check_number("the learning rate", rate, above=0)
    weights = {name: np.array(own) for name, own in initial_weights.items()}
    means = {name: np.zeros((2, *own.shape)) for name, own in weights.items()}
    generator, step, seconds = np.random.default_rng(seed), 0, 0.0
    steps = epochs * -(-len(net.images) // batch_size)
    history: list[HistoryRow] = []
    for epoch in range(1, epochs + 1):
        started = time.perf_counter()
        order = generator.permutation(len(net.images))
        for first in range(0, len(order), batch_size):
            step, now = step + 1, rate * (1 - step / steps)
            gradients = _batch_gradients(net, weights, order[first : first + batch_size])
            for name, gradient in gradients.items():
                for mean, power, keep in zip(means[name], (1, 2), _MEANS, strict=True):
                    mean *= keep
                    mean += (1 - keep) * gradient**power
                corrected = [mean / (1 - keep**step) for mean, keep in zip(means[name], _MEANS, strict=True)]
                weights[name] = weights[name] - now * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)
        seconds += time.perf_counter() - started
        figures = net.at(weights).figures()
        row = cast(HistoryRow, {"iteration": epoch, **figures, "seconds": seconds})
        history.append(row)
        if on_epoch is not None and on_epoch(row):
            break
    return Fitted(weights, history, seconds, net.regularization)


def _batch_gradients(net: ConvNet, weights: Mapping[str, Array], positions: NDArray[np.intp]) -> dict[str, Array]:
    """The gradient of the loss on some of the images, for every part."""
    filters, images, order = net.filters_of(weights), net.images, net.network.order
    head = weights[HEAD][order].astype(images.dtype)
    mean_weight = 1.0 if images.weights is None else float(images.weights.mean())

    def of_group(group: NDArray[np.intp]) -> list[Array]:
        known, labels = net.network.forward(images.take(group), filters), images.labels[group]
        outputs = (known.features @ head).T.astype(np.float64)
        residuals = net.link.residuals(net.link.evaluate(outputs, labels)[0], labels)
        if images.weights is not None:
            residuals = residuals * (images.weights[group] / mean_weight)
        by_outputs = residuals.T.astype(images.dtype)
        of_filters = net.network.gradients(known, filters, net.trained, by_outputs @ head[:-1].T)
        return [*of_filters, (known.features.T @ by_outputs).astype(np.float64)]

    groups = [positions[first : first + _IMAGES_AT_ONCE] for first in range(0, len(positions), _IMAGES_AT_ONCE)]
    *of_filters, of_head = (sum(found) / len(positions) for found in zip(*in_order(of_group, groups), strict=True))
    gradients = {layer_name(layer): own for layer, own in zip(net.trained, of_filters, strict=True)}
    gradients[HEAD] = np.empty_like(of_head)
    gradients[HEAD][order] = of_head
    for name, gradient in gradients.items():
        regularised = gradient[:-1] if name == HEAD else gradient[:, :-1]
        regularised += net.regularization * (weights[name][:-1] if name == HEAD else weights[name][:, :-1])
    return gradients
