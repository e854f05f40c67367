"""The study of the published images: what it compares, what it stores, and what it says of chance."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from annealfit._support.errors import FileFormatError
from annealfit.cli.program import app
from annealfit.studies import evidence
from annealfit.studies.evidence import PER_SEED, Reading
from annealfit.studies.report.page import render


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evidence")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANNEALFIT_DATA", str(folder / "nothing"))  # so that scikit-learn's digits alone are there
        steps = []
        found = evidence.collect(folder, 1, lambda *step: steps.append(step), n_banks=2, seeds=(42, 43))
    assert steps == [(done, 8) for done in range(1, 9)]  # two readings and two banks, for two seeds each
    return folder, found


def test_readings_without_files_are_left_out_and_named(collected):
    _, found = collected
    assert [entry["reading"] for entry in found["readings"]] == ["published", "filters drawn for each seed"]
    assert found["missing"] == ["cifar10", "emnist", "fashion_mnist", "kmnist", "mnist"]
    table = evidence.table(found)
    assert [row[1].text for row in table.rows] == ["the paper", "published", "filters drawn for each seed"]
    assert table.rows[0][4].text == "98"  # the paper's recall of class 0
    assert table.notes[0] == "Without their files, left out: CIFAR-10, EMNIST, Fashion-MNIST, KMNIST, MNIST."


def test_the_published_bank_fits_digits(collected):
    _, found = collected
    published, drawn = found["readings"]
    assert published["correlation"] > 0.8
    assert published["difference"] < min(bank["difference"] for bank in found["random_banks"])
    # One of the two seeds is that of the published bank.
    reading = Reading("mnist", "filters drawn for each seed", filters=PER_SEED)
    np.testing.assert_array_equal(evidence.recalls(reading, 42), evidence.recalls(Reading("mnist", "published"), 42))
    assert drawn["recalls"] != published["recalls"]


def test_what_is_stored_is_not_collected_again(collected, monkeypatch):
    folder, found = collected
    monkeypatch.setattr(evidence, "recalls", None)
    assert evidence.collect(folder, 1) == found == json.loads((folder / evidence.FILE).read_text())
    assert (folder / evidence.FIGURE).read_bytes().startswith(b"\x89PNG")


def test_the_command_prints_what_is_stored(collected):
    folder, _ = collected
    result = CliRunner().invoke(app, ["reproduce", "evidence", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    assert "Evidence for the published images" in result.output
    assert "of 2 random banks of the same distribution" in " ".join(result.output.split())


def test_images_can_be_transposed():
    plain, turned = (evidence._images(Reading("mnist", "x", transposed=turned), 42) for turned in (False, True))
    np.testing.assert_array_equal(turned.X_train, plain.X_train.swapaxes(1, 2))


def test_chance_is_counted_over_the_random_banks():
    banks = [{"difference": difference, "correlation": 0.0} for difference in (2.0, 8.0, 11.0)]
    words = evidence.background({"readings": [{"difference": 3.0}], "random_banks": banks})
    assert "of 3 random banks of the same distribution on digits, 1 come as close" in words
    assert "The closest is 2.0 points off, the median 8.0; the published one is 0.9 standard" in words


def test_the_report_shows_it(collected):
    _, found = collected
    page = render([], found=found)
    assert "Why these images" in page
    assert "the authors&#39; program was not available" in page
    assert "Why these images" not in render([])


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / evidence.FILE).write_text("{")
    with pytest.raises(FileFormatError, match="no evidence of reproduce"):
        evidence.read(tmp_path)
