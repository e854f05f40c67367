"""Convolution layers as arithmetic: images in, features and their derivatives out."""

from annealfit.data.convolution.images import Images, shifts_within
from annealfit.data.convolution.network import LayerShape, Network, join_filters, split_filters
from annealfit.data.convolution.rows import NetworkRows

__all__ = ["Images", "LayerShape", "Network", "NetworkRows", "join_filters", "shifts_within", "split_filters"]
