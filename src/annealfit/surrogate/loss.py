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


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax over the first axis, which does not overflow at large logits.

    >>> softmax(np.array([[1000.0], [1000.0]])).tolist()
    [[0.5], [0.5]]
    """
    return _normalise(logits, logits.max(axis=0))[0]


def _normalise(
    logits: NDArray[np.float64], largest: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The softmax, and the logarithm of its normaliser."""
    probabilities = np.exp(logits - largest)
    total = probabilities.sum(axis=0)
    probabilities /= total
    return probabilities, np.log(total) + largest


def evaluate(data: TrainingSet, weights: NDArray[np.float64]) -> Evaluation:
    """Probabilities, loss and accuracy at `weights` of shape (D, C)."""
    logits = weights.T @ data.features.T  # (C, N): reductions over classes run along contiguous samples
    largest = logits.max(axis=0)
    probabilities, log_normaliser = _normalise(logits, largest)
    of_true_class = logits[data.labels, data.samples]
    return Evaluation(
        probabilities=probabilities,
        cross_entropy=float((log_normaliser - of_true_class).sum()) / len(data.labels),
        penalty=float(0.5 * (data.ridge @ weights**2).sum()),
        accuracy=_count_right(logits, largest, of_true_class, data.labels) / len(data.labels),
    )


def _count_right(
    logits: NDArray[np.float64],
    largest: NDArray[np.float64],
    of_true_class: NDArray[np.float64],
    labels: NDArray[np.intp],
) -> int:
    """How many samples' first largest logit is their label's: what argmax says, at a third of its time."""
    if np.count_nonzero(logits == largest) == len(labels):  # no ties, so the largest is the first largest
        return int(np.count_nonzero(of_true_class == largest))
    return int(np.count_nonzero(logits.argmax(axis=0) == labels))


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
