import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from annealfit import AnnealedClassifier
from annealfit.data.rows import InMemoryRows
from annealfit.problems.coordinates import CentredCoordinates, LinearCoordinates, RawCoordinates
from annealfit.problems.curvature import Curvature, sparsify
from annealfit.samplers import LevelAnnealer
from annealfit.training.objectives import CURVATURES, LinearHead, curvature
from annealfit.training.objectives.curvature import MAJORIZERS


@st.composite
def heads(draw):
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_samples, n_features, n_classes = draw(st.integers(2, 30)), draw(st.integers(1, 6)), draw(st.integers(2, 5))
    features = generator.normal(size=(n_samples, n_features)) * draw(st.sampled_from([0.1, 1.0, 10.0]))
    features += draw(st.sampled_from([0.0, 3.0]))
    labels = generator.integers(0, n_classes, n_samples)
    weights = draw(st.sampled_from([None, generator.uniform(0.1, 3.0, n_samples)]))
    return LinearHead.of_arrays(features, labels, n_classes, draw(st.sampled_from([0.0, 1e-3, 1.0])), weights)


def predicted_change(head, curvature, point, updates, keep=None):
    """Σ_c g_cᵀu_c + ½u_cᵀHu_c for updates (O, D), for any number of outputs per problem."""
    metrics = curvature(head)(point)
    if keep is not None:
        metrics = [metric.thinned(keep, bits=1) for metric in metrics]
    blocks, slopes = (array.reshape(-1, metrics[0].size) for array in (updates, point.gradients))
    if len(metrics) == 1:
        metrics = [metrics[0]] * len(blocks)
    return 0.5 * sum(metric.energies(g, u) for metric, g, u in zip(metrics, slopes, blocks, strict=True))


@pytest.mark.parametrize("name", sorted(name for name, curvature in CURVATURES.items() if curvature in MAJORIZERS))
@pytest.mark.parametrize("keep", [None, 0, 3])
@settings(max_examples=100)
@given(head=heads(), seed=st.integers(0, 2**32), size=st.sampled_from([1e-3, 0.1, 1.0, 10.0]))
def test_bounding_curvatures_bound_the_loss(name, keep, head, seed, size):
    """Also when most couplings are dropped. The tolerance covers the rounding of two losses."""
    generator = np.random.default_rng(seed)
    point = head.at(generator.normal(size=(head.n_parameters, head.n_outputs)))
    updates = generator.normal(size=(head.n_outputs, head.n_parameters)) * size
    before, after = point.loss, point.moved(updates).loss
    change = predicted_change(head, CURVATURES[name], point, updates, keep)
    assert after <= before + change + 1e-12 * (1 + abs(before) + abs(after))


def some_head(n_classes, n_samples=25, regularization=0.1):
    generator = np.random.default_rng(n_classes)
    labels = np.arange(n_samples) % n_classes
    return LinearHead.of_arrays(generator.normal(size=(n_samples, 3)), labels, n_classes, regularization)


@pytest.mark.parametrize(("n_classes", "share"), [(2, 0.25), (4, 0.5)])
def test_the_bound_is_a_share_of_the_gram_and_joint_is_the_tightest(n_classes, share):
    head = some_head(n_classes)
    point = head.at(np.zeros((4, head.n_outputs)))
    (gram,), (bound,), (joint,) = (CURVATURES[name](head)(point) for name in ("gram", "bound", "joint"))
    penalty = np.diag(head.ridge)
    np.testing.assert_allclose(bound.matrix - penalty, share * (gram.matrix - penalty), rtol=1e-12)
    assert joint.size == 4 * head.n_outputs
    gained = np.linalg.eigvalsh(np.kron(np.eye(head.n_outputs), bound.matrix) - joint.matrix)
    assert gained.min() > -1e-12
    assert (gained.max() > 0.01) == (n_classes > 2)  # one output has no others


@pytest.mark.parametrize("n_classes", [2, 3])
def test_gauss_newton_is_each_outputs_block_of_the_hessian(n_classes):
    head = some_head(n_classes, regularization=0.05)
    weights = np.random.default_rng(1).normal(size=(4, head.n_outputs))
    metrics = CURVATURES["gauss_newton"](head)(head.at(weights))
    assert len(metrics) == head.n_outputs
    for index, metric in enumerate(metrics):

        def slope(column, index=index):
            moved = weights.copy()
            moved[:, index] = column
            return head.at(moved).gradients[index]

        numerical = approx_fprime(weights[:, index], slope, 1e-7)
        np.testing.assert_allclose(metric.matrix, numerical, atol=1e-5)  # forward differences of step 1e-7


