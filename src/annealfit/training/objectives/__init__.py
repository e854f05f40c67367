"""What is minimised: an objective and its points, for a linear head and for the filters of a network."""

from annealfit.training.objectives.conv_net import FILTER_CURVATURES, ConvLayer, ConvNet, LayerPoint
from annealfit.training.objectives.curvature import CURVATURES
from annealfit.training.objectives.linear_head import HeadPoint, LinearHead, Logistic, Softmax, softmax
from annealfit.training.objectives.protocol import Objective, Point

__all__ = [
    "CURVATURES",
    "FILTER_CURVATURES",
    "ConvLayer",
    "ConvNet",
    "HeadPoint",
    "LayerPoint",
    "LinearHead",
    "Logistic",
    "Objective",
    "Point",
    "Softmax",
    "softmax",
]
