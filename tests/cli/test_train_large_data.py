"""`annealfit train` on tables of features, on images that are kept on a disk, and on a cluster."""

import json
from pathlib import Path

import numpy as np
import pandas
import pytest
from distributed import LocalCluster
from PIL import Image
from typer.testing import CliRunner

from annealfit import AnnealedClassifier
from annealfit._support.errors import AnnealfitError
from annealfit.cli import app
from annealfit.data.datasets import load_dataset
from annealfit.models.image_classifier import ImageClassifier

GENERATOR = np.random.default_rng(0)
LABELS = GENERATOR.integers(0, 3, 600)
ROWS = (5 + 3 * (GENERATOR.standard_normal((600, 5)) + GENERATOR.standard_normal((3, 5))[LABELS])).astype(np.float32)
NAMES = np.array(["ant", "bee", "cow"])


@pytest.fixture
def train(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", ROWS)
    np.save("labels.npy", LABELS)
    np.savez("rows.npz", X=ROWS, y=NAMES[LABELS])
    table = pandas.DataFrame(ROWS, columns=list("abcde")).assign(animal=NAMES[LABELS])
    table.to_parquet("rows.parquet")
    (tmp_path / "parts").mkdir()
    table[:350].to_parquet("parts/0.parquet")
    table[350:].to_parquet("parts/1.parquet")

    def run(*arguments):
        common = ("--max-iter", 8, "--no-plots", "--out", "run", "--json")
        result = CliRunner().invoke(app, ["train", *map(str, (*arguments, *common))])
        if result.exception is not None:
            raise result.exception
        return json.loads(result.stdout)["QUBO 3-bit"]

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("rows.npy", "--labels", "labels.npy"),
        ("rows.npz", "--no-baselines"),
        ("rows.parquet", "--labels", "animal"),
        ("parts", "--labels", "animal"),
    ],
)
def test_a_table_of_any_kind_gives_the_same_model_which_takes_rows(train, arguments):
    found = train(*arguments)
    model = AnnealedClassifier.load("run/model.safetensors")
    assert model.score(ROWS, LABELS if "labels.npy" in arguments else NAMES[LABELS]) > 0.8
    assert found["test"]["accuracy"] > 0.75
    optimum = 0.361645  # of all four: the same split of the same rows
    assert found["loss"] == pytest.approx(optimum, rel=1e-4)  # which eight iterations reach, in single precision too


def test_baselines_of_a_table(train):
    train("rows.npy", "--labels", "labels.npy", "--baselines")
    figures = json.loads(Path("run/metrics.json").read_text())
    assert figures["Logistic optimum"]["loss"] <= figures["QUBO 3-bit"]["loss"] * 1.001


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize(
    "arguments", [("rows.npy", "--labels", "labels.npy"), ("rows.npz",), ("rows.parquet", "--labels", "animal")]
)
def test_a_row_that_is_not_finite_is_named_by_its_place_in_the_file(train, arguments, wrong):
    rows = ROWS.copy()
    rows[577, 3] = wrong  # 577 is tested on
    np.save("rows.npy", rows)
    np.savez("rows.npz", X=rows, y=NAMES[LABELS])
    pandas.DataFrame(rows, columns=list("abcde")).assign(animal=NAMES[LABELS]).to_parquet("rows.parquet")
    with pytest.raises(AnnealfitError, match="in row 577 .from 0., column 3"):
        train(*arguments)


def test_scaling_moves_into_the_weights(train):
    found = train("rows.npy", "--labels", "labels.npy", "--standardize", "features")
    model = AnnealedClassifier.load("run/model.safetensors")
    assert model.classes_.tolist() == [0, 1, 2]
    share = found["train"]["accuracy"] * 450 + found["test"]["accuracy"] * 150
    assert model.score(ROWS, LABELS) == pytest.approx(share / 600)


