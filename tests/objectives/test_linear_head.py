"""Loss, gradient and curvature of a head against scikit-learn, SciPy and finite differences.

Two classes and three; dense, sparse and chunked rows; with and without weights.
"""

import itertools

import numpy as np
import pytest
import scipy.sparse
import scipy.special
from scipy.optimize import approx_fprime
from sklearn.metrics import accuracy_score, log_loss

from annealfit.data.rows import Chunk, DenseChunk, InMemoryRows, Rows, SparseChunk
from annealfit.training.objectives import CURVATURES, LinearHead, softmax


class PlainChunk(DenseChunk):
    """A chunk with the default column sums, as a user-defined one has them."""

    column_sums = Chunk.column_sums


N, D = 30, 5


class Chunks(Rows):
    """Streamed rows, seven at a time: chunks are new at every pass."""

    chunks_are_cached = False

    def __init__(self, features, labels, n_classes, weights):
        self.arrays, self.n_classes, self.n_parameters = (features, labels, weights), n_classes, features.shape[1] + 1

    def chunks(self):
        features, labels, weights = self.arrays
        for start in range(0, len(labels), 7):
            own = slice(start, start + 7)
            yield DenseChunk(features[own], labels[own], None if weights is None else weights[own], start)


MAKE = {
    "dense": InMemoryRows,
    "sparse": lambda X, *rest: InMemoryRows(scipy.sparse.csr_array(X), *rest),
    "chunks": Chunks,
}


def arrays(n_classes, weighted):
    generator = np.random.default_rng(n_classes)
    X = generator.normal(size=(N, D - 1)) * (generator.random((N, D - 1)) < 0.7)
    y = np.arange(N) % n_classes
    return X, y, n_classes, generator.uniform(0.1, 3.0, size=N) if weighted else None


@pytest.fixture(params=[(2, False), (2, True), (3, False), (3, True)], ids=str)
def table(request):
    return arrays(*request.param)


@pytest.fixture(params=MAKE)
def head(request, table):
    return LinearHead(MAKE[request.param](*table), regularization=0.1)


def some_weights(head, seed=1, scale=1.0):
    return np.random.default_rng(seed).normal(size=(D, head.n_outputs)) * scale


def distribution(head, X, weights):
    """Probabilities (N, C) by SciPy."""
    logits = X @ weights[:-1] + weights[-1]
    if head.n_outputs == 1:
        return np.column_stack([scipy.special.expit(-logits), scipy.special.expit(logits)])
    return scipy.special.softmax(logits, axis=1)


def test_gram_is_the_weighted_mean_of_outer_products(head, table):
    X, _, _, weights = table
    augmented = np.column_stack([X, np.ones(N)])
    expected = np.einsum("n,ni,nj->ij", np.ones(N) if weights is None else weights, augmented, augmented)
    np.testing.assert_allclose(head.gram, expected / (N if weights is None else weights.sum()), rtol=1e-12, atol=1e-15)


def test_cross_entropy_and_accuracy_are_scikit_learns(head, table):
    X, y, n_classes, weights = table
    point = head.at(some_weights(head))
    probabilities = distribution(head, X, point.weights)
    expected = log_loss(y, probabilities, labels=range(n_classes), sample_weight=weights)
    np.testing.assert_allclose(point.cross_entropy, expected, rtol=1e-9)
    expected = accuracy_score(y, probabilities.argmax(axis=1), sample_weight=weights)
    np.testing.assert_allclose(point.accuracy, expected, rtol=1e-12)


def test_gradient_is_the_derivative_of_the_loss(head):
    weights = some_weights(head)
    numerical = approx_fprime(weights.ravel(), lambda w: head.at(w.reshape(weights.shape)).loss, 1e-7)
    # forward differences of step 1e-7
    np.testing.assert_allclose(head.at(weights).gradients.T.ravel(), numerical, atol=1e-5)


def test_curvature_along_directions_is_the_second_derivative(head):
    point, update = head.at(some_weights(head)), some_weights(head, 2).T
    step = 1e-4
    losses = [point.moved(multiple * update).loss for multiple in (-step, 0.0, step)]
    numerical = (losses[0] - 2 * losses[1] + losses[2]) / step**2
    # central differences: truncation of order 1e-8, rounding of three losses over 1e-8
    np.testing.assert_allclose(point.curvature_along(update[None]).sum(), numerical, rtol=1e-5)
    directions = np.stack([update, point.step_from(some_weights(head, 3))])
    size = directions[..., 0].size
    found = point.curvature_along(directions)

    def loss(multiples):
        return point.moved((multiples.reshape(2, -1, 1) * directions).sum(axis=0)).loss

    for i, j in itertools.combinations_with_replacement(range(size), 2):
        one, other = step * np.eye(size)[[i, j]]
        corners = loss(one + other) - loss(one - other) - loss(other - one) + loss(-one - other)
        # four losses of about 1, each right to 1e-16, over 4e-8
        np.testing.assert_allclose(found[i, j], corners / (4 * step**2), rtol=1e-4, atol=2e-7)
    np.testing.assert_allclose(found, found.T, atol=1e-12)


def test_outputs_of_previous_weights_replace_a_product(head):
    """The change of the outputs along the previous step is a difference of outputs: the same up to rounding."""
    previous = some_weights(head, 3)
    head.at(previous)  # evaluated before, as in a training
    point, update = head.at(some_weights(head)), some_weights(head, 2).T
    step = point.step_from(previous)
    np.testing.assert_array_equal(step, (point.weights - previous).T)
    directions = np.stack([update, step])
    np.testing.assert_allclose(
        point.curvature_along(directions, previous), point.curvature_along(directions), rtol=1e-10, atol=1e-14
    )


