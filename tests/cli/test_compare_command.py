import csv
import json
import re
import sys
from dataclasses import replace
from itertools import combinations

import dimod
import numpy as np
import pytest
from matplotlib.text import Text
from rich.console import Console
from typer.testing import CliRunner

from annealfit.cli import app, compare, comparison_tables
from annealfit.errors import InvalidInputError, MissingDependencyError, SamplerError
from annealfit.experiments import Record
from annealfit.experiments.sampler_study import Comparison
from annealfit.experiments.solving import ProblemSet, SolveRow
from annealfit.export import read_npz
from annealfit.metric import Metric
from annealfit.problems import Problems
from annealfit.report.sampler_figure import draw_comparison, summarise_comparison
from annealfit.samplers import Sampler, SimulatedAnnealer
from annealfit.samplers.catalogue import SAMPLERS

QUICK = ["compare-samplers", "digits", "--bits", "1", "--repeats", "2", "--iterations", "2", "--late", "3"]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def run(*arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison_tables, "console", Console(highlight=False, width=100))
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
    lines = result.stdout.splitlines()
    for name in compare.UNASKED:
        assert sum(line.startswith(f"{name} ") for line in lines) == 3  # first, late, training
    assert sum(line.startswith("logistic optimum") for line in lines) == 1
    assert not any(line.startswith("qpu") for line in lines)  # it costs money: only when asked for
    assert max(len(line) for line in lines) <= 100
    assert "never" in result.stdout
    text = " ".join(result.stdout.split())
    assert "problems of the first iteration, 19 variables; sum of bounds -0.17" in text
    assert re.search(r"On the first problems the energies of \S+ are the lowest; ", text)
    assert re.search(r"Training ends lowest with \S+, at 1\.\d+ times the optimum, which logistic regression", text)


def test_piped_output_has_no_bar_and_no_control_characters(finished):
    _, result = finished
    assert not CONTROL.search(result.stdout)
    assert not CONTROL.search(result.stderr)
    assert "Comparing" not in result.output


def test_the_document_says_what_was_measured_and_how(finished):
    folder, _ = finished
    document = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    assert set(document["samplers"]) == set(compare.UNASKED)
    assert document["options"] == {
        "dataset": "digits", "preset": "annealfit", "bits": 1, "filters": 2, "kernel": 3, "pool": 2, "size": 8,
        "standardize": "none", "seed": 42, "repeats": 2, "iterations": 2, "late": 3, "target": 0.01,
    }  # fmt: skip
    assert document["problems"]["late"]["after"] == 3
    for row in document["solving"]:
        assert row["gap"] >= 0
        assert row["energy"] == pytest.approx(document["problems"][row["problems"]]["lower_bound"] + row["gap"])
        assert row["seconds_to_target"] is None or row["seconds_to_target"] > 0
        assert (row["access_seconds"] is None) == (row["sampler"] != "mock-qpu")
    *trained, optimum = document["training"]
    assert [row["sampler"] for row in trained] == list(compare.UNASKED)
    assert all(len(row["losses"]) == 2 and row["loss_ratio"] >= 1 for row in trained)
    assert optimum["sampler"] == "logistic optimum"


def test_the_table_is_a_csv_file_too(finished):
    folder, _ = finished
    rows = list(csv.DictReader((folder / "comparison.csv").open(encoding="utf-8")))
    expected = [(part, name) for part in ("first", "late", "training") for name in compare.UNASKED]
    assert [(row["problems"], row["sampler"]) for row in rows] == [*expected, ("training", "logistic optimum")]
    document = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    assert float(rows[0]["energy"]) == document["solving"][0]["energy"]


def test_the_problems_are_files_with_the_same_energies(finished):
    folder, _ = finished
    generator = np.random.default_rng(0)
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG")
    for name in [f"{part}-class-{number}" for part in ("first", "late") for number in range(10)]:
        problem = read_npz(folder / "problems" / f"{name}.npz")
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
    chosen = ["--samplers", "native,rounded,dwave-sa,steepest-descent"]
    printed = json.loads(run("--json", *chosen, "-o", tmp_path).stdout)
    assert printed == json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    again = json.loads(run("--json", *chosen).stdout)
    for part, key in (("solving", "energy"), ("training", "losses")):
        assert [row[key] for row in printed[part]] == [row[key] for row in again[part]]
    assert printed["skipped"] == {}


def test_without_a_qpu_there_is_no_column_for_it_and_late_0_leaves_out_late():
    result = run("--samplers", "native, native,rounded", "--late", 0)
    assert "QPU" not in result.stdout
    assert "problems after" not in result.stdout
    assert sum(line.startswith("native") for line in result.stdout.splitlines()) == 2


