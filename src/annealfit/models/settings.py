"""The settings of an estimator: checked, described for checkpoints, and translated from the keywords of 0.2.0."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from annealfit._support.description import describe, without_neutral
from annealfit._support.errors import InvalidInputError, check_number
from annealfit.problems.encoding import Encoding
from annealfit.samplers import Sampler, SimulatedAnnealer
from annealfit.training import Checkpoint, Method, Stopping
from annealfit.training.method import as_method

if TYPE_CHECKING:
    from annealfit.models.base import AnnealedEstimator

T = TypeVar("T")

# How a training is watched and saved: not part of a model.
RUN_PARAMETERS = frozenset({"callbacks", "checkpoint", "verbose"})
# When it ends: a checkpoint may be resumed with others. Of a warm start only the weights matter.
_STOPPING_PARAMETERS = frozenset({"max_iter", "tol", "patience", "time_limit", "warm_start"})

# Keywords of 0.2.0 and of its files: the parameter that each is a field of today, and the field.
OLD_FIELDS = {
    **{field.name: ("method", field.name) for field in fields(Method)},
    **{name: ("filter_method", name) for name in ("head_steps", "damping", "curvature_rows")},
    "trainable": ("filter_method", "layers"),
    "filter_curvature": ("filter_method", "curvature"),
    "checkpoint_every": ("checkpoint", "every"),
    "resume": ("checkpoint", "resume"),
}
_NEW_SPELLINGS = {
    "method": "method=Method({}=…)",
    "filter_method": "filter_method=FilterMethod({}=…)",
    "checkpoint": "checkpoint=Checkpoint(path, {}=…)",
}
_NETWORK_TOL = "ignored: there is no certificate for filters"


def paper_annealer(bits: int, preset: str, num_sweeps: int = 100) -> SimulatedAnnealer:
    """Return the annealer of the paper: β from 0.01 to 3 on normalised coefficients, or final β × 2^(K−3)."""
    final_beta = 3.0 if preset == "literal" else 3.0 * 2.0 ** (bits - 3)
    return SimulatedAnnealer(num_sweeps=num_sweeps, num_reads=1, beta_range=(0.01, final_beta), normalize=True)


def sampler_of(estimator: AnnealedEstimator) -> Any:
    """Return the sampler setting; the presets of the paper have an annealer of their own."""
    if estimator.sampler is None and estimator.method in ("literal", "matched"):
        return paper_annealer(estimator.bits, str(estimator.method))
    return estimator.sampler


def checkpoint_of(estimator: AnnealedEstimator) -> Any:
    """Return the checkpoint setting as a `Checkpoint`, checked."""
    given = estimator.checkpoint
    if given is None:
        return None
    found = given if isinstance(given, Checkpoint) else Checkpoint(given)
    check_number("every (of a checkpoint)", found.every, Integral, minimum=1)
    if not isinstance(found.resume, bool | np.bool_):
        raise InvalidInputError(f"resume is {found.resume!r}; it must be True or False")
    if found.path is None:
        if found.resume:
            raise InvalidInputError("resume=True needs a checkpoint path to continue from")
        return None
    return found


def check_settings(estimator: AnnealedEstimator) -> None:
    """Raise if a setting is out of bounds, naming the bounds."""
    Encoding(estimator.bits, 1.0)
    check_number("regularization", estimator.regularization, Real, minimum=0)
    check_number("max_iter", estimator.max_iter, Integral, minimum=1)
    check_number("tol", estimator.tol, Real, minimum=0)
    check_number("verbose", estimator.verbose, Integral, minimum=0)
    for name in ("warm_start", "early_stopping"):
        if not isinstance(getattr(estimator, name), bool | np.bool_):
            raise InvalidInputError(f"{name} is {getattr(estimator, name)!r}; it must be True or False")
    if estimator.patience is not None:
        check_number("patience", estimator.patience, Integral, minimum=1)
    if estimator.time_limit is not None:
        check_number("time_limit", estimator.time_limit, Real, above=0)
    callbacks = estimator.callbacks
    if callbacks is not None and (not isinstance(callbacks, Sequence) or not all(map(callable, callbacks))):
        raise InvalidInputError(f"callbacks is {callbacks!r}; pass a list of functions of one argument")
    checkpoint_of(estimator)


def stopping_of(estimator: AnnealedEstimator) -> Stopping:
    """Return the stopping rules."""
    return Stopping(
        int(estimator.max_iter),
        float(estimator.tol),
        estimator.patience,
        estimator.time_limit,
        bool(estimator.early_stopping),
    )


def accept_old_keywords(kind: type[T]) -> type[T]:
    """Decorate an estimator: its constructor takes the keywords of 0.2.0 too, which its signature does not show."""
    init: Any = kind.__init__
    known = set(inspect.signature(init).parameters)

    @wraps(init)
    def wrapped(self: Any, *arguments: Any, **keywords: Any) -> None:
        old = {name: keywords.pop(name) for name in list(keywords) if name not in known}
        init(self, *arguments, **keywords)
        translate_old(self, old, stacklevel=3)

    setattr(kind, "__init__", wrapped)  # noqa: B010
    return kind


def is_old(estimator: AnnealedEstimator, name: str) -> bool:
    """Whether 0.2.0 had this keyword for such an estimator, and today's has not."""
    names = estimator._get_param_names()
    return OLD_FIELDS.get(name, ("",))[0] in names or (name == "tol" and name not in names)


