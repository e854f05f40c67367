"""Rows in memory with a copy in single precision: quicker, and what is reported is as exact as without."""

import gc
import weakref

import numpy as np
import pytest

from annealfit import AnnealedClassifier
from annealfit.data.rows import InMemoryRows, TableChunk, cut_grams
from annealfit.data.rows.in_single import CopiedChunk
from annealfit.models.baselines import solve_logistic
from annealfit.training.objectives import LinearHead

N, D, OUTPUTS = 2200, 120, 4  # more numbers than fit into a cache, so that rows are copied


def features(offset=0.0, scale=1.0):
    return offset + scale * np.random.default_rng(0).standard_normal((N, D))


def labelled(X):
    logits = (X - X.mean(axis=0)) @ np.random.default_rng(1).standard_normal((X.shape[1], OUTPUTS)) / X.std()
    return (0.3 * logits + np.random.default_rng(2).gumbel(size=logits.shape)).argmax(axis=1)


def both(X):
    labels = np.zeros(len(X), dtype=np.intp)
    (ours,) = InMemoryRows(X, labels, OUTPUTS).chunks()
    assert isinstance(ours, CopiedChunk)
    return ours, TableChunk(X, labels)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("offset", [0.0, 1.0, -1e6])
def test_steps_and_moments_are_right_to_seven_digits(offset, scale):
    """In units of what the rows differ by: 2⁻²⁴ for each number, and sums of a hundred or a thousand of them."""
    ours, exact = both(features(offset * scale, scale))
    updates = np.random.default_rng(3).standard_normal((D + 1, OUTPUTS))
    updates[-1] = -offset * scale * updates[:-1].sum(axis=0)  # which leaves what rows differ by
    step, expected = ours.step(updates), exact.project(updates)
    np.testing.assert_allclose(step, expected, atol=1e-6 * np.abs(expected).max(), rtol=0)
    values = np.random.default_rng(4).standard_normal((OUTPUTS, N))
    values -= values.mean(axis=1, keepdims=True)
    moments, expected = ours.moments(values), exact.moments(values)
    np.testing.assert_allclose(moments, expected, atol=3e-6 * scale * np.sqrt(N), rtol=1e-6)
    assert step.dtype == moments.dtype == np.float64


def test_gram_matrices_are_right_and_convex():
    X = features(3.0)
    X[:, 1] = X[:, 0]  # singular
    ours, exact = both(X)
    values, blocks = np.random.default_rng(5).random(N), [slice(0, 50), slice(50, D)]
    for found, expected in zip(
        *(cut_grams(chunk.block_grams(values, blocks), blocks) for chunk in (ours, exact)), strict=True
    ):
        scales = np.sqrt(np.diag(expected))
        np.testing.assert_allclose(found / np.outer(scales, scales), expected / np.outer(scales, scales), atol=3e-5)
        assert np.linalg.eigvalsh(found / np.outer(scales, scales))[0] > 0
        np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_values_of_any_size_do_not_overflow(factor):
    ours, exact = both(features())
    values = factor * np.random.default_rng(6).standard_normal((OUTPUTS, N))
    np.testing.assert_allclose(ours.moments(values) / factor, exact.moments(values) / factor, atol=1e-3)
    assert not ours.moments(np.zeros_like(values)).any()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_features_beyond_single_precision_stay_in_double(scale):
    X = features()
    X[:, 7] *= scale
    ours, exact = both(X)
    updates = np.random.default_rng(7).standard_normal((D + 1, OUTPUTS))
    np.testing.assert_array_equal(ours.step(updates), exact.project(updates))
    values = np.random.default_rng(8).standard_normal((OUTPUTS, N))
    np.testing.assert_array_equal(ours.moments(values), exact.moments(values))
    ones = np.ones(N)
    np.testing.assert_array_equal(*(chunk.block_grams(ones, [slice(0, D)]) for chunk in (ours, exact)))


@pytest.mark.parametrize("constant", [0.1, 1.1e60])
def test_a_constant_feature_is_no_reason_for_double_precision(constant):
    X = features()
    X[:, 3] = constant
    ours, exact = both(X)
    assert ours._copy is not None
    values = np.random.default_rng(8).standard_normal((OUTPUTS, N))
    np.testing.assert_allclose(ours.moments(values), exact.moments(values), atol=1e-4, rtol=1e-6)


def test_an_outlier_costs_no_other_row_its_digits():
    X = features()
    X[0, 5] = 1e9  # where a mean of some rows would be far from all of them
    ours, exact = both(X)
    updates = np.zeros((D + 1, OUTPUTS))
    updates[5] = 1.0
    np.testing.assert_allclose(ours.step(updates)[:, 1:], exact.project(updates)[:, 1:], atol=1e-5)


@pytest.mark.parametrize("size", [1e11, 1e14])
def test_heavy_rows_of_large_features_do_not_overflow(size):
    X = size * np.random.default_rng(9).standard_normal((3000, 130))
    gram = CopiedChunk(X, np.zeros(3000, dtype=np.intp)).block_grams(np.full(3000, 9e8), [slice(0, 130)])
    assert np.isfinite(gram).all()


def test_rows_that_are_few_or_in_single_precision_are_not_copied():
    labels = np.zeros(N, dtype=np.intp)
    few = InMemoryRows(features()[:100], labels[:100], 2)
    assert not few.is_rounded
    assert InMemoryRows(features(), labels, 2).is_rounded


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_what_is_reported_is_worked_out_in_double_precision(offset):
    X = features(offset)
    y = labelled(X)
    fitted = AnnealedClassifier(random_state=0).fit(X, y)
    assert fitted.stop_reason_ == "tolerance"
    weights = np.vstack([fitted.coef_.T, fitted.intercept_])
    exact = LinearHead.of_arrays(X, y, OUTPUTS, fitted.regularization).at(weights)
    best = LinearHead.of_arrays(X - offset, y, OUTPUTS, fitted.regularization)
    least = best.at(solve_logistic(X - offset, y, fitted.regularization).weights).loss
    assert exact.loss - fitted.optimality_gap_ <= least
    assert fitted.optimality_gap_ <= fitted.tol * exact.loss
    # On the way it is the loss of outputs that were added up from rounded steps.
    assert fitted.history_[-1]["loss"] == pytest.approx(exact.loss, rel=1e-6)
    losses = [row["loss"] for row in fitted.history_]
    assert (np.diff(losses) < 0).all()


def test_a_resumed_training_is_the_same_to_the_last_bit(tmp_path):
    X = features(2.0)
    y = labelled(X)
    path = tmp_path / "half.safetensors"
    AnnealedClassifier(random_state=0, max_iter=4, tol=0, checkpoint=path).fit(X, y)
    resumed = AnnealedClassifier(random_state=0, max_iter=9, tol=0, checkpoint=path, resume=True).fit(X, y)
    straight = AnnealedClassifier(random_state=0, max_iter=9, tol=0).fit(X, y)
    np.testing.assert_array_equal(resumed.coef_, straight.coef_)
    assert resumed.optimality_gap_ == straight.optimality_gap_


@pytest.mark.parametrize("shape", [(60, 5), (N, D)])
def test_nothing_of_the_rows_stays_behind(shape):
    """Without the help of the collector of cycles: rows may be much of the memory."""
    X = features()[: shape[0], : shape[1]].copy()
    y, rows = labelled(X), weakref.ref(X)
    gc.collect()
    gc.disable()
    try:
        fitted = AnnealedClassifier(max_iter=5, random_state=0).fit(X, y)
        del X
        assert rows() is None
    finally:
        gc.enable()
    assert fitted.n_iter_ == 5
