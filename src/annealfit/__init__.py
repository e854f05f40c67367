"""annealfit: classifiers trained by annealing.

The pipeline: images → features → rows → objective → quadratic problems → sampler → weight update.
"""

from typing import TYPE_CHECKING

from annealfit._support.lazy import find_moved_modules, lazy_exports

if TYPE_CHECKING:
    from annealfit.data.datasets import load_dataset
    from annealfit.data.features import RandomConvFeatures
    from annealfit.models import (
        QUBOSVC,
        AnnealedClassifier,
        AnnealedConvNet,
        AnnealedRBM,
        BinaryMatrixFactorization,
        BinarySparseCoding,
        QBoostClassifier,
        QUBORidge,
        QUBORidgeClassifier,
    )
    from annealfit.models.onnx_export import to_onnx
    from annealfit.models.pipeline_files import load_model, save_model
    from annealfit.models.skl2onnx_converters import register_skl2onnx
    from annealfit.problems.encoding import Encoding
    from annealfit.problems.problem import QuadraticProblem
    from annealfit.training.checkpoint import Checkpoint
    from annealfit.training.method import FilterMethod, Method

__version__ = "0.3.0"

__all__ = [
    "QUBOSVC",
    "AnnealedClassifier",
    "AnnealedConvNet",
    "AnnealedRBM",
    "BinaryMatrixFactorization",
    "BinarySparseCoding",
    "Checkpoint",
    "Encoding",
    "FilterMethod",
    "Method",
    "QBoostClassifier",
    "QUBORidge",
    "QUBORidgeClassifier",
    "QuadraticProblem",
    "RandomConvFeatures",
    "load_dataset",
    "load_model",
    "register_skl2onnx",
    "save_model",
    "to_onnx",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "AnnealedClassifier": "models",
        "AnnealedConvNet": "models",
        "AnnealedRBM": "models",
        "BinaryMatrixFactorization": "models",
        "BinarySparseCoding": "models",
        "Checkpoint": "training.checkpoint",
        "Encoding": "problems",
        "FilterMethod": "training.method",
        "Method": "training.method",
        "QBoostClassifier": "models",
        "QUBORidge": "models",
        "QUBORidgeClassifier": "models",
        "QUBOSVC": "models",
        "QuadraticProblem": "problems",
        "RandomConvFeatures": "data.features",
        "load_dataset": "data.datasets",
        "load_model": "models.pipeline_files",
        "register_skl2onnx": "models.skl2onnx_converters",
        "save_model": "models.pipeline_files",
        "to_onnx": "models.onnx_export",
    },
)
find_moved_modules()
