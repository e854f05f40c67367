"""What a file holds, checked before it is used: every value knows where it was, so that an error can name it.

A reader asks for what it needs and says what that has to be: `manifest["n_iter"].whole(minimum=0)`. Whatever is
absent, of another type, out of bounds or not finite is one `FileFormatError` that names the file and the field.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEEPEST = 32  # lists and mappings inside each other
LONGEST = 1_000_000  # entries of a list or a mapping, characters of a text
_SHOWN = 60  # characters of a value that an error shows
_SOMEWHERE = "the file"

Shape = tuple[int | None, ...]  # None is any length


@dataclass(frozen=True)
class Field:
    """A value of a JSON document, with the way to it.

    >>> manifest = Field({"classes": ["cat", "dog"], "n_iter": -3}, source="model.safetensors")
    >>> [name.text() for name in manifest["classes"].items()]
    ['cat', 'dog']
    >>> manifest["n_iter"].whole(minimum=0)
    Traceback (most recent call last):
    annealfit._support.errors.FileFormatError: model.safetensors: its field n_iter is -3; expected a whole number ...
    """

    value: Any
    way: str = ""
    source: str = _SOMEWHERE

    @classmethod
    def of(cls, given: Any) -> Field:
        """A field as it is; any other value as the document of a file without a name."""
        return given if isinstance(given, Field) else cls(given)

    def refuse(self, expected: str) -> NoReturn:
        """Raise the error that says what was expected instead."""
        shown = repr(self.value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        field = f"its field {self.way}" if self.way else "its content"
        raise FileFormatError(f"{self.source}: {field} is {shown}; expected {expected}")

    def __getitem__(self, name: str) -> Field:
        found = self.get(name)
        if found is None and name not in self._mapping():
            Field(None, self._below(name), self.source).refuse("a value")
        return found or Field(None, self._below(name), self.source)

    def get(self, name: str) -> Field | None:
        """The field of this name; None where it is absent or null."""
        value = self._mapping().get(name)
        return None if value is None else Field(value, self._below(name), self.source)

    def entries(self) -> dict[str, Field]:
        """The fields of a mapping by name."""
        return {name: Field(value, self._below(name), self.source) for name, value in self._mapping().items()}

    def items(self, most: int = LONGEST) -> list[Field]:
        """The fields of a list."""
        if not isinstance(self.value, list | tuple) or len(self.value) > most:
            self.refuse(f"a list of at most {most} values")
        return [Field(value, f"{self.way}[{index}]", self.source) for index, value in enumerate(self.value)]

    def text(self, longest: int = LONGEST) -> str:
        """A text."""
        if not isinstance(self.value, str) or len(self.value) > longest:
            self.refuse(f"a text of at most {longest} characters")
        return self.value

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            self.refuse("true or false")
        return self.value

    def whole(self, *, minimum: int, maximum: int = 2**63 - 1) -> int:
        """A whole number within limits."""
        value = self.value
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            limit = f" and at most {maximum}" if maximum < 2**63 - 1 else ""
            self.refuse(f"a whole number of at least {minimum}{limit}")
        return value

    def number(self, *, minimum: float = -math.inf, maximum: float = math.inf, finite: bool = True) -> float:
        """A number within limits; NaN and the infinities only where they may be."""
        value = self.value
        plain = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e308
        if not (plain and minimum <= value <= maximum) and not (
            not finite and isinstance(value, float) and not math.isfinite(value)
        ):
            limits = [f"at least {minimum}"] * (minimum > -math.inf) + [f"at most {maximum}"] * (maximum < math.inf)
            self.refuse(" ".join(["a finite number", " and ".join(limits)]).rstrip())
        return float(value)

    def one_of(self, options: Iterable[str]) -> str:
        """One of these words."""
        words = sorted(options)
        if not isinstance(self.value, str) or self.value not in words:
            self.refuse(f"one of {', '.join(words)}")
        return self.value

    def scalar(self) -> Any:
        """A text, a truth value, a finite number, or null."""
        if self.value is not None and not isinstance(self.value, str | bool):
            self.number()
        return self.value

    def _below(self, name: str) -> str:
        return f"{self.way}.{name}" if self.way else str(name)

    def _mapping(self) -> Mapping[str, Any]:
        if not isinstance(self.value, Mapping):
            self.refuse("a mapping from names to values")
        return self.value


@dataclass(frozen=True, eq=False)
class TensorFields:
    """The arrays of a file by name."""

    tensors: Mapping[str, NDArray[Any]]
    source: str = _SOMEWHERE
    prefix: str = ""  # of the names in the file

    @classmethod
    def of(cls, given: Any) -> TensorFields:
        """Fields as they are; arrays by name as those of a file without a name."""
        return given if isinstance(given, TensorFields) else cls(given)

    def under(self, prefix: str) -> TensorFields:
        """Those whose names begin so, without it."""
        own = {name.removeprefix(prefix): value for name, value in self.tensors.items() if name.startswith(prefix)}
        return TensorFields(own, self.source, self.prefix + prefix)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def real(self, name: str, shape: Shape, *, finite: bool = True, positive: bool = False) -> NDArray[np.float64]:
        """An array of numbers of this shape."""
        found = self._shaped(name, shape, "f", "numbers")
        if finite and not np.isfinite(found).all():
            self._refuse(name, "holds NaN or infinity; expected finite numbers")
        if positive and not (found > 0).all():
            self._refuse(name, "holds numbers that are not above 0")
        return found.astype(np.float64, copy=False)

    def whole(self, name: str, shape: Shape, *, minimum: int = 0, maximum: int | None = None) -> NDArray[np.int64]:
        """An array of whole numbers within limits."""
        found = self._shaped(name, shape, "iu", "whole numbers")
        if found.size and (found.min() < minimum or (maximum is not None and found.max() > maximum)):
            limit = "" if maximum is None else f" and at most {maximum}"
            self._refuse(name, f"goes from {found.min()} to {found.max()}; expected at least {minimum}{limit}")
        return found.astype(np.int64, copy=False)

    def column(self, name: str, length: int) -> NDArray[Any]:
        """A column of a table: so many numbers or truth values; NaN is where there is no number."""
        return self._shaped(name, (length,), "fiub", "numbers")

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


@contextmanager
def settings_of(field: Field) -> Iterator[None]:
    """Settings that a constructor refuses are a fault of the file they were read from."""
    try:
        yield
    except FileFormatError:
        raise
    except (InvalidInputError, TypeError, ValueError, ArithmeticError) as error:
        raise FileFormatError(f"{field.source}: its field {field.way or 'content'} is refused: {error}") from error


def check_depth(document: Any, source: str) -> None:
    """Raise where lists and mappings are inside each other deeper than any file of ours has them."""
    level, depth = [document], 0
    while level:
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        depth += 1
        if depth > DEEPEST:
            raise FileFormatError(f"{source}: its values are nested deeper than {DEEPEST} levels")