def sparsified_in_a_loop(matrix, kept):
    """`sparsify` as a plain loop over pairs, the largest first: a dropped coupling is added to both diagonals."""
    size = len(matrix)
    pairs = [(i, j) for i in range(size) for j in range(i + 1, size) if matrix[i, j]]
    pairs.sort(key=lambda pair: -abs(matrix[pair]))
    thin = matrix.copy()
    for i, j in pairs[kept:]:
        thin[i, i] += abs(matrix[i, j])
        thin[j, j] += abs(matrix[i, j])
        thin[i, j] = thin[j, i] = 0.0
    return thin


@pytest.mark.parametrize("size", [1, 2, 9, 60])
def test_sparsify_is_a_plain_loop_over_pairs(size):
    generator = np.random.default_rng(size)
    half = generator.normal(size=(size, size)) * (generator.random((size, size)) < 0.6)
    for matrix in (half + half.T, np.round(half + half.T)):  # with ties: the first of equal couplings stays
        for kept in (0, 1, size, size * (size - 1) // 2, size**2):
            np.testing.assert_allclose(sparsify(matrix, kept), sparsified_in_a_loop(matrix, kept), rtol=1e-12)


def test_sparsify_keeps_the_largest_couplings_and_an_upper_bound():
    generator = np.random.default_rng(2)
    data = generator.normal(size=(30, 8))
    matrix = data.T @ data
    for kept in (0, 5, 28):
        thin = sparsify(matrix, kept)
        assert np.count_nonzero(np.triu(thin, 1)) == kept
        assert np.linalg.eigvalsh(thin - matrix).min() > -1e-9
    sizes = np.abs(matrix[np.triu_indices(8, 1)])
    five = sparsify(matrix, 5)
    assert np.abs(five[np.triu_indices(8, 1)]).sum() == pytest.approx(np.sort(sizes)[-5:].sum())


def test_a_constant_curvature_is_computed_once():
    head = some_head(3)
    for name in ("bound", "gram", "joint", "diagonal"):
        at = CURVATURES[name](head)
        (first,), (second,) = (at(head.at(np.full((4, 3), value))) for value in (0.0, 1.0))
        assert first is second


@settings(max_examples=50)
@given(head=heads(), seed=st.integers(0, 2**32))
def test_the_local_curvature_is_the_mean_of_the_outputs_blocks_of_the_hessian(head, seed):
    point = head.at(np.random.default_rng(seed).normal(size=(head.n_parameters, head.n_outputs)))
    (metric,) = CURVATURES["local"](head)(point)
    expected = point.output_grams().mean(axis=0) + np.diag(head.ridge)
    np.testing.assert_allclose(metric.in_coordinates(RawCoordinates()).matrix, expected, rtol=1e-9, atol=1e-12)


def many_features(*, correlated):
    """Rows of 300 features of different spread; the first 100 have something in common, or none has."""
    generator = np.random.default_rng(0)
    features, labels = generator.uniform(size=(1000, 300)), generator.integers(0, 3, 1000)
    features[:, :100] += correlated * generator.normal(size=(1000, 1))
    return features * np.geomspace(0.1, 10, 300), labels, generator.uniform(0.1, 3, 1000)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("coordinates", [RawCoordinates(), CentredCoordinates()])
def test_the_local_curvature_of_many_features_has_the_blocks_along_the_diagonal(coordinates, sparse):
    features, labels, weights = many_features(correlated=True)
    given = scipy.sparse.csr_array(features) if sparse else features
    head = LinearHead.of_arrays(given, labels, 3, 1e-3, weights)
    point, adapted = head.at(0.1 * np.random.default_rng(1).normal(size=(301, 3))), coordinates.adapted(head)
    (metric,) = CURVATURES["local"](head)(point)
    pulled, size = metric.in_coordinates(adapted), 301
    whole = adapted.pull_curvature(Curvature(point.output_grams().mean(axis=0) + np.diag(head.ridge))).matrix
    if adapted.origin.features is None:
        blocks = [slice(60 * k, 60 * k + 60) for k in range(5)]  # positive features have their mean in common
    else:
        blocks = [slice(0, 60), slice(60, 120)]
    assert [block for block, _ in pulled.blocks] == blocks
    alone = np.setdiff1d(np.arange(size), np.concatenate([np.arange(size)[block] for block in blocks]))
    np.testing.assert_array_equal(pulled.alone[0], alone)
    np.testing.assert_allclose(pulled.alone[1], whole.diagonal()[alone], rtol=1e-8)
    for block, part in pulled.blocks:
        np.testing.assert_allclose(part.matrix, whole[block, block], rtol=1e-8, atol=1e-12 * whole.max())
    mixing = LinearCoordinates(np.eye(size) + 0.01)  # features are mixed: the whole matrix is computed and cut
    mixed = mixing.pull_curvature(Curvature(point.output_grams().mean(axis=0) + np.diag(head.ridge))).matrix
    cut = CURVATURES["local"](head)(point)[0].in_coordinates(mixing)
    assert len(cut.blocks) == 5
    for block, part in cut.blocks:
        np.testing.assert_allclose(part.matrix, mixed[block, block], rtol=1e-8, atol=1e-12)


def test_blocks_of_features_that_are_hardly_correlated_are_left_out():
    """Then no problem of the training has couplings, and no answer is above the optimum over the levels."""
    features, labels, weights = many_features(correlated=False)
    for rows in (features, scipy.sparse.csr_array(features)):
        first, *_ = AnnealedClassifier(2, random_state=0).problems(rows, labels, weights)
        assert not first.shared_curvature.blocks
        optimum = first.encoding.encode(-first.gradient / first.shared_curvature.diagonal)
        assert LevelAnnealer().sample(first).best_energy == pytest.approx(first.energy(optimum), rel=1e-12)


def test_couplings_are_judged_at_zero_weights_so_that_a_resumed_training_has_the_same_blocks():
    features, labels, weights = many_features(correlated=True)
    head = LinearHead.of_arrays(features, labels, 3, 1e-3, weights)
    coordinates = CentredCoordinates().adapted(head)
    far = head.at(np.random.default_rng(1).normal(size=(301, 3)))
    local = CURVATURES["local"](head)
    afterwards = [local(point)[0].in_coordinates(coordinates) for point in (head.at(np.zeros((301, 3))), far)]
    at_once = CURVATURES["local"](head)(far)[0].in_coordinates(coordinates)
    np.testing.assert_array_equal(afterwards[1].matrix, at_once.matrix)
    assert [block for block, _ in afterwards[0].blocks] == [block for block, _ in at_once.blocks]


def test_a_local_curvature_of_many_rows_is_that_of_a_sample():
    generator = np.random.default_rng(0)
    labels = np.arange(50_000) % 10
    features = generator.normal(size=(50_000, 5)) + generator.normal(size=(10, 5))[labels]
    head = LinearHead.of_arrays(features, labels, 10, 0.0)
    point = head.at(np.zeros((6, 10)))
    found = CURVATURES["local"](head)(point)[0].in_coordinates(CentredCoordinates().adapted(head)).matrix
    exact = CentredCoordinates().adapted(head).pull_curvature(Curvature(0.09 * head.gram)).matrix
    assert 0 < np.abs(np.linalg.eigvalsh(np.linalg.solve(exact, found)) - 1).max() < 0.2  # about √(6/2048)


def rows_with_rare_features():
    """Three classes, and features that differ from 0 in a few rows only, none of which is in the sample."""
    generator = np.random.default_rng(3)
    X, y = generator.normal(size=(3000, 6)), np.arange(3000) % 3
    X += 0.5 * generator.normal(size=(3, 6))[y]
    sampled = np.random.default_rng(0).choice(3000, curvature.FEWEST_ROWS, replace=False)
    rare = np.setdiff1d(np.arange(3000), sampled)[:8]
    X[:, 4:] = 0
    X[rare, 4 + np.arange(8) % 2] = 40
    return X, y


def test_the_variance_of_rare_features_that_a_sample_lacks():
    X, y = rows_with_rare_features()
    head = LinearHead(InMemoryRows(X, y, 3), 1e-3)
    sample = LinearHead(head.rows.sample(curvature.FEWEST_ROWS), 1e-3)
    lacking = curvature.lacking_variance(head, sample)
    np.testing.assert_allclose(lacking, [0, 0, 0, 0, *X[:, 4:].var(axis=0)], rtol=1e-12)
    assert not curvature.lacking_variance(head, head).any()


def test_rare_features_do_not_slow_down_a_training():
    X, y = rows_with_rare_features()
    trained = AnnealedClassifier(random_state=0).fit(X, y)
    assert trained.stop_reason_ == "tolerance"
    assert trained.n_iter_ <= 20  # 9; 76 without the variance that the sample lacks
