"""From fitted weights to answers: logits, labels, probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax
from sklearn.utils.validation import check_is_fitted, validate_data

from annealfit.objectives import softmax


class LinearPredictions:
    """What follows from `coef_` (outputs, d), `intercept_` (outputs,) and `classes_` (C,); two have one output."""

    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    classes_: NDArray[Any]

    def _set_head(self, weights: NDArray[np.float64]) -> None:
        """Keep weights (D, outputs) with the biases in the last row."""
        self.coef_ = np.ascontiguousarray(weights[:-1].T)
        self.intercept_ = weights[-1].copy()

    def _features(self, X: Any) -> Any:
        """The features (N, d), dense or sparse, of what predictions are asked for."""
        return validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=False)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Logits of shape (N, C); for two classes that of the second, of shape (N,)."""
        check_is_fitted(self, "coef_")  # not any attribute: a fit that failed has counted the features
        features = self._features(X)
        logits = features @ self.coef_.T + self.intercept_
        return logits[:, 0] if len(self.coef_) == 1 else logits

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row, shape (N,)."""
        logits = self.decision_function(X)
        return self.classes_[(logits > 0).astype(np.intp) if logits.ndim == 1 else logits.argmax(axis=1)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of shape (N, C), columns in the order of `classes_`."""
        logits = self.decision_function(X)
        if logits.ndim == 1:
            return np.column_stack([expit(-logits), expit(logits)])
        return np.ascontiguousarray(softmax(logits.T).T)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of the probabilities, shape (N, C); finite also where a probability is too small for a number."""
        logits = self.decision_function(X)
        if logits.ndim == 1:
            return np.column_stack([log_expit(-logits), log_expit(logits)])
        return log_softmax(logits, axis=1)
