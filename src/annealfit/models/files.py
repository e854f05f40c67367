"""A fitted classifier as tensors and a JSON manifest, and back."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from annealfit._support.description import describe, is_plain
from annealfit._support.errors import AnnealfitError, InvalidInputError
from annealfit._support.schema import Field, TensorFields, settings_of
from annealfit.models.settings import OLD_FIELDS, RUN_PARAMETERS, changed_method, is_old
from annealfit.samplers import Sampler
from annealfit.samplers.catalogue import resolve_sampler, restore_sampler
from annealfit.training import FilterMethod, HistoryRow, Method

if TYPE_CHECKING:
    from annealfit.models.base import AnnealedEstimator

Estimator = TypeVar("Estimator", bound="AnnealedEstimator")
Tensors = dict[str, NDArray[Any]]
Manifest = dict[str, Any]


def to_tensors(estimator: AnnealedEstimator) -> tuple[Tensors, Manifest]:
    """Return the fitted classifier with its settings; objects of the user are described, not stored."""
    check_is_fitted(estimator, "coef_")
    parameters = {n: v for n, v in estimator.get_params(deep=False).items() if n not in RUN_PARAMETERS}
    sampler = parameters.pop("sampler")
    class_weight = parameters.pop("class_weight")
    plain, not_stored = _stored(parameters)
    manifest = {
        "parameters": describe(plain),
        "sampler": sampler if isinstance(sampler, str | None) else resolve_sampler(sampler).describe(),
        "class_weight": _labelled_weights(class_weight),
        "not_stored": not_stored,
        "n_iter": estimator.n_iter_,
        "best_iteration": getattr(estimator, "best_iteration_", None),
        "stop_reason": estimator.stop_reason_,
        "optimality_gap": estimator.optimality_gap_ if np.isfinite(estimator.optimality_gap_) else None,
        "classes": _labels_to_json(estimator.classes_),
        "feature_names": list(getattr(estimator, "feature_names_in_", [])),
        "history": estimator.history_,
    }
    return {"coef": estimator.coef_, "intercept": estimator.intercept_}, manifest


def from_tensors(kind: type[Estimator], tensors: TensorFields, manifest: Field) -> Estimator:
    """Invert `to_tensors`, also for files of 0.1.0 and 0.2.0."""
    estimator = _with_settings(kind, manifest)
    estimator.classes_ = _labels_from_json(manifest["classes"])
    estimator.coef_, estimator.intercept_ = _outputs(tensors, len(estimator.classes_))
    estimator.n_features_in_ = estimator.coef_.shape[1]
    restore_feature_names(estimator, manifest)
    estimator.history_ = cast(list[HistoryRow], [_row(row) for row in manifest["history"].items()])
    estimator.n_iter_ = manifest["n_iter"].whole(minimum=0)
    if len(estimator.history_) != estimator.n_iter_:
        manifest["n_iter"].refuse(f"{len(estimator.history_)}, the rows of the history")
    best = manifest.get("best_iteration")
    if best is not None:
        estimator.best_iteration_ = best.whole(minimum=0, maximum=estimator.n_iter_)
    estimator.stop_reason_ = manifest["stop_reason"].text()
    gap = manifest.get("optimality_gap")
    estimator.optimality_gap_ = np.inf if gap is None else gap.number(minimum=0)
    not_stored = {name: text.text() for name, text in manifest["not_stored"].entries().items()}
    estimator.sampler = _restored_sampler(manifest.get("sampler"), not_stored)
    for name, value in not_stored.items():
        warnings.warn(
            f"{name}={value} is not part of a model file; the loaded classifier has {name}="
            f"{estimator.get_params().get(name)!r} (predictions need none, but set it before fitting again)",
            stacklevel=4,
        )
    return estimator


def restore_feature_names(model: Any, manifest: Field) -> None:
    """Give a model with `n_features_in_` the names of its features, if it was fitted with names."""
    field = manifest.get("feature_names")
    if field is not None and (names := [name.text() for name in field.items()]):
        if len(names) != model.n_features_in_:
            field.refuse(f"{model.n_features_in_} names")
        model.feature_names_in_ = np.array(names, dtype=object)


def _stored(parameters: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings that JSON can hold, those of a method nested, and the texts of the others."""
    plain: dict[str, Any] = {}
    not_stored: dict[str, str] = {}
    for name, value in parameters.items():
        if isinstance(value, Method | FilterMethod):
            plain[name], more = _stored(value.get_params(deep=False), f"{name}__")
            not_stored |= more
        elif is_plain(value) or (isinstance(value, list | tuple) and all(map(is_plain, value))):
            plain[name] = value
        else:
            not_stored[prefix + name] = repr(value)
    return plain, not_stored


_METHODS: dict[str, Any] = {"method": Method, "filter_method": FilterMethod}


