"""What is minimised: an objective, and the point of it that some weights are."""

from annealfit.objectives.base import Objective, PlainPoint, Point
from annealfit.objectives.curvature import CURVATURES, Curvature
from annealfit.objectives.linear_head import HeadPoint, LinearHead
from annealfit.objectives.links import Logistic, Softmax, softmax

__all__ = [
    "CURVATURES",
    "Curvature",
    "HeadPoint",
    "LinearHead",
    "Logistic",
    "Objective",
    "PlainPoint",
    "Point",
    "Softmax",
    "softmax",
]
