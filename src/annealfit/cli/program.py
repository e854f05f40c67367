"""The program as a whole: its name, version and help, and how errors end it."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from functools import partial
from typing import Annotated

import typer
from typer import Option

from annealfit import __version__
from annealfit._support.errors import AnnealfitError
from annealfit.cli.output import console, errors, plain

app = typer.Typer(
    help="Train classifiers by annealing: their weights are found by solving QUBOs.",
    no_args_is_help=True,
    rich_markup_mode=None,  # in 80 columns rich leaves less than twenty to the descriptions of options
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 140},
)

_NO_MEMORY = "there is not enough memory; use fewer images, features or bits"
_LIBRARIES = "where memory is limited (ulimit -v) allow about 1 GB, else install annealfit anew"
_MOMENT = 0.02  # seconds after which a destructor is over


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        console.print(f"annealfit {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the program; errors of annealfit and of the system become one clear line and exit code 2."""
    for name in ("SIGTERM", "SIGHUP"):  # a batch system's request to end is treated as Ctrl-C: progress is kept
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="backslashreplace")  # what the terminal has no character for, as κ
    sys.unraisablehook = _repeat_interrupt
    try:
        try:
            app(standalone_mode=True)
        except Exception as error:
            if _was_interrupted(error):
                raise KeyboardInterrupt from error
            raise
    except KeyboardInterrupt:
        sys.unraisablehook = lambda _: None  # half-written files may complain when they are collected
        errors.print("Interrupted.")
        sys.exit(130)
    except (AnnealfitError, ValueError) as error:
        _fail(str(error))
    except MemoryError as error:
        _fail(f"there is not enough memory ({error}); use fewer images, features or bits" if str(error) else _NO_MEMORY)
    except SystemError as error:  # raised by Python where a library's call failed without a reason: for lack of memory
        _fail(f"there is not enough memory, or a library is broken ({error}); {_LIBRARIES}")
    except ImportError as error:
        _fail(f"a library could not be loaded ({error}); {_LIBRARIES}")
    except OSError as error:
        if "shared object" in str(error):  # llvmlite's message lists every reason but memory
            _fail(f"a library could not be loaded ({error.__cause__ or 'llvmlite'}); {_LIBRARIES}")
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))


def _interrupt(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second signal ends the program at once
    raise KeyboardInterrupt


def _repeat_interrupt(lost: sys.UnraisableHookArgs) -> None:
    """Raise Ctrl-C again a moment later where it arrived in a destructor: Python prints and forgets it there."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        again = partial(os.kill, os.getpid()) if os.name == "posix" else signal.raise_signal
        threading.Timer(_MOMENT, again, (signal.SIGINT,)).start()
    else:
        sys.__unraisablehook__(lost)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind the error: an interrupted library may raise an error of its own over it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _fail(message: str) -> None:
    try:
        errors.print(f"[bold red]error:[/] {plain(message)}", soft_wrap=True)
    except (MemoryError, SystemError, ImportError, OSError):  # rich itself needs memory
        os.write(2, f"error: {message}\n".encode(errors="replace"))
    sys.exit(2)
