"""The estimators, the classical baselines they are compared with, and their metrics."""

from typing import TYPE_CHECKING

from annealfit._support.lazy import lazy_exports

if TYPE_CHECKING:
    from annealfit.models.classifier import PRESETS, AnnealedClassifier
    from annealfit.models.conv_net import AnnealedConvNet
    from annealfit.models.family.boltzmann import AnnealedRBM
    from annealfit.models.family.boosting import QBoostClassifier
    from annealfit.models.family.factorization import BinaryMatrixFactorization
    from annealfit.models.family.ridge import QUBORidge, QUBORidgeClassifier
    from annealfit.models.family.sparse_coding import BinarySparseCoding
    from annealfit.models.family.svm import QUBOSVC
    from annealfit.models.messages import CUT_SHORT

__all__ = [
    "CUT_SHORT",
    "PRESETS",
    "QUBOSVC",
    "AnnealedClassifier",
    "AnnealedConvNet",
    "AnnealedRBM",
    "BinaryMatrixFactorization",
    "BinarySparseCoding",
    "QBoostClassifier",
    "QUBORidge",
    "QUBORidgeClassifier",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CUT_SHORT": "messages",
        "PRESETS": "classifier",
        "AnnealedClassifier": "classifier",
        "AnnealedConvNet": "conv_net",
        "QUBORidge": "family.ridge",
        "QUBORidgeClassifier": "family.ridge",
        "QUBOSVC": "family.svm",
        "AnnealedRBM": "family.boltzmann",
        "BinaryMatrixFactorization": "family.factorization",
        "BinarySparseCoding": "family.sparse_coding",
        "QBoostClassifier": "family.boosting",
    },
)
