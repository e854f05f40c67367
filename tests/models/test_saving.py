"""Files of the family's models: the same predictions and settings, and clear refusals."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import annealfit
from annealfit import QUBOSVC, QBoostClassifier, QUBORidge
from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit._support.files import write_tensors
from annealfit.models.family.boosting import SavedTree
from annealfit.samplers import SimulatedAnnealer

MODELS = {
    "QUBORidge": {"bits": 2, "max_iter": 5},
    "QUBORidgeClassifier": {"sampler": SimulatedAnnealer(num_sweeps=20)},
    "QUBOSVC": {"C": 2.0},
    "QBoostClassifier": {"n_estimators": 6, "estimator": DecisionTreeClassifier(max_depth=3)},
    "BinarySparseCoding": {"n_components": 5, "patch_size": 2},
    "BinaryMatrixFactorization": {"n_components": 8},
    "AnnealedRBM": {"n_components": 6, "bits": 2, "max_iter": 2},
}


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    return generator.random((60, 9)), np.repeat(["a", "b", "c"], 20)


def outputs(model, X):
    for name in ("decision_function", "transform", "predict"):
        if hasattr(model, name) and not (name == "predict" and hasattr(model, "decision_function")):
            yield getattr(model, name)(X)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:.*is not part of the file:UserWarning")
def test_a_loaded_model_is_the_same(rows, name, tmp_path):
    X, y = rows
    model = getattr(annealfit, name)(**MODELS[name], random_state=3)
    model.fit(X, X[:, 0] if name == "QUBORidge" else y)
    model.save(tmp_path / "model")
    loaded = annealfit.load_model(tmp_path / "model")
    for ours, theirs in zip(outputs(model, X), outputs(loaded, X), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for setting in model.get_params(deep=False).keys() - {"estimator"}:
        assert getattr(loaded, setting) == getattr(model, setting)
    pipeline = make_pipeline(StandardScaler(with_mean=False), loaded)  # a loaded model can be saved
    pipeline[0].fit(X)
    annealfit.save_model(pipeline, tmp_path / "again")
    again = annealfit.load_model(tmp_path / "again")
    for ours, theirs in zip(outputs(pipeline, X), outputs(again, X), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_without_labels_and_with_names(rows, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows[0], columns=list("abcdefghi"))
    model = annealfit.AnnealedRBM(4, max_iter=1, random_state=0).fit(frame)
    model.save(tmp_path / "model")
    loaded = annealfit.AnnealedRBM.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(frame), model.transform(frame))
    assert list(loaded.feature_names_in_) == list("abcdefghi")
    assert not hasattr(loaded, "classes_")


def test_what_cannot_be_saved_is_refused(rows, tmp_path):
    X, y = rows
    model = QBoostClassifier(n_estimators=2, estimator=LogisticRegression()).fit(X, y)
    with pytest.raises(InvalidInputError, match="LogisticRegression cannot be saved"):
        model.save(tmp_path / "model")


def test_damaged_files_are_refused(rows, tmp_path):
    X, y = rows
    model = QUBOSVC().fit(X, y)
    model.save(tmp_path / "model")
    with pytest.raises(FileFormatError, match="kind 'QUBOSVC', not 'QUBORidge'"):
        QUBORidge.load(tmp_path / "model")
    model.dual_coef_ = model.dual_coef_[:, 1:]
    model.save(tmp_path / "model")
    with pytest.raises(FileFormatError, match="dual_coef_"):
        QUBOSVC.load(tmp_path / "model")
    boosted = QBoostClassifier(n_estimators=2).fit(X, y)
    boosted.estimators_[0] = replace(SavedTree.of(boosted.estimators_[0]), children_left=np.array([0, -1, -1]))
    boosted.save(tmp_path / "model")
    with pytest.raises(FileFormatError, match="do not make a tree"):
        QBoostClassifier.load(tmp_path / "model")


@pytest.mark.parametrize("model", [QBoostClassifier(n_estimators=4), QUBOSVC()])
def test_a_file_whose_fields_do_not_fit_each_other_is_refused_when_it_is_read(tmp_path, model):
    X = np.random.default_rng(0).normal(size=(40, 3))
    tensors, manifest = model.fit(X, (X[:, 0] > 0).astype(int)).to_tensors()
    write_tensors(tmp_path / "model", type(model).__name__, tensors, manifest | {"classes": None})
    with pytest.raises(FileFormatError, match="expected a .* that can be used"):
        annealfit.load_model(tmp_path / "model")
