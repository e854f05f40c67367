"""annealfit: classifiers trained by annealing.

Images → features → surrogate → problem → samplers → training; each name here is one step of that way.
"""

from annealfit.classifier import AnnealedClassifier
from annealfit.datasets import load_dataset
from annealfit.encoding import Encoding
from annealfit.features import RandomConvFeatures
from annealfit.problem import QuadraticProblem

__version__ = "0.2.0"

__all__ = ["AnnealedClassifier", "Encoding", "QuadraticProblem", "RandomConvFeatures", "load_dataset"]
