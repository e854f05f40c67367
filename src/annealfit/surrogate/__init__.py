"""The quadratic surrogate of the loss: Gram matrix, gradient, curvature."""

from annealfit.surrogate.curvature import CURVATURES
from annealfit.surrogate.loss import Evaluation, TrainingSet, evaluate, gradient, newton_multiple, softmax
from annealfit.surrogate.optimality import loss_lower_bound

__all__ = [
    "CURVATURES",
    "Evaluation",
    "TrainingSet",
    "evaluate",
    "gradient",
    "loss_lower_bound",
    "newton_multiple",
    "softmax",
]
