"""The study of the models that annealing trains: what it compares, stores and shows."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from annealfit import load_dataset
from annealfit._support.errors import InvalidInputError
from annealfit.cli.program import app
from annealfit.studies import family
from annealfit.studies.paper_tables import runs_of
from annealfit.studies.records import MODELS, RunSpec, Store
from annealfit.studies.report.page import render


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """The folder and the output of the command, on scikit-learn's digits, which alone are there."""
    folder = tmp_path_factory.mktemp("family")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANNEALFIT_DATA", str(folder / "nothing"))
        patch.setattr(family, "PAIRS", {name: family.PAIRS[name] for name in ("Least squares", "Matrix factorisation")})
        options = ["--images", "stated", "--seeds", "42,43", "--jobs", "1", "--json"]
        result = CliRunner().invoke(app, ["reproduce", "family", *options, "--out", str(folder)])
        assert result.exit_code == 0, result.output
    return folder, json.loads(result.stdout)


def test_every_pair_has_a_row(collected):
    folder, told = collected
    assert [run["run"]["dataset"] for run in told["runs"]] == ["digits"] * 8
    rows = told["tables"]["family"]
    assert [row["model"] for row in rows] == ["Least squares", "Matrix factorisation"]
    runs = [run for run in told["runs"] if run["run"]["model"] == "Least squares"]
    accuracies = [run["test"]["accuracy"] for run in runs if run["run"]["method"] == "annealed"]
    assert len(accuracies) == 2
    assert rows[0]["accuracy_percent"] == pytest.approx(50 * sum(accuracies))
    # With enough iterations it is RidgeClassifier.
    assert abs(rows[0]["accuracy_percent"] - rows[0]["classical_accuracy_percent"]) < 1
    assert (rows[0]["variables"], rows[0]["fits"]) == (3 * 64, "no")
    assert (folder / "family.png").read_bytes().startswith(b"\x89PNG")


def test_stored_records_are_whole_and_the_report_shows_them(collected):
    records = Store(collected[0]).records()
    assert {record.error for record in records} == {None}
    assert all(set(record.counts) == {"solves", "variables"} for record in records if record.run.method == "annealed")
    assert all(np.isnan(record.loss) and record.confusion.sum() == 540 for record in records)
    page = render(records)
    assert "Other models that annealing trains" in page
    assert "Matrix factorisation" in page
    assert "Other models" not in render([])


@pytest.mark.parametrize("model", MODELS)
def test_every_model_runs_and_gives_an_account(model):
    data = load_dataset("digits", n_train=200, n_test=100)
    assert set(family.PAIRS) == set(MODELS)
    for method in ("annealed", "counterpart"):
        record = family.train(RunSpec("digits", method, 42, model=model), data)
        assert record.test["accuracy"] > 0.5
        assert (record.counts.get("variables", 0) > 0) == (method == "annealed")


def test_an_unknown_model_is_named():
    with pytest.raises(InvalidInputError, match="'Boosting'"):
        replace(runs_of(["family"], "matched")[0], model="../x")
