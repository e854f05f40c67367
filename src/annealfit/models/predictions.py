"""Predictions from fitted weights: logits, labels, probabilities."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted, validate_data

from annealfit._support.arrays import check_stored
from annealfit._support.threads import in_order
from annealfit.data.rows import SlicedTable, chunk_bounds, is_dask, is_out_of_core
from annealfit.data.rows.tables import check_table, read_slice, reading_lock
from annealfit.training.objectives import softmax

Answer = Callable[[NDArray[np.float64]], NDArray[Any]]


class LinearPredictions:
    """Predictions from `coef_` (outputs, d), `intercept_` (outputs,), `classes_` (C,); two classes have one output."""

    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    classes_: NDArray[Any]

    def _features(self, X: Any) -> Any:
        """Return the features (N, d) of X, checked: an array, a sparse array or a `SlicedTable`."""
        if is_out_of_core(X):
            check_table(X)
            validate_data(self, X, skip_check_array=True, reset=False)
            return SlicedTable(X)
        check_stored(X)
        return validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=False)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Logits of shape (N, C); for two classes that of the second, of shape (N,)."""
        return self._answers(X, np.asarray)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row, shape (N,)."""
        check_is_fitted(self, "coef_")  # before its classes are asked for
        return self._answers(X, partial(_labels_of, self.classes_))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of shape (N, C), columns in the order of `classes_`."""
        return self._answers(X, _probabilities_of)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of the probabilities, shape (N, C); finite where a probability underflows."""
        return self._answers(X, _log_probabilities_of)

    def _answers(self, X: Any, of_logits: Answer) -> NDArray[Any]:
        """Apply a function to the logits of X; of a table that is read in slices, chunk by chunk."""
        check_is_fitted(self, "coef_")  # not any attribute: a fit that failed has counted the features
        if is_dask(X):
            return self._lazy_answers(X, of_logits)
        features = self._features(X)
        if not isinstance(features, SlicedTable):
            return of_logits(_logits(self.coef_, self.intercept_, features))
        lock = reading_lock(features)

        def answer(bounds: tuple[int, int]) -> NDArray[Any]:
            with lock:
                rows = read_slice(features, *bounds)
            return _answer(self.coef_, self.intercept_, of_logits, rows)

        return np.concatenate(list(in_order(answer, chunk_bounds(features, len(self.coef_)))))

    def _lazy_answers(self, X: Any, of_logits: Answer) -> Any:
        """Return a lazy Dask array; the workers that hold the rows compute it."""
        validate_data(self, X, skip_check_array=True, reset=False)
        answer = partial(_answer, self.coef_, self.intercept_, of_logits)
        example = answer(np.zeros((1, X.shape[1])))
        shape: dict[str, Any] = {"drop_axis": 1} if example.ndim == 1 else {"chunks": (X.chunks[0], example.shape[1:])}
        return X.rechunk({1: -1}).map_blocks(answer, meta=example[:0], **shape)


def _answer(
    coef: NDArray[np.float64], intercept: NDArray[np.float64], of_logits: Answer, rows: NDArray[Any]
) -> NDArray[Any]:
    assert_all_finite(rows, input_name="X")
    return of_logits(_logits(coef, intercept, rows))


def _logits(coef: NDArray[np.float64], intercept: NDArray[np.float64], features: Any) -> NDArray[np.float64]:
    logits = features @ coef.T + intercept
    return logits[:, 0] if len(coef) == 1 else logits


def _labels_of(classes: NDArray[Any], logits: NDArray[np.float64]) -> NDArray[Any]:
    return classes[(logits > 0).astype(np.intp) if logits.ndim == 1 else logits.argmax(axis=1)]


def _probabilities_of(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    if logits.ndim == 1:
        return np.column_stack([expit(-logits), expit(logits)])
    return np.ascontiguousarray(softmax(logits.T).T)


def _log_probabilities_of(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return log_softmax(logits if logits.ndim == 2 else np.column_stack([np.zeros_like(logits), logits]), axis=1)
