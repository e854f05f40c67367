"""annealfit: classifiers trained by annealing.

Images → features → surrogate → problem → samplers → training; each name here is one step of that way.
"""

from typing import TYPE_CHECKING

from annealfit.on_use import names_on_use

if TYPE_CHECKING:
    from annealfit.classifier import AnnealedClassifier, AnnealedConvNet
    from annealfit.datasets import load_dataset
    from annealfit.encoding import Encoding
    from annealfit.features import RandomConvFeatures
    from annealfit.problem import QuadraticProblem

__version__ = "0.2.0"

__all__ = [
    "AnnealedClassifier",
    "AnnealedConvNet",
    "Encoding",
    "QuadraticProblem",
    "RandomConvFeatures",
    "load_dataset",
]

__getattr__, __dir__ = names_on_use(
    __name__,
    {
        "AnnealedClassifier": "classifier",
        "AnnealedConvNet": "classifier",
        "Encoding": "encoding",
        "QuadraticProblem": "problem",
        "RandomConvFeatures": "features",
        "load_dataset": "datasets",
    },
)
