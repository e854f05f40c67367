"""Model files of any kind: a fitted pipeline, or a single model, saved and loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from annealfit import models
from annealfit._support.errors import InvalidInputError
from annealfit._support.files import StrPath, kind_of_file, read_tensors, write_tensors
from annealfit._support.schema import Field, TensorFields, settings_of
from annealfit.data.features import OnnxFeatures, RandomConvFeatures, RowScaler
from annealfit.models import AnnealedClassifier, AnnealedConvNet
from annealfit.models.family.solving import QUBOEstimator
from annealfit.models.files import restore_feature_names
from annealfit.models.image_classifier import ImageClassifier

_KIND = "pipeline"
_FAMILY: tuple[Any, ...] = (
    *(models.QUBORidge, models.QUBORidgeClassifier, models.QUBOSVC, models.QBoostClassifier),
    *(models.BinarySparseCoding, models.BinaryMatrixFactorization, models.AnnealedRBM),
)
_OWN: dict[str, Any] = {
    kind.__name__: kind for kind in (RandomConvFeatures, OnnxFeatures, AnnealedClassifier, AnnealedConvNet, *_FAMILY)
}
_SCALERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "MaxAbsScaler": (MaxAbsScaler, ("scale_", "max_abs_")),
    "MinMaxScaler": (MinMaxScaler, ("min_", "scale_", "data_min_", "data_max_", "data_range_")),
    "RowScaler": (RowScaler, ("mean_", "scale_")),
    "StandardScaler": (StandardScaler, ("mean_", "var_", "scale_")),
}
_SINGLE: dict[str, Callable[[StrPath], Any]] = {
    "classifier": AnnealedClassifier.load,
    "convolution network": AnnealedConvNet.load,
    "image classifier": ImageClassifier.load,
    **{kind.__name__: kind.load for kind in _FAMILY},
}
_MOST_STEPS, _MOST_FEATURES = 100, 2**31


def save_model(model: Any, path: StrPath) -> None:
    """Write a fitted model of this package, or a pipeline, to one safetensors file, without pickle.

    The steps of a pipeline are those of this package, and scikit-learn's `StandardScaler`, `MinMaxScaler` and
    `MaxAbsScaler`.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> import tempfile
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), AnnealedClassifier(max_iter=20, random_state=0)).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, f"{folder}/iris.safetensors")
    ...     again = load_model(f"{folder}/iris.safetensors")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    if isinstance(model, AnnealedClassifier | AnnealedConvNet | ImageClassifier | QUBOEstimator):
        model.save(path)
        return
    steps = model.steps if isinstance(model, Pipeline) else [(type(model).__name__, model)]
    tensors, described = dict[str, Any](), list[Any]()
    for name, step in steps:
        if not isinstance(step, str | None):  # "passthrough"
            own, content = _stored(step)
            tensors.update({f"{len(described)}.{key}": value for key, value in own.items()})
            described.append({"name": name, "kind": type(step).__name__, "content": content})
    write_tensors(path, _KIND, tensors, {"steps": described})


def load_model(path: StrPath) -> Any:
    """Read a model of any kind that `save_model`, the `save` of a classifier or a command wrote."""
    kind = kind_of_file(path)
    if kind in _SINGLE:
        return _SINGLE[kind](path)
    tensors, manifest = read_tensors(path, _KIND)
    steps = [
        (field["name"].text(), _restored(tensors.under(f"{place}."), field))
        for place, field in enumerate(manifest["steps"].items(_MOST_STEPS))
    ]
    if not steps:
        manifest["steps"].refuse("at least one step")
    return Pipeline(steps)


def _stored(step: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    name = type(step).__name__
    if type(step) is _OWN.get(name):
        return step.to_tensors()
    kind, attributes = _SCALERS.get(name, (None, ()))
    if type(step) is not kind:
        known = ", ".join(sorted({*_OWN, *_SCALERS}))
        raise InvalidInputError(f"{name} cannot be saved; steps that can: {known}")
    check_is_fitted(step)
    tensors = {key: getattr(step, key) for key in attributes if getattr(step, key) is not None}
    names = [*getattr(step, "feature_names_in_", ())]
    return tensors, {"parameters": step.get_params(), "n_features_in": step.n_features_in_, "feature_names": names}


def _restored(tensors: TensorFields, field: Field) -> Any:
    kind, content = field["kind"].one_of({*_OWN, *_SCALERS}), field["content"]
    if kind in _OWN:
        return _OWN[kind].from_tensors(tensors, content)
    scaler, attributes = _SCALERS[kind]
    given = content["parameters"]
    with settings_of(given):
        step = scaler(**{name: _setting(value) for name, value in given.entries().items()})
    step.n_features_in_ = content["n_features_in"].whole(minimum=1, maximum=_MOST_FEATURES)
    restore_feature_names(step, content)
    unused = {"mean_": not getattr(step, "with_mean", True), "scale_": not getattr(step, "with_std", True)}
    for name in attributes:
        is_there = name in tensors or not unused.get(name, name == "var_")
        positive = name == "scale_" and kind != "MinMaxScaler"
        shape = (step.n_features_in_,)
        setattr(step, name, tensors.real(name, shape, positive=positive) if is_there else None)
    return step


def _setting(stored: Field) -> Any:
    """A truth value, or the two ends of a range."""
    if isinstance(stored.value, list):
        return tuple(np.float64(end.number()).item() for end in stored.items(2))
    return stored.flag()
