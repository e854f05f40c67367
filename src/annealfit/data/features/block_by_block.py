"""One function over the rows of anything: an array, a table that is read in slices, a Dask array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from annealfit.data.rows import is_dask, is_out_of_core
from annealfit.data.rows.tables import chunk_bounds

Block = Callable[[NDArray[Any]], NDArray[Any]]


def lazily(X: Any, function: Block, n_features: int, dtype: Any = np.float64) -> Any:
    """A Dask array (N, d) of what a function makes of the rows of another, worked out when somebody asks."""
    whole = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))  # a row, an image, is never cut
    dropped = {"drop_axis": list(range(2, X.ndim))} if X.ndim > 2 else {}
    made = np.empty((0, n_features), dtype)
    return whole.map_blocks(function, chunks=(whole.chunks[0], (n_features,)), meta=made, **dropped)


def fit_scaler(X: Any, function: Block | None = None, n_features: int | None = None) -> StandardScaler:
    """A `StandardScaler` fitted to the rows of anything, or to what a function makes of them, in one pass."""
    if is_dask(X):
        rows = lazily(X, _flat if function is None else function, n_features or int(np.prod(X.shape[1:])))
        return _scaler_of(rows.astype(np.float64))
    scaler = StandardScaler()
    for block in _row_blocks(X):
        scaler.partial_fit(_flat(block) if function is None else function(block))
    return scaler


def scaler_from(means: NDArray[np.float64], scales: NDArray[np.float64]) -> StandardScaler:
    """A fitted `StandardScaler` with these means and standard deviations."""
    scaler = StandardScaler()
    scaler.mean_, scaler.scale_, scaler.var_ = means, scales, scales**2
    scaler.n_features_in_ = len(means)
    return scaler


def _scaler_of(rows: Any) -> StandardScaler:
    import dask

    means, deviations = dask.compute(rows.mean(axis=0), rows.std(axis=0))
    # A constant feature has a deviation of nothing but rounding: it is left as it is, as scikit-learn does.
    constant = deviations <= 10 * np.finfo(np.float64).eps * np.maximum(np.abs(means), 1.0)
    return scaler_from(means, np.where(constant, 1.0, deviations))


def _flat(rows: NDArray[Any]) -> NDArray[np.float64]:
    return rows.reshape(len(rows), -1).astype(np.float64, copy=False)


def _row_blocks(X: Any) -> Iterator[NDArray[Any]]:
    if not is_out_of_core(X):
        yield X
        return
    for first, last in chunk_bounds(X, int(np.prod(X.shape[1:]))):
        yield np.asarray(X[first:last])
