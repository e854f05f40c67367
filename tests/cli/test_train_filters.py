"""`annealfit train --train-filters`: one table, one folder, a model that predicts; on a simulated annealer too."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from annealfit import load_dataset
from annealfit.cli import app
from annealfit.models.image_classifier import ImageClassifier
from annealfit.studies import records as store

METHODS = ["QUBO 3-bit", "Frozen filters", "Adam (rate 0.02)"]


def annealfit(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filters") / "run"
    answer = annealfit("train", "digits", "--train-filters", "--images", 300, "--max-iter", 28, "--out", folder)
    assert answer.exit_code == 0, answer.output
    return folder, answer


def test_the_table_has_the_network_frozen_and_trained_by_adam_beside_it(run):
    folder, answer = run
    metrics = json.loads((folder / "metrics.json").read_text())
    assert list(metrics) == METHODS
    for method in METHODS:
        assert sum(method in line for line in answer.stdout.splitlines()) == 1
    assert metrics["QUBO 3-bit"]["loss"] < metrics["Frozen filters"]["loss"]
    assert metrics["Adam (rate 0.02)"]["loss"] < metrics["Frozen filters"]["loss"]


def test_losses_in_the_table_are_those_of_the_history(run):
    """The table's are measured again in double precision; a history's, in single precision, while training."""
    folder, _ = run
    metrics = json.loads((folder / "metrics.json").read_text())
    lines = (folder / "history.csv").read_text().splitlines()
    columns = lines[0].split(",")
    last = {line.split(",")[0]: dict(zip(columns, line.split(","), strict=True)) for line in lines[1:]}
    for method in ("QUBO 3-bit", "Adam (rate 0.02)"):
        assert metrics[method]["loss"] == pytest.approx(float(last[method]["loss"]), rel=1e-5)
    # The frozen one's, of a head alone, does not count what the filters cost; the table, of one loss, does.
    assert metrics["Frozen filters"]["loss"] > float(last["Frozen filters"]["loss"])


def test_filters_and_curves_are_pictures(run):
    folder, _ = run
    for name in ("filters.png", "convergence.png", "samples/class-3.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_the_model_predicts_what_the_table_says(run):
    folder, _ = run
    model = ImageClassifier.load(folder / store.MODEL_FILE)
    data = load_dataset("digits", seed=42, n_train=300)
    right = (model.predict_proba(data.X_test).argmax(axis=1) == data.y_test).mean()
    metrics = json.loads((folder / "metrics.json").read_text())
    assert right == pytest.approx(metrics["QUBO 3-bit"]["test"]["accuracy"])
    answer = annealfit("predict", folder, folder / "samples" / "class-3.png", "--json")
    assert answer.exit_code == 0
    assert set(json.loads(answer.stdout)[0]["classes"]) <= set(map(str, range(10)))


def test_a_run_goes_on_where_it_stopped(run, tmp_path):
    folder, _ = run
    settings = ("train", "digits", "--train-filters", "--images", 300, "--no-plots", "--out", tmp_path / "again")
    assert annealfit(*settings, "--max-iter", 10).exit_code == 0
    answer = annealfit(*settings, "--max-iter", 28, "--resume", "--json")
    assert answer.exit_code == 0, answer.output
    whole, resumed = (ImageClassifier.load(path / store.MODEL_FILE) for path in (folder, tmp_path / "again"))
    np.testing.assert_array_equal(resumed.features.filters_[0], whole.features.filters_[0])
    np.testing.assert_array_equal(resumed.classifier.coef_, whole.classifier.coef_)
    assert list(json.loads(answer.stdout)) == METHODS


def test_layers_and_colour(tmp_path):
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1], 20)
    images = generator.random((40, 8, 8, 3)) * 0.5
    images[labels == 1, :, :, 0] += 0.4
    path = tmp_path / "colours.npz"
    np.savez(path, images=images, labels=labels)
    answer = annealfit("train", path, "--train-filters", "--filters", "3,2", "--kernel", "3,2", "--pool", "2,1",
                       "--color", "--max-iter", 8, "--out", tmp_path / "run")  # fmt: skip
    assert answer.exit_code == 0, answer.output
    model = ImageClassifier.load(tmp_path / "run" / store.MODEL_FILE)
    assert [layer.shape for layer in model.features.filters_] == [(3, 3, 3, 3), (2, 3, 2, 2)]


def test_training_on_a_simulated_annealer(tmp_path):
    pytest.importorskip("dwave.system")
    answer = annealfit("train", "digits", "--train-filters", "--images", 100, "--bits", 1, "--max-iter", 8,
                       "--sampler", "mock-qpu:num_reads=20", "--no-plots", "--out", tmp_path / "run")  # fmt: skip
    assert answer.exit_code == 0, answer.output
    # Ten classes of 19 variables in one call, and two filters of 10 in another.
    assert re.search(r"A step of every layer: 2 calls", answer.output)
    assert "8 calls" in answer.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--preset", "literal"), "preset annealfit"),
        (("--filters", "2,x"), "--filters is '2,x'"),
        (("--filters", "0"), "--filters is '0'"),
        (("--images", "some"), "--images is 'some'"),
        (("--kernel", "9"), "larger than its input"),
        (("--filters", "2,3", "--kernel", "3,3,3"), "different numbers of layers"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(tmp_path, options, message):
    answer = annealfit("train", "digits", "--train-filters", *options, "--out", tmp_path / "run")
    assert answer.exit_code != 0
    assert message in answer.output + str(answer.exception)
    assert not (tmp_path / "run").exists()
