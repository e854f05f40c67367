"""The report as one page: self-contained, opened offline, made from stored records alone."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from annealfit._support.errors import FileFormatError, InvalidInputError, require
from annealfit._support.files import StrPath, replacing
from annealfit.studies.paper_tables import SEEDS, paper_table
from annealfit.studies.records import Record, RunSpec, Store
from annealfit.studies.report.benchmark_tables import SCORES
from annealfit.studies.report.cells import NEAR_POINTS, Cell, Table, dataset_title, groups, presets_of
from annealfit.studies.report.charts import page_data
from annealfit.studies.report.opening import (
    PAPER_AUTHORS,
    PAPER_LINK,
    PAPER_NUMBER,
    PAPER_TITLE,
    dot_panels,
    opening_sentence,
)
from annealfit.studies.report.palette import css_variables
from annealfit.studies.report.paper_figures import save_paper_figures
from annealfit.studies.report.table_files import to_csv, to_latex
from annealfit.studies.report.tables import all_tables

PRESET_MEANINGS = {
    "literal": "Algorithm 1 with every setting as printed: β from 0.01 to 3 at any number of bits.",
    "matched": "the same, except that the final β is multiplied by 2^(K−3); this is our reading, not the paper's text.",
    "annealfit": "this library's own defaults, with 1 to 3 bits; the paper has no numbers for them.",
}


@dataclass(frozen=True)
class Closeness:
    """How many of the paper's percentages come out, under one preset or for the classical baseline."""

    name: str
    near: int
    total: int
    median_points: float  # of the absolute differences
    parts: tuple[tuple[str, int, int], ...]  # table, near, total


@dataclass(frozen=True)
class Times:
    """Seconds of the runs the paper has times for, under one preset."""

    preset: str
    runs: int
    seconds: float
    paper_seconds: float


@dataclass(frozen=True)
class Summary:
    """The account at the top of the page, computed from the records."""

    finished: int
    failed: int
    missing: int
    damaged: tuple[str, ...]
    closeness: tuple[Closeness, ...]
    times: tuple[Times, ...]
    paper_total_seconds: float
    distant_baselines: tuple[str, ...]  # data sets on which already the classical baseline is far from the paper's
    datasets: tuple[str, ...]
    presets: tuple[str, ...]
    seeds: tuple[int, ...]
    total_seconds: float
    environments: tuple[tuple[str, int], ...]  # versions and machine, and how many runs had them


def read_records(folder: StrPath) -> tuple[list[Record], list[str]]:
    """The whole records of a run folder, and what is wrong with each damaged one."""
    store, records, damaged = Store(Path(folder)), [], []
    for path in sorted((store.folder / "records").glob("*.safetensors")):
        try:
            records.append(store.read(path))  # records() stops at the first damaged file; a report goes on
        except FileFormatError as error:
            damaged.append(str(error).replace(str(path), path.name))  # whose disk it was is not the reader's matter
    if not records and not damaged:
        raise InvalidInputError(
            f"{folder} holds no run records; make some with: annealfit reproduce digits --out {folder}"
        )
    if not records:
        raise InvalidInputError(f"all {len(damaged)} records of {folder} are damaged; the first: {damaged[0]}")
    return records, damaged


def summarise_records(
    records: Sequence[Record],
    tables: Sequence[Table],
    damaged: Sequence[str] = (),
    asked: Collection[RunSpec] = (),
) -> Summary:
    """What a reader should know before any table."""
    finished = [record for record in records if record.error is None]
    compared = _compared(tables)
    seconds = [float(row["mean_seconds"]) for row in paper_table("execution_seconds")]
    distant = [
        "Digits" if entry.table == "digits" else entry.row[0].text
        for entry in compared
        if entry.preset == "–" and entry.column == "test_accuracy_percent" and entry.cell.verdict == "far"
    ]
    every_group = (*groups(records), *groups(records, networks=True))
    environments = Counter(", ".join(f"{k} {v}" for k, v in record.environment.items()) for record in records)
    return Summary(
        finished=len(finished),
        failed=len(records) - len(finished),
        missing=len(set(asked) - {record.run for record in records}),
        damaged=tuple(damaged),
        closeness=tuple(_closeness(compared)),
        times=tuple(_times(records)),
        paper_total_seconds=sum(seconds) * len(SEEDS),
        distant_baselines=tuple(dict.fromkeys(distant)),
        datasets=tuple(dict.fromkeys(dataset_title(group.spec.dataset) for group in every_group)),
        presets=tuple(presets_of(records)),
        seeds=tuple(sorted({record.run.seed for record in records})),
        total_seconds=float(np.sum([record.seconds for record in finished])),
        environments=tuple(environments.most_common()),
    )


