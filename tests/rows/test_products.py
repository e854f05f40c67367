"""Outputs of rows by our own code against NumPy's."""

import numpy as np
import pytest

from annealfit.objectives import LinearHead
from annealfit.rows import DenseChunk, TableChunk, cut_grams, products


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 7, 130])
@pytest.mark.parametrize(("n_features", "n_outputs"), [(100, 2), (513, 10), (1100, 7), (128, 15)])
def test_outputs_are_numpys(n_rows, n_features, n_outputs, dtype):
    generator = np.random.default_rng(n_rows + n_features)
    features = generator.normal(size=(n_rows, n_features)).astype(dtype)
    weights = generator.normal(size=(n_outputs, n_features)).astype(dtype)
    assert products.are_ours(features, n_outputs)
    found = products.project(features, weights)
    exact = weights.astype(float) @ features.T.astype(float)
    # Sums in another order: each differs by at most d roundings of the sum of its terms' sizes.
    margin = 2 * np.finfo(dtype).eps * n_features * (np.abs(weights).astype(float) @ np.abs(features.T).astype(float))
    assert found.dtype == dtype
    assert found.shape == exact.shape
    assert (np.abs(found - exact) <= margin).all()


def test_other_shapes_and_orders_are_left_to_numpy():
    features = np.ones((8, 128))
    assert products.are_ours(features, 2)
    assert not products.are_ours(features, 1)
    assert not products.are_ours(features, 16)
    assert not products.are_ours(features[:, :99].copy(), 2)
    assert not products.are_ours(np.asfortranarray(features), 2)
    assert not products.are_ours(np.ones((8, 256))[:, ::2], 2)
    assert not products.are_ours(features.astype(int), 2)
    assert products.project(np.asfortranarray(features), np.ones((3, 128))).tolist() == [[128.0] * 8] * 3


def test_results_do_not_depend_on_threads(monkeypatch):
    generator = np.random.default_rng(0)
    features, weights = generator.normal(size=(3000, 200)), generator.normal(size=(5, 200))
    whole = products.project(features, weights)
    monkeypatch.setattr(products, "WORTH_THREADS", 1.0)
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        np.testing.assert_array_equal(products.project(features, weights), whole)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("with_weights", [False, True])
def test_a_head_of_many_features_is_that_of_the_plain_rows(n_classes, with_weights):
    generator = np.random.default_rng(1)
    X, y = generator.normal(size=(90, 120)), np.arange(90) % n_classes
    weights = generator.uniform(0.5, 2, size=90) if with_weights else None
    assert isinstance(next(iter(LinearHead.of_arrays(X, y, n_classes, 0.1).rows.chunks())), TableChunk)
    many, plain = TableChunk(X, y, weights), DenseChunk(X, y, weights)
    spreads = generator.uniform(size=90)
    blocks = [slice(0, 70), slice(70, 120)]
    for one, two in zip(
        *(cut_grams(chunk.block_grams(spreads, blocks), blocks) for chunk in (many, plain)), strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-12 * np.abs(two).max())
    for one, two in zip(many.column_sums(), plain.column_sums(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)
    own = generator.normal(size=(121, n_classes))
    for given in (own, np.zeros_like(own)):
        np.testing.assert_allclose(many.project(given), plain.project(given), rtol=0, atol=1e-12)
    values = generator.normal(size=(n_classes, 90))
    np.testing.assert_allclose(many.moments(values), plain.moments(values), rtol=0, atol=1e-12)
