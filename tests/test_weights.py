"""Sample weights and class weights: repeated and absent rows, the optimum of scikit-learn, invalid weights."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from estimators import annealed
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from annealfit import AnnealedClassifier
from annealfit._support.errors import InvalidInputError
from annealfit.training.objectives import LinearHead


def table(seed, n_classes):
    generator = np.random.default_rng(seed)
    y = np.arange(40) % n_classes
    return generator.normal(size=(40, 3)) + 1.5 * generator.normal(size=(n_classes, 3))[y], y, generator


def fit(X, y, sample_weight=None, **settings):
    return annealed(**{"max_iter": 25, "random_state": 0, "tol": 1e-5, **settings}).fit(
        X, y, sample_weight=sample_weight
    )


def assert_same(one, other):
    """Sums in another order differ in their last bits; no decision rests on those."""
    np.testing.assert_array_equal(one.classes_, other.classes_)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.intercept_, other.intercept_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.optimality_gap_, other.optimality_gap_, rtol=1e-6, atol=1e-12)
    assert [row["accepted"] for row in one.history_] == [row["accepted"] for row in other.history_]


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 4))
def test_integer_weights_are_repeated_rows(seed, n_classes):
    X, y, generator = table(seed, n_classes)
    weights = generator.integers(1, 4, size=40)
    assert_same(fit(X, y, weights), fit(np.repeat(X, weights, axis=0), np.repeat(y, weights)))


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_integer_weights_and_repeated_rows_have_the_same_optimum(n_classes):
    """Both are certified to be within 1e-8 of it, so the loss is the same to that, and the weights to its root."""
    X, y, generator = table(7, n_classes)
    weights = generator.integers(0, 4, size=40)
    one, other = (AnnealedClassifier(max_iter=500, tol=1e-8, random_state=0) for _ in range(2))
    one.fit(X, y, weights)
    other.fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert one.stop_reason_ == other.stop_reason_ == "tolerance"
    np.testing.assert_allclose(one.history_[-1]["loss"], other.history_[-1]["loss"], rtol=2e-8)
    np.testing.assert_allclose(one.coef_, other.coef_, atol=2e-2)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 4), st.booleans())
def test_a_row_of_weight_zero_is_left_out(seed, n_classes, sparse):
    X, y, generator = table(seed, n_classes)
    weights = generator.uniform(0.5, 2.0, size=40) * (generator.random(40) < 0.6)
    weights[: 2 * n_classes] = 1.0
    kept = weights > 0
    whole, less = (scipy.sparse.csr_array(a) if sparse else a for a in (X, X[kept]))
    assert_same(fit(whole, y, weights), fit(less, y[kept], weights[kept]))


def test_a_class_of_weight_zero_is_left_out():
    X, y, _ = table(0, 4)
    assert_same(fit(X, y, np.where(y == 2, 0.0, 1.0)), fit(X[y != 2], y[y != 2]))


def test_only_proportions_of_weights_matter():
    X, y, generator = table(1, 3)
    weights = generator.uniform(0.5, 2.0, size=40)
    assert_same(fit(X, y, weights), fit(X, y, weights * 1024.0))
    assert_same(fit(X, y, 3.0), fit(X, y))


@pytest.mark.parametrize("size", [1e-310, 1e307])
@pytest.mark.parametrize("stored", ["memory", "mapped", "dask", "classes"])
@pytest.mark.parametrize("n_features", [3, 110])
def test_weights_of_any_size_are_those_of_size_one(size, stored, n_features, tmp_path):
    """Features are in single precision; 110 of them are also multiplied in single precision."""
    generator = np.random.default_rng(0)
    X, weights = generator.normal(size=(200, n_features)).astype(np.float32), generator.uniform(0.5, 2.0, 200)
    y = (X[:, 0] + 0.5 * generator.normal(size=200) > 0).astype(int)
    expected = AnnealedClassifier(random_state=0).fit(X, y, weights)
    np.save(tmp_path / "X.npy", X)
    given = {"mapped": np.load(tmp_path / "X.npy", mmap_mode="r"), "dask": da.from_array(X, chunks=(64, -1))}
    of_classes = {0: size, 1: size} if stored == "classes" else None
    found = AnnealedClassifier(random_state=0, class_weight=of_classes).fit(
        given.get(stored, X), y, weights if of_classes else weights * size
    )
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), atol=1e-9)
    assert found.stop_reason_ == "tolerance"


def imbalanced(n_classes, seed=0):
    X, y = make_classification(
        600, 6, n_informative=5, n_redundant=0, n_classes=n_classes, weights=[0.8] + [0.2 / (n_classes - 1)] *
        (n_classes - 1), random_state=seed,
    )  # fmt: skip
    return StandardScaler().fit_transform(X), y


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("class_weight", ["balanced", {0: 0.2, 1: 3.0}])
@pytest.mark.parametrize("weighted", [False, True])
def test_class_weights_have_the_optimum_of_scikit_learn(n_classes, class_weight, weighted):
    X, y = imbalanced(n_classes)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(y)) if weighted else None
    clf = fit(X, y, weights, class_weight=class_weight, max_iter=1000, tol=1e-9, regularization=1e-2)
    assert clf.stop_reason_ == "tolerance"
    # scikit-learn sums over rows and annealfit averages, so C is scaled by the weight of all rows.
    of_classes = (
        {c: total_weight(weights, y) / (n_classes * total_weight(weights, y, c)) for c in range(n_classes)}
        if class_weight == "balanced"
        else {c: class_weight.get(c, 1.0) for c in range(n_classes)}
    )
    total = sum(of_classes[c] * total_weight(weights, y, c) for c in range(n_classes))
    theirs = LogisticRegression(C=1 / (1e-2 * total), class_weight=of_classes, tol=1e-10, max_iter=10_000)
    theirs.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(clf.coef_, theirs.coef_, atol=1e-3)  # tol 1e-9 of the loss is 1e-4 of the weights
    np.testing.assert_allclose(clf.predict_proba(X), theirs.predict_proba(X), atol=1e-3)


def total_weight(weights, y, label=None):
    chosen = np.ones(len(y), bool) if label is None else y == label
    return float(chosen.sum() if weights is None else weights[chosen].sum())


def test_two_classes_have_the_optimum_of_scikit_learn_and_one_problem_per_iteration():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    clf = AnnealedClassifier(max_iter=2000, tol=1e-7, random_state=0, patience=None).fit(X, y)
    assert clf.stop_reason_ == "tolerance"
    assert len(clf.problems(X, y)) == 1
    assert {row["solved"] for row in clf.history_} == {1}
    assert (clf.coef_.shape, clf.intercept_.shape) == ((1, 30), (1,))
    theirs = LogisticRegression(C=1 / (1e-3 * len(y)), tol=1e-10, max_iter=10_000).fit(X, y)
    head = LinearHead.of_arrays(X, y, 2, 1e-3)
    ours, best = (head.at(np.vstack([m.coef_.T, m.intercept_])).loss for m in (clf, theirs))
    assert best <= ours <= best * (1 + 1e-7)
    np.testing.assert_allclose(clf.decision_function(X), theirs.decision_function(X), atol=0.02)
    np.testing.assert_allclose(clf.predict_proba(X), theirs.predict_proba(X), atol=1e-3)


def test_ensembles_of_classifiers():
    X, y = imbalanced(3)
    boosted = AdaBoostClassifier(AnnealedClassifier(max_iter=10, random_state=0), n_estimators=5, random_state=0)
    assert boosted.fit(X, y).score(X, y) > 0.8
    bagged = BaggingClassifier(AnnealedClassifier(max_iter=10, random_state=0), n_estimators=4, random_state=0)
    assert bagged.fit(X, y).score(X, y) > 0.8


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(39), r"shape \(39,\); expected \(40,\)"),
        (np.ones((40, 1)), "shape"),
        (-np.ones(40), "at least 0, and not only zeros"),
        (np.zeros(40), "not only zeros"),
        (np.full(40, np.nan), "NaN"),
        (np.where(np.arange(40) % 3 == 0, 1.0, 0.0), "one class only, 0;"),
    ],
)
def test_invalid_weights_are_refused(weights, message):
    X, y, _ = table(0, 3)
    with pytest.raises(ValueError, match=message):
        fit(X, y, weights)


@pytest.mark.parametrize("class_weight", [{0: -1.0}, {0: np.inf}, {0: 0.0}, [1, 2], np.ones(3), "even"])
def test_invalid_class_weights_are_refused(class_weight):
    X, y, _ = table(0, 3)
    with pytest.raises(ValueError, match="class_weight|class label"):
        fit(X, y, class_weight=class_weight)


def test_class_weights_are_stored(tmp_path):
    X, y, _ = table(0, 3)
    fit(X, y, class_weight={0: 2.0, 1: 0.5}).save(tmp_path / "m.safetensors")
    assert AnnealedClassifier.load(tmp_path / "m.safetensors").class_weight == {0: 2.0, 1: 0.5}
    with pytest.raises(InvalidInputError, match="needs to see all labels at once"):
        AnnealedClassifier(class_weight="balanced").partial_fit(X, y, classes=[0, 1, 2])
