"""The compiled softmax and its sums, against NumPy's."""

import numpy as np
import pytest
import scipy.special
from scipy.special import entr, expit

from annealfit.training.objectives import Logistic, Softmax, _links, softmax_link
from annealfit.training.objectives.softmax_link import MANY_OUTPUTS

# NumPy works in double precision here; so the tolerance is a few units of the last digit of what is compiled.
TOLERANCE = {np.float64: 1e-15, np.float32: 5e-7}


def outputs_of(n_classes, dtype, rows=1 + MANY_OUTPUTS // 3):
    generator = np.random.default_rng(n_classes)
    scales = 10.0 ** generator.uniform(-3, 2.5, rows)  # from nearly even to decided
    return (scales * generator.standard_normal((n_classes, rows))).astype(dtype), generator.integers(
        n_classes, size=rows
    )


@pytest.fixture
def in_numpy(monkeypatch):
    """What a call gives where nothing is compiled."""

    def call(function, *arguments, **options):
        with monkeypatch.context() as patch:
            patch.setattr(softmax_link, "MANY_OUTPUTS", np.inf)
            return function(*arguments, **options)

    return call


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n_classes", [3, 10])
def test_probabilities_and_losses_are_those_of_numpy(n_classes, dtype, in_numpy):
    outputs, labels = outputs_of(n_classes, dtype)
    link = Softmax(n_classes)
    probabilities, losses, right = link.evaluate(outputs, labels)
    expected, of_losses, of_right = in_numpy(link.evaluate, outputs.astype(np.float64), labels)
    assert probabilities.dtype == dtype
    np.testing.assert_allclose(probabilities, expected, rtol=20 * TOLERANCE[dtype], atol=1e-34)
    # NumPy's loss is the difference of two numbers as large as the outputs, up to 1000, and has their rounding.
    np.testing.assert_allclose(losses, of_losses, rtol=20 * TOLERANCE[dtype], atol=1000 * TOLERANCE[dtype])
    np.testing.assert_array_equal(right, of_right)
    np.testing.assert_allclose(probabilities.sum(axis=0), 1, rtol=20 * TOLERANCE[dtype])
    np.testing.assert_array_equal(link.probabilities(outputs), probabilities)
    np.testing.assert_array_equal(
        link.residuals(probabilities, labels), in_numpy(link.residuals, probabilities, labels)
    )


@pytest.mark.parametrize("with_weights", [False, True])
@pytest.mark.parametrize("n_classes", [3, 6])  # an odd number of shares, and an even one
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_bends_are_the_covariances_of_the_changes(dtype, count, n_classes, with_weights):
    outputs, _ = outputs_of(n_classes, dtype, rows=300)
    link, generator = Softmax(n_classes), np.random.default_rng(0)
    changes = generator.standard_normal((count, *outputs.shape)).astype(dtype)
    probabilities = link.probabilities(outputs)
    weights = generator.uniform(0, 2, 300) if with_weights else None
    found = link.curvature_along(probabilities, changes, weights)
    expected = np.zeros_like(found)
    for row in range(300):  # diag π − ππᵀ, row by row
        own = probabilities[:, row].astype(float)
        hessian = np.diag(own) - np.outer(own, own)
        along = np.concatenate([np.diag(change[:, row].astype(float)) for change in changes], axis=1)
        expected += (1.0 if weights is None else weights[row]) * along.T @ hessian @ along
    # Sums of hundreds of terms, which partly cancel: as many times the rounding of one.
    np.testing.assert_allclose(found, expected, atol=100 * TOLERANCE[dtype] * expected.max())
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("balance", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_move_is_the_evaluation_of_moved_outputs(count, balance, in_numpy):
    outputs, labels = outputs_of(5, np.float64, rows=1200)
    generator = np.random.default_rng(count)
    multiples, changes = generator.normal(size=(count, 5)), generator.normal(size=(count, *outputs.shape))
    moved, found = Softmax(5).move(outputs, multiples, changes, labels, balance=balance)
    expected = outputs + np.einsum("ac,acn->cn", multiples, changes)
    expected -= expected.mean(axis=0) if balance else 0.0
    np.testing.assert_allclose(moved, expected, rtol=1e-12, atol=1e-12)
    for one, other in zip(found, in_numpy(Softmax(5).evaluate, moved, labels), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)  # outputs up to 1000, as above


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_move_of_two_classes_is_too(count):
    generator = np.random.default_rng(count)
    outputs, labels = generator.normal(size=(1, 900)) * 10.0 ** generator.uniform(-3, 3, 900), np.arange(900) % 2
    outputs[0, :4] = 0.0, 1e4, -1e4, 40.0
    multiples, changes = generator.normal(size=(count, 1)), generator.normal(size=(count, 1, 900))
    moved, found = Logistic().move(outputs, multiples, changes, labels, balance=True)
    np.testing.assert_allclose(moved, outputs + np.einsum("ac,acn->cn", multiples, changes), rtol=1e-12, atol=1e-12)
    # Probabilities below 1e-35 are taken for it: see `annealfit.training.objectives._exponential`.
    for one, other in zip(found, Logistic().evaluate(moved, labels), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-34)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_mean_spreads_are_those_of_the_probabilities(dtype):
    outputs, _ = outputs_of(7, dtype, rows=1500)
    probabilities = Softmax(7).probabilities(outputs.astype(float))
    expected = (probabilities * (1 - probabilities)).mean(axis=0)
    found = Softmax(7).mean_spreads(outputs)
    assert found.dtype == dtype
    assert (found >= 0).all()
    np.testing.assert_allclose(found, expected, atol=5 * TOLERANCE[dtype])
    logits = np.linspace(-30, 30, 9)[None]
    of_two = expit(logits[0]) * expit(-logits[0])
    np.testing.assert_allclose(Logistic().mean_spreads(logits), of_two, rtol=1e-3, atol=1e-16)


def test_distributions_with_other_biases_and_their_entropies():
    logits, _ = outputs_of(5, np.float64, rows=1100)
    biases = np.array([0.0, -3.0, 1.5, -np.inf, -40.0])
    distribution, entropies = np.empty_like(logits), np.empty(1100)
    _links.tilt(logits, biases, distribution, entropies)
    expected = scipy.special.softmax(logits + biases[:, None], axis=0)
    np.testing.assert_allclose(distribution, expected, rtol=1e-12, atol=1e-34)
    # Both are sums of numbers next to 1 and 0: small ones have the rounding of 1.
    np.testing.assert_allclose(entropies, entr(expected).sum(axis=0), rtol=1e-12, atol=5e-16)
    assert not distribution[3].any()


def test_the_first_of_equal_outputs_counts(in_numpy):
    outputs, labels = outputs_of(4, np.float64)
    outputs = outputs.round(0).clip(-1, 1)  # ties everywhere
    right = Softmax(4).evaluate(outputs, labels)[2]
    np.testing.assert_array_equal(right, outputs.argmax(axis=0) == labels)
    assert 0 < right.sum() < len(labels)


def test_what_is_not_a_number_is_not_hidden():
    outputs, labels = outputs_of(4, np.float64)
    for position, value in ((0, np.nan), (3, np.nan), (2, np.inf)):
        spoilt = outputs.copy()
        spoilt[position, 7] = value
        _, losses, _ = Softmax(4).evaluate(spoilt, labels)
        assert not np.isfinite(losses[7])
        assert np.isfinite(np.delete(losses, 7)).all()
