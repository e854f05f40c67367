"""The tables of a comparison of samplers, for a terminal of 80 columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table

from annealfit.cli.display import console, make_table, plain
from annealfit.experiments import Record
from annealfit.experiments.sampler_study import Comparison
from annealfit.experiments.solving import CONFIDENCE, SolveRow
from annealfit.report import sampler_figure

# Headings of two lines.
_SOLVING = "above\nbound", "% of\nit", "least\nms", "median\nms", "reached", "problems", "to\ntarget", "QPU\nms"
_TRAINING = "loss ÷\noptimum", "test\n%", "iterations", "seconds", "QPU\nseconds"


def print_comparison(found: Comparison, target: str) -> None:
    """A table per problem set, one of the trainings, and what they say in words."""
    for taken in found.problem_sets:
        when = f"after {taken.after} iterations" if taken.after else "of the first iteration"
        count, size = len(taken.problems), taken.problems[0].n_variables
        title = f"{count} problems {when}, {size} variables; sum of bounds {taken.bounds.sum():.4g}"
        rows = [(row.sampler, row.failure, _solving_cells(row)) for row in found.solving if row.problems == taken.name]
        console.print(_table(title, _SOLVING, rows), "")
    trained = [(r.method, r.error, _training_cells(r, found)) for r in (*found.training, found.optimum)]
    console.print(_table("Training with each", _TRAINING, trained), "")
    failures = {record.method: record.error for record in found.training if record.error}
    failures |= {row.sampler: row.failure for row in found.solving if row.failure}
    for name, failure in failures.items():
        console.print(plain(f"{name} failed: {failure}"), soft_wrap=True)
    console.print(
        f"Reached: within {target} of the bound of the best energy that any sampler found. "
        f"To target: the time of a problem until then with {CONFIDENCE:.0%} confidence, median, in ms."
    )
    console.print(plain(sampler_figure.summarise_comparison(found)))


def _solving_cells(row: SolveRow) -> tuple[str, ...]:
    return (
        f"{row.gap:.2e}",
        f"{100 * row.gap_share:.1f}",
        _milliseconds(row.least_seconds),
        _milliseconds(row.median_seconds),
        f"{row.reached:.0%}",
        str(row.problems_reached),
        _milliseconds(row.seconds_to_target),
        "" if row.access_seconds is None else _milliseconds(row.access_seconds),
    )


def _training_cells(record: Record, found: Comparison) -> tuple[str, ...]:
    return (
        f"{record.loss / found.optimum.loss:.5f}",
        f"{100 * record.test.get('accuracy', math.nan):.1f}",
        str(record.iterations or ""),
        f"{record.seconds:.2f}",
        "" if record.access_seconds is None else f"{record.access_seconds:.2f}",
    )


def _table(title: str, headings: Sequence[str], rows: Sequence[tuple[str, str | None, tuple[str, ...]]]) -> Table:
    """A row per sampler: its name, why it failed if it did, its cells. The last column is a QPU's, or is not there."""
    width = len(headings) - (not any(cells[-1] for _, failure, cells in rows if failure is None))
    table = make_table(title)
    table.add_column("sampler", overflow="fold")
    columns = zip(*(cells for _, _, cells in rows), strict=True)
    for heading, column in zip(headings[:width], columns, strict=False):
        table.add_column(heading, justify="right", min_width=max(map(len, column)))  # headings may wrap, numbers not
    for name, failure, cells in rows:
        table.add_row(plain(name), *(("failed",) if failure else cells[:width]))
    return table


def _milliseconds(seconds: float) -> str:
    if math.isinf(seconds):
        return "never"
    return f"{1e3 * seconds:,.0f}" if seconds >= 0.1 else f"{1e3 * seconds:.3g}"
