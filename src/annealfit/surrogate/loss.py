"""The regularised softmax cross-entropy, its gradient from the residuals, and the accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from annealfit.surrogate.gram import augment, gram, ridge


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """What stays fixed while a head is trained: augmented features, labels, λ, and what follows from them."""

    features: NDArray[np.float64]  # X, (N, D), last column ones
    labels: NDArray[np.intp]  # (N,), whole numbers below n_classes
    n_classes: int
    regularization: float
    gram: NDArray[np.float64]  # G, (D, D)
    ridge: NDArray[np.float64]  # the diagonal of Λ, (D,)

    @classmethod
    def build(
        cls, features: NDArray[np.float64], labels: NDArray[np.intp], n_classes: int, regularization: float
    ) -> TrainingSet:
        """Augment the features and compute their Gram matrix."""
        augmented = augment(features)
        return cls(
            augmented,
            labels,
            n_classes,
            float(regularization),
            gram(augmented),
            ridge(augmented.shape[1], regularization),
        )

    @cached_property
    def samples(self) -> NDArray[np.intp]:
        """The numbers of the samples, to pick each one's own class from an array of shape (C, N)."""
        return np.arange(len(self.labels))

    @property
    def n_parameters(self) -> int:
        """Parameters of one output, `D = d + 1`."""
        return self.features.shape[1]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The model at one set of weights."""

    probabilities: NDArray[np.float64]  # Πᵀ, (C, N): class by class, as everything below is computed
    cross_entropy: float
    penalty: float  # ½ Σ_c w_cᵀΛw_c
    accuracy: float

    @property
    def loss(self) -> float:
        """The regularised loss, which is what training minimises."""
        return self.cross_entropy + self.penalty


def softmax(logits: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Softmax over the first axis and log of the normaliser, neither of which overflows at large logits.

    >>> probabilities, log_normaliser = softmax(np.array([[1000.0], [1000.0]]))
    >>> probabilities.tolist(), log_normaliser.round(3).tolist()
    ([[0.5], [0.5]], [1000.693])
    """
    largest = logits.max(axis=0)
    probabilities = np.exp(logits - largest)
    total = probabilities.sum(axis=0)
    probabilities /= total
    return probabilities, np.log(total) + largest


def evaluate(data: TrainingSet, weights: NDArray[np.float64]) -> Evaluation:
    """Probabilities, loss and accuracy at `weights` of shape (D, C)."""
    logits = weights.T @ data.features.T  # (C, N): reductions over classes run along contiguous samples
    probabilities, log_normaliser = softmax(logits)
    of_true_class = logits[data.labels, data.samples]
    return Evaluation(
        probabilities=probabilities,
        cross_entropy=float(np.mean(log_normaliser - of_true_class)),
        penalty=float(0.5 * (data.ridge @ weights**2).sum()),
        accuracy=float(np.mean(logits.argmax(axis=0) == data.labels)),
    )


def newton_multiple(
    data: TrainingSet,
    gradients: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    weights: NDArray[np.float64],
    direction: NDArray[np.float64],
) -> float:
    """`−f′(0)/f″(0)` of the loss along `weights + t·direction`, (D, C) each; 0 where it does not fall.

    The second derivative is the mean over samples of the variance of the logits' change under the sample's
    probabilities, and that of the penalty.
    """
    slope = float((gradients.T * direction).sum())
    change = direction.T @ data.features.T
    weighted = probabilities * change
    mean = weighted.sum(axis=0)
    bend = (np.vdot(weighted, change) - mean @ mean) / len(data.labels) + float((data.ridge @ direction**2).sum())
    return -slope / bend if slope < 0 < bend else 0.0


def gradient(
    data: TrainingSet, weights: NDArray[np.float64], probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """`g_c = Xᵀ(π_c − y_c)/N + Λw_c` as the rows of an array of shape (C, D)."""
    residuals = probabilities.copy()
    residuals[data.labels, data.samples] -= 1.0
    return residuals @ data.features / len(data.labels) + weights.T * data.ridge