def _with_settings(kind: type[Estimator], manifest: Field) -> Estimator:
    """Return an estimator with the stored settings, each known and within its bounds."""
    usual = kind()
    known = set(usual.get_params(deep=False)) - RUN_PARAMETERS
    parameters: dict[str, Any] = {}
    old: dict[str, dict[str, Any]] = {"method": {"coordinates": "raw"}, "filter_method": {}, "": {}}
    for name, field in manifest["parameters"].entries().items():
        if name in _METHODS and isinstance(field.value, Mapping):
            with settings_of(field):
                parameters[name] = _METHODS[name](**{key: _value(each) for key, each in field.entries().items()})
        elif name in known:
            parameters[name] = _value(field)
        elif is_old(usual, name) and OLD_FIELDS.get(name, ("",))[0] not in RUN_PARAMETERS:
            outer, inner = OLD_FIELDS.get(name, ("", name))
            old[outer][inner] = _value(field)
        else:
            field.refuse(f"no such setting: {kind.__name__} has none of this name")
    if manifest.get("class_weight") is not None:
        parameters["class_weight"] = _weights_of_labels(manifest["class_weight"])
    with settings_of(manifest["parameters"]):
        if "method" not in parameters:  # 0.1.0 knew raw coordinates only, and stored none
            parameters["method"] = changed_method("annealfit", old["method"])
        if old["filter_method"].get("layers") in ([], ()):
            old["filter_method"].pop("layers")  # 0.2.0 had networks without trained layers
        if old["filter_method"]:
            parameters["filter_method"] = FilterMethod(**old["filter_method"])
        estimator = kind(**parameters)
        estimator._check_settings()
    return estimator


def _value(field: Field) -> Any:
    """Return a stored setting: a scalar or a list of scalars."""
    return [item.scalar() for item in field.items()] if isinstance(field.value, list) else field.scalar()


def _row(field: Field) -> dict[str, Any]:
    """Return a row of the history; a sampler may have added any JSON values."""
    row = field.entries()
    for name in ("loss", "accuracy"):
        if name in row:
            row[name].number()
    return {name: value.value if isinstance(value.value, float) else value.scalar() for name, value in row.items()}


def _restored_sampler(field: Field | None, not_stored: dict[str, str]) -> Sampler | str | None:
    """Return the sampler that was described; one that cannot be made again is added to `not_stored`."""
    if field is None or isinstance(field.value, str):
        return None if field is None else field.text()
    field.entries()  # a mapping
    try:
        with settings_of(field):
            return restore_sampler(field.value)
    except AnnealfitError as error:
        not_stored["sampler"] = f"{field.value} ({error})"
        return None


def _outputs(tensors: TensorFields, n_classes: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weights and biases, one row per output; 0.1.0 had two outputs for two classes."""
    coef = tensors.real("coef", (None, None))
    n_outputs = n_classes if n_classes > 2 or len(coef) == 2 else 1
    coef, intercept = tensors.real("coef", (n_outputs, None)), tensors.real("intercept", (n_outputs,))
    if n_classes == 2 and n_outputs == 2:
        return coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    return coef, intercept


def _labelled_weights(class_weight: Any) -> Any:
    """Return class weights as pairs: labels may be numbers, and the keys of JSON are strings."""
    return (
        [[describe(label), describe(w)] for label, w in class_weight.items()]
        if isinstance(class_weight, Mapping)
        else class_weight
    )


def _weights_of_labels(stored: Field) -> Any:
    if isinstance(stored.value, str):
        return stored.one_of(("balanced",))
    pairs = [pair.items() for pair in stored.items()]
    if not all(len(pair) == 2 for pair in pairs):
        stored.refuse("pairs of a label and its weight")
    return {label.scalar(): weight.number(minimum=0) for label, weight in pairs}


def _labels_to_json(labels: NDArray[Any]) -> dict[str, Any]:
    if labels.dtype == np.longdouble and (labels.astype(float) == labels).all():
        labels = labels.astype(float)
    values = labels.tolist()
    if labels.dtype.kind not in "biufUO" or (
        labels.dtype == object and not all(isinstance(value, str) for value in values)
    ):
        raise InvalidInputError(
            f"labels of types {sorted({type(value).__name__ for value in values})} cannot be stored; "
            "fit with strings or numbers"
        )
    return {"dtype": "object" if labels.dtype == object else labels.dtype.str, "values": values}


def _labels_from_json(stored: Field) -> NDArray[Any]:
    """Return the labels: at least two, all different, of their original type."""
    values = [label.scalar() for label in stored["values"].items()]
    dtype = stored["dtype"].text(longest=16)
    with settings_of(stored):
        if not _LABEL_TYPE.fullmatch(dtype):
            stored["dtype"].refuse("the type of numbers or texts")
        labels = np.array(values, dtype=dtype)
    if labels.ndim != 1 or len(labels) < 2 or labels.tolist() != values or len(set(values)) < len(values):
        stored["values"].refuse(f"two or more different labels of the type {dtype}")
    return labels


_LABEL_TYPE = re.compile(r"object|[<>=|]?([biuf][1248]|U\d{1,7})")
