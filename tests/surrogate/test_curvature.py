import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from annealfit.surrogate import CURVATURES, TrainingSet, evaluate, gradient
from annealfit.surrogate.curvature import MAJORIZERS, sparse, sparsify


@st.composite
def training_sets(draw):
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_samples, n_features, n_classes = draw(st.integers(2, 30)), draw(st.integers(1, 6)), draw(st.integers(2, 5))
    features = generator.normal(size=(n_samples, n_features)) * draw(st.sampled_from([0.1, 1.0, 10.0]))
    features += draw(st.sampled_from([0.0, 3.0]))
    labels = generator.integers(0, n_classes, n_samples)
    return TrainingSet.build(features, labels, n_classes, draw(st.sampled_from([0.0, 1e-3, 1.0])))


def predicted_change(data, curvature, weights, updates):
    """Σ_c g_cᵀu_c + ½u_cᵀHu_c for updates (D, C), whichever way the curvature cuts the classes into problems."""
    evaluation = evaluate(data, weights)
    matrices = curvature(data)(evaluation.probabilities)
    blocks = updates.T.reshape(len(matrices), -1)
    slopes = gradient(data, weights, evaluation.probabilities).reshape(len(matrices), -1)
    return sum(g @ u + 0.5 * u @ H @ u for g, u, H in zip(slopes, blocks, matrices, strict=True))


@pytest.mark.parametrize("name", sorted(MAJORIZERS))
@pytest.mark.parametrize("keep", [None, 0, 3])
@settings(max_examples=150)
@given(data=training_sets(), seed=st.integers(0, 2**32), size=st.sampled_from([1e-3, 0.1, 1.0, 10.0]))
def test_bounding_curvatures_bound_the_loss(name, keep, data, seed, size):
    """Also when most couplings are dropped. The tolerance covers the rounding of two losses."""
    curvature = CURVATURES[name] if keep is None else sparse(CURVATURES[name], keep)
    generator = np.random.default_rng(seed)
    weights = generator.normal(size=(data.n_parameters, data.n_classes))
    updates = generator.normal(size=weights.shape) * size
    before, after = evaluate(data, weights).loss, evaluate(data, weights + updates).loss
    assert after <= before + predicted_change(data, curvature, weights, updates) + 1e-12 * (
        1 + abs(before) + abs(after)
    )


def test_the_bound_is_half_the_gram_and_joint_is_the_tightest():
    generator = np.random.default_rng(0)
    data = TrainingSet.build(generator.normal(size=(20, 3)), generator.integers(0, 4, 20), 4, 0.1)
    indifferent = np.full((4, 20), 0.25)
    penalty = np.diag(data.ridge)
    gram, bound, joint = (CURVATURES[name](data)(indifferent) for name in ("gram", "bound", "joint"))
    np.testing.assert_allclose(bound[0] - penalty, (gram[0] - penalty) / 2, rtol=1e-12)
    separate = np.kron(np.eye(4), bound[0])
    assert len(joint) == 1
    assert np.linalg.eigvalsh(separate - joint[0]).min() > -1e-12
    assert np.linalg.eigvalsh(separate - joint[0]).max() > 0.01


def test_gauss_newton_is_each_classs_block_of_the_hessian():
    generator = np.random.default_rng(1)
    data = TrainingSet.build(generator.normal(size=(25, 3)), generator.integers(0, 3, 25), 3, 0.05)
    weights = generator.normal(size=(4, 3))
    matrices = CURVATURES["gauss_newton"](data)(evaluate(data, weights).probabilities)
    for index in range(3):

        def slope(column, index=index):
            moved = weights.copy()
            moved[:, index] = column
            return gradient(data, moved, evaluate(data, moved).probabilities)[index]

        numerical = approx_fprime(weights[:, index], slope, 1e-7)
        np.testing.assert_allclose(matrices[index], numerical, atol=1e-5)  # forward differences of step 1e-7


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


def test_a_constant_curvature_is_made_sparse_once():
    data = TrainingSet.build(np.random.default_rng(0).normal(size=(9, 3)), np.arange(9) % 3, 3, 0.1)
    at = sparse(CURVATURES["bound"], 2)(data)
    assert at(np.zeros((3, 9))) is at(np.ones((3, 9)))
    assert at(np.zeros((3, 9)))[0] is at(np.zeros((3, 9)))[2]
