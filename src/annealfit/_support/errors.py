"""The exceptions annealfit raises: one family, so that `except AnnealfitError` catches them all."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


class AnnealfitError(Exception):
    """Base of every error raised on purpose by annealfit."""


class InvalidInputError(AnnealfitError, ValueError):
    """A value given by the caller is not valid."""


class SamplerError(AnnealfitError, RuntimeError):
    """A sampler raised, or its answer does not fit the problem."""


class BudgetExhaustedError(SamplerError):
    """The budget of a sampler that is paid for by use does not cover the request."""


class ClusterError(AnnealfitError, RuntimeError):
    """The Dask cluster that holds the rows is gone, or has no workers."""


class FileFormatError(AnnealfitError, ValueError):
    """A file is corrupt, truncated, foreign, or of another kind than asked for."""


class CheckpointError(AnnealfitError, RuntimeError):
    """A checkpoint does not belong to the training it was asked to continue."""


class MissingDependencyError(AnnealfitError, ImportError):
    """An optional package is needed for what was asked."""


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional module, or say which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"{purpose} needs the package {module.partition('.')[0]!r}, which is not installed; "
            f"install it with: pip install 'annealfit[{extra}]'"
        ) from error


def choose(name: str, value: object, options: Iterable[str]) -> str:
    """Return `value` if it is one of the option words, or raise naming all of them."""
    words = sorted(options)
    if not isinstance(value, str) or value not in words:
        raise InvalidInputError(f"{name} is {value!r}; choose one of {', '.join(map(repr, words))}")
    return value


def choose_or_own(name: str, value: Any, words: Mapping[str, T], methods: Sequence[str] = ("__call__",)) -> T:
    """Return what an option word stands for, or an object of the user's own if it has these methods.

    >>> choose_or_own("rule", "double", {"double": lambda x: 2 * x})(4), choose_or_own("rule", abs, {})(-1)
    (8, 1)
    """
    if isinstance(value, str):
        return words[choose(name, value, words)]
    known = f"choose one of {', '.join(map(repr, sorted(words)))}"
    if inspect.isclass(value):
        raise InvalidInputError(f"{name} is the class {value.__name__}; pass an object of it, or {known}")
    if all(callable(getattr(value, method, None)) for method in methods):
        return value
    wanted = "a function" if tuple(methods) == ("__call__",) else f"an object with the methods {', '.join(methods)}"
    raise InvalidInputError(f"{name} is {value!r}; {known}, or pass {wanted} (docs/extending.md)")


def check_number(name: str, value: Any, kind: Any = Real, *, remedy: str = "", **limits: float | None) -> None:
    """Raise unless `value` is a finite number of the kind and within the limits (`minimum`, `above`, `maximum`).

    >>> check_number("bits", 3, Integral, minimum=1, maximum=30)
    """
    if wanted := number_wanted(value, kind, **limits):
        hint = f"; {remedy}" if remedy else ""
        raise InvalidInputError(f"{name} is {value!r}; it must be {wanted}{hint}")


def number_wanted(
    value: Any,
    kind: Any = Real,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
) -> str:
    """Return what a value has to be where it is no finite number of the kind within the limits; "" where it is one.

    >>> number_wanted(0.5, minimum=0), number_wanted(0.5, Integral, minimum=0)
    ('', 'a whole number, at least 0')
    """
    if (
        isinstance(value, kind)
        and not isinstance(value, bool | np.bool_)
        and abs(value) <= sys.float_info.max
        and (minimum is None or value >= minimum)
        and (above is None or value > above)
        and (maximum is None or value <= maximum)
    ):
        return ""
    words = (("at least", minimum), ("above", above), ("at most", maximum))
    limits = " and ".join(f"{word} {limit}" for word, limit in words if limit is not None)
    return f"{'a whole number' if kind is Integral else 'a finite number'}{', ' if limits else ''}{limits}"