def test_sizes_and_settings(train):
    train("rows.npy", "--labels", "labels.npy", "--n-train", 300, "--n-test", "all", "--regularization", 0.5)
    config = json.loads(Path("run/config.json").read_text(encoding="utf-8"))
    assert config["classifier"]["regularization"] == 0.5
    assert (config["n_train"], config["n_test"]) == (300, "all")


def test_other_settings_of_the_estimator(train):
    settings = ("--set", "curvature=bound", "--set", "validation_fraction=0.25", "--set", "patience=None", "--tol", 0.3)
    train("rows.npy", "--labels", "labels.npy", *settings)
    described = json.loads(Path("run/config.json").read_text(encoding="utf-8"))["classifier"]
    assert (described["method"]["curvature"], described["validation_fraction"]) == ("bound", 0.25)
    assert (described["patience"], described["tol"]) == (None, 0.3)
    assert "validation_loss" in Path("run/history.csv").read_text(encoding="utf-8")


def test_a_run_on_a_table_goes_on_where_it_stopped(train):
    table = ("rows.npy", "--labels", "labels.npy", "--tol", 0)
    whole = train(*table)["loss"]
    CliRunner().invoke(app, ["train", *map(str, table), "--max-iter", "3", "--no-plots", "--out", "other"])
    result = CliRunner().invoke(
        app, ["train", *map(str, table), "--max-iter", "8", "--no-plots", "--out", "other", "--resume", "--json"]
    )
    assert json.loads(result.stdout)["QUBO 3-bit"]["loss"] == whole


def test_images_whose_features_are_kept_on_a_disk(train, tmp_path):
    data = load_dataset("digits", n_train=150, n_test=50)
    for part, images, labels in (("train", data.X_train, data.y_train), ("test", data.X_test, data.y_test)):
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            folder = tmp_path / "images" / part / f"digit-{label}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray((255 * image).astype(np.uint8)).save(folder / f"{number}.png")
    in_memory = train("images", "--frozen-filters", "--no-baselines")
    (tmp_path / "run").rename(tmp_path / "first")
    on_disk = train("images", "--on-disk")
    assert on_disk["loss"] == pytest.approx(in_memory["loss"], rel=1e-5)  # features in single precision
    assert on_disk["test"] == pytest.approx(in_memory["test"], abs=0.021)  # an image may fall the other way
    model = ImageClassifier.load("run/model.safetensors")
    assert model.predict_proba(data.X_test).shape == (50, 10)


def test_on_a_cluster_as_here(train, tmp_path):
    here = train("rows.npy", "--labels", "labels.npy", "--standardize", "features")
    (tmp_path / "run").rename(tmp_path / "first")
    with LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster:
        there = train(
            "rows.npy", "--labels", "labels.npy", "--standardize", "features", "--scheduler", cluster.scheduler_address
        )
    assert there["loss"] == pytest.approx(here["loss"], rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rows.npy",), "--labels labels.npy"),
        (("rows.npy", "--labels", "nowhere.npy"), "nowhere.npy is not there"),
        (("rows.npy", "--labels", "rows.npy"), "one per row"),
        (("labels.npy", "--labels", "labels.npy"), "expected 2D"),
        (("rows.parquet",), "a, b, c, d, e, animal"),
        (("rows.parquet", "--labels", "a"), "animal are no numbers"),
        (("rows.npy", "--labels", "labels.npy", "--n-train", "many"), "--n-train is 'many'"),
        (("rows.npy", "--labels", "labels.npy", "--standardize", "pixels"), "'features', 'none'"),
        (("digits", "--labels", "labels.npy"), "--labels are for tables"),
        (("digits", "--set", "bits=3"), "write NAME=VALUE"),
        (("digits", "--set", "curvature=straight"), "curvature is 'straight'"),
        (("missing.npy", "--labels", "labels.npy"), "missing.npy does not exist"),
    ],
)
def test_mistakes_are_told(train, arguments, message):
    with pytest.raises(AnnealfitError) as caught:
        train(*arguments)
    assert message in str(caught.value)
