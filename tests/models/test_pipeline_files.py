"""Pipelines as one file: the same answers after loading, and nothing that was changed is taken."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

import annealfit
from annealfit import AnnealedClassifier, AnnealedConvNet, RandomConvFeatures
from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit._support.files import read_tensors, write_tensors
from annealfit.data.features import RowScaler

IRIS, SPECIES = load_iris(return_X_y=True)
IMAGES, DIGITS = load_digits(return_X_y=True)
IMAGES = IMAGES[:200].reshape(-1, 8, 8) / 16
QUICK = {"max_iter": 20, "random_state": 0}


@pytest.mark.parametrize(
    "scaler",
    [
        StandardScaler(),
        StandardScaler(with_std=False),
        StandardScaler(with_mean=False),
        StandardScaler(with_mean=False, with_std=False),
        MinMaxScaler((-1, 2), clip=True),
        MaxAbsScaler(),
        RowScaler(),
        "passthrough",
    ],
    ids=str,
)
def test_scalers(scaler, tmp_path):
    model = make_pipeline(scaler, AnnealedClassifier(**QUICK)).fit(IRIS, np.array(["a", "b", "ç"])[SPECIES])
    annealfit.save_model(model, tmp_path / "model.safetensors")
    again = annealfit.load_model(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_proba(3 * IRIS), model.predict_proba(3 * IRIS))
    np.testing.assert_array_equal(again.predict(IRIS), model.predict(IRIS))


@pytest.mark.parametrize("scaler", [StandardScaler(), RowScaler(), MaxAbsScaler(), "passthrough"], ids=str)
def test_columns_in_another_order_are_refused_after_loading(scaler, tmp_path):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(IRIS, columns=list("abcd"))
    model = make_pipeline(scaler, AnnealedClassifier(**QUICK)).fit(table, SPECIES)
    annealfit.save_model(model, tmp_path / "model.safetensors")
    again = annealfit.load_model(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(table[["d", "c", "b", "a"]])


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(RandomConvFeatures(2, random_state=0), StandardScaler(), AnnealedClassifier(**QUICK)),
        AnnealedConvNet(2, max_iter=7, random_state=0),
    ],
    ids=["features", "network"],
)
def test_images(model, tmp_path):
    model.fit(IMAGES, DIGITS[:200])
    annealfit.save_model(model, tmp_path / "model.safetensors")
    again = annealfit.load_model(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_proba(IMAGES), model.predict_proba(IMAGES))


def test_what_cannot_be_saved_is_named(tmp_path):
    model = make_pipeline(PCA(2), AnnealedClassifier(**QUICK)).fit(IRIS, SPECIES)
    with pytest.raises(InvalidInputError, match=r"PCA cannot be saved; steps that can: .*StandardScaler"):
        annealfit.save_model(model, tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["steps"][0].update(kind="PCA"), "one of"),
        (lambda d: d["steps"][0]["content"]["parameters"].update(copy="os.system"), "true or false"),
        (lambda d: d["steps"][0]["content"]["parameters"].update(other=True), "other"),
        (lambda d: d["steps"][0]["content"].update(n_features_in=5), "shape"),
        (lambda d: d.update(steps=[]), "at least one step"),
    ],
)
def test_a_changed_file_is_refused(change, message, tmp_path):
    path = tmp_path / "model.safetensors"
    annealfit.save_model(make_pipeline(StandardScaler(), AnnealedClassifier(**QUICK)).fit(IRIS, SPECIES), path)
    tensors, manifest = read_tensors(path, "pipeline")
    document = json.loads(json.dumps(manifest.value))
    change(document)
    write_tensors(path, "pipeline", tensors.tensors, document)
    with pytest.raises(FileFormatError, match=message):
        annealfit.load_model(path)
