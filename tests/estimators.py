"""Estimators from flat settings: tests draw the fields of a method together with the parameters of an estimator."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from annealfit import AnnealedClassifier, AnnealedConvNet, FilterMethod, Method

METHOD_FIELDS = tuple(field.name for field in fields(Method))
# The names that fields of a filter method have here: a method has a curvature too.
FILTER_FIELDS = {
    "layers": "layers",
    "head_steps": "head_steps",
    "filter_curvature": "curvature",
    "damping": "damping",
    "curvature_rows": "curvature_rows",
    "first_images": "first_images",
}


def annealed(**settings: Any) -> AnnealedClassifier:
    """Return a classifier; fields of `Method` among the settings make its method."""
    return AnnealedClassifier(**_with_method(settings))


def annealed_net(**settings: Any) -> AnnealedConvNet:
    """Return a network; fields of `Method` and `FILTER_FIELDS` among the settings make its methods."""
    filters = {new: settings.pop(name) for name, new in FILTER_FIELDS.items() if name in settings}
    if filters:
        settings["filter_method"] = FilterMethod(**filters)
    return AnnealedConvNet(**_with_method(settings))


def _with_method(settings: dict[str, Any]) -> dict[str, Any]:
    method = {name: settings.pop(name) for name in METHOD_FIELDS if name in settings}
    return {**settings, "method": Method(**method)} if method else settings
