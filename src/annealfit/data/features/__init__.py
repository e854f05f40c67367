"""Feature extractors: scikit-learn transformers from images, or other rows, to rows of features."""

from annealfit.data.features.onnx_network import OnnxFeatures
from annealfit.data.features.random_convolution import RandomConvFeatures
from annealfit.data.features.scaling import RowScaler

__all__ = ["OnnxFeatures", "RandomConvFeatures", "RowScaler"]