@dataclass(frozen=True)
class _Compared:
    table: str
    preset: str
    column: str
    row: tuple[Cell, ...]
    cell: Cell


def _compared(tables: Sequence[Table]) -> list[_Compared]:
    """Every score that stands beside the paper's.

    Sample predictions are not among them, since the paper's images are not known.
    """
    found = []
    for table in tables:
        if table.name not in ("digits", "benchmark", "recall"):
            continue
        place = [column.name for column in table.columns].index("preset")
        found += [
            _Compared(table.name, row[place].text, column.name, row, cell)
            for row in table.rows
            for column, cell in zip(table.columns, row, strict=True)
            if (column.name.endswith("_percent") or column.name in SCORES) and cell.difference is not None
        ]
    return found


def _closeness(compared: Sequence[_Compared]) -> list[Closeness]:
    found = []
    for preset in dict.fromkeys(entry.preset for entry in compared):
        entries = [entry for entry in compared if entry.preset == preset]
        total = Counter(entry.table for entry in entries)
        near = Counter(entry.table for entry in entries if entry.cell.verdict == "near")
        points = float(np.median([_points(entry) for entry in entries]))
        parts = tuple((table, near[table], total[table]) for table in total)
        name = "classical baseline" if preset == "–" else preset
        found.append(Closeness(name, near.total(), total.total(), points, parts))
    return found


def _points(entry: _Compared) -> float:
    """The absolute difference in points of a hundred."""
    return abs(entry.cell.difference or 0.0) * (100 if entry.column in SCORES else 1)


def _times(records: Sequence[Record]) -> list[Times]:
    paper = {(row["dataset"], int(row["bits"])): float(row["mean_seconds"]) for row in paper_table("execution_seconds")}
    found = []
    for preset in presets_of(records):
        chosen = [
            (record, paper[group.spec.dataset, group.spec.bits or 0])
            for group in groups(records)
            if group.spec.preset == preset
            and not group.departure
            and (group.spec.dataset, group.spec.bits or 0) in paper
            for record in group.records
        ]
        if chosen:
            ours, theirs = sum(record.seconds for record, _ in chosen), sum(seconds for _, seconds in chosen)
            found.append(Times(preset, len(chosen), ours, theirs))
    return found


def duration(seconds: float) -> str:
    """A time in the unit a reader would choose.

    >>> duration(90), duration(7200)
    ('1.5 minutes', '2.0 hours')
    """
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def render(
    records: Sequence[Record],
    damaged: Sequence[str] = (),
    title: str = "annealfit report",
    asked: Collection[RunSpec] = (),
) -> str:
    """The page's text."""
    jinja2 = require("jinja2", extra="report", purpose="writing a report")
    tables = all_tables(records, asked)
    files = resources.files("annealfit.studies.report")
    template, css, script = (
        (files / name).read_text(encoding="utf-8") for name in ("template.html", "report.css", "report.js")
    )
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"duration": duration, "as_csv": _csv_address, "as_latex": _latex_address}
    return environment.from_string(template).render(
        title=title,
        tables={table.name: table for table in tables},
        sentence=opening_sentence(records),
        paper={"title": PAPER_TITLE, "authors": PAPER_AUTHORS, "number": PAPER_NUMBER, "link": PAPER_LINK},
        panels=dot_panels(records),
        summary=summarise_records(records, tables, damaged, asked),
        near_points=NEAR_POINTS,
        meanings=PRESET_MEANINGS,
        css=css_variables() + css,
        script=script,
        # Only this very script may run: markup that slipped through the escaping would still be dead text.
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=_script_json(page_data(records)),
    )


def _script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # escapes all but ASCII
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _csv_address(table: Table) -> str:
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(to_csv(table).encode()).decode()


def _latex_address(table: Table) -> str:
    return "data:text/x-tex;charset=utf-8;base64," + base64.b64encode(to_latex(table).encode()).decode()


def write_report(folder: StrPath, path: StrPath, *, assets_dir: StrPath | None = None) -> list[Path]:
    """Write the page of a run folder, and on request its tables and figures beside it; returns what was written."""
    records, damaged = read_records(folder)
    name = Path(folder).resolve().name
    page = render(records, damaged, f"annealfit report: {name}", Store(Path(folder)).asked())
    with replacing(path) as file:
        file.write(page.encode())
    return [Path(path), *(write_assets(records, Path(assets_dir)) if assets_dir is not None else [])]


def write_assets(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write every table as CSV and LaTeX and the main figures as SVG and PNG; returns their paths."""
    paths = []
    for table in all_tables(records):
        for ending, text in (("csv", to_csv(table)), ("tex", to_latex(table))):
            paths.append(folder / f"{table.name}.{ending}")
            with replacing(paths[-1]) as file:
                file.write(text.encode())
    return paths + save_paper_figures(records, folder)
