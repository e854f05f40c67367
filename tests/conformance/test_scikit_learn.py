"""scikit-learn's own conformance suite, in full."""

import joblib
import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.samplers import DimodSampler, ExactSolver


@parametrize_with_checks([AnnealedClassifier(max_iter=30)])
def test_every_check(estimator, check):
    check(estimator)


def test_clone_copies_the_settings_and_shares_the_sampler_which_never_changes():
    sampler = DimodSampler(num_reads=2)
    copy = clone(AnnealedClassifier(bits=4, sampler=sampler))
    assert copy.bits == 4
    assert copy.sampler is sampler
    copy.set_params(sampler__num_reads=7)
    assert (sampler.parameters, copy.sampler.parameters) == ({"num_reads": 2}, {"num_reads": 7})


def test_pipeline_and_grid_search_on_images():
    data = load_dataset("digits", seed=0, n_train=200, n_test=100)
    pipeline = make_pipeline(
        RandomConvFeatures(n_filters=4, random_state=0),
        StandardScaler(),
        AnnealedClassifier(max_iter=30, random_state=0),
    )
    search = GridSearchCV(pipeline, {"annealedclassifier__bits": [1, 3]}, cv=2).fit(data.X_train, data.y_train)
    assert set(search.best_params_) == {"annealedclassifier__bits"}
    assert search.score(data.X_test, data.y_test) > 0.6


def test_joblib_pickles_a_fitted_estimator(tmp_path, blobs):
    X, y = blobs
    clf = AnnealedClassifier(max_iter=5, random_state=0).fit(X, y)
    joblib.dump(clf, tmp_path / "clf.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "clf.joblib").predict_proba(X), clf.predict_proba(X))


@pytest.mark.parametrize("sampler", [DimodSampler(num_reads=2), ExactSolver()])
def test_joblib_pickles_one_with_a_sampler(tmp_path, blobs, sampler):
    clf = AnnealedClassifier(bits=1, max_iter=2, sampler=sampler, random_state=0).fit(*blobs)
    joblib.dump(clf, tmp_path / "clf.joblib")
    assert type(joblib.load(tmp_path / "clf.joblib").sampler) is type(sampler)


@pytest.mark.parametrize(
    "names",
    [
        np.array(["ape", "bee", "cow"]),
        np.array(["ape", "bee", "cow"], dtype=object),
        np.array([-5, 0, 7]),
        np.array([0.5, 1.0, 2.0]) * 2,
    ],
)
def test_any_label_type(blobs, names):
    X, y = blobs
    clf = AnnealedClassifier(max_iter=30, random_state=0).fit(X, names[y])
    assert set(clf.predict(X)) <= set(names)
    assert clf.score(X, names[y]) > 0.8


def test_two_classes_of_truth_values(blobs):
    X, y = blobs
    clf = AnnealedClassifier(max_iter=30, random_state=0).fit(X, y == 1)
    assert clf.predict(X).dtype == bool
    assert clf.decision_function(X).shape == (60,)
    assert clf.coef_.shape == (1, 4)


def test_history_becomes_a_frame_in_one_call(blobs):
    clf = AnnealedClassifier(max_iter=3, random_state=0).fit(*blobs)
    frame = pandas.DataFrame(clf.history_)
    assert len(frame) == 3
    assert {"loss", "accuracy", "energy", "lower_bound"} <= set(frame.columns)
