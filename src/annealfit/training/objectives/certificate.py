"""Certificates: rigorous lower bounds of the minimum of a linear head's loss.

For probabilities P with the class shares of the labels, `Σ_n a_n p_nc = Σ_n a_n y_nc`, Fenchel's inequality
`log Σ exp(z) ≥ pᵀz + H(p)` and minimisation over the weights give, for all W and biases,

    f(W) ≥ mean_n H(p_n) − ‖mean_n (p_n − y_n) x̃_nᵀ‖² / (2λ),

with H the entropy and x̃ the features without the 1. At the optimum P are the probabilities of the point, and both
sides are equal. Elsewhere the probabilities are given the right shares first by other biases, then, for the remainder,
by mixing in a constant distribution; the entropy of a mixture is at least the mean of the entropies of its parts.

The bound is lowered by what rounding can have raised it by. A sum of N terms is exact to `γ = Nε` of the sum of their
magnitudes. So the shares are exact to γ of each, and a distribution with exactly those shares is a mixture with at most
γ of another one. That changes no entry of the mean by more than `γ·mean_n |x̃_nj|`, and lowers the entropy by at most γ
of it and `γ log C`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import entr

from annealfit._support.arrays import Array
from annealfit.data.rows import Chunk
from annealfit.problems.coordinates import CentredCoordinates, Coordinates

if TYPE_CHECKING:
    from annealfit.training.objectives.linear_head import HeadPoint

_SINGLE_OPERATIONS = 32  # on every number besides the sums
_BALANCING_STEPS = 100
_BALANCED = 1e-8  # share of the rows that may be left to mixing, where the cross-entropy is 1; less where it is small
_STREAMED_BALANCING_STEPS = 4  # where each step is a pass over streamed rows, or there are very many classes

# Newton refinement: Hessian-vector products per step, each as expensive as an iteration, and steps.
MOST_PRODUCTS, MOST_STEPS = 32, 2
HOPELESS = 256  # times the gap: a larger slack is not removed by so many products
_ENOUGH = 0.6  # of the remaining gap: bounds are looser than estimated where biases are not optimal


def loss_lower_bound(point: HeadPoint) -> float:
    """Return a lower bound of the regularised loss over all weights, tight near the optimum; −∞ if λ = 0."""
    head = point.head
    if not point.has_certificate:
        return -np.inf
    wanted = head.rows.class_shares
    biases, found = _balanced_biases(point, wanted)
    # `kept·p + rest` has the wanted shares, with `kept` as large as leaves no part of `rest` negative.
    kept = float(np.min(np.divide(wanted, found, out=np.ones_like(wanted), where=found > wanted)))
    rest = np.maximum(wanted - kept * found, 0.0)[:, None]
    link, outputs = head.link, point.exact_outputs

    def term(chunk: Chunk) -> tuple[float, Array]:
        """Σ_n a_n H(p_n) and Σ_n a_n (p_n − y_n) x_nᵀ."""
        distribution, entropies = _tilted(link.logits(outputs.project(chunk)), biases)
        residuals = link.residuals((kept * distribution + rest)[-link.n_outputs :], chunk.labels)
        return chunk.weighted(entropies).sum(), chunk.exact_moments(chunk.weighted(residuals))

    entropy, slopes = head.rows.mean(term)
    left = max(float(rest.sum()), np.finfo(float).tiny)
    entropy = kept * entropy + left * float(entr(rest / left).sum())
    count, columns = head.rows.columns
    magnitudes = columns[2, :-1] / head.rows.total_weight
    rounding = (count + len(wanted) + _SINGLE_OPERATIONS) * np.finfo(float).eps
    entropy -= rounding * (entropy + np.log(len(wanted)))
    with np.errstate(over="ignore", invalid="ignore"):  # huge features: nothing is certified
        steepest = np.abs(slopes[:, :-1]) + 2 * rounding * magnitudes  # rounding of the sum, and of the mixture
        bound = float(entropy - (steepest**2).sum() / (2 * head.regularization))
    return max(bound, 0.0) if np.isfinite(bound) else 0.0  # neither cross-entropy nor penalty is negative


def _balanced_biases(point: HeadPoint, wanted: Array) -> tuple[Array, Array]:
    """Return changes of the biases (C,) that give the classes the wanted shares, and the shares that they give.

    Newton's method takes a handful of steps near the optimum; where a step does not help, biases follow the ratios of
    the shares.
    """
    rows, link, outputs = point.head.rows, point.head.link, point.exact_outputs
    biases, shortfall = np.where(wanted > 0, 0.0, -np.inf), np.inf  # a class without members is left out
    streamed = not rows.chunks_are_cached or link.groups < link.n_outputs
    steps = _STREAMED_BALANCING_STEPS if streamed else _BALANCING_STEPS
    for step in range(steps + 1):

        def term(chunk: Chunk, biases: Array = biases) -> tuple[Array, Array]:
            """Σ_n a_n p_n and Σ_n a_n p_n p_nᵀ."""
            shares = _tilted(link.logits(outputs.project(chunk)), biases)[0]
            weighted = chunk.weighted(shares)
            return weighted.sum(axis=1), weighted @ shares.T

        found, products = rows.mean(term)
        missing = wanted - found
        worst = float(np.abs(missing).max())
        is_enough = worst <= _BALANCED and (worst <= _BALANCED * point.cross_entropy or worst >= 0.5 * shortfall)
        if step == steps or is_enough:
            break
        change = _newton_change(found, products, missing)
        if worst < 0.5 * shortfall and np.abs(change).max() < 5:
            biases = biases + change
        else:
            with np.errstate(divide="ignore"):
                biases = biases + np.log(wanted) - np.log(np.maximum(found, np.finfo(float).tiny))
        shortfall = worst
        biases -= biases.max()
    return biases, found


def _newton_change(found: Array, products: Array, missing: Array) -> Array:
    """Return Newton's change of the biases; infinite where a class has no share.

    Changing all biases by the same number changes nothing; a constant added to the matrix fixes that number.
    """
    hessian = np.diag(np.where(found > 0, found, 1.0)) - products + 1 / len(found) ** 2
    try:
        return np.linalg.solve(hessian, missing).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        return np.full(len(found), np.inf)


def _tilted(logits: Array, biases: Array) -> tuple[Array, Array]:
    """Return the distribution (C, n) with other biases (C,) and its entropies (n,)."""
    from annealfit.data.rows import _kernels  # numba takes a moment to load

    found = np.empty(logits.shape), np.empty(logits.shape[1])
    _kernels.tilt(np.ascontiguousarray(logits), biases, *found)
    return found


def refined_lower_bound(point: HeadPoint, gap: float) -> float:
    """Tighten the lower bound with a few Newton-CG steps; −∞ if so small a gap cannot be proven.

    The certificate of a point is loose by about `‖∇f‖²/(2λ)`, with strongly correlated features a thousand times the
    true gap. Any weights give a valid lower bound, and those after a Newton step have almost no gradient left. The
    trained weights are not changed. Conjugate residuals minimise the gradient that is left, and are given up as soon as
    they lead below the point by more than the gap.
    """
    head = point.head
    if not point.has_certificate or not np.isfinite(head.feature_means).all():
        return -np.inf
    centred = CentredCoordinates(head.feature_means)
    refined, bound = point, -np.inf
    for _ in range(MOST_STEPS):
        gradients, left = centred.pull_gradients(refined.gradients), gap - (point.loss - refined.loss)
        if _slack(gradients, head.regularization) > HOPELESS * gap or point.loss - bound <= gap:
            break
        step = _newton_step(_hessian_product(refined, centred), gradients, head.regularization, left)
        if step is None:
            break
        refined = head.at(refined.weights + centred.push(step).T)
        bound = max(bound, loss_lower_bound(refined))
    return bound


def _slack(gradients: Array, regularization: float) -> float:
    """Return by how much the certificate of a point with these gradients is loose, biases included."""
    return float((gradients**2).sum()) / (2 * regularization)


def _newton_step(
    multiply: Callable[[Array], Array], gradients: Array, regularization: float, gap: float
) -> Array | None:
    """Return a step after which the quadratic model predicts a sufficient bound; None if there is none.

    SciPy's `minres` finds the same steps but does not show the residual, which ends this one early.
    """
    step, left = np.zeros_like(gradients), -gradients
    direction, curved_left = left, multiply(left)
    curved, product = curved_left, float((left * curved_left).sum())
    for _ in range(MOST_PRODUCTS - 1):
        if not (product > 0 and np.isfinite(product)):
            return None
        length = product / float((curved**2).sum())
        step = step + length * direction
        left = left - length * curved
        decrease = 0.5 * float((step * (left - gradients)).sum())
        if decrease > gap:
            return None
        if _slack(left, regularization) <= _ENOUGH * (gap - decrease):
            break
        curved_left = multiply(left)
        before, product = product, float((left * curved_left).sum())
        direction = left + product / before * direction
        curved = curved_left + product / before * curved
    return step


def _hessian_product(point: HeadPoint, coordinates: Coordinates) -> Callable[[Array], Array]:
    """Return the Hessian-vector product of the loss for directions (outputs, D) in these coordinates."""
    head = point.head
    link, now = head.link, point.outputs

    def multiply(directions: Array) -> Array:
        raw = coordinates.push(directions)

        def term(chunk: Chunk) -> tuple[Array]:
            """Σ_n a_n (diag π_n − π_nπ_nᵀ) Zx_n x_nᵀ."""
            slopes = link.hessian_product(now.probabilities(chunk), chunk.project(raw.T))
            return (chunk.moments(chunk.weighted(slopes)),)

        return coordinates.pull_gradients(head.rows.mean(term)[0] + raw * head.ridge)

    return multiply
