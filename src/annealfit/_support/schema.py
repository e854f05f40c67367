"""Checked access to the content of a file: every value knows its place, so that an error can name it.

A reader asks for a value and says what it has to be: `manifest["n_iter"].whole(minimum=0)`. A value that is absent, of
another type, out of bounds or not finite raises a `FileFormatError` that names the file and the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError, number_wanted

DEEPEST = 32  # levels of lists and mappings inside each other
LONGEST = 1_000_000  # entries of a list or a mapping, characters of a text
_SHOWN = 60  # characters of a value that an error shows
_UNNAMED = "the file"

Shape = tuple[int | None, ...]  # None is any length


@dataclass(frozen=True)
class Field:
    """A value of a JSON document and the way to it.

    >>> manifest = Field({"classes": ["cat", "dog"], "n_iter": -3}, source="iris")
    >>> [name.text() for name in manifest["classes"].items()]
    ['cat', 'dog']
    >>> manifest["n_iter"].whole(minimum=0)
    Traceback (most recent call last):
    annealfit._support.errors.FileFormatError: iris: its field n_iter is -3; expected a whole number, at least 0
    """

    value: Any
    way: str = ""
    source: str = _UNNAMED

    @classmethod
    def of(cls, given: Any) -> Field:
        """Return a field unchanged, and any other value as a document."""
        return given if isinstance(given, Field) else cls(given)

    def refuse(self, expected: str) -> NoReturn:
        """Raise the error that names the field, its value and what was expected."""
        shown = repr(self.value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        field = f"its field {self.way}" if self.way else "its content"
        raise FileFormatError(f"{self.source}: {field} is {shown}; expected {expected}")

    def __getitem__(self, name: str) -> Field:
        found = self.entries().get(name)
        return self._below(name, None).refuse("a value") if found is None else found

    def get(self, name: str) -> Field | None:
        """Return the field of this name; None where it is absent or null."""
        found = self.entries().get(name)
        return None if found is None or found.value is None else found

    def entries(self) -> dict[str, Field]:
        """Return the fields of a mapping by name."""
        values = self._checked(Mapping, "a mapping from names to values")
        return {name: self._below(name, value) for name, value in values.items()}

    def items(self, most: int = LONGEST) -> list[Field]:
        """Return the fields of a list."""
        values = self._checked(list | tuple, f"a list of at most {most} values", lambda value: len(value) <= most)
        return [Field(value, f"{self.way}[{index}]", self.source) for index, value in enumerate(values)]

    def text(self, longest: int = LONGEST) -> str:
        """Return a text."""
        return self._checked(str, f"a text of at most {longest} characters", lambda value: len(value) <= longest)

    def flag(self) -> bool:
        """Return true or false."""
        return self._checked(bool, "true or false")

    def whole(self, *, minimum: int, maximum: int | None = None) -> int:
        """Return a whole number within limits, of at most 63 bits."""
        wanted = number_wanted(self.value, Integral, minimum=minimum, maximum=maximum)
        if wanted or self.value >= 2**63:
            self.refuse(wanted or "a whole number of at most 63 bits")
        return int(self.value)

    def number(self, *, minimum: float | None = None, maximum: float | None = None, finite: bool = True) -> float:
        """Return a number within limits; NaN and the infinities are accepted unless `finite`."""
        is_special = isinstance(self.value, float) and not math.isfinite(self.value)
        wanted = number_wanted(self.value, minimum=minimum, maximum=maximum)
        if wanted and not (is_special and not finite):
            self.refuse(wanted)
        return float(self.value)

    def one_of(self, options: Iterable[str]) -> str:
        """Return one of these words."""
        words = sorted(options)
        return self._checked(str, f"one of {', '.join(words)}", lambda value: value in words)

    def scalar(self) -> Any:
        """Return a text, a truth value, a finite number, or None."""
        if self.value is not None and not isinstance(self.value, str | bool):
            self.number()
        return self.value

    def plain(self) -> Any:
        """Return a scalar, or a list or mapping of such values."""
        if isinstance(self.value, Mapping):
            return {name: field.plain() for name, field in self.entries().items()}
        return [field.plain() for field in self.items()] if isinstance(self.value, list) else self.scalar()

    def _checked(self, kind: Any, expected: str, fits: Callable[[Any], bool] = lambda value: True) -> Any:
        """Return the value if it is of a kind and fits, or raise."""
        if not isinstance(self.value, kind) or not fits(self.value):
            self.refuse(expected)
        return self.value

    def _below(self, name: str, value: Any) -> Field:
        return Field(value, f"{self.way}.{name}" if self.way else str(name), self.source)


@dataclass(frozen=True, eq=False)
class TensorFields:
    """The arrays of a file by name."""

    tensors: Mapping[str, NDArray[Any]]
    source: str = _UNNAMED
    prefix: str = ""  # of the names in the file

    @classmethod
    def of(cls, given: Any) -> TensorFields:
        """Return fields unchanged, and a mapping of arrays as fields."""
        return given if isinstance(given, TensorFields) else cls(given)

    def under(self, prefix: str) -> TensorFields:
        """Return the arrays whose names begin with the prefix, by the rest of their names."""
        own = {name.removeprefix(prefix): value for name, value in self.tensors.items() if name.startswith(prefix)}
        return TensorFields(own, self.source, self.prefix + prefix)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def real(self, name: str, shape: Shape, *, finite: bool = True, positive: bool = False) -> NDArray[np.float64]:
        """Return an array of floating-point numbers of this shape."""
        found = self._shaped(name, shape, "f", "numbers")
        if finite and not np.isfinite(found).all():
            self._refuse(name, "holds NaN or infinity; expected finite numbers")
        if positive and not (found > 0).all():
            self._refuse(name, "holds numbers that are not above 0")
        return found.astype(np.float64, copy=False)

    def whole(self, name: str, shape: Shape, *, minimum: int = 0, maximum: int | None = None) -> NDArray[np.int64]:
        """Return an array of whole numbers within limits."""
        found = self._shaped(name, shape, "iu", "whole numbers")
        if found.size and (found.min() < minimum or (maximum is not None and found.max() > maximum)):
            limit = "" if maximum is None else f" and at most {maximum}"
            self._refuse(name, f"goes from {found.min()} to {found.max()}; expected at least {minimum}{limit}")
        return found.astype(np.int64, copy=False)

    def numbers(self, name: str, shape: Shape) -> NDArray[Any]:
        """Return an array of numbers or truth values, NaN where a number is missing."""
        return self._shaped(name, shape, "fiub", "numbers")

    def _shaped(self, name: str, shape: Shape, kinds: str, what: str) -> NDArray[Any]:
        if name not in self.tensors:
            self._refuse(name, "is missing")
        found = self.tensors[name]
        fits = found.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, found.shape, strict=True))
        if not fits or found.dtype.kind not in kinds:
            wanted = " × ".join("any" if n is None else str(n) for n in shape)
            self._refuse(name, f"has the shape {found.shape} and the type {found.dtype}; expected {what}, {wanted}")
        return found

    def _refuse(self, name: str, what: str) -> NoReturn:
        raise FileFormatError(f"{self.source}: its tensor {self.prefix}{name} {what}")


_HISTORY = "history."


def stored_history(columns: Mapping[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return a history as tensors, and as a manifest that has the order of its columns and all texts."""
    texts = {name: column.tolist() for name, column in columns.items() if column.dtype.kind == "U"}
    tensors = {_HISTORY + name: column for name, column in columns.items() if name not in texts}
    return tensors, {"columns": list(columns), "texts": texts}