def test_what_is_not_installed_is_left_out_with_a_note_and_an_error_if_it_was_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "openjij", None)  # as if it were not installed
    monkeypatch.setattr(compare, "UNASKED", ("native", "openjij"))
    result = run()
    assert "openjij is left out: " in result.stderr
    assert "annealfit[openjij]" in result.stderr
    assert not any(line.startswith("openjij") for line in result.stdout.splitlines())
    assert "openjij" in json.loads(run("--json").stdout)["skipped"]
    with pytest.raises(MissingDependencyError, match=r"annealfit\[openjij\]"):
        run("--samplers", "native,openjij")


def test_files_that_need_what_is_not_installed_are_left_out_with_a_note(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "dimod", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("--samplers", "native,rounded", "-o", tmp_path)
    assert "no bqm files: " in result.stderr
    assert "no figure: " in result.stderr
    assert len(list((tmp_path / "problems").iterdir())) == 20
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
    with pytest.raises(
        InvalidInputError, match=r"sampler is .*; choose one of 'dwave-sa', 'lattice', 'mock-qpu', 'native'"
    ):
        run("--samplers", names)


def test_a_failing_sampler_is_a_row_and_not_the_end(monkeypatch):
    class Broken(Sampler):
        def solve(self, problems, seeds):
            raise SamplerError("out of order [17]")

    monkeypatch.setitem(SAMPLERS, "tabu", lambda seed: Broken())
    result = run("--samplers", "tabu,rounded")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert sum(bool(re.match(r"tabu +failed$", line.rstrip())) for line in lines) == 3
    assert lines.count("tabu failed: out of order [17]") == 1
    assert sum(line.startswith("rounded") for line in lines) == 3
    assert "the energies of rounded are the lowest" in result.stdout


def test_a_preset_of_the_paper_sets_bits_and_the_native_temperatures():
    options = ["compare-samplers", "digits", "--preset", "matched", "--samplers", "native,mock-qpu", "--repeats", "1"]
    result = CliRunner().invoke(app, [*options, "--iterations", "1", "--late", "0", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["problems"]["first"]["variables"] == 19 * 20
    assert document["samplers"]["native"] == (
        SimulatedAnnealer(num_sweeps=100, beta_range=(0.01, 3.0 * 2**17), normalize=True).describe()
    )
    _, on_qpu = document["solving"]
    assert "380 variables" in on_qpu["failure"]  # does not embed, and says so
    assert on_qpu["energy"] is None


def test_help_teaches_with_an_example():
    result = CliRunner().invoke(app, ["compare-samplers", "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    assert "annealfit compare-samplers digits" in result.output.split("Example", 1)[1]
    assert all(name in result.output for name in SAMPLERS)


def crowd(times, shares):
    """A comparison whose samplers are all in one another's way."""
    names = [f"sampler-{number}" for number in range(len(times))]
    solving = [
        SolveRow(
            name, "first", gap_share=share, median_seconds=seconds, access_seconds=0.02 if name[-1] == "0" else None
        )
        for name, seconds, share in zip(names, times, shares, strict=True)
    ]
    training = [
        Record(name, history={"loss": np.array([2.0, 1.5, 1.1 + 1e-4 * number])}) for number, name in enumerate(names)
    ]
    failed = Record("broken", error="out of order")
    return Comparison(
        (ProblemSet("first", 0, Problems((Metric([[1.0]]),), np.empty((0, 1)), np.empty(0), 1), np.empty(0)),),
        (*solving, SolveRow("broken", "first", failure="out of order")),
        (*training, failed),
        Record("logistic optimum", loss=1.0),
        (),
    )


def test_labels_of_the_figure_do_not_collide():
    figure = draw_comparison(crowd([0.1, 0.13, 0.11, 0.5, 0.1, 9.0], [0.02, 0.022, 0.019, 0.02, 0.0, 1.4]))
    figure.draw_without_rendering()
    energies, training = figure.axes
    for axes, expected in ((energies, 7), (training, 6)):
        extents = [Text.get_window_extent(text) for text in axes.texts]  # without the lines that lead to them
        assert len(extents) == expected
        assert not any(one.overlaps(other) for one, other in combinations(extents, 2))


def test_the_gist_names_ties_together_and_says_when_nobody_gets_there():
    found = crowd([0.1, 0.2], [0.5, 0.5])
    rows = [SolveRow("one", "first", gap=0.5), SolveRow("two", "first", gap=0.5), found.solving[-1]]
    said = summarise_comparison(replace(found, solving=tuple(rows)))
    assert "the energies of one and two are the lowest; none reaches half of the targets." in said
    fast = replace(rows[1], seconds_to_target=0.2)
    assert "fastest to the target is two." in summarise_comparison(replace(found, solving=(rows[0], fast)))
    assert "problems" not in summarise_comparison(replace(found, solving=found.solving[-1:]))
