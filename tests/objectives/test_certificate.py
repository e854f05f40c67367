import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs

from annealfit.data.rows import ChunkedRows, InMemoryRows
from annealfit.models.baselines import solve_logistic
from annealfit.training.objectives import LinearHead


@settings(max_examples=120)
@given(st.integers(0, 2**32), st.integers(2, 4), st.sampled_from([1e-3, 1e-1, 1.0]), st.sampled_from([0.0, 0.1, 3.0]))
def test_no_weights_have_a_lower_loss(seed, n_classes, regularization, noise):
    generator = np.random.default_rng(seed)
    labels = np.arange(40) % n_classes
    features = generator.normal(size=(40, 3)) + labels[:, None]
    head = LinearHead.of_arrays(features, labels, n_classes, regularization)
    best = solve_logistic(features, labels, regularization).weights
    bound = head.at(best + noise * generator.normal(size=best.shape)).lower_bound()
    optimum = head.at(best).loss
    assert bound <= optimum + 1e-12
    if noise == 0:
        assert bound >= optimum * (1 - 1e-5)  # tight at the optimum, as far as lbfgs found it


@given(st.integers(0, 2**32), st.integers(2, 4))
def test_no_weights_have_a_lower_loss_with_row_weights(seed, n_classes):
    """Integer weights are repeated rows, whose optimum scikit-learn finds."""
    generator = np.random.default_rng(seed)
    labels = np.arange(30) % n_classes
    features = generator.normal(size=(30, 3)) + labels[:, None]
    weights = generator.integers(1, 4, size=30)
    head = LinearHead.of_arrays(features, labels, n_classes, 0.01, weights.astype(float))
    best = solve_logistic(np.repeat(features, weights, axis=0), np.repeat(labels, weights), 0.01).weights
    point = head.at(best)
    assert point.loss * (1 - 1e-5) <= point.lower_bound() <= point.loss + 1e-12
    assert point.is_within(1e-5 * point.loss)
    assert not head.at(best + 0.5).is_within(1e-5 * point.loss)


def test_without_a_penalty_there_is_no_certificate():
    head = LinearHead.of_arrays(np.zeros((4, 1)), np.array([0, 1, 0, 1]), 2, 0.0)
    assert head.at(np.zeros((2, 1))).lower_bound() == -np.inf
    assert not head.at(np.zeros((2, 1))).is_within(1e9)


def test_a_class_without_members_has_a_bound():
    features = np.random.default_rng(0).normal(size=(6, 2))
    head = LinearHead.of_arrays(features, np.array([0, 1, 0, 1, 0, 1]), 3, 0.1)
    point = head.at(np.zeros((3, 3)))
    assert -np.inf < point.lower_bound() <= point.loss


def test_a_class_without_members_does_not_loosen_the_certificate():
    """At the optimum of the other classes, with the bias of the third far below theirs, the bound is the loss."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 3))
    y = (X[:, 0] + generator.normal(size=200) > 0).astype(np.intp)
    two = solve_logistic(X, y, 2e-2).weights  # of one output: the difference of two, half as much penalised
    halves = np.column_stack([-two / 2, two / 2])
    point = LinearHead(InMemoryRows(X, y, 3), 4e-2).at(np.column_stack([halves, [0.0, 0.0, 0.0, -60.0]]))
    assert point.loss - 1e-7 <= point.lower_bound() <= point.loss  # the solver's own tolerance


@pytest.mark.parametrize("seed", [1, 3])
def test_rows_in_single_precision_have_a_certificate_in_double(seed):
    """With so small a penalty, a gradient rounded to seven digits would raise the bound above the loss."""
    generator = np.random.default_rng(seed)
    X = (5 + generator.normal(size=(1500, 112))).astype(np.float32)
    y = (generator.normal(size=(1500, 3)) + 0.3 * (X - 5) @ generator.normal(size=(112, 3))).argmax(axis=1)
    weights = solve_logistic(X.astype(float), y, 1e-6).weights
    single = LinearHead(ChunkedRows(X, y, 3), 1e-6).at(weights)
    double = LinearHead(InMemoryRows(X.astype(float), y, 3, arithmetic="double"), 1e-6).at(weights)
    assert single.head.rows.is_single
    assert not double.head.rows.is_single
    assert double.loss - 1e-6 <= single.lower_bound() <= double.loss
    assert single.exact_loss == pytest.approx(double.loss, rel=1e-13) != single.loss
    values = generator.normal(size=(3, 1500))
    expected = values @ np.column_stack([X, np.ones(1500)])
    (chunk,) = single.head.rows.chunks()
    np.testing.assert_allclose(chunk.exact_moments(values), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_bound_is_tight_where_the_loss_is_small(n_classes):
    """Wrong class shares loosen the bound by the same amount everywhere: much, where classes are far apart."""
    X, y = make_blobs(500, 60, centers=n_classes, random_state=0)
    head = LinearHead.of_arrays(X, y, n_classes, 1e-3)
    weights = solve_logistic(X, y, 1e-3).weights
    weights[-1, 0] += 5e-4
    point = head.at(weights)
    assert point.cross_entropy < 1e-4
    assert 0 <= point.loss - point.lower_bound() <= 1e-6 * point.loss


@pytest.mark.parametrize("bias", [1e2, 1e4, 1e8])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_extreme_weights_have_a_bound(bias, n_classes):
    features, labels = np.arange(30.0)[:, None], np.arange(30) % n_classes
    head = LinearHead.of_arrays(features, labels, n_classes, 1e-3)
    weights = np.zeros((2, head.n_outputs))
    weights[-1, -1] = -bias
    bound = head.at(weights).lower_bound()
    assert np.isfinite(bound)
    assert bound <= head.at(solve_logistic(features, labels, 1e-3).weights).loss


def test_rounding_of_large_features_never_raises_the_bound_above_the_optimum():
    """Integers shifted by a power of two are exact, and the bias compensates the shift: the optimum is the same."""
    too_high = []
    for seed in range(60):
        generator = np.random.default_rng(seed)
        labels = generator.permutation(60) % 3
        features = generator.integers(-20, 20, size=(60, 2)) + 4.0 * labels[:, None]
        for regularization in (1e-1, 1e3, 1e6):
            best = solve_logistic(features, labels, regularization).weights
            optimum = LinearHead.of_arrays(features, labels, 3, regularization).at(best).loss
            moved = features + np.array([2.0**49, 0.0])
            head = LinearHead.of_arrays(moved, labels, 3, regularization)
            bound = head.at(np.zeros((3, 3))).lower_bound()
            assert bound <= optimum
            head.rows.columns = 0.0, np.zeros((3, 3))  # as if sums were exact
            too_high.append(head.at(np.zeros((3, 3))).lower_bound() > optimum + 1e-9)
    assert any(too_high)  # the margin is necessary


@pytest.mark.parametrize("kind", ["memory", "sparse", "table"])
def test_column_sums_are_those_of_features_squares_and_magnitudes(kind):
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(3000, 4)), np.arange(3000) % 2
    weights = generator.random(3000)
    rows = {
        "memory": lambda: InMemoryRows(features, labels, 2, weights),
        "sparse": lambda: InMemoryRows(csr_array(features), labels, 2, weights),
        "table": lambda: ChunkedRows(features, labels, 2, weights, chunk_rows=700),
    }[kind]()
    count, sums = rows.columns
    expected = [weights @ values for values in (features, features**2, np.abs(features))]
    assert count == 3000
    np.testing.assert_allclose(sums[:, :-1], expected, rtol=1e-12)
