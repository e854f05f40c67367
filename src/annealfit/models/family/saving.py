"""A fitted model of the family as tensors and a JSON manifest, and back."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from annealfit._support.description import describe, is_plain
from annealfit._support.errors import AnnealfitError, InvalidInputError
from annealfit._support.schema import Field, TensorFields
from annealfit.models import files
from annealfit.samplers.catalogue import resolve_sampler

if TYPE_CHECKING:
    from annealfit.models.family.solving import QUBOEstimator

Model = TypeVar("Model", bound="QUBOEstimator")


def to_tensors(model: QUBOEstimator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fitted model with its settings; objects of the user are described, not stored."""
    check_is_fitted(model)
    parameters = model.get_params(deep=False)
    sampler = parameters.pop("sampler")
    plain = {name: value for name, value in parameters.items() if is_plain(value)}
    state = model._state()
    manifest = {
        "parameters": describe(plain),
        "not_stored": {name: repr(value) for name, value in parameters.items() if name not in plain},
        "sampler": sampler if isinstance(sampler, str | None) else resolve_sampler(sampler).describe(),
        "classes": files._labels_to_json(model.classes_) if hasattr(model, "classes_") else None,
        "feature_names": list(getattr(model, "feature_names_in_", [])),
        "n_features_in": model.n_features_in_,
        "numbers": {name: describe(state[name]) for name in model._numbers},
    }
    return {name: state[name] for name in state.keys() - model._numbers}, manifest


def from_tensors(kind: type[Model], tensors: TensorFields, manifest: Field) -> Model:
    """Invert `to_tensors`; what does not describe a model of this kind is refused."""
    model = kind()
    known = set(model.get_params(deep=False)) - {"sampler"}
    for name, field in manifest["parameters"].entries().items():
        if name not in known:
            field.refuse(f"no such setting: {kind.__name__} has none of this name")
        setattr(model, name, field.scalar())
    not_stored = {name: text.text() for name, text in manifest["not_stored"].entries().items()}
    model.sampler = files._restored_sampler(manifest.get("sampler"), not_stored)
    for name, value in not_stored.items():
        warnings.warn(f"{name}={value} is not part of the file; set it before fitting again", stacklevel=4)
    model.n_features_in_ = manifest["n_features_in"].whole(minimum=1)
    sizes = {"D": model.n_features_in_}
    if manifest.get("classes") is not None:
        model.classes_ = files._labels_from_json(manifest["classes"])
        sizes["C"] = len(model.classes_)
        sizes["P"] = sizes["C"] if sizes["C"] > 2 else 1
    files.restore_feature_names(model, manifest)
    state: dict[str, Any] = {name: manifest["numbers"][name].scalar() for name in kind._numbers}
    for name, letters in kind._arrays.items():
        if "C" in letters and "C" not in sizes:  # of a fit without labels
            continue
        shape = tuple(sizes.get(letter) for letter in letters)
        is_whole = name in tensors and tensors.tensors[name].dtype.kind == "i"
        state[name] = tensors.whole(name, shape, minimum=-2) if is_whole else tensors.real(name, shape)
        sizes.update(zip(letters, state[name].shape, strict=True))
    try:
        model._restore(state)
        _try(model)
    except AnnealfitError:
        raise
    except Exception as error:  # whatever comes of settings and arrays that do not fit each other
        manifest.refuse(f"a {kind.__name__} that can be used ({type(error).__name__}: {error})")
    return model


def _try(model: Any) -> None:
    """Ask the model about one row, solved by a sampler that costs nothing."""
    copied = copy.copy(model)
    copied.sampler = "greedy"
    ask = copied.predict if hasattr(model, "classes_") or not hasattr(model, "transform") else copied.transform
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = np.asarray(ask(np.zeros((1, model.n_features_in_))))
    if answer.dtype.kind == "f" and not np.isfinite(answer).all():
        raise InvalidInputError("its answers are not finite")
