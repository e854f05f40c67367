"""A fitted classifier as tensors and a JSON manifest, and back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from annealfit.classifier.settings import RUN_PARAMETERS
from annealfit.description import describe, is_plain
from annealfit.errors import AnnealfitError, FileFormatError, InvalidInputError
from annealfit.samplers import Sampler
from annealfit.samplers.catalogue import restore_sampler

if TYPE_CHECKING:
    from annealfit.classifier.base import AnnealedEstimator

Tensors = dict[str, NDArray[Any]]
Manifest = dict[str, Any]


def to_tensors(estimator: AnnealedEstimator) -> tuple[Tensors, Manifest]:
    """The fitted classifier, its settings among it; objects of the user's own are described, not stored."""
    check_is_fitted(estimator, "coef_")
    parameters = {n: v for n, v in estimator.get_params(deep=False).items() if n not in RUN_PARAMETERS}
    sampler = parameters.pop("sampler")
    class_weight = parameters.pop("class_weight")
    plain = {name: value for name, value in parameters.items() if _is_stored(value)}
    manifest = {
        "parameters": describe(plain),
        "sampler": describe(sampler),
        "class_weight": _labelled_weights(class_weight),
        "not_stored": {name: repr(value) for name, value in parameters.items() if name not in plain},
        "n_iter": estimator.n_iter_,
        "best_iteration": getattr(estimator, "best_iteration_", None),
        "stop_reason": estimator.stop_reason_,
        "optimality_gap": estimator.optimality_gap_ if np.isfinite(estimator.optimality_gap_) else None,
        "classes": _labels_to_json(estimator.classes_),
        "feature_names": list(getattr(estimator, "feature_names_in_", [])),
        "history": estimator.history_,
    }
    return {"coef": estimator.coef_, "intercept": estimator.intercept_}, manifest


def from_tensors(kind: type[AnnealedEstimator], tensors: Tensors, manifest: Manifest) -> AnnealedEstimator:
    """The inverse of `to_tensors`, also for what 0.1.0 wrote."""
    try:
        parameters = {"coordinates": "raw", **manifest["parameters"]}  # 0.1.0 knew no other, and stored none
        if manifest.get("class_weight") is not None:
            parameters["class_weight"] = _weights_of_labels(manifest["class_weight"])
        estimator = kind(**parameters)
        estimator.classes_ = _labels_from_json(manifest["classes"])
        estimator.coef_, estimator.intercept_ = _outputs(tensors["coef"], tensors["intercept"], len(estimator.classes_))
        estimator.n_features_in_ = estimator.coef_.shape[1]
        if manifest["feature_names"]:
            estimator.feature_names_in_ = np.array(manifest["feature_names"], dtype=object)
        estimator.n_iter_ = manifest["n_iter"]
        if manifest.get("best_iteration") is not None:
            estimator.best_iteration_ = manifest["best_iteration"]
        estimator.stop_reason_ = manifest["stop_reason"]
        gap = manifest["optimality_gap"]
        estimator.optimality_gap_ = np.inf if gap is None else float(gap)
        estimator.history_ = manifest["history"]
        not_stored = dict(manifest["not_stored"])
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"the file does not describe a classifier: {error}") from error
    estimator.sampler = _restored_sampler(manifest.get("sampler"), not_stored)
    for name, value in not_stored.items():
        warnings.warn(
            f"{name}={value} is not part of a model file; the loaded classifier has {name}="
            f"{getattr(estimator, name)!r} (predictions need none, but set it before fitting again)",
            stacklevel=4,
        )
    return estimator


def _is_stored(value: Any) -> bool:
    """Whether a setting is in the file as it is: a value that JSON has a word for, or a list of such values."""
    return is_plain(value) or (isinstance(value, list | tuple) and all(map(is_plain, value)))


def _restored_sampler(description: Any, not_stored: dict[str, str]) -> Sampler | str | None:
    """The sampler that was described; one that cannot be made again is added to what is not stored."""
    if description is None or isinstance(description, str):
        return description
    try:
        return restore_sampler(description)
    except AnnealfitError as error:
        not_stored["sampler"] = f"{description} ({error})"
        return None


def _outputs(
    coef: NDArray[np.float64], intercept: NDArray[np.float64], n_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights and biases, one row per output; two classes have one output, where 0.1.0 had two."""
    if intercept.shape != (len(coef),) or len(coef) not in ({1, 2} if n_classes == 2 else {n_classes}):
        raise ValueError("the numbers of classes disagree")
    if n_classes == 2 and len(coef) == 2:
        return coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    return coef, intercept


def _labelled_weights(class_weight: Any) -> Any:
    """JSON's keys are texts, and labels may be numbers: pairs."""
    return (
        [[describe(label), describe(w)] for label, w in class_weight.items()]
        if isinstance(class_weight, Mapping)
        else class_weight
    )


def _weights_of_labels(stored: Any) -> Any:
    return stored if isinstance(stored, str) else dict(stored)


def _labels_to_json(labels: NDArray[Any]) -> dict[str, Any]:
    values = labels.tolist()
    if labels.dtype.kind not in "biufUO" or (
        labels.dtype == object and not all(isinstance(value, str) for value in values)
    ):
        raise InvalidInputError(
            f"labels of types {sorted({type(value).__name__ for value in values})} cannot be stored; "
            "fit with strings or numbers"
        )
    return {"dtype": "object" if labels.dtype == object else labels.dtype.str, "values": values}


def _labels_from_json(stored: dict[str, Any]) -> NDArray[Any]:
    return np.array(stored["values"], dtype=stored["dtype"])
