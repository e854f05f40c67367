"""The compiled softmax and its sums, against NumPy's."""

import numpy as np
import pytest

from annealfit.objectives import links
from annealfit.objectives.links import MANY_OUTPUTS, Softmax

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
            patch.setattr(links, "MANY_OUTPUTS", np.inf)
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


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_bends_are_those_of_numpy(dtype, in_numpy):
    outputs, _ = outputs_of(5, dtype)
    link = Softmax(5)
    changes = np.random.default_rng(0).standard_normal((2, *outputs.shape)).astype(dtype)
    probabilities = link.probabilities(outputs)
    found = link.bends(probabilities, changes)
    expected = in_numpy(link.bends, probabilities.astype(np.float64), changes.astype(np.float64))
    # Sums of ten thousand terms, which partly cancel: as many times the rounding of one.
    np.testing.assert_allclose(found, expected, atol=100 * TOLERANCE[dtype] * expected.max())


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
