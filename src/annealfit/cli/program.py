"""The program as a whole: its name and version, and what becomes of errors."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
from functools import partial
from typing import Annotated

import typer

from annealfit import __version__
from annealfit._support.errors import AnnealfitError
from annealfit.cli.display import console, errors, plain

app = typer.Typer(
    help="Train classifiers by annealing: their weights are found by solving QUBOs.",
    no_args_is_help=True,
    rich_markup_mode=None,  # in 80 columns rich leaves the descriptions of options less than twenty
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 140},
)


def main() -> None:
    """Run the program; errors of ours, and what the system cannot give, become one clear line and exit code 2."""
    for name in ("SIGTERM", "SIGHUP"):  # asked to end, by a batch system say: as with Ctrl-C, what was learnt is kept
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _interrupt)
    sys.unraisablehook = _hand_on_interrupt
    try:
        try:
            app(standalone_mode=True)
        except Exception as error:
            if _comes_of_an_interrupt(error):
                raise KeyboardInterrupt from error
            raise
    except KeyboardInterrupt:
        sys.unraisablehook = lambda _: None  # files that were being written may complain when they are let go
        errors.print("Interrupted.")
        sys.exit(130)
    except (AnnealfitError, ValueError) as error:
        _fail(str(error))
    except MemoryError as error:
        _fail(f"there is not enough memory ({error}); use fewer images, features or bits" if str(error) else _NO_MEMORY)
    except SystemError as error:  # what Python says when a library's call failed without a reason: for lack of memory
        _fail(f"there is not enough memory, or a library is broken ({error}); {_LIBRARIES}")
    except ImportError as error:
        _fail(f"a library could not be loaded ({error}); {_LIBRARIES}")
    except OSError as error:
        if "shared object" in str(error):  # llvmlite's words, which are about everything but memory
            _fail(f"a library could not be loaded ({error.__cause__ or 'llvmlite'}); {_LIBRARIES}")
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))


_NO_MEMORY = "there is not enough memory; use fewer images, features or bits"
_LIBRARIES = "where memory is limited (ulimit -v) allow about 1 GB, else install annealfit anew"


def _interrupt(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one ends at once
    raise KeyboardInterrupt


def _hand_on_interrupt(lost: sys.UnraisableHookArgs) -> None:
    """Ctrl-C that meets a destructor is printed by Python, and forgotten; here it is raised again a moment later."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        again = partial(os.kill, os.getpid()) if os.name == "posix" else signal.raise_signal
        threading.Timer(_MOMENT, again, (signal.SIGINT,)).start()
    else:
        sys.__unraisablehook__(lost)


_MOMENT = 0.02  # seconds: the destructor is over by then


def _comes_of_an_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind the error: a library that is interrupted may raise one of its own over it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _fail(message: str) -> None:
    try:
        errors.print(f"[bold red]error:[/] {plain(message)}", soft_wrap=True)
    except (MemoryError, SystemError, ImportError, OSError):  # no room for colours
        os.write(2, f"error: {message}\n".encode(errors="replace"))
    sys.exit(2)


def reflow_help(commands: typer.Typer) -> None:
    """Let the paragraphs of every command's help flow: their lines are broken for the reader of the source."""
    for entry in (*commands.registered_commands, commands.registered_callback):
        text = inspect.getdoc(entry.callback) if entry is not None and entry.callback is not None else None
        if entry is not None and text is not None:
            entry.help = flowing(text)
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            reflow_help(group.typer_instance)


def flowing(text: str) -> str:
    r"""The text with each paragraph in one line; indented lines stay as they are, together.

    >>> flowing("One\nparagraph.\n\n  a command\n\n  another")
    'One paragraph.\n\n\x08\n  a command\n  another'
    """
    parts: list[str] = []
    for paragraph in text.split("\n\n"):
        if not paragraph.startswith(" "):
            parts.append(" ".join(paragraph.split()))
        elif parts and parts[-1].startswith(_AS_IT_IS):
            parts[-1] += f"\n{paragraph}"
        else:
            parts.append(f"{_AS_IT_IS}\n{paragraph}")
    return "\n\n".join(parts)


_AS_IT_IS = "\b"  # before lines that click shall not flow


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        console.print(f"annealfit {__version__}")
        raise typer.Exit
