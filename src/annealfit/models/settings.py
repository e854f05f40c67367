"""The settings of a classifier: checked, resolved to policies, and described."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from annealfit._support.description import describe, without_neutral
from annealfit._support.errors import InvalidInputError, check_number, choose_or_own
from annealfit.problems.coordinates import COORDINATES, COORDINATES_METHODS
from annealfit.problems.encoding import Encoding
from annealfit.samplers import Sampler, SimulatedAnnealer
from annealfit.training import (
    ACCEPTANCES,
    INITIALIZATIONS,
    PRECISION_POLICIES,
    RANGE_POLICIES,
    Plan,
    Stopping,
)
from annealfit.training.acceptance import RESTING_ON_A_BOUND
from annealfit.training.initialization import Initialization
from annealfit.training.objectives import CURVATURES

if TYPE_CHECKING:
    from annealfit.models.base import AnnealedEstimator

# How a training is watched and saved: no part of a model.
RUN_PARAMETERS = frozenset({"callbacks", "checkpoint", "checkpoint_every", "resume", "verbose"})
# When it ends: a checkpoint may be resumed with others. Of a warm start only the weights matter, once.
_STOPPING_PARAMETERS = frozenset({"max_iter", "tol", "patience", "time_limit", "warm_start"})


RANGE_METHODS = ("first", "choose", "revise", "rate")


def make_plan(estimator: AnnealedEstimator, seed: int) -> Plan:
    """The plan of a training; a setting that is out of bounds is named, with the bounds."""
    _check_numbers(estimator)
    bits = int(estimator.bits)
    acceptance = choose_or_own("acceptance", estimator.acceptance, ACCEPTANCES)
    usual = "bound" if acceptance in RESTING_ON_A_BOUND else "local"
    if isinstance(estimator.coordinates, np.ndarray):
        shape = estimator.coordinates.shape
        raise InvalidInputError(f"coordinates is an array of shape {shape}; pass LinearCoordinates(matrix)")
    return Plan(
        curvature=choose_or_own("curvature", usual if estimator.curvature is None else estimator.curvature, CURVATURES),
        coordinates=choose_or_own("coordinates", estimator.coordinates, COORDINATES, COORDINATES_METHODS),
        max_couplings=None if estimator.max_couplings is None else int(estimator.max_couplings),
        acceptance=acceptance,
        range_policy=choose_or_own("range_policy", estimator.range_policy, RANGE_POLICIES, RANGE_METHODS),
        precision_policy=choose_or_own(
            "precision_policy", estimator.precision_policy, PRECISION_POLICIES, ("first", "following")
        ),
        stopping=Stopping(
            int(estimator.max_iter),
            float(estimator.tol),
            estimator.patience,
            estimator.time_limit,
            bool(estimator.early_stopping),
        ),
        bits=bits,
        update_range=None if estimator.update_range is None else float(estimator.update_range),
        step=float(estimator.step),
        seed=seed,
    )


def initialization_of(estimator: AnnealedEstimator) -> Initialization:
    """The function that makes the first weights."""
    return choose_or_own("initialization", estimator.initialization, INITIALIZATIONS)


def training_settings(
    estimator: AnnealedEstimator, sampler: Sampler, seed: int, data_digest: str, validation_digest: str | None
) -> dict[str, Any]:
    """Everything that decides the course of a training, as plain data: what a checkpoint belongs to."""
    settings = partial_settings(estimator)
    settings |= {"sampler": sampler.describe(), "random_state": seed}
    return without_neutral({**settings, "training data": data_digest, "validation data": validation_digest})


def partial_settings(estimator: AnnealedEstimator) -> dict[str, Any]:
    """The settings to which what `partial_fit` carries on belongs."""
    given = estimator.get_params(deep=False).items()
    return {name: describe(value) for name, value in given if name not in RUN_PARAMETERS | _STOPPING_PARAMETERS}


def upgrade_settings(estimator: AnnealedEstimator, sampler: Sampler) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Settings as 0.1.0 stored them → as they are stored now: that version knew fewer, and samplers by their text."""

    def upgrade(stored: dict[str, Any]) -> dict[str, Any]:
        if "coordinates" in stored:
            return stored
        usual = {**type(estimator)().get_params(deep=False), "coordinates": "raw"}
        unknown_then = {
            name: describe(value)
            for name, value in usual.items()
            if name not in RUN_PARAMETERS | _STOPPING_PARAMETERS and name not in stored
        }
        was = stored.get("sampler")
        same = was == repr(sampler) or (was is None and sampler == SimulatedAnnealer())
        described = without_neutral(sampler.describe())
        unknown_then["validation data"] = None
        return {**unknown_then, **stored, "sampler": described if same else was}

    return upgrade


def _check_numbers(estimator: AnnealedEstimator) -> None:
    Encoding(estimator.bits, 1.0 if estimator.update_range is None else estimator.update_range)
    check_number("regularization", estimator.regularization, Real, minimum=0)
    check_number("max_iter", estimator.max_iter, Integral, minimum=1)
    check_number("checkpoint_every", estimator.checkpoint_every, Integral, minimum=1)
    check_number("step", estimator.step, Real, above=0, maximum=1)
    check_number("tol", estimator.tol, Real, minimum=0)
    check_number("verbose", estimator.verbose, Integral, minimum=0)
    for name in ("warm_start", "early_stopping", "resume"):
        if not isinstance(getattr(estimator, name), bool | np.bool_):
            raise InvalidInputError(f"{name} is {getattr(estimator, name)!r}; it must be True or False")
    optional: Mapping[str, tuple[Any, Any, dict[str, Any]]] = {
        "patience": (estimator.patience, Integral, {"minimum": 1}),
        "time_limit": (estimator.time_limit, Real, {"above": 0}),
        "max_couplings": (estimator.max_couplings, Integral, {"minimum": 0}),
    }
    for name, (value, kind, limits) in optional.items():
        if value is not None:
            check_number(name, value, kind, **limits)
    callbacks = estimator.callbacks
    if callbacks is not None and (not isinstance(callbacks, Sequence) or not all(map(callable, callbacks))):
        raise InvalidInputError(f"callbacks is {callbacks!r}; pass a list of functions of one argument")
