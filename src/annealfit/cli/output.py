"""Output of the commands: text, JSON, tables in which no number is ever cut, progress bars.

In a file or a pipe a table is as wide as its cells. In a narrower terminal, long words fold, and columns without room
follow below, beside the key columns again.
"""

from __future__ import annotations

import json
import math
import os
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

if os.name == "nt":  # pragma: no cover
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

_UNSEEN = frozenset({"Cc", "Cf", "Cs"})  # Unicode categories: control characters, writing directions, surrogates
_GAP = 2  # between columns
_NARROWEST_HEADING = 10
_NARROWEST_FOLD = 24  # columns that fold keep at least this width


def plain(text: str) -> str:
    r"""Escape rich's markup and the terminal's control sequences, so that the text is shown as it is.

    >>> plain("[bold] \x1b[31m")
    '\\[bold] \\x1b[31m'
    """
    return escape(_visible(text))


def _visible(text: str) -> str:
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _UNSEEN else repr(c)[1:-1] for c in text)


def say(text: str = "", *, wrap: bool = False) -> None:
    """Print a line of any length on standard output; `wrap` breaks a paragraph between words."""
    console.print(plain(text), soft_wrap=not wrap)


def warn(text: str) -> None:
    """Print a line of any length on standard error."""
    errors.print(plain(text), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a JSON document, with null for NaN and infinity."""
    typer.echo(json.dumps(finite(value), indent=2, ensure_ascii=False))


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None.

    >>> finite({"loss": float("nan"), "reads": (1, 2.5)})
    {'loss': None, 'reads': [1, 2.5]}
    """
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def pick(value: Any, *names: str) -> dict[str, Any]:
    """Some attributes of an object, by name.

    >>> pick(1 + 2j, "real", "imag")
    {'real': 1.0, 'imag': 2.0}
    """
    return {name: getattr(value, name) for name in names}


def count_bits(bits: int) -> str:
    """A number of bits in words.

    >>> count_bits(1), count_bits(3)
    ('1 bit', '3 bits')
    """
    return "1 bit" if bits == 1 else f"{bits} bits"


def yes_no(value: bool) -> str:
    """A truth value in a table."""
    return "yes" if value else "no"


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading and how the cell of a row is written.

    Numbers are aligned right. Words are aligned left; those of a column that folds may be broken in a narrow terminal.
    """

    heading: str
    cell: Callable[[Any], str | Text]
    align: Literal["right", "left", "fold"] = "right"
    style: str = ""


@dataclass(frozen=True)
class _Measured:
    """A column with its cells, its heading wrapped to them, and its least and natural widths."""

    column: Column
    heading: str
    cells: tuple[Text, ...]
    least: int
    natural: int


def print_table(rows: Sequence[Any], columns: Sequence[Column], *, title: str | None = None, keys: int = 1) -> None:
    """Print a table so that it can be read whole; its first `keys` columns name the rows."""
    if title is not None:
        console.print(plain(title), style="table.title", soft_wrap=True)
    measured = [_measure(column, rows) for column in columns]
    if not console.is_terminal:
        _print(measured, _width(measured))
        return
    for place, part in enumerate(_parts(measured, keys, console.width)):
        if place:
            console.print()
        _print(part, max(console.width, _width(part, least=True)))


def _measure(column: Column, rows: Sequence[Any]) -> _Measured:
    texts = (column.cell(row) for row in rows)
    cells = tuple(text if isinstance(text, Text) else Text(_visible(text)) for text in texts)
    natural = max((cell_len(line) for cell in cells for line in cell.plain.split("\n")), default=0)
    lines = _heading_lines(column.heading, natural)
    least = min(natural, _NARROWEST_FOLD) if column.align == "fold" else natural
    headed = max(map(len, lines))
    return _Measured(column, plain("\n".join(lines)), cells, max(least, headed), max(natural, headed))


def _heading_lines(heading: str, width: int) -> list[str]:
    """A heading broken to about the width of its cells, unless it has line breaks already."""
    if "\n" in heading:
        return heading.split("\n")
    return textwrap.wrap(heading, max([width, _NARROWEST_HEADING, *map(len, heading.split())]))


def _width(columns: Sequence[_Measured], *, least: bool = False) -> int:
    return sum(column.least if least else column.natural for column in columns) + _GAP * len(columns)


def _parts(columns: Sequence[_Measured], keys: int, width: int) -> list[list[_Measured]]:
    """The columns in parts that fit the width where possible, each with the key columns before it."""
    first, rest = list(columns[:keys]), list(columns[keys:])
    parts: list[list[_Measured]] = []
    for column in rest:
        if not parts or _width([*parts[-1], column], least=True) > width:
            parts.append([*first, column])
        else:
            parts[-1].append(column)
    return parts or [first]


def _print(columns: Sequence[_Measured], width: int) -> None:
    shown = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for measured in columns:
        shown.add_column(
            measured.heading,
            justify="right" if measured.column.align == "right" else "left",
            style=measured.column.style,
            no_wrap=measured.least == measured.natural,
            min_width=measured.least,
            overflow="fold",
        )
    for row in zip(*(measured.cells for measured in columns), strict=True):
        shown.add_row(*row)
    Console(highlight=False, width=max(width, 1)).print(shown)


def make_progress(*columns: ProgressColumn) -> Progress:
    """A live display on standard error that vanishes in the end; none where standard error is not a terminal."""
    return Progress(*columns, console=errors, disable=not errors.is_terminal, transient=True)


@contextmanager
def progress_bar(
    opening: str, *columns: ProgressColumn, total: float | None = None, description: str = ""
) -> Iterator[Callable[..., None]]:
    """A live bar; yields the function that updates it (`advance`, `completed`, `description`, `total`).

    The columns after the bar are by default the count, the description and the time left.
    """
    after = columns or (MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with make_progress(TextColumn(opening), BarColumn(), *after) as progress:
        yield partial(progress.update, progress.add_task(description, total=total))
