"""Any setting as plain data: what JSON can hold, the same for settings that mean the same.

Checkpoints compare descriptions to tell whether they belong to a training; model files, run folders and reports
store them. Nothing is ever made from a description but by a table of known names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

TYPE = "type"  # the key that names what was described
_LONGEST_LISTED = 1000  # numbers of an array; of a longer one the digest


def describe(value: Any) -> Any:
    """The value as plain data.

    An object that has a method `describe` is asked. Of others the description is their type and their public
    attributes that are plain data themselves; functions and classes are their names.

    >>> describe((1, None, np.float64(0.5))), describe(len)
    ([1, None, 0.5], 'builtins.len')
    """
    if is_plain(value):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, list | tuple):
        return [describe(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): describe(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return _describe_array(value)
    if hasattr(value, "__qualname__"):  # a function or a class
        return qualified_name(value)
    if callable(getattr(value, "describe", None)):
        return value.describe()
    if is_dataclass(value):
        own = {field.name: getattr(value, field.name) for field in fields(value)}
        return {TYPE: qualified_name(type(value)), **{name: describe(item) for name, item in own.items()}}
    attributes = {name: item for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    known = {name: describe(item) for name, item in attributes.items() if _is_nested_plain(item)}
    return {TYPE: qualified_name(type(value)), **known}


def is_plain(value: Any) -> bool:
    """Whether JSON has a word for the value by itself."""
    return value is None or isinstance(value, str | bool | np.bool_ | Integral | Real)


def qualified_name(named: Any) -> str:
    """Module and name of a class or function; of our own classes the name alone, wherever they live.

    >>> from annealfit.encoding import Encoding
    >>> qualified_name(Encoding), qualified_name(dict)
    ('Encoding', 'builtins.dict')
    """
    module = getattr(named, "__module__", "") or ""
    return named.__qualname__ if module.partition(".")[0] == "annealfit" else f"{module}.{named.__qualname__}"


def _is_nested_plain(value: Any) -> bool:
    return is_plain(value) or (isinstance(value, list | tuple) and all(map(_is_nested_plain, value)))


def _describe_array(array: np.ndarray) -> Any:
    if array.size <= _LONGEST_LISTED and array.dtype.kind in "biuf":
        return array.tolist()
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return {TYPE: "array", "shape": list(array.shape), "sha256": digest}
