"""Feature extractors: images, or anything, in; rows of features out. scikit-learn transformers, all of them."""

from annealfit.data.features.onnx_network import OnnxFeatures
from annealfit.data.features.random_convolution import RandomConvFeatures
from annealfit.data.features.scaling import RowScaler

__all__ = ["OnnxFeatures", "RandomConvFeatures", "RowScaler"]