def translate_old(estimator: AnnealedEstimator, old: Mapping[str, Any], stacklevel: int) -> None:
    """Set what keywords of 0.2.0 mean today, with a FutureWarning that names the new spelling."""
    unknown = sorted(name for name in old if not is_old(estimator, name))
    if unknown:
        raise TypeError(f"{type(estimator).__name__} has no parameter {', '.join(unknown)}")
    of_method: dict[str, Any] = {}
    for name, value in old.items():
        outer, field = OLD_FIELDS.get(name, ("", ""))
        if outer == "method":
            of_method[field] = value
        elif outer:
            current = estimator._as_settings(outer) or Checkpoint(None)
            setattr(estimator, outer, current.set_params(**{field: value}))
        new = _NEW_SPELLINGS[outer].format(field) if outer else _NETWORK_TOL
        warnings.warn(
            f"{type(estimator).__name__}({name}=…) is now {new}; the old spelling goes with the next release",
            FutureWarning,
            stacklevel=stacklevel,
        )
    if of_method:
        estimator.method = changed_method(estimator.method, of_method)


def changed_method(method: str | Method, changes: Mapping[str, Any]) -> Method:
    """Return a method with fields of 0.2.0 changed; there a curvature of None followed the acceptance rule."""
    rule = changes.get("acceptance")
    rests_on_bound = rule == "descent" or getattr(rule, "__name__", "") == "descent"
    if changes.get("curvature") is None and ("curvature" in changes or rests_on_bound):
        changes = {**changes, "curvature": "bound" if rests_on_bound else "local"}
    return as_method(method).set_params(**changes)


def described_settings(estimator: AnnealedEstimator, *, strict: bool = True) -> dict[str, Any]:
    """Return the settings that decide the course of a training as plain data, under the names of 0.2.0.

    `strict` refuses objects that cannot be described: two trainings that differ in them could not be told apart.
    """
    given = estimator.get_params(deep=False)
    for old, (outer, field) in OLD_FIELDS.items():
        if outer in given and outer not in RUN_PARAMETERS:
            given[old] = getattr(estimator._as_settings(outer), field)
    if isinstance(given["acceptance"], str) and given["acceptance"] == "second_direction":
        given["acceptance"] = "subspace"
    left_out = RUN_PARAMETERS | _STOPPING_PARAMETERS | {"method", "filter_method"}
    return {name: describe(value, strict=strict) for name, value in given.items() if name not in left_out}


def training_settings(
    estimator: AnnealedEstimator, sampler: Sampler, seed: int, data_digest: str, validation_digest: str | None
) -> dict[str, Any]:
    """Return everything that decides the course of a training, as plain data: what a checkpoint belongs to."""
    settings = described_settings(estimator) | {"sampler": sampler.describe(), "random_state": seed}
    return without_neutral({**settings, "training data": data_digest, "validation data": validation_digest})


def upgrade_settings(estimator: AnnealedEstimator, sampler: Sampler) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function from settings as 0.1.0 and 0.2.0 stored them to those of today."""

    def upgrade(stored: dict[str, Any]) -> dict[str, Any]:
        now = described_settings(estimator)
        if "coordinates" not in stored:  # 0.1.0 knew fewer settings, and samplers by their text
            usual = described_settings(type(estimator)()) | {"coordinates": "raw", "validation data": None}
            was = stored.get("sampler")
            same = was == repr(sampler) or (was is None and sampler == SimulatedAnnealer())
            stored = {**usual, **stored, "sampler": without_neutral(sampler.describe()) if same else was}
            stored.pop("arithmetic", None)
        if stored.get("curvature") is None:
            stored = {**stored, "curvature": "bound" if stored.get("acceptance") == "descent" else "local"}
        if stored.get("acceptance") == "second_direction":
            stored = {**stored, "acceptance": "subspace"}
        for name in ("update_range", "arithmetic"):
            if name not in stored and name in now:
                stored = {**stored, name: now[name]}  # earlier versions had no such choice
        return {name: value for name, value in stored.items() if name not in _STOPPING_PARAMETERS}

    return upgrade
