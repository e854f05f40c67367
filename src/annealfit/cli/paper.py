"""The commands about the paper: run its experiments, set its numbers beside ours."""

from __future__ import annotations

import json
import math
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from annealfit._support.files import working_in
from annealfit.cli.display import console, errors, make_progress, make_table, plain
from annealfit.cli.options import DownloadOption, JsonOption, Preset, PresetOption, parse_numbers
from annealfit.cli.printing import print_table
from annealfit.data.datasets import load_dataset
from annealfit.studies import paper_tables as paper
from annealfit.studies.records import RunSpec

if TYPE_CHECKING:
    from annealfit.studies.execute import Backend, Tally
    from annealfit.studies.records import Record, Store
    from annealfit.studies.report.cells import Cell
    from annealfit.studies.report.cells import Table as PaperTable

# What the program prints for each TABLE of `reproduce`; the report has them all.
_SHOWN_WITH = {
    "digits": ("digits", "range_study", "step_study"),
    "sizes": ("sizes",),
    "predictions": ("predictions",),
    "benchmark": ("benchmark", "wins", "raising"),
    "recall": ("recall",),
    "times": ("times",),
    "filters": ("filters",),
    "hardware": ("hardware",),
}


def reproduce(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]...", help=f"Any of {', '.join(paper.TABLES)}; all of them by default."),
    ] = None,
    preset: PresetOption = Preset.matched,
    out: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("runs/paper"),
    seeds: Annotated[str, typer.Option(help="Seeds, as 42-46 or 42,44.")] = "42-46",
    jobs: Annotated[int, typer.Option(help="Processes; -1 is one per processor.")] = -1,
    dask: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on this Dask cluster instead.")] = None,
    download: DownloadOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the paper's experiments; its numbers beside ours.

    Every finished run is stored at once: interrupt it at any moment, start it again, and it goes on. Tables that
    share runs share them.

    Examples of use:

      annealfit reproduce digits --preset annealfit --seeds 42

      annealfit reproduce --preset matched

      annealfit reproduce benchmark --dask tcp://127.0.0.1:8786
    """
    from annealfit.studies.execute import on_dask, on_this_machine
    from annealfit.studies.records import Store
    from annealfit.studies.report import tables as report_tables
    from annealfit.studies.report.table_files import to_values

    specs = paper.runs_of(tables or paper.TABLES, preset, parse_numbers(seeds, "--seeds"))
    for note in _check_data(sorted({spec.dataset for spec in specs}), download):
        errors.print(plain(note), soft_wrap=True)
    started = time.perf_counter()
    try:
        with working_in(out):
            tally, records = _run(specs, Store(out), on_this_machine(jobs) if dask is None else on_dask(dask))
    except KeyboardInterrupt:
        errors.print(plain(f"Interrupted. Finished runs are stored in {out}: start it again to go on."), soft_wrap=True)
        raise typer.Exit(130) from None
    seconds = time.perf_counter() - started
    names = {shown for asked in tables or paper.TABLES for shown in _SHOWN_WITH[asked]}
    shown = [table for table in report_tables.all_tables(records) if table.name in names]
    failed = {record.run.id: record.error for record in records if record.error}
    if as_json:
        told = {"seconds": seconds, "runs": [_run_values(record) for record in records]}
        told["tables"] = {table.name: to_values(table) for table in shown}
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        for table in shown:
            shown_here, keys = _paper_table(table)
            print_table(shown_here, keys=keys)
            console.print()
        done = f"{tally.already} were there, {tally.done} done now in {seconds:.1f} s, {tally.failed} failed"
        console.print(plain(f"{len(specs)} runs: {done}. Records: {out}"), soft_wrap=True)
    for name, error in failed.items():
        errors.print(plain(f"failed: {name}: {error}"), soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _run(specs: list[RunSpec], store: Store, backend: Backend) -> tuple[Tally, list[Record]]:
    """Carry out the runs that are not done yet, with a bar; the records of all of them."""
    from annealfit.studies.execute import run_all

    progress = make_progress(
        TextColumn("Runs"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    )
    with progress:
        task = progress.add_task("", total=len(specs), completed=sum(map(store.is_done, specs)))

        def on_record(record: Record) -> None:
            progress.update(task, advance=1, description=record.run.id)

        tally = run_all(specs, store, backend, on_record)
    return tally, store.of(specs)


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUNS", help="Folder of records that reproduce wrote.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    tables: Annotated[
        Path | None, typer.Option(help="Also write every table as CSV and LaTeX and the figures as SVG and PNG here.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make one page of all records, to look at or to send.

    It has the paper's numbers beside ours, curves and pictures, and needs no other file.

    Example of use:

      annealfit report runs/paper -o report.html
    """
    from annealfit.studies.report import html

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        paths = [str(path) for path in html.write_report(folder, out, assets_dir=tables)]
    for warning in caught:  # records that are not whole
        errors.print(plain(f"note: {warning.message}"), soft_wrap=True)
    if as_json:
        typer.echo(json.dumps({"files": paths}, indent=2, ensure_ascii=False))
        return
    for path in paths:
        console.print(plain(path), soft_wrap=True)


def _check_data(names: list[str], download: bool) -> list[str]:
    """Load each data set once: what is missing is said before hours of work, and warnings once instead of per run."""
    notes = []
    for name in names:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            load_dataset(name, download=download)
        notes += [f"note: {warning.message}" for warning in caught]
    return notes


def _run_values(record: Record) -> dict[str, Any]:
    """What a run reached, for JSON, which has no NaN."""
    numbers = {"loss": record.loss, "cross_entropy": record.cross_entropy, "seconds": record.seconds}
    return {
        "run": record.run.to_json(),
        **{name: value if math.isfinite(value) else None for name, value in numbers.items()},
        "iterations": record.iterations,
        "stop_reason": record.stop_reason,
        "train": record.train,
        "test": record.test,
        "error": record.error,
    }


def _paper_table(table: PaperTable) -> tuple[Table, int]:
    """A table of the report for the terminal, and how many columns name a row: means only, the paper's in brackets."""

    def mean(text: str) -> str:
        return text.partition(" ± ")[0]  # the spread over seeds is in the report

    def both(cell: Cell) -> str:
        return f"{mean(cell.text)} ({mean(cell.paper_text)})" if cell.paper_text else mean(cell.text)

    notes = ["in brackets: the paper's"] if any(column.compared for column in table.columns) else []
    columns = list(enumerate(table.columns))
    presets = {row[place].text for place, column in columns if column.name == "preset" for row in table.rows} - {"–"}
    if len(presets) == 1:  # a column that says the same everywhere; the title says it once
        notes.insert(0, f"preset {presets.pop()}")
        columns = [(place, column) for place, column in columns if column.name != "preset"]
    shown = make_table(plain(f"{table.title} ({'; '.join(notes)})" if notes else table.title))
    for _, column in columns:
        shown.add_column(plain(column.title), justify="right" if column.numeric else "left")
    for row in table.rows:
        shown.add_row(*(plain(both(row[place])) for place, _ in columns))
    keys = sum(place < table.headings for place, _ in columns)
    return shown, keys
