"""Low-bit weights: the levels of a trained layer, chosen so that its outputs change as little as possible.

Rounding the weights of a layer is a combinatorial problem, and every output of it one `QuadraticProblem`; all share
the Gram matrix of the layer's inputs. Here annealing has something to win.
"""

from typing import TYPE_CHECKING

from annealfit._support.lazy import lazy_exports

if TYPE_CHECKING:
    from annealfit.quantization.annealed import Annealed
    from annealfit.quantization.classical import GPTQ, Descent, Nearest
    from annealfit.quantization.grids import Grid
    from annealfit.quantization.methods import ROUNDING_METHODS, Method
    from annealfit.quantization.moments import InputMoments
    from annealfit.quantization.network import quantize_network
    from annealfit.quantization.network_results import QuantizedNetwork, read_packed_weights
    from annealfit.quantization.patches import convolution_moments
    from annealfit.quantization.quantize import layer_problems, quantize_layer
    from annealfit.quantization.refinement import LowBitHead, Refinement
    from annealfit.quantization.results import QuantizedLayer
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
        "GPTQ": "classical",
        "ROUNDING_METHODS": "methods",
        "Annealed": "annealed",
        "Descent": "classical",
        "Grid": "grids",
        "InputMoments": "moments",
        "LowBitHead": "refinement",
        "Method": "methods",
        "Nearest": "classical",
        "QuantizedLayer": "results",
        "QuantizedNetwork": "network_results",
        "Refinement": "refinement",
        "Sampled": "sampled",
        "convolution_moments": "patches",
        "layer_problems": "quantize",
        "quantize_layer": "quantize",
        "quantize_network": "network",
        "read_packed_weights": "network_results",
    },
)
