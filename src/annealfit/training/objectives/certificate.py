"""How far from the optimum: a rigorous bound on what any weights of a linear head could still gain.

For probabilities `P` with the same class shares as the labels, `Σ_n a_n p_nc = Σ_n a_n y_nc`, Fenchel's inequality
`log Σ exp(z) ≥ pᵀz + H(p)` and minimisation over the weights give, for all W and biases,

    f(W) ≥ mean_n H(p_n) − ‖mean_n (p_n − y_n) x̃_nᵀ‖² / (2λ),

with H the entropy and x̃ the features without the 1. At the optimum P are its own probabilities, and the two sides
meet. Elsewhere the probabilities of the point are made to have the right shares: first by other biases, then, for
what is left, by mixing in a constant distribution; a mixture's entropy is no less than the mean of its parts'.

Numbers have 53 bits, and features may be as large as 1e15: the bound is lowered by what its own rounding can have
raised it by. A sum of N terms is right to `γ = Nε` of the sum of their magnitudes. So the shares are right to γ of
each, and a distribution with the very shares is a mixture that has at most γ of another one. That changes no entry of
the mean by more than `γ·mean_n |x̃_nj|`, and lowers the entropy by no more than γ of it and `γ log C`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import entr

from annealfit._support.arrays import Array
from annealfit.data.rows import Chunk
from annealfit.training.objectives.links import MOST_GROUPS

if TYPE_CHECKING:
    from annealfit.training.objectives.linear_head import HeadPoint


_SINGLE_OPERATIONS = 32  # on every number beside the sums
_BALANCING_STEPS = 100
_BALANCED = 1e-8  # share of the rows that may be left to mixing, where the cross-entropy is 1; less where it is small
_BALANCING_PASSES = 4  # the same where each is a pass over rows that are not kept, or of very many classes


def loss_lower_bound(point: HeadPoint) -> float:
    """A number no larger than the least regularised loss, tight if the point is near the optimum.

    −∞ where there is no penalty (λ = 0): there may be no least then.
    """
    head = point.head
    if head.regularization <= 0:
        return -np.inf
    wanted = head.rows.class_shares
    biases, found = _balanced(point, wanted)
    # `kept·p + rest` has the wanted shares; `kept` is as large as lets no part of `rest` be negative.
    kept = float(np.min(np.divide(wanted, found, out=np.ones_like(wanted), where=found > wanted)))
    rest = np.maximum(wanted - kept * found, 0.0)[:, None]
    link, logits = head.link, point.logits  # terms may be sent far: they know no more than they need

    def term(chunk: Chunk) -> tuple[float, Array]:
        distribution, entropies = _tilted(logits(chunk), biases)
        residuals = link.residuals(link.of_outputs(kept * distribution + rest), chunk.labels)
        return chunk.weighted(entropies).sum(), chunk.exact_moments(chunk.weighted(residuals))

    entropy, slopes = head.rows.mean(term)
    left = max(float(rest.sum()), np.finfo(float).tiny)
    entropy = kept * entropy + left * float(entr(rest / left).sum())
    count, magnitudes = head.extent
    rounding = (count + len(wanted) + _SINGLE_OPERATIONS) * np.finfo(float).eps
    entropy -= rounding * (entropy + np.log(len(wanted)))
    with np.errstate(over="ignore", invalid="ignore"):  # of huge features nothing is certified
        steepest = np.abs(slopes[:, :-1]) + 2 * rounding * magnitudes  # once for the sum, once for the mixture
        bound = float(entropy - (steepest**2).sum() / (2 * head.regularization))
    return max(bound, 0.0) if np.isfinite(bound) else 0.0  # neither cross-entropy nor penalty is ever below 0


def _balanced(point: HeadPoint, wanted: Array) -> tuple[Array, Array]:
    """What to add to the biases (C,) to have the wanted shares of the classes; and the shares that are had then.

    By Newton's method, a handful of steps near the optimum; where one does not help, by the shares' ratios.
    """
    biases, short_of = np.where(wanted > 0, 0.0, -np.inf), np.inf  # a class without members is left out
    are_at_hand = bool((wanted > 0).all())
    logits, distributions = point.logits, point.distributions
    is_dear = not point.head.rows.chunks_are_cached or len(wanted) > MOST_GROUPS
    steps = _BALANCING_PASSES if is_dear else _BALANCING_STEPS
    for step in range(steps + 1):

        def term(chunk: Chunk) -> tuple[Array, Array]:
            are_known = step == 0 and are_at_hand  # noqa: B023
            shares = distributions(chunk) if are_known else _tilted(logits(chunk), biases)[0]  # noqa: B023
            weighted = chunk.weighted(shares)
            return weighted.sum(axis=1), weighted @ shares.T

        found, products = point.head.rows.mean(term)
        missing = wanted - found
        worst = float(np.abs(missing).max())
        is_enough = worst <= _BALANCED and (worst <= _BALANCED * point.cross_entropy or worst >= 0.5 * short_of)
        if step == steps or is_enough:
            break
        change = _change_of_biases(found, products, missing)
        if worst < 0.5 * short_of and np.abs(change).max() < 5:
            biases = biases + change
        else:
            with np.errstate(divide="ignore"):
                biases = biases + np.log(wanted) - np.log(np.maximum(found, np.finfo(float).tiny))
        short_of = worst
        biases -= biases.max()
    return biases, found


def _change_of_biases(found: Array, products: Array, missing: Array) -> Array:
    """Newton's; biases that all change alike change nothing, so that a constant added to the matrix settles those.

    Infinite where a class has no share to speak of.
    """
    hessian = np.diag(np.where(found > 0, found, 1.0)) - products + 1 / len(found) ** 2
    try:
        return np.linalg.solve(hessian, missing).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        return np.full(len(found), np.inf)


def _tilted(logits: Array, biases: Array) -> tuple[Array, Array]:
    """The distribution (C, n) over the classes with other biases (C,), and the entropy (n,) of every row's."""
    from annealfit.training.objectives import _links  # numba takes a moment to load

    exact = logits.astype(np.float64, copy=False)
    found = np.empty_like(exact), np.empty(exact.shape[1])
    _links.tilt(exact, biases, *found)
    return found
