"""Low-bit weights: the levels of a trained layer, chosen so that its outputs change as little as possible.

Rounding the weights of a layer is a combinatorial problem, and every output of it one `QuadraticProblem`; all share
the Gram matrix of the layer's inputs. Here annealing has something to win.
"""

from typing import TYPE_CHECKING

from annealfit._support.lazy import lazy_exports

if TYPE_CHECKING:
    from annealfit.quantization.comparison import Compared, compare_methods
    from annealfit.quantization.grids import Grid
    from annealfit.quantization.methods import GPTQ, ROUNDING_METHODS, Annealed, Descent, Method, Nearest, Sampled
    from annealfit.quantization.moments import InputMoments, convolution_moments
    from annealfit.quantization.network import QuantizedNetwork, quantize_network, read_packed_weights
    from annealfit.quantization.quantize import QuantizedLayer, layer_problems, quantize_layer
    from annealfit.quantization.refinement import LowBitHead, Refinement

__all__ = [
    "GPTQ",
    "ROUNDING_METHODS",
    "Annealed",
    "Compared",
    "Descent",
    "Grid",
    "InputMoments",
    "LowBitHead",
    "Method",
    "Nearest",
    "QuantizedLayer",
    "QuantizedNetwork",
    "Refinement",
    "Sampled",
    "compare_methods",
    "convolution_moments",
    "layer_problems",
    "quantize_layer",
    "quantize_network",
    "read_packed_weights",
]

_PLACES = {
    "comparison": ("Compared", "compare_methods"),
    "grids": ("Grid",),
    "methods": ("GPTQ", "ROUNDING_METHODS", "Annealed", "Descent", "Method", "Nearest", "Sampled"),
    "moments": ("InputMoments", "convolution_moments"),
    "network": ("QuantizedNetwork", "quantize_network", "read_packed_weights"),
    "quantize": ("QuantizedLayer", "layer_problems", "quantize_layer"),
    "refinement": ("LowBitHead", "Refinement"),
}
__getattr__, __dir__ = lazy_exports(__name__, {name: place for place, names in _PLACES.items() for name in names})
