"""The paper's six metrics, all of them scikit-learn's functions."""

from __future__ import annotations

from numpy.typing import ArrayLike
from sklearn.metrics import accuracy_score, cohen_kappa_score, matthews_corrcoef, precision_recall_fscore_support


def classification_metrics(y_true: ArrayLike, y_pred: ArrayLike) -> dict[str, float]:
    """Accuracy, macro-averaged precision, recall and F1, Cohen's κ and Matthews' correlation.

    A class that is never predicted has precision 0, as in the paper.

    >>> classification_metrics([0, 1, 1], [0, 1, 0])["accuracy"].__round__(3)
    0.667
    """
    precision, recall, f1, _ = precision_recall_fscore_support(y_true, y_pred, average="macro", zero_division=0.0)
    return {
        "accuracy": float(accuracy_score(y_true, y_pred)),
        "precision": float(precision),
        "recall": float(recall),
        "f1": float(f1),
        "kappa": float(cohen_kappa_score(y_true, y_pred)),
        "mcc": float(matthews_corrcoef(y_true, y_pred)),
    }
