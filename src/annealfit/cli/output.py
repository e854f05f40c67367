"""Output of the commands: text, JSON, tables in which no number is ever cut, progress bars.

In a file or a pipe a table is as wide as its cells. In a narrower terminal long words fold, and the columns that do not
fit follow below, beside the key columns again.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import compress
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

from annealfit._support.files import without_nan

if os.name == "nt":  # pragma: no cover
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

SECONDS_BETWEEN_LINES = 5.0  # of progress in a file or a pipe

_UNSEEN = frozenset({"Cc", "Cf", "Cs"})  # Unicode categories: control characters, writing directions, surrogates
_UNBOUNDED = 10_000  # columns of a file or a pipe
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


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print the warnings of a block as notes on standard error when it ends, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        warn(f"note: {text}")


def print_json(value: Any) -> None:
    """Print a JSON document, with null for NaN and infinity."""
    typer.echo(json.dumps(without_nan(value), indent=2, ensure_ascii=False))


def pick(value: Any, *names: str) -> dict[str, Any]:
    """Some attributes of an object, by name."""
    return {name: getattr(value, name) for name in names}


def count_bits(bits: int) -> str:
    """A number of bits in words."""
    return "1 bit" if bits == 1 else f"{bits} bits"


def yes_no(value: bool) -> str:
    """A truth value in a table."""
    return "yes" if value else "no"


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading and how the cell of a row is written, as a function or as a format of the row.

    Numbers are aligned right. Words are aligned left; those of a column that folds may be broken in a narrow terminal.
    A column that is empty, or an optional one whose cells are all the same, is left out.
    """

    heading: str
    cell: Callable[[Any], str] | str
    align: Literal["right", "left", "fold"] = "right"
    optional: bool = False

    def text(self, row: Any) -> str:
        """Return the cell of a row."""
        return self.cell.format(row) if isinstance(self.cell, str) else self.cell(row)


def print_table(rows: Sequence[Any], columns: Sequence[Column], *, title: str | None = None, keys: int = 1) -> None:
    """Print a table so that it can be read whole; the first `keys` columns name the rows."""
    if title is not None:
        console.print(plain(title), style="table.title", soft_wrap=True)
    widest = console.width if console.is_terminal else _UNBOUNDED
    texts = [{column.text(row) for row in rows} for column in columns]
    shown = [not rows or (len(own) > 1 if c.optional else any(own)) for own, c in zip(texts, columns, strict=True)]
    named = [*compress(columns[:keys], shown)]
    parts = [named]
    for column in compress(columns[keys:], shown[keys:]):
        fits = len(parts[-1]) == len(named) or _least_width(_make_table(rows, [*parts[-1], column])) <= widest
        parts[-1:] = [[*parts[-1], column]] if fits else [parts[-1], [*named, column]]
    for place, part in enumerate(parts):
        if place:
            console.print()
        table = _make_table(rows, part)
        Console(highlight=False, width=max(widest, _least_width(table))).print(table)


def _make_table(rows: Sequence[Any], columns: Sequence[Column]) -> Table:
    """A table of rich in which the width of a column is at least that of its numbers."""
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    written = []
    for column in columns:
        cells = [Text(_visible(column.text(row))) for row in rows]
        natural = max((cell_len(line) for cell in cells for line in cell.plain.split("\n")), default=0)
        folds, heading = column.align == "fold", column.heading
        if "\n" not in heading:  # broken to about the width of its cells
            heading = textwrap.fill(heading, max([natural, _NARROWEST_HEADING, *map(len, heading.split())]))
        least = min(natural, _NARROWEST_FOLD) if folds else natural
        table.add_column(
            plain(heading),
            justify="right" if column.align == "right" else "left",
            no_wrap=not folds,
            min_width=max(least, *map(len, heading.split("\n"))),
            overflow="fold",
        )
        written.append(cells)
    for row in zip(*written, strict=True):
        table.add_row(*row)
    return table


def _least_width(table: Table) -> int:
    return sum((column.min_width or 0) + _GAP for column in table.columns)


@contextmanager
def progress_bar(
    opening: str, *columns: ProgressColumn, total: float | None = None, description: str = ""
) -> Iterator[Callable[..., None]]:
    """A live bar on standard error; yields what updates it (`advance`, `completed`, `description`, `total`).

    The columns after the bar are by default the count, the description and the time left. The bar vanishes in the end.
    Where standard error is not a terminal, a line every few seconds takes its place.
    """
    if not errors.is_terminal:
        yield _progress_lines(opening, total, description)
        return
    after = columns or (MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    shown = TextColumn(opening), BarColumn(), *after
    with Progress(*shown, console=errors, transient=True) as progress:
        yield partial(progress.update, progress.add_task(description, total=total))


def _progress_lines(opening: str, total: float | None, description: str) -> Callable[..., None]:
    """Return what takes the updates of a bar, and writes a line with the time left if the last one is long ago."""
    last = time.monotonic()
    now: dict[str, Any] = {"completed": 0, "total": total, "description": description}
    first: tuple[float, float] | None = None  # moment and count from which on the rate is measured

    def update(*, advance: float = 0, **changes: Any) -> None:
        nonlocal first, last
        now.update(changes, completed=changes.get("completed", now["completed"]) + advance)
        moment, done, total = time.monotonic(), now["completed"], now["total"]
        if first is None and done:  # compiling before, and runs that were stored, would spoil the rate
            first = moment, done
        began, already = first or (moment, done)
        if moment - last < SECONDS_BETWEEN_LINES:
            return
        last = moment
        parts = [opening.replace("{task.description}", "").strip(), now["description"]]
        if total and done:
            parts.append(f"{done:,} of {total:,}")
        if total and done > already:
            parts.append(f"about {(moment - began) * (total - done) / (done - already):.0f} s left")
        warn(", ".join(filter(None, parts)))

    return update