def read_history(
    tensors: TensorFields, manifest: Field, length: int | None = None, finite: Collection[str] = ("loss",)
) -> dict[str, NDArray[Any]]:
    """Return the columns of a stored history, all of this length, or of that of the first one."""
    texts = manifest.get("texts")
    texts_of = {} if texts is None else texts.entries()
    columns: dict[str, NDArray[Any]] = {}
    for name in dict.fromkeys([*(name.text() for name in manifest["columns"].items()), *texts_of]):
        if name not in texts_of:
            read = tensors.real if name in finite else tensors.numbers
            columns[name] = read(_HISTORY + name, (length,))
        else:
            columns[name] = np.array([text.text() for text in texts_of[name].items()])
            if length is not None and len(columns[name]) != length:
                texts_of[name].refuse(f"{length} texts")
        length = len(columns[name])
    return columns


@contextmanager
def settings_of(field: Field) -> Iterator[None]:
    """Turn the error of a constructor that refuses settings from a file into a `FileFormatError`."""
    try:
        yield
    except FileFormatError:
        raise
    except (InvalidInputError, TypeError, ValueError, ArithmeticError) as error:
        raise FileFormatError(f"{field.source}: its field {field.way or 'content'} is refused: {error}") from error


def check_depth(document: Any, source: str, most: int = DEEPEST) -> None:
    """Raise where lists and mappings are nested deeper than so many levels."""
    if not isinstance(document, dict | list):
        return
    if most == 0:
        raise FileFormatError(f"{source}: its values are nested deeper than {DEEPEST} levels")
    for inner in document.values() if isinstance(document, dict) else document:
        check_depth(inner, source, most - 1)
