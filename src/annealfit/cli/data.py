"""The commands about data sets: list them, fetch them."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn

from annealfit.cli.display import console, make_progress, make_table, plain
from annealfit.cli.options import JsonOption
from annealfit.cli.printing import print_table
from annealfit.data.datasets import DATASETS, fetch, is_available

datasets_app = typer.Typer(invoke_without_command=True, rich_markup_mode="rich")


@datasets_app.callback()
def datasets(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the data sets there are, and fetch them.

    Files are kept in the folder that the environment variable ANNEALFIT_DATA names, or else in the user's cache.

    Examples of use:

      annealfit datasets

      annealfit datasets fetch mnist
    """
    if context.invoked_subcommand is not None:
        return
    rows = [
        {
            "name": name,
            "available": is_available(name),
            "n_train": source.n_train,
            "n_test": source.n_test,
            "classes": len(source.class_names),
            "description": source.description,
        }
        for name, source in DATASETS.items()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = make_table()
    for heading in ("name", "here", "train / test", "description"):
        table.add_column(heading)
    for row in rows:
        here = "yes" if row["available"] else "no"
        table.add_row(str(row["name"]), here, f"{row['n_train']} / {row['n_test']}", str(row["description"]))
    print_table(table)


@datasets_app.command("fetch")
def fetch_files(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(DATASETS)}.")],
    offline: Annotated[bool, typer.Option("--offline", help="Do not use the network; say what is missing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Fetch again, and replace files that are there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Download the files of a data set and check their digests.

    Example of use:

      annealfit datasets fetch mnist
    """
    progress = make_progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}

    def on_chunk(file: str, done: int, total: int | None) -> None:
        if file not in tasks:
            tasks[file] = progress.add_task(file, total=total)
        progress.update(tasks[file], completed=done, total=total)

    with progress:
        paths = fetch(name, offline=offline, force=force, progress=on_chunk)
    if as_json:
        typer.echo(json.dumps({"files": [str(path) for path in paths]}, indent=2, ensure_ascii=False))
        return
    for path in paths:
        console.print(plain(str(path)), soft_wrap=True)
    if not paths:
        console.print(f"{name} comes with annealfit; there is nothing to fetch")
