"""Keywords of 0.2.0 are accepted with a FutureWarning that names the new spelling, and mean what they meant."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from annealfit import AnnealedClassifier, AnnealedConvNet, Checkpoint, FilterMethod, Method
from annealfit.problems.coordinates import LinearCoordinates
from annealfit.training import ACCEPTANCES, PrecisionPolicy
from annealfit.training.acceptance import descent

# Keyword, value, and the method that it stands for.
METHODS = [
    ("curvature", "gram", Method(curvature="gram")),
    ("curvature", None, Method()),
    ("coordinates", "raw", Method(coordinates="raw")),
    ("coordinates", LinearCoordinates(2 * np.eye(5)), None),
    ("acceptance", "line_search", Method(acceptance="line_search")),
    ("acceptance", "second_direction", Method()),
    ("acceptance", "descent", Method(curvature="bound", acceptance="descent")),  # whose curvature was the bound
    ("acceptance", descent, Method(curvature="bound", acceptance="descent")),
    ("range_policy", "adaptive", Method(range_policy="adaptive")),
    ("precision_policy", "adaptive", Method(precision_policy="adaptive")),
    ("precision_policy", PrecisionPolicy(), Method()),
    ("update_range", 0.3, Method(update_range=0.3)),
    ("step", 0.5, Method(step=0.5)),
    ("max_couplings", 30, Method(max_couplings=30)),
    ("initialization", "uniform", Method(initialization="uniform")),
]


def fit(clf, data):
    return clf.set_params(max_iter=4, random_state=0).fit(*data)


@pytest.mark.parametrize(("name", "value", "method"), METHODS)
def test_a_keyword_of_the_method(blobs, name, value, method):
    method = method or Method(**{name: value})
    message = rf"AnnealedClassifier\({name}=…\) is now method=Method\({name}=…\)"
    with pytest.warns(FutureWarning, match=message):
        constructed = AnnealedClassifier(**{name: value})
    with pytest.warns(FutureWarning, match=message):
        changed = AnnealedClassifier().set_params(**{name: value})
    expected = fit(AnnealedClassifier(method=method), blobs)
    for clf in (constructed, changed):
        assert isinstance(clf.method, Method)
        np.testing.assert_array_equal(fit(clf, blobs).coef_, expected.coef_)
        np.testing.assert_array_equal(clf.intercept_, expected.intercept_)


def test_several_keywords_at_once(blobs):
    with pytest.warns(FutureWarning) as told:
        clf = AnnealedClassifier(2, acceptance="descent", coordinates="raw", step=0.5, max_iter=9)
    assert len(told) == 3
    assert all(warning.filename == __file__ for warning in told)  # the line of the user
    assert clf.method == Method(curvature="bound", acceptance="descent", coordinates="raw", step=0.5)
    with pytest.warns(FutureWarning):
        clf.set_params(curvature="gram", bits=1)
    assert (clf.bits, clf.max_iter, clf.method.curvature, clf.method.step) == (1, 9, "gram", 0.5)
    assert clone(clf).get_params() == clf.get_params()


def test_keywords_change_a_method_that_is_given():
    with pytest.warns(FutureWarning):
        clf = AnnealedClassifier(method="descent", step=0.25)
    assert clf.method == Method(curvature="bound", acceptance="descent", step=0.25)


def test_the_keywords_of_checkpoints(blobs, tmp_path):
    path = tmp_path / "c.safetensors"
    with pytest.warns(FutureWarning, match=r"is now checkpoint=Checkpoint\(path, every=…\)"):
        first = AnnealedClassifier(checkpoint=path, checkpoint_every=2, max_iter=3, random_state=0, tol=0)
    assert first.checkpoint == Checkpoint(path, every=2)
    first.fit(*blobs)
    with pytest.warns(FutureWarning, match=r"is now checkpoint=Checkpoint\(path, resume=…\)"):
        resumed = AnnealedClassifier(checkpoint=path, resume=True, max_iter=6, random_state=0, tol=0).fit(*blobs)
    whole = AnnealedClassifier(max_iter=6, random_state=0, tol=0).fit(*blobs)
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)
    with pytest.warns(FutureWarning, match="resume"):
        changed = clone(first).set_params(resume=True)
    assert changed.checkpoint == Checkpoint(path, every=2, resume=True)
    with pytest.warns(FutureWarning):  # as 0.2.0 allowed, a setting of no file
        assert AnnealedClassifier(checkpoint_every=5).set_params(max_iter=2, tol=0).fit(*blobs).n_iter_ == 2


@pytest.fixture(scope="module")
def images():
    generator = np.random.default_rng(0)
    labels = np.arange(40) % 3
    pixels = generator.random((40, 6, 6))
    pixels[labels == 1, 3] += 0.6
    pixels[labels == 2, :, 3] += 0.6
    return pixels, labels


FILTERS = [
    ("trainable", "all", FilterMethod(layers="all")),
    ("trainable", [1], FilterMethod(layers=[1])),
    ("head_steps", 2, FilterMethod(head_steps=2)),
    ("filter_curvature", "joint", FilterMethod(curvature="joint")),
    ("damping", 0.3, FilterMethod(damping=0.3)),
    ("curvature_rows", 20, FilterMethod(curvature_rows=20)),
]


@pytest.mark.parametrize(("name", "value", "filter_method"), FILTERS)
def test_a_keyword_of_the_filter_method(images, name, value, filter_method):
    message = rf"AnnealedConvNet\({name}=…\) is now filter_method=FilterMethod\("
    settings = {"n_filters": 2, "max_iter": 8, "random_state": 0}
    with pytest.warns(FutureWarning, match=message):
        constructed = AnnealedConvNet(**settings, **{name: value})
    with pytest.warns(FutureWarning, match=message):
        changed = AnnealedConvNet(**settings).set_params(**{name: value})
    assert constructed.filter_method == changed.filter_method == filter_method
    expected = AnnealedConvNet(**settings, filter_method=filter_method).fit(*images)
    np.testing.assert_array_equal(constructed.fit(*images).filters_[0], expected.filters_[0])
    np.testing.assert_array_equal(constructed.coef_, expected.coef_)


def test_keywords_of_the_method_of_a_network(images):
    with pytest.warns(FutureWarning, match=r"AnnealedConvNet\(acceptance=…\) is now method=Method\(acceptance=…\)"):
        net = AnnealedConvNet(acceptance="line_search")
    assert net.method == Method(acceptance="line_search")
    with pytest.warns(FutureWarning, match=r"AnnealedConvNet\(tol=…\) is now ignored"):
        AnnealedConvNet(tol=1e-3)


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="AnnealedClassifier has no parameter curvatures"):
        AnnealedClassifier(curvatures="bound")
    with pytest.raises(TypeError, match="AnnealedClassifier has no parameter head_steps"):
        AnnealedClassifier(head_steps=2)
    with pytest.raises((TypeError, ValueError), match="curvatures"):
        AnnealedClassifier().set_params(curvatures="bound")


def test_new_spellings_do_not_warn(blobs, images):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        clf = AnnealedClassifier(max_iter=2, method=Method(acceptance="subspace"), checkpoint=None).fit(*blobs)
        clone(clf).set_params(method__step=0.5, bits=2).fit(*blobs)
        AnnealedConvNet(n_filters=1, max_iter=2, filter_method=FilterMethod(head_steps=1)).fit(*images)


def test_the_old_word_is_the_same_rule(blobs, tmp_path):
    """A training with the old word is resumed with the new one."""
    assert ACCEPTANCES["second_direction"] is ACCEPTANCES["subspace"]
    path = tmp_path / "c.safetensors"
    settings = {"random_state": 0, "tol": 0}
    old = AnnealedClassifier(max_iter=2, method=Method(acceptance="second_direction"), checkpoint=path, **settings)
    old.fit(*blobs)
    new = AnnealedClassifier(max_iter=4, checkpoint=Checkpoint(path, resume=True), **settings).fit(*blobs)
    assert new.n_iter_ == 4
