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
    assert steps == [(done, 7) for done in range(1, 8)]  # two readings for two seeds, and three banks for one
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
    assert found["banks"]["published"] < min(found["banks"]["random"])
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
    assert "2 other filter banks of the same distribution" in " ".join(result.output.split())


def test_images_can_be_transposed():
    plain, turned = (evidence._images(Reading("mnist", "x", transposed=turned), 42) for turned in (False, True))
    np.testing.assert_array_equal(turned.X_train, plain.X_train.swapaxes(1, 2))


def test_chance_is_counted_over_the_random_banks():
    words = evidence.chance({"banks": {"rows": 5, "published": 3.0, "random": [2.0, 8.0, 11.0]}})
    assert "on the published images of 5 rows and one seed, are 2.0 to 11.0 points from the paper's" in words
    assert "8.0 in the median; the published bank is 3.0 points away. 1 of them come as close; it is 0.9 s" in words


def test_the_report_shows_it(collected):
    _, found = collected
    page = render([], found=found)
    assert "Why these images" in page
    assert "the authors&#39; program was not available" in page
    assert "Why these images" not in render([])


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / evidence.FILE).write_text("{")
    with pytest.raises(FileFormatError, match="not evidence of reproduce"):
        evidence.read(tmp_path)
