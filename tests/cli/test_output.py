"""Tables in terminals of any width: every number is there, whole."""

from __future__ import annotations

import io
import json
import re
from operator import itemgetter
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from annealfit.cli import app, output, training

ROWS = [("QUBO 3-bit", "86.4 (81.5)", "1.17550", "1,234,567", "a note of many words that may be folded anywhere")] * 2
COMMANDS = {
    f"{name} {below}".strip()
    for name, command in get_command(app).commands.items()
    for below in ("", *getattr(command, "commands", ()))
}
HEADINGS = ("method", "Train accuracy, %", "loss", "couplings", "note")


def printed(monkeypatch, width: int, *, terminal: bool) -> str:
    out = io.StringIO()
    monkeypatch.setattr(output, "console", Console(file=out, width=width, force_terminal=terminal, color_system=None))
    monkeypatch.setattr(output, "Console", lambda **options: Console(file=out, color_system=None, **options))
    columns = [
        output.Column(heading, itemgetter(place), {"method": "left", "note": "fold"}.get(heading, "right"))
        for place, heading in enumerate(HEADINGS)
    ]
    output.print_table(ROWS, columns, title="A title that is longer than the narrowest of the terminals tried")
    return out.getvalue()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("terminal", [True, False])
def test_no_number_is_cut_or_broken(monkeypatch, width, terminal):
    text = printed(monkeypatch, width, terminal=terminal)
    for number in ROWS[0][1:4]:
        assert text.count(number) == 2
    assert "…" not in text
    assert all(word in text for word in " ".join(HEADINGS).split())


@pytest.mark.parametrize("width", [40, 60, 80])
def test_columns_without_room_follow_below(monkeypatch, width):
    text = printed(monkeypatch, width, terminal=True)
    title, *lines = text.splitlines()
    assert title.startswith("A title")
    assert max(map(len, lines)) <= width
    parts = len(re.findall(r"^method", text, re.M))
    assert text.count("QUBO 3-bit") == 2 * parts  # each part names its rows
    assert parts > 1 or width == 80


def test_a_file_has_lines_of_any_length(monkeypatch):
    text = printed(monkeypatch, 30, terminal=False)
    assert len(re.findall(r"^method", text, re.M)) == 1
    assert ROWS[0][-1] in text


@pytest.mark.parametrize(
    "arguments", [["-h"], ["train", "-h"], ["datasets", "fetch", "-h"], ["instances", "write", "-h"]]
)
def test_the_short_option_for_help(arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_paragraphs_of_help_flow():
    text = CliRunner().invoke(app, ["train", "--help"], terminal_width=140).output
    (line,) = [line for line in text.splitlines() if "Draws random convolution features" in line]
    assert len(line.strip()) > 120  # which the source's lines never are


@pytest.mark.parametrize("command", ["", *sorted(COMMANDS)])
def test_help_fits_80_columns_and_says_every_sentence(command):
    text = CliRunner().invoke(app, [*command.split(), "--help"], terminal_width=80).output
    assert [line for line in text.splitlines() if len(line) > 80] == []
    _, _, commands = text.partition("Commands:")
    assert "..." not in commands  # what each is for is said in full


def test_progress_never_shows_a_number_that_is_none(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(output, "errors", Console(file=out, force_terminal=True, width=120))
    with training.training_progress(10):
        pass
    assert "first iteration" in out.getvalue()
    assert "nan" not in out.getvalue()


def test_reproduce_as_json_has_all_that_the_tables_have(tmp_path):
    command = "reproduce digits --preset annealfit --seeds 42 --jobs 1 --json --out"
    result = CliRunner().invoke(app, [*command.split(), str(tmp_path)])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert {"loss", "cross_entropy", "seconds", "iterations", "train", "test", "error"} <= set(told["runs"][0])
    rows = {(row["method"], row["preset"]): row for row in told["tables"]["digits"]}
    classical = rows["Classical (SGD)", "–"]
    assert classical["test_accuracy_percent_paper"] == 79.8
    assert classical["final_loss_paper"] == 0.872
    assert classical["final_loss"] == pytest.approx(
        next(r for r in told["runs"] if r["run"]["method"] == "classical")["cross_entropy"]
    )
    assert rows["QUBO 3-bit", "annealfit"]["test_accuracy_percent_paper"] is None


def test_progress_in_a_file_is_a_line_every_few_seconds(monkeypatch, capsys):
    clock = iter([0.0, 1.0, 6.0, 7.0, 12.0])
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    with output.progress_bar("Training", total=20, description="first") as update:
        update(completed=1, description="loss 2")
        update(completed=5, description="loss 1")
        update(advance=3)
        update(advance=2, description="loss 0.5")
    assert capsys.readouterr().err.splitlines() == [
        "Training, loss 1, 5 of 20, about 19 s left",
        "Training, loss 0.5, 10 of 20, about 12 s left",
    ]


def test_the_time_limit_counts_for_the_time_left(monkeypatch, capsys):
    clock = iter([0.0, 6.0, 12.0])
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    with training.training_progress(1000, 18.0) as tell:
        for count, seconds in ((10, 6.0), (20, 12.0)):
            tell(SimpleNamespace(row={"iteration": count, "seconds": seconds, "loss": 1.0, "accuracy": 0.5}))
    assert [line.partition("%, ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "10 of 30",
        "20 of 30, about 6 s left",
    ]
