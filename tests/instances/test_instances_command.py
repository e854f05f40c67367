"""`annealfit instances`: what it prints, as tables and as JSON."""

import json
import re

import pytest
from typer.testing import CliRunner

from annealfit._support.errors import InvalidInputError
from annealfit.cli import app
from annealfit.studies.instances import INSTANCES, best_known, find_instance

NAME = "digits-d18-k1-centred-first-c0"


def run(*arguments):
    result = CliRunner().invoke(app, ["instances", *map(str, arguments)], env={"COLUMNS": "140"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_listing():
    rows = json.loads(run("list", "--json").stdout)
    assert [row["name"] for row in rows] == [instance.name for instance in INSTANCES]
    assert all(row["variables"] == (row["d"] + 1) * row["K"] for row in rows)
    text = run("list", "--select", NAME).stdout
    assert re.search(rf"{NAME}\s+19\s+153\s+-0.00960653\s+proven, 2026-11\s+yes", text)
    assert f"1 of {len(INSTANCES)} instances" in text


def test_writing_tells_of_the_offset(tmp_path):
    folder = tmp_path / "new" / "folder"
    text = run("write", folder, "--select", NAME, "--format", "coo", "--format", "bqm").stdout
    assert sorted(path.name for path in folder.iterdir()) == [f"{NAME}.{end}" for end in ("bqm", "coo", "json")]
    assert "for coo files are lower by the offset" in " ".join(text.split())
    told = json.loads(run("write", folder, "--select", NAME, "--json").stdout)
    assert told[0]["sha256"] == best_known(find_instance(NAME)).sha256
    assert f"{NAME}.qubo" in told[0]["files"][0]["file"]
    assert "lower by the offset" not in run("write", folder, "--select", NAME, "--format", "npz").stdout


def test_checking(tmp_path):
    samples = tmp_path / "answers.csv"
    samples.write_text(f"{NAME},{'0' * 19}\n{NAME},{best_known(find_instance(NAME)).bits}\n")
    assert re.search(r"-0.00960653\s+-0.00960653\s+proven, 2026-11\s+0\s+50.0%\s+optimal", run("check", samples).stdout)
    (row,) = json.loads(run("check", samples, "--json").stdout)
    assert (row["verdict"], row["success"], row["reads"], len(row["energies"])) == ("optimal", 0.5, 2, 2)


def test_mistakes(tmp_path):
    with pytest.raises(InvalidInputError, match="no instance is called"):
        run("write", tmp_path, "--select", "nothing")
    assert run("write", tmp_path, "--format", "xml").exit_code == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["list", "write", "check"])
def test_help_has_an_example(command):
    assert f"annealfit instances {command}" in run(command, "--help").stdout


def test_export_tells_of_the_offset(tmp_path):
    arguments = ["export", "digits", "--bits", "1", "--format", "qubo", "-o", str(tmp_path / "p.qubo")]
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert told["note"].endswith(f"add {told['offset']!r} to them")
    assert "Note: energies that other programs report" in CliRunner().invoke(app, arguments).stdout
