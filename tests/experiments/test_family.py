"""The study of the models that annealing trains: what it compares, stores and shows."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from annealfit._support.errors import FileFormatError
from annealfit.cli.program import app
from annealfit.studies import family
from annealfit.studies.report.page import render


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("family")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANNEALFIT_DATA", str(folder / "nothing"))  # so that scikit-learn's digits alone are there
        patch.setattr(family, "PAIRS", {name: family.PAIRS[name] for name in ("Least squares", "Matrix factorisation")})
        wanted = family.runs("stated", (42, 43))
        assert {run.dataset for run in wanted} == {"digits"}
        steps = []
        found = family.collect(folder, wanted, 1, steps.append)
    assert steps == list(range(9))
    return folder, wanted, found


def test_every_pair_has_a_row(collected):
    _, _, found = collected
    table = family.table(found)
    assert [row[2].text for row in table.rows] == ["Least squares", "Matrix factorisation"]
    cells = {column.name: cell for column, cell in zip(table.columns, table.rows[0], strict=True)}
    annealed = [result for result in found if result["model"] == "Least squares" and result["annealed"]]
    assert cells["accuracy_percent"].value == pytest.approx(50 * sum(result["accuracy"] for result in annealed))
    # With enough iterations it is RidgeClassifier.
    assert abs(cells["accuracy_percent"].value - cells["classical_accuracy_percent"].value) < 1
    assert (cells["variables"].value, cells["fits"].text) == (3 * 64, "no")


def test_what_is_stored_is_not_run_again(collected, monkeypatch):
    folder, wanted, found = collected
    monkeypatch.setattr(family, "execute", None)
    assert family.collect(folder, wanted, 1) == found
    assert sorted(family.read(folder), key=str) == sorted(found, key=str)
    assert (folder / family.FIGURE).read_bytes().startswith(b"\x89PNG")


def test_the_command_prints_what_is_stored(collected, monkeypatch):
    folder, wanted, _ = collected
    monkeypatch.setattr(family, "runs", lambda images, seeds: wanted)
    result = CliRunner().invoke(app, ["reproduce", "family", "--out", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    (row, _) = json.loads(result.stdout)["tables"]["family"]
    assert row["model"] == "Least squares"


def test_the_report_shows_it(collected):
    page = render([], of_family=collected[2])
    assert "Other models that annealing trains" in page
    assert "Matrix factorisation" in page
    assert "Other models" not in render([])


@pytest.mark.parametrize("model", family.PAIRS)
def test_every_model_runs_and_gives_an_account(model, monkeypatch):
    rows, test_rows, data = family._data("digits", "stated", 42)
    part = replace(data, y_train=data.y_train[:200], y_test=data.y_test[:100])
    monkeypatch.setattr(family, "_data", lambda *_: (rows[:200], test_rows[:100], part))
    for annealed in (True, False):
        result = family.execute(family.Run("digits", "stated", model, annealed, 42))
        assert result["accuracy"] > 0.5
        assert (result.get("variables", 0) > 0) == annealed


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / family.FOLDER).mkdir()
    (tmp_path / family.FOLDER / "x.json").write_text('{"dataset": "../x"}')
    with pytest.raises(FileFormatError, match="dataset"):
        family.read(tmp_path)
