"""What is minimised: an objective, and the point of it that some weights are."""

from annealfit.objectives.base import ONLY, Objective, PlainPoint, Point, Turns, in_turns
from annealfit.objectives.conv_layer import FILTER_CURVATURES, ConvLayer, LayerPoint
from annealfit.objectives.conv_net import ConvNet
from annealfit.objectives.curvature import CURVATURES, Curvature
from annealfit.objectives.linear_head import HeadPoint, LinearHead
from annealfit.objectives.links import Logistic, Softmax, softmax

__all__ = [
    "CURVATURES",
    "FILTER_CURVATURES",
    "ONLY",
    "ConvLayer",
    "ConvNet",
    "Curvature",
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
