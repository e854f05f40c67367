"""Feature extractors: images, or anything, in; rows of features out. scikit-learn transformers, all of them."""

from annealfit.features.onnx_network import OnnxFeatures
from annealfit.features.random_convolution import RandomConvFeatures
from annealfit.features.scaling import RowScaler

__all__ = ["OnnxFeatures", "RandomConvFeatures", "RowScaler"]
