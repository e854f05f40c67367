"""Any setting as plain data: what JSON can hold, the same for settings that mean the same.

Checkpoints compare descriptions to tell whether they belong to a training; model files, run folders and reports
store them. Nothing is ever made from a description but by a table of known names, and nothing that may be a secret
is ever part of one.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from types import FunctionType
from typing import Any

import numpy as np

TYPE = "type"  # the key that names what was described
NEUTRAL = "neutral"  # the key of settings that cannot change a result
_LONGEST_LISTED = 1000  # numbers of an array; of a longer one the digest
_DEEPEST = 4  # objects inside objects; beyond that their type has to do
_SECRET = re.compile(r"token|secret|password|passwd|credential|api_?key|auth", re.IGNORECASE)


def describe(value: Any, _depth: int = 0) -> Any:
    """The value as plain data.

    An object that has a method `describe` is asked. Of others the description is their type and their settings: public
    attributes, arguments of the constructor that were kept under their name, and private ones that are no bare numbers,
    which are taken for counters. A function is its name; one that has no name of its own, or values from around it, is
    its code and these values as well.

    >>> describe((1, None, np.float64(0.5))), describe(len)
    ([1, None, 0.5], 'builtins.len')
    """
    if is_plain(value):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, list | tuple):
        return [describe(item, _depth) for item in value]
    if isinstance(value, Mapping):
        return {str(name): describe(item, _depth) for name, item in value.items() if not _SECRET.search(str(name))}
    if isinstance(value, np.ndarray):
        return _describe_array(value)
    if isinstance(value, functools.partial):
        parts = {"function": value.func, "arguments": value.args, "keywords": value.keywords}
        return {TYPE: "functools.partial", **{name: describe(part, _depth) for name, part in parts.items()}}
    if isinstance(value, FunctionType):
        return _describe_function(value, _depth)
    if hasattr(value, "__qualname__"):  # a class, or a function of C's
        return qualified_name(value)
    if callable(getattr(value, "describe", None)):
        return value.describe()
    settings = {} if _depth >= _DEEPEST else dict(_settings(value))
    return {TYPE: qualified_name(type(value)), **{name: describe(item, _depth + 1) for name, item in settings.items()}}


def without_neutral(description: Any) -> Any:
    """The description without the settings that cannot change a result: what two trainings are compared by.

    >>> without_neutral({"type": "Annealer", "num_reads": 2, "neutral": {"num_threads": 4}})
    {'type': 'Annealer', 'num_reads': 2}
    """
    if isinstance(description, Mapping):
        return {name: without_neutral(item) for name, item in description.items() if name != NEUTRAL}
    return [without_neutral(item) for item in description] if isinstance(description, list) else description


def is_plain(value: Any) -> bool:
    """Whether JSON has a word for the value by itself."""
    return value is None or isinstance(value, str | bool | np.bool_ | Integral | Real)


def qualified_name(named: Any) -> str:
    """Module and name of a class or function; of our own classes the name alone, wherever they live.

    >>> from annealfit.problems.encoding import Encoding
    >>> qualified_name(Encoding), qualified_name(dict)
    ('Encoding', 'builtins.dict')
    """
    module = getattr(named, "__module__", "") or ""
    return named.__qualname__ if module.partition(".")[0] == "annealfit" else f"{module}.{named.__qualname__}"


def constructor_arguments(kind: type) -> list[str]:
    """The names of a class's settings: the arguments of its constructor that have one."""
    try:
        parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
    except ValueError:  # a class of compiled code says nothing of its arguments
        return []
    return [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name != "self"]


def _settings(value: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
        return
    arguments = set(constructor_arguments(type(value)))
    for name, item in getattr(value, "__dict__", {}).items():
        private = name.startswith("_") and name.lstrip("_") not in arguments
        counter = isinstance(item, Integral | Real | None)
        opaque = not isinstance(item, str | list | tuple | Mapping | np.ndarray)
        if not _SECRET.search(name) and not (private and (counter or opaque)) and name not in _OF_A_PROTOCOL:
            yield name, item
    if hasattr(value, "children"):  # dimod's composites keep theirs under other names
        yield "children", list(value.children)


# What a dimod sampler declares about its class, which its type says already.
_OF_A_PROTOCOL = frozenset({"parameters", "properties", "_children", "children"})


def _describe_function(function: FunctionType, depth: int) -> Any:
    name = qualified_name(function)
    around = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    if "<lambda>" not in name and not around:
        return name
    code = function.__code__
    constants = [constant for constant in code.co_consts if is_plain(constant)]
    digest = hashlib.sha256(code.co_code + repr((constants, code.co_names)).encode()).hexdigest()
    inside = [] if depth >= _DEEPEST else [describe(item, depth + 1) for item in (*around, *defaults)]
    return {TYPE: "function", "name": name, "code": digest[:16], "values": inside}


def _describe_array(array: np.ndarray) -> Any:
    if array.size <= _LONGEST_LISTED and array.dtype.kind in "biuf":
        return array.tolist()
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return {TYPE: "array", "shape": list(array.shape), "sha256": digest}
