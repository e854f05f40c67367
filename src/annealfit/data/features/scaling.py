"""RowScaler: mean 0 and variance 1, also of rows that do not fit into memory."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from annealfit.data.features.block_by_block import fit_scaler, lazily
from annealfit.data.rows import MappedTable, is_dask, is_out_of_core
from annealfit.data.rows.tables import check_table


class RowScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """scikit-learn's `StandardScaler` for arrays, for tables that are read in slices, and for Dask arrays.

    One pass over the rows fits it. Of an array `transform` makes an array. Of a memory-mapped array or an HDF5 data
    set it makes a table that is scaled when it is read, and of a Dask array a Dask array: neither takes memory.

    Attributes
    ----------
    mean_, scale_ : arrays of shape (d,)

    Examples
    --------
    >>> RowScaler().fit_transform(np.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]

    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find means and standard deviations."""
        scaler = fit_scaler(self._checked(X, reset=True))
        self.mean_, self.scale_ = scaler.mean_, scaler.scale_
        return self

    def transform(self, X: Any) -> Any:
        """The scaled rows, in the precision of X: an array, a table, or a Dask array, as X is."""
        check_is_fitted(self)
        given = self._checked(X, reset=False)
        dtype = np.float32 if given.dtype in (np.float16, np.float32) else np.float64
        if is_dask(X):
            return lazily(given, self._scaled, given.shape[1], dtype)
        if is_out_of_core(X):
            return MappedTable(given, self._scaled, given.shape[1], dtype)
        return self._scaled(given)

    def _checked(self, X: Any, *, reset: bool) -> Any:
        if not (is_dask(X) or is_out_of_core(X)):
            return validate_data(self, X, dtype=[np.float64, np.float32], reset=reset)
        check_table(X)
        validate_data(self, X, skip_check_array=True, reset=reset)
        return X

    def _scaled(self, rows: NDArray[Any]) -> NDArray[Any]:
        dtype = np.float32 if rows.dtype in (np.float16, np.float32) else np.float64
        return (rows.astype(dtype, copy=False) - self.mean_.astype(dtype)) / self.scale_.astype(dtype)