def test_the_class_mean_changes_no_prediction_and_is_removed_if_every_class_moves(head):
    point, update = head.at(some_weights(head)), some_weights(head, 2).T
    plain, reached = point.moved(update), point.moved(update, remove_class_mean=True)
    for chunk in head.rows.chunks():
        np.testing.assert_allclose(reached.distribution(chunk), plain.distribution(chunk), rtol=1e-9, atol=1e-14)
    assert reached.cross_entropy == pytest.approx(plain.cross_entropy, rel=1e-12)
    if head.n_outputs == 1:
        np.testing.assert_array_equal(reached.weights, plain.weights)
        return
    assert reached.loss < plain.loss
    np.testing.assert_allclose(reached.weights.sum(axis=1), 0, atol=1e-12)
    update[0] = 0
    np.testing.assert_array_equal(point.moved(update, remove_class_mean=True).weights, point.moved(update).weights)


def test_a_move_adds_the_updates_of_all_blocks(head):
    point, update = head.at(some_weights(head)), some_weights(head, 2).T
    np.testing.assert_array_equal(point.moved(update).weights, point.weights + update.T)
    np.testing.assert_array_equal(point.moved(update.reshape(1, -1)).weights, point.weights + update.T)  # as one block


@pytest.mark.parametrize("kind", ["sparse", "chunks"])
def test_every_kind_of_rows_has_the_same_sums(table, kind):
    """The tolerance covers sums in another order."""
    first, other = (LinearHead(MAKE[name](*table), regularization=0.1) for name in ("dense", kind))
    weights = some_weights(first)
    one, two = first.at(weights), other.at(weights)
    for name in ("loss", "accuracy", "gradients"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(one.lower_bound(), two.lower_bound(), rtol=1e-9)
    np.testing.assert_allclose(one.output_grams(), two.output_grams(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(first.rows.class_shares, other.rows.class_shares, rtol=1e-12)


@pytest.mark.parametrize("kind", [DenseChunk, SparseChunk, PlainChunk])
@pytest.mark.parametrize("weighted", [False, True])
def test_column_sums_are_sums_of_features_of_their_squares_and_magnitudes(kind, weighted):
    generator = np.random.default_rng(3)
    X, weights = generator.normal(size=(7, 3)), generator.uniform(0.5, 2.0, 7) if weighted else None
    chunk = kind(X, np.arange(7) % 2, weights)
    augmented = np.column_stack([X, np.ones(7)])
    counted = np.ones(7) if weights is None else weights
    sums, squares, magnitudes = chunk.column_sums()
    np.testing.assert_allclose(sums, counted @ augmented, rtol=1e-12)
    np.testing.assert_allclose(squares, counted @ augmented**2, rtol=1e-12)
    expected = counted @ np.abs(augmented)
    if kind is PlainChunk:  # upper bounds
        assert (magnitudes >= expected * (1 - 1e-12)).all()
    else:
        np.testing.assert_allclose(magnitudes, expected, rtol=1e-12)


def test_only_distinct_products_are_computed():
    """One product with all rows per point, and one per direction of which no outputs are known."""

    class Counting(DenseChunk):
        projects = 0

        def project(self, weights):
            self.projects += 1
            return super().project(weights)

    X, y, n_classes, weights = arrays(3, weighted=False)
    chunk = Counting(X, y, weights)
    rows = type("OneChunk", (Rows,), {"n_parameters": D, "n_classes": n_classes, "chunks": lambda self: [chunk]})()
    head = LinearHead(rows, 0.1)
    previous = head.at(some_weights(head))
    point = head.at(some_weights(head, 2))
    assert chunk.projects == 2
    directions = np.stack([some_weights(head, 3).T, point.step_from(previous.weights)])
    point.curvature_along(directions, previous.weights)
    assert chunk.projects == 3
    point.curvature_along(directions)
    assert chunk.projects == 5


def test_the_bias_is_not_regularised(head):
    weights = np.zeros((D, head.n_outputs))
    weights[-1] = 5.0
    assert head.at(weights).penalty == 0
    weights[0, 0] = 2.0
    assert head.at(weights).penalty == pytest.approx(0.5 * 0.1 * 4)


@pytest.mark.parametrize("scale", [1e3, 1e100])
def test_large_logits_do_not_overflow(head, scale):
    point = head.at(some_weights(head, 2, scale))
    assert np.isfinite(point.cross_entropy)
    assert np.isfinite(point.gradients).all()


def test_softmax_is_scipys():
    logits = np.random.default_rng(3).normal(size=(4, 6)) * 50
    np.testing.assert_allclose(softmax(logits), scipy.special.softmax(logits, axis=0), rtol=1e-12)


def test_a_tie_goes_to_the_first_class(head, table):
    _, y, _, weights = table
    np.testing.assert_allclose(
        head.at(np.zeros((D, head.n_outputs))).accuracy, np.average(y == 0, weights=weights), rtol=1e-12
    )


def test_curvature_gram_and_diagonal(head):
    penalty = 0.1 * np.diag([1, 1, 1, 1, 0])
    point = head.at(np.zeros((D, head.n_outputs)))
    (gram,) = CURVATURES["gram"](head)(point)
    np.testing.assert_array_equal(gram.matrix, (head.gram + head.gram.T) / 2 + penalty)
    (diagonal,) = CURVATURES["diagonal"](head)(point)
    np.testing.assert_array_equal(diagonal.matrix, np.diag(np.diag(head.gram)) + penalty)
