"""The program as a whole: its name and version, and what becomes of errors."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from annealfit import __version__
from annealfit.cli.display import console, errors, plain
from annealfit.errors import AnnealfitError

app = typer.Typer(
    help="Train image classifiers by annealing, and set classical training beside it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the program; errors of ours become one clear line and exit code 2."""
    try:
        app(standalone_mode=True)
    except (AnnealfitError, ValueError) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))


def _fail(message: str) -> None:
    errors.print(f"[bold red]error:[/] {plain(message)}", soft_wrap=True)
    sys.exit(2)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        console.print(f"annealfit {__version__}")
        raise typer.Exit
