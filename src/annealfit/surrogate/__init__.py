"""The quadratic surrogate of the loss: Gram matrix, gradient, curvature."""

from annealfit.surrogate.curvature import CURVATURES
from annealfit.surrogate.loss import Evaluation, TrainingSet, evaluate, gradient, softmax

__all__ = ["CURVATURES", "Evaluation", "TrainingSet", "evaluate", "gradient", "softmax"]
