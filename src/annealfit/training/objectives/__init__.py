"""What is minimised: an objective, and the point of it that some weights are."""

from annealfit.training.objectives.base import ONLY, Objective, PlainPoint, Point, Turns, in_turns
from annealfit.training.objectives.conv_layer import FILTER_CURVATURES, ConvLayer, LayerPoint
from annealfit.training.objectives.conv_net import ConvNet
from annealfit.training.objectives.curvature import CURVATURES, CurvatureFunction
from annealfit.training.objectives.linear_head import HeadPoint, LinearHead
from annealfit.training.objectives.links import Logistic, Softmax, softmax

__all__ = [
    "CURVATURES",
    "FILTER_CURVATURES",
    "ONLY",
    "ConvLayer",
    "ConvNet",
    "CurvatureFunction",
    "HeadPoint",
    "LayerPoint",
    "LinearHead",
    "Logistic",
    "Objective",
    "PlainPoint",
    "Point",
    "Softmax",
    "Turns",
    "in_turns",
    "softmax",
]
