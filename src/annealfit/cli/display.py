"""What the terminal shows: text, tables, progress bars."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from annealfit.training import Iteration

if os.name == "nt":  # pragma: no cover
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def plain(text: str) -> str:
    r"""The text as it is: rich's markup and the terminal's control sequences are ours to write, not the message's.

    >>> plain("[bold] \x1b[31m")
    '\\[bold] \\x1b[31m'
    """
    visible = "".join(c if c in "\n\t" or unicodedata.category(c) not in _UNSEEN else repr(c)[1:-1] for c in text)
    return escape(visible)


# Control characters, among them the ones that terminals obey, writing directions, halves of characters.
_UNSEEN = frozenset({"Cc", "Cf", "Cs"})


def make_table(title: str | None = None) -> Table:
    """A table without lines, its title at the left."""
    return Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)


def count_bits(bits: int) -> str:
    """A number of bits in words.

    >>> count_bits(1), count_bits(3)
    ('1 bit', '3 bits')
    """
    return "1 bit" if bits == 1 else f"{bits} bits"


def make_progress(*columns: ProgressColumn) -> Progress:
    """A live display that is gone when the work is done, and nothing at all where output is not a terminal."""
    return Progress(*columns, console=errors, disable=not errors.is_terminal, transient=True)


@contextmanager
def training_progress(max_iter: int) -> Iterator[Callable[[Iteration], None]]:
    """A live bar with loss, accuracy and time left."""
    progress = make_progress(
        TextColumn("Training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[reached]}"),
        TimeRemainingColumn(),
    )
    with progress:
        task = progress.add_task("training", total=max_iter, reached="first iteration")

        def on_iteration(iteration: Iteration) -> None:
            row = iteration.row
            reached = f"loss {row['loss']:.4f}  accuracy {row['accuracy']:.1%}"
            progress.update(task, completed=row["iteration"], reached=reached)

        yield on_iteration
