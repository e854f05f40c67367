"""Algorithm 1 of the paper (Atallah and Herrman, arXiv 2603.02958), as printed, with its equation numbers.

This module is the reference: `AnnealedClassifier.from_paper` gives the same weights, bit for bit, for three classes and
more. (For two classes the estimator trains one output; Algorithm 1 trains two.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.randomness import child_seed
from annealfit.problems.curvature import Curvature
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers.native.annealer import SimulatedAnnealer


def train(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    bits: int,
    iterations: int,
    final_beta: float = 3.0,
    num_sweeps: int = 100,
    regularization: float = 1e-3,
    update_range: float = 0.5,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Train the classifier head on features (N, d) and labels (N,); return its weights (d + 1, C), the bias last.

    `final_beta=3` is the preset "literal", `final_beta=3 * 2 ** (bits - 3)` the preset "matched".

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> weights = train(X, y, bits=15, iterations=100, final_beta=3 * 2.0**12)
    >>> predicted = (X @ weights[:-1] + weights[-1]).argmax(axis=1)
    >>> weights.shape, bool((predicted == y).mean() > 0.9)
    ((5, 3), True)
    """
    X = np.column_stack([features, np.ones(len(np.asarray(features)))])  # (13) a column of ones carries the bias
    N, D = X.shape
    classes, targets = np.unique(labels, return_inverse=True)
    C = len(classes)
    Y = np.eye(C)[:, targets]  # one-hot targets (C, N)
    penalty = np.full(D, regularization)
    penalty[-1] = 0.0  # the bias is not regularised

    G = Curvature((X.T @ X) / N + np.diag(penalty))  # (3), (15): G_λ, computed once for all classes and iterations
    encoding = Encoding(bits, update_range)  # (8), (9): u = Σ_k p_k (2b_k − 1), p_k = δ·2^k/(2^K − 1)
    annealer = SimulatedAnnealer(num_sweeps=num_sweeps, beta_range=(0.01, final_beta), normalize=True)
    limit = 1 / np.sqrt(D - 1)
    W = np.random.default_rng(child_seed(seed, 0)).uniform(-limit, limit, size=(D, C))  # line 1

    for t in range(iterations):  # line 6
        logits = W.T @ X.T
        probabilities = np.exp(logits - logits.max(axis=0))
        probabilities /= probabilities.sum(axis=0)  # line 7: softmax
        gradients = ((probabilities - Y) @ X) / N + W.T * penalty  # (14), (16)
        # (18), (19): the QUBO of class c is Q = 4PᵀG_λP, q = 4Pᵀ(g_c − δG_λ1); `problem.to_qubo()` writes it down.
        problems = [QuadraticProblem(G, g, encoding) for g in gradients]
        samples = annealer.solve(problems, [child_seed(seed, 1, t, c) for c in range(C)])  # line 13: one read per class
        U = np.array([problem.decode(sample.best_bits) for problem, sample in zip(problems, samples, strict=True)])
        W = W + U.T  # line 16: every update is applied
    return W
