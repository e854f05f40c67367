"""What a user hands to `fit` as Dask arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import validate_data

from annealfit._support.errors import InvalidInputError
from annealfit.data.rows.on_dask import DaskRows
from annealfit.models.data import TrainingData, factors_of_classes

if TYPE_CHECKING:
    from annealfit.models.classifier import AnnealedClassifier


def data_of_dask(
    estimator: AnnealedClassifier, X: Any, y: Any, sample_weight: Any, validation_data: Any
) -> TrainingData:
    """The rows of Dask arrays, which stay where they are."""
    if y is None:
        raise InvalidInputError("requires y to be passed, but the target y is None")
    if estimator.validation_fraction is not None:
        raise InvalidInputError(
            "validation_fraction is for arrays; split Dask arrays yourself and pass validation_data=(X, y)"
        )
    if estimator.early_stopping and validation_data is None:
        raise InvalidInputError("early_stopping needs validation data: pass validation_data=(X, y) to fit")
    if not isinstance(validation_data, tuple | None) or (validation_data and len(validation_data) not in (2, 3)):
        raise InvalidInputError("validation_data must be a tuple (X, y) or (X, y, sample_weight)")
    rows = DaskRows(X, y, sample_weight)
    if rows.n_classes < 2:
        raise InvalidInputError(f"the labels hold one class only, {rows.classes[0]}; a classifier needs at least two")
    if rows.classes.dtype.kind == "f" and (rows.classes != np.round(rows.classes)).any():
        raise InvalidInputError("Unknown label type: continuous. The labels of a classifier are classes")
    validate_data(estimator, X, skip_check_array=True, reset=True)
    if estimator.class_weight is not None:
        rows.weigh_classes(factors_of_classes(estimator.class_weight, rows.weights_of_classes, rows.classes))
    held_out = None
    if validation_data is not None:
        validate_data(estimator, validation_data[0], skip_check_array=True, reset=False)
        features, labels, weights = (*validation_data, None)[:3]
        held_out = DaskRows(features, labels, weights, rows.classes)
    return TrainingData.of_rows(rows, rows.classes, held_out, estimator.regularization)
