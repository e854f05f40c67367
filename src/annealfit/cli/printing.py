"""Tables in a terminal: no number is ever cut.

In a file or a pipe a table is as wide as it is. In a terminal that is narrower, words fold, and columns that still have
no room follow below, under the first column again.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from annealfit.cli.display import console, make_table

_GAP = 2  # between columns
_HEADING = 10  # headings are wrapped to no less than this
_READABLE = 24  # words are folded to no less than this, if they are longer


@dataclass(frozen=True)
class _Measured:
    """A column with its heading wrapped to its cells, its least width and its width if there is room."""

    column: Column
    heading: str
    cells: tuple[str, ...]
    least: int
    natural: int

    @property
    def folds(self) -> bool:
        return self.least < self.natural


def print_table(table: Table, *, keys: int = 1) -> None:
    """Print a table so that it can be read whole; its first `keys` columns name the rows."""
    columns = [_measure(column) for column in table.columns]
    if table.title is not None:
        console.print(table.title, style="table.title", soft_wrap=True)
    if not console.is_terminal:
        _print(columns, max(_width(columns), 1))
        return
    for place, part in enumerate(columns_in_parts(columns, keys, console.width)):
        if place:
            console.print()
        _print(part, max(console.width, _width(part, least=True)))


def columns_in_parts(columns: Sequence[_Measured], keys: int, width: int) -> list[list[_Measured]]:
    """The columns in parts that fit the width if any do, each with the key columns before it."""
    first, rest = list(columns[:keys]), list(columns[keys:])
    parts: list[list[_Measured]] = []
    for column in rest:
        if not parts or _width([*parts[-1], column], least=True) > width:
            parts.append([*first, column])
        else:
            parts[-1].append(column)
    return parts or [first]


def _width(columns: Sequence[_Measured], *, least: bool = False) -> int:
    return sum(column.least if least else column.natural for column in columns) + _GAP * len(columns)


def _measure(column: Column) -> _Measured:
    cells = tuple(str(cell) for cell in column.cells)
    texts = [Text.from_markup(cell).plain for cell in cells]
    natural = max((cell_len(line) for text in texts for line in text.split("\n")), default=0)
    folds = column.justify == "left" and not column.no_wrap and natural > _READABLE
    lines = _heading_lines(str(column.header), natural)
    least = max([_READABLE if folds else natural, *map(len, lines)])
    return _Measured(column, "\n".join(lines), cells, least, max([natural, *map(len, lines)]))


def _heading_lines(heading: str, width: int) -> list[str]:
    """A heading broken to about the width of the column below it, unless it comes broken."""
    if "\n" in heading:
        return heading.split("\n")
    return textwrap.wrap(heading, max([width, _HEADING, *map(len, heading.split())]))


def _print(columns: Sequence[_Measured], width: int) -> None:
    shown = make_table()
    for measured in columns:
        shown.add_column(
            measured.heading,
            justify=measured.column.justify,
            style=measured.column.style,
            vertical="top",
            no_wrap=not measured.folds,
            min_width=measured.least,
            overflow="fold",
        )
    for row in zip(*(measured.cells for measured in columns), strict=True):
        shown.add_row(*row)
    Console(highlight=False, width=width).print(shown)
