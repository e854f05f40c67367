"""Standardisation of rows: arrays, tables that are read in slices, and Dask arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from annealfit.data.rows import MappedTable, chunk_bounds, is_dask, is_out_of_core
from annealfit.data.rows.tables import check_table

RowFunction = Callable[[NDArray[Any]], NDArray[Any]]


def map_dask_rows(X: Any, function: RowFunction, n_features: int, dtype: Any = np.float64) -> Any:
    """Apply a function to the rows of a Dask array, lazily; the result is a Dask array (N, d)."""
    whole = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))  # a row, or an image, is never divided
    dropped = {"drop_axis": list(range(2, X.ndim))} if X.ndim > 2 else {}
    meta = np.empty((0, n_features), dtype)
    return whole.map_blocks(function, chunks=(whole.chunks[0], (n_features,)), meta=meta, **dropped)


def _flat(rows: NDArray[Any]) -> NDArray[np.float64]:
    return rows.reshape(len(rows), -1).astype(np.float64, copy=False)


def fit_scaler(X: Any, function: RowFunction = _flat, n_features: int | None = None) -> StandardScaler:
    """Fit a `StandardScaler` in one pass to the rows of X, or to the `n_features` that a function makes of them."""
    row_size = math.prod(X.shape[1:])
    if is_dask(X):
        import dask

        rows = map_dask_rows(X, function, n_features or row_size).astype(np.float64)
        means, deviations = dask.compute(rows.mean(axis=0), rows.std(axis=0))
        # The deviation of a constant feature is rounding alone: it is not scaled, as in scikit-learn.
        constant = deviations <= 10 * np.finfo(np.float64).eps * np.maximum(np.abs(means), 1.0)
        return scaler_from(means, np.where(constant, 1.0, deviations))
    bounds = chunk_bounds(X, row_size) if is_out_of_core(X) else [(0, X.shape[0])]
    scaler = StandardScaler()
    for first, last in bounds:
        scaler.partial_fit(function(np.asarray(X[first:last])))
    return scaler


def scaler_from(means: NDArray[np.float64], scales: NDArray[np.float64]) -> StandardScaler:
    """Make a fitted `StandardScaler` of means and standard deviations."""
    scaler = StandardScaler()
    scaler.mean_, scaler.scale_, scaler.var_ = means, scales, scales**2
    scaler.n_features_in_ = len(means)
    return scaler


class RowScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """scikit-learn's `StandardScaler` for arrays, for tables that are read in slices, and for Dask arrays.

    Fitting takes one pass over the rows. Of an array `transform` makes an array. Of a memory-mapped array or an HDF5
    data set it makes a table that is scaled when it is read, and of a Dask array a Dask array: neither takes memory.

    Attributes
    ----------
    mean_, scale_ : arrays of shape (d,)

    Examples
    --------
    >>> RowScaler().fit_transform(np.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]

    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Compute means and standard deviations."""
        scaler = fit_scaler(self._checked(X, reset=True))
        self.mean_, self.scale_ = scaler.mean_, scaler.scale_
        return self

    def transform(self, X: Any) -> Any:
        """Scale rows, in the precision of X: an array, a table, or a Dask array, as X is."""
        check_is_fitted(self)
        given = self._checked(X, reset=False)
        if is_dask(X):
            return map_dask_rows(given, self._scaled, given.shape[1], _precision(given))
        if is_out_of_core(X):
            return MappedTable(given, self._scaled, given.shape[1], _precision(given))
        return self._scaled(given)

    def _checked(self, X: Any, *, reset: bool) -> Any:
        if not (is_dask(X) or is_out_of_core(X)):
            return validate_data(self, X, dtype=[np.float64, np.float32], reset=reset)
        check_table(X)
        validate_data(self, X, skip_check_array=True, reset=reset)
        return X

    def _scaled(self, rows: NDArray[Any]) -> NDArray[Any]:
        dtype = _precision(rows)
        return (rows.astype(dtype, copy=False) - self.mean_.astype(dtype)) / self.scale_.astype(dtype)


def _precision(rows: Any) -> type[np.floating[Any]]:
    return np.float32 if rows.dtype in (np.float16, np.float32) else np.float64
