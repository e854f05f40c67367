"""Outputs of rows by our own code against NumPy's."""

import itertools

import numpy as np
import pytest

from annealfit.data.rows import Chunk, DenseChunk, SparseChunk, TableChunk, _products, cut_grams, products
from annealfit.data.rows.in_single import CopiedChunk
from annealfit.training.objectives import LinearHead


class Plain(Chunk):
    """A chunk of somebody's own, with no more than it needs."""

    def __init__(self, X, labels):
        self.rows, self.labels, self.weights = np.column_stack([X, np.ones(len(X))]), labels, None

    def project(self, weights):
        return (self.rows @ weights).T

    def moments(self, values):
        return values @ self.rows

    def gram(self, values=None):
        return self.rows.T @ (self.rows if values is None else self.rows * values[:, None])

    def content(self):
        return (self.rows,)

    @property
    def entries(self):
        return self.rows.size


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


@pytest.mark.parametrize("n_rows", [1, 63, 64, 130])
@pytest.mark.parametrize(("n_features", "n_outputs"), [(112, 2), (128, 10), (512, 7)])
def test_moments_in_single_precision_are_as_good_as_numpys(n_rows, n_features, n_outputs):
    generator = np.random.default_rng(n_rows + n_features)
    features = generator.normal(size=(n_rows, n_features)).astype(np.float32)
    values = generator.normal(size=(n_outputs, n_rows)).astype(np.float32)
    found = products.moments(features, values)
    assert found.dtype == np.float64  # sums of 64 rows are added up in double precision
    exact = values.astype(float) @ features.astype(float)
    margin = np.finfo(np.float32).eps * 64 * (np.abs(values).astype(float) @ np.abs(features).astype(float))
    assert found.shape == exact.shape
    assert (np.abs(found - exact) <= margin).all()
    np.testing.assert_allclose(products.moments(features[:, :100].copy(), values), exact[:, :100], atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("widths", [(64, 64), (50, 70), (17, 48, 33)])
def test_gram_matrices_of_blocks(widths, dtype):
    """Narrow ones by our own code, wide ones by NumPy's."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(150, sum(widths))).astype(dtype)
    values = generator.uniform(0, 3, 150).astype(dtype)
    edges = np.cumsum([0, *widths]).tolist()
    blocks = [slice(first, last) for first, last in itertools.pairwise(edges)]
    tolerance = 100 * np.finfo(dtype).eps
    for origin in (None, generator.normal(size=sum(widths)).astype(dtype)):
        grams = cut_grams(products.block_grams(features, values, blocks, origin), blocks)
        for block, gram in zip(blocks, grams, strict=True):
            own = np.column_stack([features[:, block] - (0 if origin is None else origin[block]), np.ones(150)])
            expected = (own * values[:, None]).T.astype(float) @ own.astype(float)
            np.testing.assert_allclose(gram, expected, atol=tolerance * np.abs(expected).max())
            np.testing.assert_array_equal(gram, gram.T)


@pytest.mark.parametrize("kind", [DenseChunk, TableChunk, CopiedChunk, SparseChunk, Plain])
def test_gram_matrices_from_an_origin(kind):
    """Measured from the means: the covariance of every block, whatever the chunk is made of."""
    generator = np.random.default_rng(1)
    X, values = 5 + generator.normal(size=(40, 6)), generator.uniform(0, 3, 40)
    blocks, means = [slice(0, 4), slice(4, 6)], X.mean(axis=0)
    chunk = kind(X, np.zeros(40, dtype=np.intp))
    for block, gram in zip(blocks, cut_grams(chunk.block_grams(values, blocks, means), blocks), strict=True):
        own = np.column_stack([X[:, block] - means[block], np.ones(40)])
        np.testing.assert_allclose(gram, (own * values[:, None]).T @ own, atol=1e-3 if kind is CopiedChunk else 1e-9)


def test_one_look_at_the_columns():
    generator = np.random.default_rng(2)
    for count in (1, 2, 3, 4, 9):
        X, weights, centre = generator.normal(size=(count, 5)), generator.uniform(size=count), generator.normal(size=5)
        copy, farthest, totals = np.empty((count, 5), np.float32), np.empty(5), np.empty((3, 5))
        _products.look_at_columns(X, weights, centre, copy, farthest, totals)
        np.testing.assert_array_equal(copy, (X - centre).astype(np.float32))
        np.testing.assert_array_equal(farthest, np.abs(X - centre).max(axis=0))
        np.testing.assert_allclose(totals, [weights @ X, weights @ X**2, weights @ np.abs(X)], rtol=1e-13, atol=1e-15)


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
    single, values = features[:, :112].astype(np.float32), generator.normal(size=(3, 3000)).astype(np.float32)
    blocks = [slice(0, 60), slice(60, 112)]
    grams = products.block_grams(single, values[0] ** 2, blocks)
    monkeypatch.setattr(products, "WORTH_THREADS", 1.0)
    moments = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        np.testing.assert_array_equal(products.project(features, weights), whole)
        np.testing.assert_array_equal(products.block_grams(single, values[0] ** 2, blocks), grams)
        moments.append(products.moments(single, values))
    np.testing.assert_array_equal(*moments)


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
