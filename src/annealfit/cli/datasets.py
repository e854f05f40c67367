"""The commands about data sets: list them, fetch them."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import DownloadColumn, TimeRemainingColumn
from typer import Argument, Option

from annealfit.cli import options
from annealfit.cli.output import Column, print_json, print_table, progress_bar, say, yes_no
from annealfit.data.datasets import DATASETS, fetch, is_available

datasets_app = typer.Typer(invoke_without_command=True)


@datasets_app.callback()
def datasets(context: typer.Context, as_json: options.Json = False) -> None:
    """List the data sets there are, and fetch them.

    Files are kept in the folder that the environment variable ANNEALFIT_DATA names, or else in the user's cache.

    Examples of use:

    \b
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
        return print_json(rows)
    columns = [
        Column("name", "{0[name]}", "left"),
        Column("here", lambda row: yes_no(row["available"]), "left"),
        Column("train / test", "{0[n_train]} / {0[n_test]}", "left"),
        Column("description", "{0[description]}", "fold"),
    ]
    print_table(rows, columns)


@datasets_app.command("fetch")
def fetch_files(
    name: Annotated[str, Argument(help=f"One of {', '.join(DATASETS)}.")],
    offline: Annotated[bool, Option("--offline", help="Do not use the network; say what is missing.")] = False,
    force: Annotated[bool, Option("--force", help="Fetch again, and replace files that are there.")] = False,
    as_json: options.Json = False,
) -> None:
    """Download the files of a data set and check their digests.

    Example of use:

    \b
      annealfit datasets fetch mnist
    """
    with progress_bar("{task.description}", DownloadColumn(), TimeRemainingColumn(), description=name) as update:

        def on_chunk(file: str, done: int, total: int | None) -> None:
            update(description=file, completed=done, total=total)

        paths = [str(path) for path in fetch(name, offline=offline, force=force, progress=on_chunk)]
    if as_json:
        return print_json({"files": paths})
    for line in paths or [f"{name} comes with annealfit; there is nothing to fetch"]:
        say(line)
