"""Links and their compiled kernels against NumPy, SciPy and plain loops over rows."""

import numpy as np
import pytest
import scipy.special
from scipy.special import entr, expit

from annealfit.data.rows import _kernels
from annealfit.training.objectives import Logistic, Softmax

ROUNDING = 1e-15
# Probabilities below 1e-35 are computed as 1e-35: see `_kernels.LEAST_EXPONENT`.
SMALLEST = 1e-34
SIZES = [1, 129, 2 * _kernels.ROWS + 77]  # kernels process blocks of rows


def outputs_of(n_classes, rows=1200):
    generator = np.random.default_rng(n_classes)
    scales = 10.0 ** generator.uniform(-3, 2.5, rows)  # from nearly even to decided
    outputs = scales * generator.standard_normal((n_classes, rows))
    return outputs, generator.integers(max(n_classes, 2), size=rows)


def links(n_classes):
    """The compiled link and the one in NumPy."""
    return (Logistic(), Logistic(compiled=False)) if n_classes == 2 else (Softmax(n_classes), Softmax(n_classes, False))


def probabilities_of(outputs):
    return expit(outputs) if len(outputs) == 1 else scipy.special.softmax(outputs, axis=0)


def evaluate_rows(link, outputs, labels):
    """The losses of all rows, and which are right, row by row."""
    found = [link.evaluate(outputs[:, [row]].copy(), labels[[row]])[2:] for row in range(len(labels))]
    return np.array(found).T


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_compiled_probabilities_and_losses_are_those_of_numpy(n_classes, rows, weighted):
    compiled, plain = links(n_classes)
    outputs, labels = outputs_of(compiled.n_outputs, rows)
    weights = np.random.default_rng(0).uniform(0, 3, rows) if weighted else None
    probabilities, residuals, *sums = compiled.evaluate(outputs, labels, weights)
    expected, of_residuals, *of_sums = plain.evaluate(outputs, labels, weights)
    np.testing.assert_allclose(probabilities, expected, rtol=20 * ROUNDING, atol=SMALLEST)
    np.testing.assert_allclose(residuals, of_residuals, rtol=20 * ROUNDING, atol=ROUNDING)
    # The loss in NumPy is the difference of two numbers as large as the outputs, up to 1000, and has their rounding.
    losses, right = evaluate_rows(compiled, outputs, labels)
    of_losses, of_right = evaluate_rows(plain, outputs, labels)
    np.testing.assert_allclose(losses, of_losses, rtol=20 * ROUNDING, atol=1000 * ROUNDING)
    np.testing.assert_array_equal(right, of_right)
    own = np.ones(rows) if weights is None else weights
    for given, by_row in ((sums, (losses, right)), (of_sums, (of_losses, of_right))):
        np.testing.assert_allclose(given, [own @ values for values in by_row], rtol=rows * ROUNDING)
    np.testing.assert_allclose(probabilities, probabilities_of(outputs), rtol=1e-12, atol=SMALLEST)
    one_hot = np.eye(max(n_classes, 2))[:, labels]
    np.testing.assert_array_equal(compiled.residuals(expected, labels), expected - one_hot[-compiled.n_outputs :])
    np.testing.assert_array_equal(of_residuals, compiled.residuals(expected, labels) * own)


def hessian(link, own):
    """The Hessian of the loss of one row in its outputs."""
    return np.array([own * (1 - own)]) if link.n_outputs == 1 else np.diag(own) - np.outer(own, own)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3, 6])  # of softmax: an odd number of shares, and an even one
@pytest.mark.parametrize("count", [1, 2])
def test_curvature_along_changes_is_the_sum_of_the_hessians_of_the_rows(count, n_classes, weighted):
    link, generator = links(n_classes)[0], np.random.default_rng(0)
    outputs, _ = outputs_of(link.n_outputs, rows=300)
    changes = generator.standard_normal((count, *outputs.shape))
    probabilities = probabilities_of(outputs)
    weights = generator.uniform(0, 2, 300) if weighted else None
    found = link.curvature_along(probabilities, changes, weights)
    expected = np.zeros_like(found)
    for row in range(300):
        along = np.concatenate([np.diag(change[:, row]) for change in changes], axis=1)
        expected += (1.0 if weights is None else weights[row]) * along.T @ hessian(link, probabilities[:, row]) @ along
    # Sums of hundreds of terms, which partly cancel: as many times the rounding of one.
    np.testing.assert_allclose(found, expected, atol=100 * ROUNDING * expected.max())
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_hessian_products_and_roots_are_those_of_the_hessian_of_a_row(n_classes):
    link = links(n_classes)[0]
    outputs, _ = outputs_of(link.n_outputs, rows=50)
    probabilities, changes = probabilities_of(outputs), np.random.default_rng(2).normal(size=outputs.shape)
    products, roots = link.hessian_product(probabilities, changes), link.roots(probabilities)
    for row in range(50):
        expected = hessian(link, probabilities[:, row])
        np.testing.assert_allclose(products[:, row], expected @ changes[:, row], atol=1e-14)
        np.testing.assert_allclose(roots[row].T @ roots[row], expected, atol=1e-14)


@pytest.mark.parametrize("rows", SIZES)
def test_mean_variances_are_those_of_the_probabilities(rows):
    outputs, _ = outputs_of(7, rows)
    probabilities = probabilities_of(outputs)
    found = Softmax(7).mean_variances(outputs)
    assert (found >= 0).all()
    np.testing.assert_allclose(found, (probabilities * (1 - probabilities)).mean(axis=0), atol=5 * ROUNDING)
    logits = np.linspace(-30, 30, 9)[None]
    of_two = expit(logits[0]) * expit(-logits[0])
    np.testing.assert_allclose(Logistic().mean_variances(logits), of_two, rtol=1e-3, atol=1e-16)


@pytest.mark.parametrize("rows", SIZES)
def test_probabilities_with_other_biases_and_their_entropies(rows):
    logits, _ = outputs_of(5, rows)
    biases = np.array([0.0, -3.0, 1.5, -np.inf, -40.0])
    distribution, entropies = np.empty_like(logits), np.empty(rows)
    _kernels.tilt(logits, biases, distribution, entropies)
    expected = scipy.special.softmax(logits + biases[:, None], axis=0)
    np.testing.assert_allclose(distribution, expected, rtol=1e-12, atol=SMALLEST)
    # Sums of numbers next to 1 and 0: small entropies have the rounding of 1.
    np.testing.assert_allclose(entropies, entr(expected).sum(axis=0), rtol=1e-12, atol=5e-16)
    assert (entropies >= 0).all()
    assert not distribution[3].any()


@pytest.mark.parametrize("compiled", [False, True])
def test_the_first_of_equal_outputs_is_the_prediction(compiled):
    outputs, labels = outputs_of(4)
    outputs = outputs.round(0).clip(-1, 1)  # ties everywhere
    _, right = evaluate_rows(Softmax(4, compiled), outputs, labels)
    np.testing.assert_array_equal(right, outputs.argmax(axis=0) == labels)
    assert 0 < right.sum() < len(labels)


def test_nan_and_infinity_reach_the_loss_of_their_row():
    outputs, labels = outputs_of(4)
    for position, value in ((0, np.nan), (3, np.nan), (2, np.inf)):
        spoilt = outputs.copy()
        spoilt[position, 7] = value
        losses, _ = evaluate_rows(Softmax(4), spoilt, labels)
        assert not np.isfinite(losses[7])
        assert np.isfinite(np.delete(losses, 7)).all()
