"""`annealfit train --sampler …`: the cost is told before and after, and nothing is started blindly."""

from __future__ import annotations

import csv
import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("dwave.system")

from annealfit.cli import app

QUICK = "mock-qpu:topology=Z12,num_reads=10"


def train(*arguments):
    result = CliRunner().invoke(app, ["train", "digits", *map(str, arguments)])
    return result


def test_a_rehearsal_tells_its_cost_before_and_after(tmp_path):
    folder = tmp_path / "run"
    result = train("--bits", 1, "--max-iter", 4, "--sampler", QUICK + ",faults=0.5", "--out", folder)
    assert result.exit_code == 0, result.output
    before = "An iteration: 1 call, 554 qubits, chains of at most 3, 0.018 s of QPU access; 4 iterations: 0.1 s."
    assert before in result.output.replace("\n", " ")
    assert "s of QPU access" in result.stdout
    rows = [row for row in csv.DictReader((folder / "history.csv").open()) if row["method"].startswith("QUBO")]
    assert len(rows) == 4
    assert any(row["faults"] for row in rows)
    config = json.loads((folder / "config.json").read_text())
    described = config["classifier"]["sampler"]
    assert (described["type"], described["num_reads"], described["device"]["topology"]) == ("QPUSampler", 10, "Z12")


def test_json_output_stays_json(tmp_path):
    result = train("--bits", 1, "--max-iter", 2, "--sampler", QUICK, "--out", tmp_path / "run", "--json")
    assert json.loads(result.stdout)["QUBO 1-bit"]["train"]["accuracy"] > 0.3


def test_a_spent_budget_is_said(tmp_path):
    budget = QUICK + ",max_access_seconds=0.04"
    result = train("--bits", 1, "--max-iter", 50, "--sampler", budget, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert "training used up the sampler's budget after 2 of 50 iterations" in result.output
    assert "What was learnt is saved, and --resume goes on from there." in result.output
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_a_start_that_failed_leaves_nothing_in_the_way(tmp_path):
    common = ("--bits", 1, "--max-iter", 2, "--out", tmp_path / "run")
    failed = train(*common, "--sampler", QUICK + ",max_access_seconds=0.001")
    assert "max_access_seconds is 0.001" in str(failed.exception)
    assert train(*common, "--sampler", QUICK).exit_code == 0
    before = (tmp_path / "run" / "config.json").read_text()
    refused = train("--bits", 2, "--max-iter", 9, "--sampler", QUICK, "--out", tmp_path / "run", "--resume")
    assert "belongs to another training" in str(refused.exception)
    assert (tmp_path / "run" / "config.json").read_text() == before


def test_blocks_go_with_any_sampler(tmp_path):
    result = train("--bits", 1, "--max-iter", 3, "--sampler", "rounded", "--blocks", 5, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    blocks = {"type": "BlockSampler", "child": {"type": "RoundedSampler"}, "max_variables": 5, "sweeps": 1}
    assert config["classifier"]["sampler"] == blocks
    result = train("--bits", 1, "--max-iter", 2, "--sampler", QUICK, "--blocks", 10, "--out", tmp_path / "b")
    assert "An iteration: 2 calls" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sampler", "qpu"], "the sampler qpu spends QPU access time; say how much"),
        (["--sampler", "nonsense"], "sampler is 'nonsense'; choose one of"),
        (["--preset", "literal", "--sampler", QUICK], "380 variables (19 parameters of 20 bits) do not embed"),
        (["--blocks", "0"], "max_variables is 0"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, arguments, message):
    result = train(*arguments, "--out", tmp_path / "run")
    assert result.exit_code != 0
    assert message in str(result.exception)
    assert not (tmp_path / "run").exists()
