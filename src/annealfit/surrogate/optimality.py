"""How far from the optimum: a rigorous bound on what any weights could still gain.

For probabilities `P` with the same class totals as the labels, `Σ_n p_nc = Σ_n y_nc`, Fenchel's inequality
`log Σ exp(z) ≥ pᵀz + H(p)` and minimisation over the weights give, for all W and biases,

    f(W) ≥ (1/N) Σ_n H(p_n) − ‖X̃ᵀ(P − Y)/N‖² / (2λ),

with H the entropy and X̃ the features without the column of ones. At the optimum P are its own probabilities and
the two sides meet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from annealfit.surrogate.loss import TrainingSet, softmax

_BALANCING_STEPS = 100


def loss_lower_bound(data: TrainingSet, weights: NDArray[np.float64]) -> float:
    """A number no larger than the least regularised loss, tight if `weights` (D, C) are near the optimum.

    −∞ where there is no penalty (λ = 0).
    """
    if data.regularization <= 0:
        return -np.inf
    n_samples = len(data.labels)
    totals = np.bincount(data.labels, minlength=data.n_classes).astype(float)
    logits = weights.T @ data.features.T
    probabilities = softmax(logits)
    # The biases that give every class its share, by proportional fitting: each step multiplies a class's odds.
    for _ in range(_BALANCING_STEPS):
        sums = probabilities.sum(axis=1)
        if np.abs(sums - totals).max() <= 1e-8 * n_samples:
            break
        with np.errstate(divide="ignore"):  # a class without members gets the odds 0
            logits += (np.log(totals) - np.log(np.maximum(sums, np.finfo(float).tiny)))[:, None]
        probabilities = softmax(logits)
    # What is left of the imbalance is spread evenly, and what that makes negative is mended by mixing in the
    # totals themselves; rows still sum to 1 and columns to the totals.
    probabilities += ((totals - probabilities.sum(axis=1)) / n_samples)[:, None]
    shares = np.broadcast_to((totals / n_samples)[:, None], probabilities.shape)
    negative = probabilities < 0
    if negative.any():
        lowest, share = probabilities[negative], shares[negative]
        mixing = float((-lowest / (share - lowest)).max())
        probabilities = (1 - mixing) * probabilities + mixing * shares
    probabilities = np.maximum(probabilities, 0.0)  # rounding
    entropy = float(entr(probabilities).sum()) / n_samples
    residuals = probabilities.copy()
    residuals[data.labels, data.samples] -= 1.0
    slopes = residuals @ data.features[:, :-1] / n_samples
    bound = entropy - float((slopes**2).sum()) / (2 * data.regularization)
    return bound if np.isfinite(bound) else -np.inf
