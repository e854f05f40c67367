"""The report as one page: self-contained, opened offline, made from stored records alone."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from annealfit._support.errors import InvalidInputError, require
from annealfit._support.files import StrPath, replacing
from annealfit.studies import evidence, family
from annealfit.studies.paper_tables import SEEDS, paper_table
from annealfit.studies.records import Record, RunSpec, Store
from annealfit.studies.report import charts, claims, drawing
from annealfit.studies.report.tables import (
    NEAR_POINTS,
    all_tables,
    dataset_title,
    groups,
    presets_of,
    to_csv,
)

PICTURES = {"evidence": evidence.draw, "family": family.draw}  # of some tables
PAPER_LINK = "https://arxiv.org/abs/2603.02958"


def read_records(folder: StrPath) -> tuple[list[Record], list[str]]:
    """The whole records of a run folder, and what is wrong with each damaged one."""
    records, errors = Store(Path(folder)).read_whole()
    damaged = [error.replace(str(path), path.name) for path, error in errors.items()]  # no paths of this machine
    if not records and not damaged:
        raise InvalidInputError(
            f"{folder} holds no run records; make some with: annealfit reproduce digits --out {folder}"
        )
    if not records:
        raise InvalidInputError(f"all {len(damaged)} records of {folder} are damaged; the first: {damaged[0]}")
    return records, damaged


def summarise_records(
    records: Sequence[Record], damaged: Sequence[str] = (), asked: Collection[RunSpec] = ()
) -> dict[str, Any]:
    """The account at the top of the page: how complete it is, how close to the paper, what was run and where."""
    finished = [record for record in records if record.error is None]
    all_groups = groups(records, "digits", "benchmark", "range_study", "step_study", "filters")
    environments = Counter(", ".join(f"{k} {v}" for k, v in record.environment.items()) for record in records)
    return {
        "finished": len(finished),
        "failed": len(records) - len(finished),
        "missing": len(set(asked) - {record.run for record in records}),
        "damaged": damaged,
        "agreements": claims.agreement_rows(records),
        "times": _times(records),
        "paper_total_seconds": sum(float(row["mean_seconds"]) for row in paper_table("execution_seconds")) * len(SEEDS),
        "datasets": list(dict.fromkeys(dataset_title(group.data) for group in all_groups)),
        "presets": presets_of(records),
        "images": sorted({record.run.images for record in records}),
        "seeds": sorted({record.run.seed for record in records}),
        "total_seconds": float(np.sum([record.seconds for record in finished])),
        "environments": environments.most_common(),  # versions and machine, and how many runs had them
    }


def _times(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Seconds of the benchmark runs that the paper has times for, preset by preset."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for group in groups(records, "benchmark"):
        paper, seconds = group.cell("seconds").paper, group.values("seconds")
        if isinstance(paper, float):
            found.setdefault(str(group.spec.preset), []).append((len(seconds), sum(seconds), paper * len(seconds)))
    names = ("runs", "seconds", "paper_seconds")
    return [
        {"preset": preset, **dict(zip(names, map(sum, zip(*found[preset], strict=True)), strict=True))}
        for preset in presets_of(records)
        if preset in found
    ]


def duration(seconds: float) -> str:
    """A time in the unit a reader would choose."""
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
    tables = {table.name: table for table in all_tables(records, asked)}
    folder, names = resources.files("annealfit.studies.report"), ("template.html", "report.css", "report.js")
    template, css, script = ((folder / name).read_text(encoding="utf-8") for name in names)
    settings = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, **settings)
    # JSON that cannot end the script element it stands in: `tojson` escapes <, > and &.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters |= {
        "duration": duration,
        "as_csv": lambda table: charts.data_address("text/csv;charset=utf-8", to_csv(table).encode()),
    }
    return environment.from_string(template).render(
        title=title,
        tables=tables,
        sentences=claims.opening_sentences(records),
        paper_link=PAPER_LINK,
        panels=[(dataset_title(name), found) for name, found in claims.leading_groups(records).items()],
        summary=summarise_records(records, damaged, asked),
        near_points=NEAR_POINTS,
        pictures={name: charts.figure_address(draw(records)) for name, draw in PICTURES.items() if name in tables},
        css=drawing.css_variables() + css,
        script=script,
        # Only this very script may run: markup that slipped through the escaping would still be dead text.
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=charts.page_data(records),
    )


def write_report(folder: StrPath, path: StrPath, *, assets_dir: StrPath | None = None) -> list[Path]:
    """Write the page of a run folder, and on request its tables as CSV; return the paths of all."""
    records, damaged = read_records(folder)
    title = f"annealfit report: {Path(folder).resolve().name}"
    pages = {Path(path): render(records, damaged, title, Store(Path(folder)).asked())}
    if assets_dir is not None:
        for table in all_tables(records):
            pages[Path(assets_dir) / f"{table.name}.csv"] = to_csv(table)
    for place, text in pages.items():
        with replacing(place) as file:
            file.write(text.encode())
    return [*pages]
