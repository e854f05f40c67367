"""The tables of a comparison of samplers, for a terminal of 80 columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table

from annealfit.cli.display import console, count_bits, make_table, plain
from annealfit.cli.printing import print_table
from annealfit.studies import Record
from annealfit.studies.report import sampler_figure
from annealfit.studies.sampler_study import Comparison
from annealfit.studies.solving import ProblemSet, SolveRow
from annealfit.studies.success import CONFIDENCE, INTERVAL, Estimate

_ROUNDING = 1e-12  # of energies that are worked out in different ways
# Headings of two lines.
_SOLVING = "residual\n%", "success\n%", "from–to", "solved", "ms per\nread", "solution\nms", "from–to"
_TRAINING = "loss ÷\noptimum", "test\n%", "iterations", "seconds", "QPU\nseconds"
_EMPTY = ""


def print_comparison(found: Comparison) -> None:
    """A table per problem set, one per set of trainings, and what they say in words."""
    for taken in found.problem_sets:
        rows = taken.own(found.solving)
        cells = [(row.sampler, row.failure, _solving_cells(row)) for row in rows]
        print_table(_table(_title(taken), _SOLVING, cells))
        console.print()
    for coordinates, bits in dict.fromkeys((row.coordinates, row.bits) for row in found.training):
        records = (*found.trained(coordinates, bits), found.optimum)
        trained = [(record.method, record.error, _training_cells(record, found)) for record in records]
        title = f"Training with each, {coordinates}, {count_bits(bits)}"
        print_table(_table(title, _TRAINING, trained, optional=1))
        console.print()
    _print_notes(found)


def _title(taken: ProblemSet) -> str:
    when = f"after {taken.after} iterations" if taken.after else "of the first iteration"
    count, truth = len(taken.problems), taken.truth
    proven = (
        f"optimum proven in {_milliseconds(truth.seconds / count)} ms each"
        if truth.is_proven
        else f"optimum proven for {int(truth.proven.sum())} of {count}"
    )
    return f"{count} problems {when}, {taken.coordinates}, {count_bits(taken.bits)}, " + (
        f"{taken.problems[0].n_variables} variables;\nsum of bounds {taken.bounds.sum():.4g}, {proven}"
    )


def _print_notes(found: Comparison) -> None:
    failures = {row.record.method: row.record.error for row in found.training if row.record.error}
    failures |= {row.sampler: row.failure for row in found.solving if row.failure}
    for name, failure in failures.items():
        console.print(plain(f"{name} failed: {failure}"), soft_wrap=True)
    console.print(
        "Success: share of the reads that are the optimum. Solution: the time of a problem until one is, with "
        f"{CONFIDENCE:.0%} confidence, median. From–to: {INTERVAL:.0%} confidence intervals. Residual: mean of "
        "(E − E*)/|E*| over reads. Solved: problems of which some read is the optimum. The time of a device is its "
        "access time."
    )
    if not all(taken.truth.is_proven for taken in found.problem_sets):
        console.print(
            "Where an optimum is not proven within --truth-limit, success is reaching the best energy known: "
            "≤ and ≥ say so, for the optimum may be lower."
        )
    console.print(plain(sampler_figure.summarise_comparison(found)))


def _solving_cells(row: SolveRow) -> tuple[str, ...]:
    success, time = row.success, row.seconds_to_solution
    at_most, at_least = ("", "") if row.proven else ("≤ ", "≥ ")
    return (
        "0" if row.residual < _ROUNDING else _plain_number(100 * row.residual),
        f"{at_most}{100 * success.value:.1f}",
        f"{100 * success.low:.0f}–{100 * success.high:.0f}",
        f"{row.problems_solved}",
        _milliseconds(row.seconds_per_read),
        _milliseconds(time.value) if math.isinf(time.value) else f"{at_least}{_milliseconds(time.value)}",
        _span(time),
    )


def _span(time: Estimate) -> str:
    if math.isinf(time.low):
        return "–"
    return f"{_milliseconds(time.low, 2)}–{'∞' if math.isinf(time.high) else _milliseconds(time.high, 2)}"


def _training_cells(record: Record, found: Comparison) -> tuple[str, ...]:
    return (
        f"{record.loss / found.optimum.loss:.5f}",
        f"{100 * record.test.get('accuracy', math.nan):.1f}",
        str(record.iterations or ""),
        f"{record.seconds:.2f}",
        _EMPTY if record.access_seconds is None else f"{record.access_seconds:.2f}",
    )


def _table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[tuple[str, str | None, tuple[str, ...]]],
    optional: int = 0,
) -> Table:
    """A row per sampler: its name, why it failed if it did, its cells. `optional` last columns may be left out."""
    unused = optional and not any(cells[-1] for _, failure, cells in rows if failure is None)
    width = len(headings) - (optional if unused else 0)
    table = make_table(title)
    table.add_column("sampler", overflow="fold")
    for heading in headings[:width]:
        table.add_column(heading, justify="right")
    for name, failure, cells in rows:
        table.add_row(plain(name), *(("failed",) if failure else cells[:width]))
    return table


def _milliseconds(seconds: float, digits: int = 3) -> str:
    if math.isinf(seconds):
        return "never"
    return _plain_number(1e3 * seconds, digits)


def _plain_number(value: float, digits: int = 3) -> str:
    """A number that is not negative, with so many digits at least, and never as a power of ten if it is large.

    >>> [_plain_number(value) for value in (0.01234, 99.96, 1234.5)], _plain_number(99.6, digits=2)
    (['0.0123', '100', '1,234'], '100')
    """
    return f"{value:,.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"
