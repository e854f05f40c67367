"""What becomes of errors that are not ours: one sentence, also where there is hardly room for one."""

import os
import subprocess
import sys
import time

import pytest

from annealfit.cli import program


def end_of(monkeypatch, capfd, error):
    def fail(**_):
        raise error

    monkeypatch.setattr(program, "app", fail)
    monkeypatch.setattr(program.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    with pytest.raises(SystemExit) as ended:
        program.main()
    return ended.value.code, capfd.readouterr().err


def of_llvmlite():
    error = OSError("Could not find/load shared object file 'libllvmlite.so'. This could mean that …")
    error.__cause__ = OSError("libllvmlite.so: failed to map segment from shared object")
    return error


def of_an_interrupted_archive():
    """What zipfile says when Ctrl-C meets it in the middle of a member."""
    try:
        try:
            raise KeyboardInterrupt
        finally:
            raise ValueError("Can't close the ZIP file while there is an open writing handle on it.")
    except ValueError as error:
        return error


def of_an_interrupted_import():
    error = RuntimeError("Error calling __set_name__ on 'cached_property'")
    error.__cause__ = KeyboardInterrupt()
    return error


@pytest.mark.parametrize("error", [of_an_interrupted_archive(), of_an_interrupted_import()])
def test_an_error_that_comes_of_an_interrupt_is_an_interrupt(monkeypatch, capfd, error):
    assert end_of(monkeypatch, capfd, error) == (130, "Interrupted.\n")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "there is not enough memory; use fewer"),
        (MemoryError("Unable to allocate 9 TiB"), "(Unable to allocate 9 TiB)"),
        (SystemError("error return without exception set"), "not enough memory, or a library is broken"),
        (ImportError("x.so: failed to map segment"), "a library could not be loaded (x.so: failed to map segment)"),
        (of_llvmlite(), "(libllvmlite.so: failed to map segment from shared object); where memory is limited"),
        (OSError(28, "No space left on device", "model"), "No space left on device: model"),
        (KeyboardInterrupt(), "Interrupted."),
    ],
)
def test_errors_of_the_system_are_one_sentence(monkeypatch, capfd, error, words):
    code, said = end_of(monkeypatch, capfd, error)
    assert code == (130 if isinstance(error, KeyboardInterrupt) else 2)
    assert words in said
    assert "Traceback" not in said


def test_an_interrupt_that_meets_a_destructor_is_not_lost(interruptible, monkeypatch, capfd):
    """Python prints and forgets what a destructor raises."""

    class Interrupted:
        def __del__(self):
            raise KeyboardInterrupt

    def run(**_):
        Interrupted()
        time.sleep(30)
        raise AssertionError("nobody was interrupted")

    monkeypatch.setattr(program, "app", run)
    monkeypatch.setattr(program.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 130
    assert capfd.readouterr().err == "Interrupted.\n"


def test_a_sentence_needs_no_colours(monkeypatch, capfd):
    """Rich loads modules when it first prints, which may be what there is no memory for."""

    def refuse(*_, **__):
        raise MemoryError

    monkeypatch.setattr(program.errors, "print", refuse)
    assert end_of(monkeypatch, capfd, MemoryError()) == (2, f"error: {program._NO_MEMORY}\n")


_INTERRUPTED_WHILE_LOADING = """
import builtins, os, signal
import annealfit.__main__ as program
original = builtins.__import__
def load(name, *arguments, **named):
    if name == "typer":
        os.kill(os.getpid(), signal.SIGINT)
    return original(name, *arguments, **named)
signal.signal(signal.SIGINT, signal.default_int_handler)
builtins.__import__ = load
program.main()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_an_interrupt_while_libraries_are_loaded_is_no_traceback():
    ended = subprocess.run([sys.executable, "-c", _INTERRUPTED_WHILE_LOADING], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "Interrupted.\n")


def test_a_terminal_without_a_character_gets_its_number(tmp_path):
    arguments = ["train", "digits", "--max-iter", "1", "--no-plots", "--out", str(tmp_path / "run")]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    program = [sys.executable, "-m", "annealfit", *arguments]
    ended = subprocess.run(program, capture_output=True, env=environment, check=True)
    assert b"\\u03ba" in ended.stdout
