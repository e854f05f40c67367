"""Low-bit weights: the levels of a trained layer, chosen so that its outputs change as little as possible.

Rounding the weights of a layer is a combinatorial problem, and every output of it one `QuadraticProblem`; all share
the Gram matrix of the layer's inputs. Here annealing has something to win.
"""

from annealfit.quantization.annealed import Annealed
from annealfit.quantization.classical import GPTQ, Descent, Nearest
from annealfit.quantization.grids import Grid
from annealfit.quantization.methods import ROUNDING_METHODS, Method
from annealfit.quantization.moments import InputMoments
from annealfit.quantization.quantize import layer_problems, quantize_layer
from annealfit.quantization.results import QuantizedLayer
from annealfit.quantization.sampled import Sampled

__all__ = [
    "GPTQ",
    "ROUNDING_METHODS",
    "Annealed",
    "Descent",
    "Grid",
    "InputMoments",
    "Method",
    "Nearest",
    "QuantizedLayer",
    "Sampled",
    "layer_problems",
    "quantize_layer",
]
