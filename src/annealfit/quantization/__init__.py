"""Low-bit weights: the levels of a trained layer, chosen so that its outputs change as little as possible.

Rounding the weights of a layer is a combinatorial problem, and every output of it one `QuadraticProblem`; all share
the Gram matrix of the layer's inputs. Here annealing has something to win.
"""

from typing import TYPE_CHECKING

from annealfit._support.lazy import lazy_exports

if TYPE_CHECKING:
    from annealfit.quantization.grids import Grid
    from annealfit.quantization.methods import GPTQ, Annealed, Descent, Method, Nearest
    from annealfit.quantization.moments import InputMoments, convolution_moments
    from annealfit.quantization.network import QuantizedNetwork, quantize_network, read_packed_weights
    from annealfit.quantization.quantize import ROUNDING_METHODS, QuantizedLayer, layer_problems, quantize_layer
    from annealfit.quantization.refinement import LowBitHead, Refinement
    from annealfit.quantization.sampled import Sampled

__all__ = [
    "GPTQ",
    "ROUNDING_METHODS",
    "Annealed",
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
    "convolution_moments",
    "layer_problems",
    "quantize_layer",
    "quantize_network",
    "read_packed_weights",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "GPTQ": "methods",
        "ROUNDING_METHODS": "quantize",
        "Annealed": "methods",
        "Descent": "methods",
        "Grid": "grids",
        "InputMoments": "moments",
        "LowBitHead": "refinement",
        "Method": "methods",
        "Nearest": "methods",
        "QuantizedLayer": "quantize",
        "QuantizedNetwork": "network",
        "Refinement": "refinement",
        "Sampled": "sampled",
        "convolution_moments": "moments",
        "layer_problems": "quantize",
        "quantize_layer": "quantize",
        "quantize_network": "network",
        "read_packed_weights": "network",
    },
)
