"""A witness: weights near a point of a linear head whose own certificate proves that the point is near the optimum.

The certificate of `certificate.py` is loose by about `‖∇f‖²/(2λ)`. Where features are strongly
correlated that is a thousand times the true distance, and training would go on long after it has arrived. But a lower
bound of the least loss may come from any weights. Those of a Newton step from the point have hardly a gradient left:
their bound is tight, and it holds for the point as well. The witness is asked for its bound alone; the weights that
were trained stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from annealfit._support.arrays import Array
from annealfit.data.rows import Chunk
from annealfit.problems.coordinates import CentredCoordinates, Coordinates
from annealfit.training.objectives.certificate import loss_lower_bound

if TYPE_CHECKING:
    from annealfit.training.objectives.linear_head import HeadPoint

# What a Newton step may cost: products with the Hessian, each as long as two looks at all rows. Mostly a handful do.
MOST_PRODUCTS = 32
MOST_STEPS = 2  # the loss is no parabola: near the optimum the second step is mostly the last
HOPELESS = 256  # times the gap: what is left of the gradient is more than so many products can mend
_ENOUGH = 0.6  # of what is left of the gap: bounds are looser than estimated where biases are not at their best


def refined_lower_bound(point: HeadPoint, gap: float) -> float:
    """A lower bound of the least loss, from a witness; −∞ where there seems to be none for so small a gap.

    Steps are found by conjugate residuals, which make the gradient that is left as small as can be; and are given up
    as soon as they lead below the point by more than the gap.
    """
    head = point.head
    if head.regularization <= 0 or not np.isfinite(head.feature_means).all():
        return -np.inf
    centred = CentredCoordinates(head.feature_means)
    witness, bound = point, -np.inf
    for _ in range(MOST_STEPS):
        gradients, left = centred.pull_gradients(witness.gradients), gap - (point.loss - witness.loss)
        if _slack(gradients, head.regularization) > HOPELESS * gap or point.loss - bound <= gap:
            break
        step = _newton_step(_hessian(witness, centred), gradients, head.regularization, left)
        if step is None:
            break
        witness = head.point(witness.weights + centred.push(step).T)
        bound = max(bound, loss_lower_bound(witness))
    return bound


def _slack(gradients: Array, regularization: float) -> float:
    """By how much the certificate of a point with these gradients is loose; biases that are not at their best count."""
    return float((gradients**2).sum()) / (2 * regularization)


def _newton_step(
    multiply: Callable[[Array], Array], gradients: Array, regularization: float, gap: float
) -> Array | None:
    """A step that makes the bound, by the quadratic model's account, good enough; None if there is no such step.

    SciPy's `minres` finds the same steps, but shows no residual on the way, by which this one ends early.
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
        fall = 0.5 * float((step * (left - gradients)).sum())
        if fall > gap:
            return None
        if _slack(left, regularization) <= _ENOUGH * (gap - fall):
            break
        curved_left = multiply(left)
        before, product = product, float((left * curved_left).sum())
        direction = left + product / before * direction
        curved = curved_left + product / before * curved
    return step


def _hessian(point: HeadPoint, coordinates: Coordinates) -> Callable[[Array], Array]:
    """The product of the loss's Hessian at the point with directions (outputs, D), in these coordinates."""
    head = point.head
    link, distributions = head.link, point.distributions  # terms may be sent far: they know no more than they need

    def multiply(directions: Array) -> Array:
        raw = coordinates.push(directions)

        def term(chunk: Chunk) -> tuple[Array]:
            slopes = link.hessian_product(link.of_outputs(distributions(chunk)), chunk.step(raw.T))
            return (chunk.moments(chunk.weighted(slopes)),)

        return coordinates.pull_gradients(head.rows.mean(term)[0] + raw * head.ridge)

    return multiply
