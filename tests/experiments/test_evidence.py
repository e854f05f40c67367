"""The study of the published images: what it compares, and what it says of chance."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from annealfit.cli.program import app
from annealfit.studies import evidence
from annealfit.studies.evidence import Evidence, readings
from annealfit.studies.execute import _load, execute
from annealfit.studies.paper_tables import runs_of
from annealfit.studies.records import RunSpec
from annealfit.studies.report.page import render
from annealfit.studies.report.tables import all_tables

SEEDS = (42, 43)


@pytest.fixture(scope="module")
def collected():
    """Two readings of the row that is of scikit-learn's digits, for two seeds, and two random banks for one."""
    wanted = runs_of(["evidence"], "matched", SEEDS, is_there=lambda name: name == "digits")
    return [execute(spec) for spec in wanted if spec.bank in (None, 0, 1, *SEEDS)]


def test_rows_without_files_are_left_out_and_named(collected):
    assert len(collected) == 2 * 2 + 2 + 1  # the published bank has seed 42, and 43 is a random one on seed 42
    found = evidence.compare(collected)
    assert {row: list(titles) for row, titles in found.recalls.items()} == {
        "mnist": ["the paper", "published", "filters drawn for each seed"]
    }
    table = next(table for table in all_tables(collected) if table.name == "evidence")
    assert [row[1].text for row in table.rows] == ["the paper", "published", "filters drawn for each seed"]
    assert table.rows[0][4].text == "98"  # the paper's recall of class 0
    assert "CIFAR-10, EMNIST, Fashion-MNIST, KMNIST, MNIST." in table.notes[0]


def test_the_published_bank_fits_digits(collected):
    found = evidence.compare(collected)
    theirs, published, drawn = map(np.array, found.recalls["mnist"].values())
    assert np.corrcoef(theirs, published)[0, 1] > 0.8
    assert found.published_bank < min(found.random_banks)
    assert len(found.random_banks) == 3
    assert (drawn != published).any()
    by_spec = {record.run: record.recall for record in collected}
    drawn_with, of_paper = (readings("mnist", 42)[title] for title in (evidence.PER_SEED, evidence.PUBLISHED))
    np.testing.assert_array_equal(by_spec[drawn_with], by_spec[of_paper])  # the seed of the published bank
    means = [100 * by_spec[readings("mnist", seed)[evidence.PUBLISHED]] for seed in SEEDS]
    np.testing.assert_allclose(published, np.mean(means, axis=0))


def test_the_readings_are_the_papers_baseline_on_other_images():
    wanted = runs_of(["evidence"], "matched")
    # Three readings of each row, four more of MNIST, one more of the others, two of EMNIST; banks on one seed, of which
    # 42 is one of those drawn for each seed.
    assert len(wanted) == 5 * (5 * 3 + 4 + 4 + 1) + 5 * 100
    baselines = {spec for spec in runs_of(["benchmark"], "matched") if spec.method == "classical"}
    assert baselines < set(wanted)  # a report has them once
    assert {replace(spec, images="stated") for spec in baselines} < set(wanted)


def test_images_can_be_transposed():
    plain = RunSpec("mnist", "classical", 42, images="published")
    turned = replace(plain, transposed=True)
    np.testing.assert_array_equal(_load(turned).X_train, _load(plain).X_train.swapaxes(1, 2))


def test_chance_is_counted_over_the_random_banks():
    words = evidence.chance(Evidence({}, 5, 3.0, [2.0, 8.0, 11.0]))
    assert "on the published images of 5 rows and one seed, are 2.0 to 11.0 points from the paper's" in words
    assert "8.0 in the median; the published bank is 3.0 points away. 1 of them come as close; it is 0.9 s" in words


def test_the_command_stores_records_and_draws(tmp_path, monkeypatch):
    monkeypatch.setenv("ANNEALFIT_DATA", str(tmp_path / "nothing"))  # so that scikit-learn's digits alone are there
    monkeypatch.setattr(evidence, "BANKS", (0, 1))
    command = ["reproduce", "evidence", "--seeds", "43", "--jobs", "1", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "Evidence for the published images" in result.output
    assert "2 other filter banks of the same distribution" in " ".join(result.output.split())
    assert "4 runs: 0 were there, 4 done now" in result.output
    assert (tmp_path / "evidence.png").read_bytes().startswith(b"\x89PNG")
    assert "4 runs: 4 were there, 0 done now" in CliRunner().invoke(app, command).output


def test_the_report_shows_it(collected):
    page = render(collected)
    assert "Why these images" in page
    assert "the authors&#39; program was not available" in page
    assert "Why these images" not in render([record for record in collected if not record.run.is_reading])
