"""The commands about the paper: `reproduce` runs its experiments, `report` makes a page of the records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from annealfit._support.errors import InvalidInputError
from annealfit._support.files import working_in
from annealfit.cli import options
from annealfit.cli.output import Column, pick, print_json, print_table, progress_bar, say, warn, warnings_as_notes
from annealfit.data.datasets import is_available, load_dataset
from annealfit.studies import paper_tables as paper

if TYPE_CHECKING:
    from annealfit.studies.report.tables import Cell, Table

_TOLD = ("loss", "cross_entropy", "seconds", "iterations", "stop_reason", "train", "test", "error")  # of a run, as JSON
_MOST_JOBS = 1000
Images = StrEnum("Images", ["published", "stated"])

# What the program prints with a TABLE of `reproduce`; the report has all tables.
_SHOWN_WITH = {
    "digits": ("range_study", "step_study", "raising", "agreement"),
    "benchmark": ("wins", "raising", "agreement"),
}


def reproduce(
    tables: Annotated[
        list[str] | None,
        Argument(metavar="[TABLE]...", help=f"Any of {', '.join(paper.TABLES)}; all of them by default."),
    ] = None,
    images: Annotated[
        Images,
        Option(
            help="published: images and filters inferred from the paper's recalls. stated: those that its text names."
        ),
    ] = Images.published,
    preset: options.PresetOption = options.Preset.matched,
    out: Annotated[Path, Option(help="Folder of the records.")] = Path("runs/paper"),
    seeds: Annotated[str, Option(help="Seeds, as 42-46 or 42,44.")] = "42-46",
    jobs: Annotated[int, Option(help="Processes; -1 is one per processor.")] = -1,
    dask: Annotated[str | None, Option(metavar="ADDRESS", help="Run on this Dask cluster instead.")] = None,
    download: options.Download = False,
    as_json: options.Json = False,
) -> None:
    """Run the paper's experiments; its numbers beside ours.

    Every finished run is stored at once: interrupt it at any moment, start it again, and it goes on. Tables that
    share runs share them.

    Examples of use:

    \b
      annealfit reproduce digits --preset annealfit --seeds 42
      annealfit reproduce --preset matched
      annealfit reproduce benchmark --images stated
      annealfit reproduce evidence
      annealfit reproduce family --seeds 42
      annealfit reproduce benchmark --dask tcp://127.0.0.1:8786
    """
    from annealfit.studies.execute import on_dask, on_this_machine, run_all
    from annealfit.studies.records import Store
    from annealfit.studies.report import page
    from annealfit.studies.report.drawing import save_figure
    from annealfit.studies.report.tables import all_tables, to_values

    asked = tables or paper.TABLES
    if jobs == 0 or jobs > _MOST_JOBS:
        raise InvalidInputError(
            f"--jobs is {jobs}; give a number of processes up to {_MOST_JOBS}, or -1 for one per processor"
        )
    is_there = (lambda name: True) if download else is_available
    specs = paper.runs_of(asked, preset, options.parse_numbers(seeds, "--seeds"), images, is_there)
    # Each data set is loaded once: missing files are an error before hours of work, and warnings are printed once.
    for dataset, images_of_spec in sorted({(spec.dataset, spec.images) for spec in specs}):
        with warnings_as_notes():
            load_dataset(dataset, images=images_of_spec, download=download)
    store, started = Store(out), time.perf_counter()
    try:
        with working_in(out), progress_bar("Runs", total=len(specs)) as update:
            update(completed=sum(map(store.is_done, specs)))
            backend = partial(on_dask, address=dask) if dask else partial(on_this_machine, n_jobs=jobs)
            tally = run_all(specs, store, backend, lambda record: update(advance=1, description=record.run.id))
    except KeyboardInterrupt:
        warn(f"Interrupted. Finished runs are stored in {out}: start it again to go on.")
        raise typer.Exit(130) from None
    seconds = time.perf_counter() - started
    records = store.records(specs)
    names = {name for table in asked for name in (table, *_SHOWN_WITH.get(table, ()))}
    shown = [table for table in all_tables(records) if table.name in names]
    for table in shown:
        if table.name in page.PICTURES:
            save_figure(page.PICTURES[table.name](records), out / f"{table.name}.png")
    if as_json:
        runs = [{"run": record.run.to_json(), **pick(record, *_TOLD)} for record in records]
        print_json({"seconds": seconds, "runs": runs, "tables": {table.name: to_values(table) for table in shown}})
    else:
        for table in shown:
            _print_paper_table(table)
        done = f"{tally.done} done now in {seconds:.1f} s, {tally.failed} failed"
        say(f"{len(specs)} runs: {tally.already} were there, {done}. Records: {out}")
    failed = [record for record in records if record.error]
    for record in failed:
        warn(f"failed: {record.run.id}: {record.error}")
    if failed:
        raise typer.Exit(1)


def _print_paper_table(table: Table) -> None:
    """Print a table of the report: means over seeds, the paper's numbers in brackets."""
    once: dict[int, str] = {}  # columns of which the title says the only word
    for place, column in enumerate(table.columns):
        words = {row[place].text for row in table.rows} - {"–"}
        if column.name in ("preset", "images") and len(words) == 1:
            once[place] = f"{column.name} {words.pop()}"
    notes = [*once.values(), *(["in brackets: the paper's"] if any(c.compared for c in table.columns) else [])]

    def write(place: int, row: Sequence[Cell]) -> str:
        ours, theirs = (text.partition(" ± ")[0] for text in (row[place].text, row[place].paper_text))
        return f"{ours} ({theirs})" if theirs else ours

    shown = [(place, column) for place, column in enumerate(table.columns) if place not in once]
    columns = [Column(c.title, partial(write, place), "right" if c.numeric else "fold") for place, c in shown]
    title = f"{table.title} ({'; '.join(notes)})" if notes else table.title
    print_table(table.rows, columns, title=title, keys=table.headings - len(once))
    for note in table.notes if table.name == "evidence" else ():
        say(note, wrap=True)
    say()


def report(
    folder: Annotated[Path, Argument(metavar="RUNS", help="Folder of records that reproduce wrote.")],
    out: Annotated[Path, Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    tables: Annotated[Path | None, Option(help="Folder for all tables as CSV.")] = None,
    as_json: options.Json = False,
) -> None:
    """Make one page of all records, to look at or to send.

    It has the paper's numbers beside ours, curves and pictures, and needs no other file.

    Example of use:

    \b
      annealfit report runs/paper -o report.html
    """
    from annealfit.studies.report.page import write_report

    with warnings_as_notes():  # records that are not whole
        paths = [str(path) for path in write_report(folder, out, assets_dir=tables)]
    if as_json:
        return print_json({"files": paths})
    for path in paths:
        say(path)
