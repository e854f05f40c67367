"""BinarySparseCoding against its objective, brute force and codes that are known."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

from annealfit import BinarySparseCoding
from annealfit.samplers import DimodSampler, ExactSolver, GreedyDescent


@parametrize_with_checks([BinarySparseCoding(5, max_iter=3), BinarySparseCoding(3, 2, max_iter=1, sampler="levels")])
def test_every_check(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    return load_digits().data[:200]


def objective(x, dictionary, penalty, code):
    return ((x - code @ dictionary) ** 2).sum() + penalty * code.sum()


@pytest.mark.parametrize("bits", [1, 3])
def test_energy_is_the_objective(digits, bits):
    coding = BinarySparseCoding(6, bits, max_iter=2, random_state=0).fit(digits)
    states = np.random.default_rng(1).integers(0, 2, size=(10, 6 * bits))
    codes = states.reshape(10, 6, bits) @ (1 << np.arange(bits)) / (2**bits - 1)
    for row, problem in zip(digits[:5], coding.problems(digits[:5]), strict=True):
        values = np.array([objective(row, coding.components_, coding.penalty_, code) for code in codes])
        energies = problem.energy(states)
        np.testing.assert_allclose(energies - energies[0], values - values[0], atol=1e-9 * row @ row)


def test_exact_codes_are_brute_force(digits):
    coding = BinarySparseCoding(8, max_iter=4, sampler=ExactSolver(), random_state=0).fit(digits)
    every = (np.arange(2**8)[:, None] >> np.arange(8)) & 1
    for row, code in zip(digits[:20], coding.transform(digits[:20]), strict=True):
        values = [objective(row, coding.components_, coding.penalty_, each) for each in every]
        assert objective(row, coding.components_, coding.penalty_, code) == pytest.approx(min(values))
    # Codes are optimal and the dictionary is fitted by least squares, so no step can go up.
    assert (np.diff(coding.objective_) <= 1e-12).all()
    assert coding.objective_[-1] < 0.75 * coding.objective_[0]


def test_known_codes_are_found():
    generator = np.random.default_rng(0)
    dictionary = np.linalg.qr(generator.normal(size=(12, 12)))[0]
    codes = (generator.random((60, 12)) < 0.3).astype(float)
    coding = BinarySparseCoding(12, max_iter=0, sparsity=0.01).fit(codes @ dictionary)
    coding.components_ = dictionary
    np.testing.assert_array_equal(coding.transform(codes @ dictionary), codes)


def test_patches_are_coded_one_by_one(digits):
    images = digits.reshape(-1, 8, 8)
    coding = BinarySparseCoding(10, patch_size=3, stride=2, max_iter=2, random_state=0)
    found = coding.fit_transform(images).reshape(-1, 3, 3, 10)
    whole = BinarySparseCoding(10, max_iter=0).fit(images[:, :3, :3].reshape(-1, 9))
    whole.components_, whole.penalty_ = coding.components_, coding.penalty_
    for top, left in ((0, 0), (2, 4)):
        patch = images[:, top : top + 3, left : left + 3].reshape(-1, 9)
        alone = whole.transform(patch - patch.mean(axis=1, keepdims=True))
        np.testing.assert_array_equal(found[:, top // 2, left // 2], alone)
    np.testing.assert_array_equal(found.reshape(200, -1), coding.transform(digits))
    pooled = coding.set_params(pool=2).fit_transform(images).reshape(-1, 2, 2, 10)
    np.testing.assert_array_equal(pooled[:, 0, 0], found[:, 0, 0])
    np.testing.assert_array_equal(pooled[:, 1, 1], found[:, 1:, 1:].sum(axis=(1, 2)))
    single = coding.transform(digits.astype(np.float32))
    assert single.dtype == np.float32
    assert coding.n_variables_ == 10
    assert coding.n_solves_ == 2 * 200 * 9


def test_other_samplers_and_more_bits(digits):
    errors = []
    for bits, sampler in ((1, GreedyDescent(chains=True)), (3, None), (1, DimodSampler(num_sweeps=50))):
        coding = BinarySparseCoding(8, bits, max_iter=3, sparsity=0.0, sampler=sampler, random_state=0).fit(digits[:50])
        rest = digits[:50] - coding.transform(digits[:50]) @ coding.components_
        errors.append((rest**2).sum() / (digits[:50] ** 2).sum())
    assert max(errors) < 0.2
    assert errors[1] < errors[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 0}, "n_components is 0"),
        ({"sparsity": -1}, "sparsity is -1"),
        ({"bits": 0}, "bits"),
        ({"patch_size": 9}, "patch_size is 9"),
        ({"stride": 0}, "stride is 0"),
        ({"patch_size": 6, "pool": 4}, "pool is 4"),
    ],
)
def test_settings_out_of_bounds(digits, settings, message):
    with pytest.raises(ValueError, match=message):
        BinarySparseCoding(**settings).fit(digits)


def test_images_that_are_not_square():
    with pytest.raises(ValueError, match="no square image"):
        BinarySparseCoding(patch_size=2).fit(np.ones((3, 12)))
