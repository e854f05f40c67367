"""Compiled products with rows, and Gram matrices of every kind of chunk, against NumPy."""

import itertools

import numpy as np
import pytest
import scipy.sparse

from annealfit.data.rows import Chunk, DenseChunk, SingleChunk, SparseChunk, _single_kernels


class OwnChunk(Chunk):
    """A user-defined chunk with the required methods only."""

    def __init__(self, X, labels, weights=None):
        self.rows, self.labels, self.weights = np.column_stack([X, np.ones(len(X))]), labels, weights

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


def single(X, labels, weights=None):
    return SingleChunk(X, labels, weights, np.median(X[:15], axis=0))


@pytest.mark.parametrize("n_rows", [1, 2, 3, 64, 130])
@pytest.mark.parametrize(("n_features", "n_outputs"), [(112, 1), (112, 4), (512, 10), (1104, 7)])
def test_outputs_are_those_of_numpy(n_rows, n_features, n_outputs):
    generator = np.random.default_rng(n_rows + n_features)
    features = generator.normal(size=(n_rows, n_features)).astype(np.float32)
    weights = generator.normal(size=(n_outputs, n_features)).astype(np.float32)
    offsets, found = generator.normal(size=n_outputs), np.empty((n_outputs, n_rows))
    _single_kernels.project_rows(features, weights, 3.0, offsets, found)
    one, other = weights.astype(float), features.T.astype(float)
    # Sums in another order: each differs by at most d roundings of the sum of the magnitudes of its terms.
    margin = 3 * 2.0**-24 * (n_features + 2) * (np.abs(one) @ np.abs(other))
    assert (np.abs(found - (3 * one @ other + offsets[:, None])) <= margin).all()


@pytest.mark.parametrize("n_rows", [1, 63, 64, 130])
@pytest.mark.parametrize(("n_features", "n_outputs"), [(112, 1), (128, 10), (512, 7)])
def test_moments_are_those_of_numpy(n_rows, n_features, n_outputs):
    generator = np.random.default_rng(n_rows + n_features)
    features = generator.normal(size=(n_rows, n_features)).astype(np.float32)
    values, before = generator.normal(size=(n_outputs, n_rows)), generator.normal(size=(n_outputs, n_features))
    found = before.copy()
    _single_kernels.add_moments(features, values, found)
    margin = 1e-15 * (n_rows + 2) * (np.abs(values) @ np.abs(features) + np.abs(before))
    assert (np.abs(found - (before + values @ features.astype(float))) <= margin).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_column_sums_and_distances_from_a_centre(dtype):
    generator = np.random.default_rng(2)
    for count in (1, 2, 3, 4, 9):
        X = generator.normal(size=(count, 5)).astype(dtype)
        weights, centre = generator.uniform(size=count), generator.normal(size=5)
        copy, farthest, totals = np.zeros((count, 16), np.float32), np.zeros(5), np.zeros((3, 5))
        _single_kernels.subtract_centre(X, centre, copy)
        np.testing.assert_array_equal(copy[:, :5], (X - centre).astype(np.float32))
        assert not copy[:, 5:].any()
        again = np.zeros_like(copy)
        _single_kernels.add_columns(X, weights, centre, again, totals, farthest)
        np.testing.assert_array_equal(again, copy)
        np.testing.assert_array_equal(farthest, np.abs(X - centre).max(axis=0))
        exact = X.astype(float)
        expected = [weights @ exact, weights @ exact**2, weights @ np.abs(exact)]
        np.testing.assert_allclose(totals, expected, rtol=1e-13, atol=1e-15)


def sparse_with_repetitions(features, labels):
    """Sparse rows whose entries are stored in two halves, in no order."""
    rows, columns = features.nonzero()
    places = np.tile(rows, 2), np.tile(columns, 2)
    return SparseChunk(scipy.sparse.coo_array((np.tile(features[rows, columns] / 2, 2), places)), labels)


@pytest.mark.parametrize("kind", [DenseChunk, single, SparseChunk, sparse_with_repetitions, OwnChunk])
@pytest.mark.parametrize("widths", [(64, 64), (50, 70), (17, 48, 33), (200,)])
def test_gram_matrices_of_blocks(widths, kind):
    generator = np.random.default_rng(0)
    features, values = generator.normal(size=(150, sum(widths))), generator.uniform(0, 3, 150)
    chunk = kind(features, np.zeros(150, dtype=np.intp))
    for origin in (None, generator.normal(size=sum(widths))):
        squares = values @ (features - (0 if origin is None else origin)) ** 2
        np.testing.assert_allclose(chunk.squares(values, origin), squares, rtol=1e-12)
    edges = np.cumsum([0, *widths]).tolist()
    blocks = [slice(first, last) for first, last in itertools.pairwise(edges)]
    for origin in (None, generator.normal(size=sum(widths))):
        grams = chunk.block_grams(values, blocks, origin)
        for block, gram in zip(blocks, grams, strict=True):
            own = np.column_stack([features[:, block] - (0 if origin is None else origin[block]), np.ones(150)])
            expected = (own * values[:, None]).T @ own
            np.testing.assert_allclose(gram, expected, atol=1e-12 * np.abs(expected).max())
            rounding = 0 if isinstance(chunk, DenseChunk) else 1e-13
            np.testing.assert_allclose(gram, gram.T, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("kind", [DenseChunk, single, SparseChunk, OwnChunk])
def test_gram_matrices_from_an_origin(kind):
    """Measured from the means they are covariances, for any kind of chunk."""
    generator = np.random.default_rng(1)
    X, values = 5 + generator.normal(size=(40, 6)), generator.uniform(0, 3, 40)
    blocks, means = [slice(0, 4), slice(4, 6)], X.mean(axis=0)
    chunk = kind(X, np.zeros(40, dtype=np.intp))
    for block, gram in zip(blocks, chunk.block_grams(values, blocks, means), strict=True):
        own = np.column_stack([X[:, block] - means[block], np.ones(40)])
        np.testing.assert_allclose(gram, (own * values[:, None]).T @ own, atol=1e-9)


@pytest.mark.parametrize("kind", [DenseChunk, single])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_thinned_chunk_has_groups_of_64_rows_by_their_position_among_all_rows(kind, weighted):
    generator = np.random.default_rng(3)
    X, labels = generator.normal(size=(500, 5)), generator.integers(0, 3, 500)
    weights = generator.uniform(size=500) if weighted else None
    kept = []
    for first, last in ((0, 100), (100, 300), (300, 500)):
        chunk = kind(X[first:last], labels[first:last], None if weights is None else weights[first:last])
        chunk.start = first
        kept.append(chunk.thinned(3))
    chosen = np.flatnonzero(np.arange(500) // 64 % 3 == 0)
    np.testing.assert_array_equal(np.concatenate([part.labels for part in kept]), labels[chosen])
    total = len(chosen) if weights is None else weights[chosen].sum()
    assert sum(part.total_weight for part in kept) == pytest.approx(total)
    ones = sum(part.exact_moments(np.ones((1, len(part.labels)))) for part in kept)
    np.testing.assert_allclose(ones[0], [*X[chosen].sum(axis=0), len(chosen)], rtol=1e-12, atol=1e-12)
