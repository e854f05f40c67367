"""Settings as plain data that JSON can hold, equal for settings that mean the same.

Checkpoints compare descriptions to identify a training; model files, run folders and reports store them. Objects are
made from descriptions by tables of known names only, and nothing that may be a secret is part of one.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from annealfit._support.errors import InvalidInputError

TYPE = "type"  # the key that names what was described
NEUTRAL = "neutral"  # the key of settings that cannot change a result
_LONGEST_LISTED = 1000  # numbers of an array; of a longer one the digest
_DEEPEST = 8  # values inside values
_SECRET = re.compile(r"token|secret|password|passwd|credential|api_?key|auth", re.IGNORECASE)


def describe(value: Any, *, strict: bool = False, _depth: int = 0) -> Any:
    """Return a value as plain data.

    An object with a method `describe` is asked. Of others the description is their type and their attributes. A
    function of this package is its name; another function is its name, code, defaults and the values it closes over.

    `strict` includes all private attributes and raises for what cannot be described: two values that differ there
    would look the same. Otherwise private numbers, taken for counters, and private objects are left out.

    >>> describe((1, None, np.float64(0.5))), describe(len)
    ([1, None, 0.5], 'builtins.len')
    """

    def inner(item: Any) -> Any:
        return describe(item, strict=strict, _depth=_depth + 1)

    if is_plain(value):
        return value.item() if isinstance(value, np.generic) else value
    if _depth > _DEEPEST:
        if strict:
            raise _refused(value, f"is nested deeper than {_DEEPEST} levels")
        return {TYPE: qualified_name(type(value))}
    if isinstance(value, list | tuple | set | frozenset):
        return [inner(item) for item in (sorted(value, key=repr) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, Mapping):
        return {str(name): inner(item) for name, item in value.items() if not _SECRET.search(str(name))}
    if isinstance(value, np.ndarray):
        return _describe_array(value)
    if isinstance(value, functools.partial):
        return {
            TYPE: "functools.partial",
            "function": inner(value.func),
            "arguments": inner([value.args, value.keywords]),
        }
    if isinstance(value, MethodType):
        return {TYPE: "method", "name": value.__name__, "object": inner(value.__self__)}
    if isinstance(value, FunctionType):
        return _describe_function(value, inner)
    if hasattr(value, "__qualname__"):  # a class, or a function of a C module
        return qualified_name(value)
    if callable(getattr(value, "describe", None)):
        return value.describe()
    if strict and not hasattr(value, "__dict__"):
        raise _refused(value, "has no attributes that could be read")
    settings = {name: item for name, item in _settings(value, strict) if not _SECRET.search(name)}
    return {TYPE: qualified_name(type(value)), **{name: inner(item) for name, item in settings.items()}}


def _refused(value: Any, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{type(value).__name__} {why}, so a checkpoint could not tell two trainings apart; give it a method "
        "describe() that returns its settings, or train without a checkpoint"
    )


def without_neutral(description: Any) -> Any:
    """Return a description without the settings that cannot change a result.

    >>> without_neutral({"type": "Annealer", "num_reads": 2, "neutral": {"num_threads": 4}})
    {'type': 'Annealer', 'num_reads': 2}
    """
    if isinstance(description, Mapping):
        return {name: without_neutral(item) for name, item in description.items() if name != NEUTRAL}
    return [without_neutral(item) for item in description] if isinstance(description, list) else description


def is_plain(value: Any) -> bool:
    """Whether a value is a JSON scalar."""
    return value is None or isinstance(value, str | bool | np.bool_ | Integral | Real)


def qualified_name(named: Any) -> str:
    """Return module and name of a class or function; of this package the name only.

    >>> from annealfit.problems.encoding import Encoding
    >>> qualified_name(Encoding), qualified_name(dict)
    ('Encoding', 'builtins.dict')
    """
    module = getattr(named, "__module__", "") or ""
    return named.__qualname__ if module.partition(".")[0] == "annealfit" else f"{module}.{named.__qualname__}"


def constructor_arguments(kind: type) -> list[str]:
    """Return the names of the arguments of a class's constructor."""
    try:
        parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
    except ValueError:  # compiled classes have no signature
        return []
    return [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name != "self"]


def _settings(value: Any, strict: bool) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
        return
    arguments = set(constructor_arguments(type(value)))
    for name, item in getattr(value, "__dict__", {}).items():
        private = name.startswith("_") and name.lstrip("_") not in arguments
        is_data = isinstance(item, str | list | tuple | Mapping | np.ndarray)
        if name not in _OF_A_PROTOCOL and (strict or not private or is_data):
            yield name, item
    if hasattr(value, "children"):  # dimod's composites keep theirs under other names
        yield "children", list(value.children)


# What a dimod sampler declares about its class, which its type says already.
_OF_A_PROTOCOL = frozenset({"parameters", "properties", "_children", "children"})


def _describe_function(function: FunctionType, inner: Callable[[Any], Any]) -> Any:
    name = qualified_name(function)
    if (function.__module__ or "").partition(".")[0] == "annealfit" and not function.__closure__:
        return name
    code = function.__code__
    around = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    constants = [constant for constant in code.co_consts if is_plain(constant)]
    digest = hashlib.sha256(code.co_code + repr((constants, code.co_names)).encode()).hexdigest()
    values = [inner(item) for item in (*around, *defaults)]
    return {TYPE: "function", "name": name, "code": digest[:16], "values": values}


def _describe_array(array: np.ndarray) -> Any:
    if array.size <= _LONGEST_LISTED and array.dtype.kind in "biuf":
        return array.tolist()
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return {TYPE: "array", "shape": list(array.shape), "sha256": digest}
