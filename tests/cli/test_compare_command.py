import json
import re
import sys

import dimod
import numpy as np
import pytest
from typer.testing import CliRunner

from annealfit._support.errors import InvalidInputError, MissingDependencyError, SamplerError
from annealfit.cli import app, compare
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import Sampler, SimulatedAnnealer
from annealfit.samplers.catalogue import SAMPLERS

QUICK = ["compare-samplers", "digits", "--bits", "1", "--reads", "4", "--iterations", "2", "--late", "3"]
RAW = ["--coordinates", "raw"]
VARIANTS = [(part, basis) for basis in ("raw", "centred") for part in ("first", "late")]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def run(*arguments):
    result = CliRunner().invoke(app, [*QUICK, *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare") / "all"
    result = run("-o", folder)
    assert result.exit_code == 0, result.output
    return folder, result


def test_the_tables_name_every_sampler_once_and_the_optimum(finished):
    _, result = finished
    lines = result.stdout.partition("Success: ")[0].splitlines()  # the tables, without what is said of them
    for name in compare.DEFAULT_SAMPLERS:
        assert sum(line.startswith(f"{name} ") for line in lines) == 6  # first, late, training; raw and centred
    assert sum(line.startswith("logistic optimum") for line in lines) == 2
    assert not any(line.startswith("qpu") for line in lines)  # it costs money: only when asked for
    assert not any(line.startswith("lattice") for line in lines)  # it finds the truth
    assert max(len(line) for line in lines) <= 100
    assert "never" in result.stdout
    text = " ".join(result.stdout.split())
    assert "problems of the first iteration, raw, 1 bit, 19 variables; optimum proven for 10 of 10" in text
    assert text.count("optimum proven for 10 of 10") == 4
    assert not re.search("[≤≥]", text.partition("Success: ")[0])


def test_piped_output_has_no_bar_and_no_control_characters(finished):
    _, result = finished
    assert not CONTROL.search(result.stdout)
    assert not CONTROL.search(result.stderr)
    assert "Comparing" not in result.stdout  # on standard error are lines with the time left


def test_the_document_says_what_was_measured_and_how(finished):
    folder, _ = finished
    document = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    assert set(document["samplers"]) == set(compare.DEFAULT_SAMPLERS)
    assert document["options"] == {
        "dataset": "digits", "preset": "annealfit", "bits": [1], "filters": 2, "kernel": 3, "pool": 2, "size": 8,
        "standardize": "none", "seed": 42, "repeats": 1, "reads": 4, "iterations": 2, "late": 3, "target": 1e-9,
        "truth_limit": 10.0, "coordinates": ["raw", "centred"],
    }  # fmt: skip
    assert [(one["name"], one["coordinates"], one["after"]) for one in document["problems"]] == [
        (part, basis, 3 if part == "late" else 0) for part, basis in VARIANTS
    ]
    for one in document["problems"]:
        assert (one["count"], one["variables"], one["proven"]) == (10, 19, [True] * 10)
        assert max(one["energies"]) < 0
    assert len(document["solving"]) == 4 * len(compare.DEFAULT_SAMPLERS)
    for row in document["solving"]:
        assert (row["bits"], row["proven"], row["failure"]) == (1, True, None)
        assert row["residual"] >= -1e-9
        assert set(row["success"]) == {"value", "low", "high"}
        assert row["success"]["low"] <= row["success"]["value"] <= row["success"]["high"]
        assert row["success"]["value"] == sum(row["successes"]) / sum(row["reads"])
        assert row["reads"] == [1 if row["sampler"] in ("greedy", "rounded") else 4] * 10
        assert row["seconds_to_solution"] is None or row["seconds_to_solution"] > 0
        assert (row["access_seconds"] is None) == (row["sampler"] != "mock-qpu")
    *trained, optimum = document["training"]
    assert [(row["coordinates"], row["sampler"]) for row in trained] == [
        (basis, name) for basis in ("raw", "centred") for name in compare.DEFAULT_SAMPLERS
    ]
    assert all(len(row["losses"]) == 2 and row["loss_ratio"] >= 1 for row in trained)
    assert optimum["sampler"] == "logistic optimum"


def test_the_problems_are_files_with_the_same_energies(finished):
    folder, _ = finished
    generator = np.random.default_rng(0)
    assert (folder / "success.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "comparison.csv").read_text().startswith("sampler,problems,coordinates,bits,")
    for name in [f"{part}-{basis}-1-bits-class-{number}" for part, basis in VARIANTS for number in range(10)]:
        with np.load(folder / "problems" / f"{name}.npz") as stored:
            encoding = Encoding(stored["bits"].item(), stored["range"].item())
            problem = QuadraticProblem(stored["curvature"], stored["gradient"], encoding)
        with (folder / "problems" / f"{name}.bqm").open("rb") as file:
            model = dimod.BinaryQuadraticModel.from_file(file)
        bits = generator.integers(0, 2, size=(4, problem.n_variables))
        np.testing.assert_allclose(model.energies((bits, range(problem.n_variables))), problem.energy(bits), atol=1e-12)
    assert not list(folder.rglob("*.part"))


def test_a_comparison_is_not_overwritten(finished):
    folder, _ = finished
    with pytest.raises(InvalidInputError, match="holds a comparison already; name another folder with --out"):
        run("-o", folder)


def test_json_is_the_same_document_and_energies_repeat(tmp_path):
    chosen = ["--samplers", "levels,rounded,dwave-sa", *RAW]
    printed = json.loads(run("--json", *chosen, "-o", tmp_path).stdout)
    assert printed == json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    again = json.loads(run("--json", *chosen).stdout)
    for part, key in (("solving", "residual"), ("solving", "successes"), ("training", "losses")):
        assert [row[key] for row in printed[part]] == [row[key] for row in again[part]]
    assert printed["skipped"] == {}


def test_without_a_qpu_there_is_no_column_for_it_and_late_0_leaves_out_late():
    result = run("--samplers", "native, native,rounded", "--late", 0, *RAW)
    assert "QPU" not in result.stdout
    assert "problems after" not in result.stdout
    assert sum(line.startswith("native") for line in result.stdout.splitlines()) == 2


def test_several_bits_and_no_training_can_be_asked_for():
    document = json.loads(run("--samplers", "levels", "--bits", "1,2", "--late", 0, "--iterations", 0, "--json").stdout)
    assert [(one["coordinates"], one["bits"], one["variables"]) for one in document["problems"]] == [
        ("raw", 1, 19), ("raw", 2, 38), ("centred", 1, 19), ("centred", 2, 38),
    ]  # fmt: skip
    assert [row["sampler"] for row in document["training"]] == ["logistic optimum"]
    by_basis = {row["coordinates"]: row["success"]["value"] for row in document["solving"] if row["bits"] == 1}
    assert by_basis["raw"] < by_basis["centred"]


def test_native_is_the_annealer_of_that_name_whatever_the_default():
    document = json.loads(run("--samplers", "native,levels", "--late", 0, "--iterations", 0, "--json", *RAW).stdout)
    assert document["samplers"]["native"]["type"] == "SimulatedAnnealer"
    assert document["samplers"]["levels"]["type"] == "LevelAnnealer"


def test_what_is_not_proven_is_labelled():
    options = ["compare-samplers", "digits", "--bits", "8", "--late", "0", "--iterations", "0", "--samplers", "levels"]
    options += ["--preset", "matched", "--truth-limit", "0.000001", "--reads", "4"]
    document = json.loads(CliRunner().invoke(app, [*options, "--json"]).stdout)
    (one,), (row,) = document["problems"], document["solving"]
    assert one["coordinates"] == "raw"  # the paper's presets are its coordinates
    assert row["proven"] is False
    assert False in one["proven"]
    text = CliRunner().invoke(app, options).stdout
    assert re.search(r"optimum proven for \d of 10", text)
    assert re.search(r"levels .*≤ \d", text)


def test_what_is_not_installed_is_left_out_with_a_note_and_an_error_if_it_was_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "openjij", None)  # as if it were not installed
    monkeypatch.setattr(compare, "DEFAULT_SAMPLERS", ("native", "openjij"))
    result = run(*RAW)
    assert "openjij is left out: " in result.stderr
    assert "annealfit[openjij]" in result.stderr
    assert not any(line.startswith("openjij") for line in result.stdout.splitlines())
    assert "openjij" in json.loads(run("--json", *RAW).stdout)["skipped"]
    with pytest.raises(MissingDependencyError, match=r"annealfit\[openjij\]"):
        run("--samplers", "native,openjij")


def test_files_that_need_what_is_not_installed_are_left_out_with_a_note(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "dimod", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("--samplers", "native,rounded", "-o", tmp_path)
    assert "no bqm files: " in result.stderr
    assert "no figure: " in result.stderr
    assert len(list((tmp_path / "problems").iterdir())) == 40
    assert (tmp_path / "comparison.json").exists()


def test_samplers_may_have_settings_and_take_part_twice():
    document = json.loads(run("--samplers", "native,native:num_sweeps=20,num_reads=4,rounded", "--json").stdout)
    assert list(document["samplers"]) == ["native", "native:num_sweeps=20,num_reads=4", "rounded"]
    described = document["samplers"]["native:num_sweeps=20,num_reads=4"]
    assert (described["num_sweeps"], described["num_reads"]) == (20, 4)
    for name, message in (("native:reads=4", "reads"), ("native:num_reads=0", "num_reads is 0")):
        with pytest.raises(InvalidInputError, match=message):
            run("--samplers", name)


def test_a_qpu_takes_part_only_with_a_budget():
    with pytest.raises(InvalidInputError, match="max_access_seconds"):
        run("--samplers", "native,qpu")


@pytest.mark.parametrize("names", ["native,annealer", "qpu,annealer", "native,", "", "num_reads=3"])
def test_an_unknown_sampler_is_an_error_before_any_work(names, monkeypatch):
    monkeypatch.setitem(SAMPLERS, "qpu", lambda seed: pytest.fail("a connection was made"))
    with pytest.raises(InvalidInputError, match=r"sampler is .*; choose one of 'dwave-sa', 'greedy', 'lattice'"):
        run("--samplers", names)


def test_a_failing_sampler_is_a_row_and_not_the_end(monkeypatch):
    class Broken(Sampler):
        def solve(self, problems, seeds):
            raise SamplerError("out of order [17]")

    monkeypatch.setitem(SAMPLERS, "tabu", lambda seed: Broken())
    result = run("--samplers", "tabu,rounded", *RAW)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines.count("tabu failed: out of order [17]") == 1
    assert sum(line.startswith("rounded ") for line in lines) == 3


def test_a_preset_of_the_paper_sets_bits_and_the_native_temperatures():
    options = ["compare-samplers", "digits", "--preset", "matched", "--samplers", "native,mock-qpu", "--reads", "1"]
    result = CliRunner().invoke(app, [*options, "--truth-limit", "0.01", "--iterations", "1", "--late", "0", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [(one["coordinates"], one["variables"]) for one in document["problems"]] == [("raw", 19 * 20)]
    assert document["samplers"]["native"] == (
        SimulatedAnnealer(num_sweeps=100, beta_range=(0.01, 3.0 * 2**17), normalize=True).describe()
    )
    _, on_qpu = document["solving"]
    assert "380 variables" in on_qpu["failure"]  # does not embed, and says so
    assert on_qpu["residual"] is None


def test_help_teaches_with_an_example():
    result = CliRunner().invoke(app, ["compare-samplers", "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    assert "annealfit compare-samplers digits" in result.output.split("Example", 1)[1]
    assert all(name in result.output for name in SAMPLERS)
