"""`AnnealedClassifier.from_paper` is `annealfit.paper.train`, Algorithm 1 on one screen, bit for bit."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine

import annealfit.paper
from annealfit import AnnealedClassifier, Encoding, QuadraticProblem
from annealfit.problems.curvature import Curvature

PRESETS = ("literal", "matched")


def random_rows(n_features, n_rows, n_classes=4):
    generator = np.random.default_rng(n_features)
    y = generator.integers(0, n_classes, n_rows)
    return generator.standard_normal((n_rows, n_features)) + generator.standard_normal((n_classes, n_features))[y], y


@pytest.fixture(scope="module")
def tables(digits_features):
    iris, species = load_iris(return_X_y=True)
    return {
        "digits": digits_features,
        "iris": (iris, np.array(["setosa", "versicolor", "virginica"])[species]),
        "wine": load_wine(return_X_y=True),
        "30 features": random_rows(30, 500),
        "150 features": random_rows(150, 4000),  # single-precision products are for other methods
        "4000 rows": random_rows(30, 4000),
    }


def weights_of(clf):
    return np.vstack([clf.coef_.T, clf.intercept_])


def both(X, y, preset, bits, iterations, seed, num_sweeps=100):
    """The weights of the estimator and those of the algorithm."""
    clf = AnnealedClassifier.from_paper(bits, preset=preset, num_sweeps=num_sweeps)
    clf.set_params(max_iter=iterations, random_state=seed).fit(X, y)
    final_beta = 3.0 if preset == "literal" else 3.0 * 2.0 ** (bits - 3)
    settings = {"bits": bits, "iterations": iterations, "final_beta": final_beta, "num_sweeps": num_sweeps}
    return weights_of(clf), annealfit.paper.train(X, y, seed=seed, **settings)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("name", "seed"), [("digits", 0), ("digits", 42), ("iris", 1), ("wine", 2), ("30 features", 3)]
)
@pytest.mark.parametrize("bits", [1, 5, 10, 20])
def test_from_paper_is_algorithm_1_bit_for_bit(tables, name, bits, preset, seed):
    found, expected = both(*tables[name], preset, bits, 50, seed)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("name", "bits", "iterations"), [("150 features", 5, 30), ("4000 rows", 10, 30)])
def test_the_same_with_many_features_and_many_rows(tables, name, bits, iterations, preset):
    found, expected = both(*tables[name], preset, bits, iterations, 7)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_same_with_1000_sweeps_as_in_the_study_of_digits(tables, preset):
    found, expected = both(*tables["digits"], preset, 10, 30, 42, num_sweeps=1000)
    np.testing.assert_array_equal(found, expected)


def test_the_words_are_the_presets_with_100_sweeps(tables):
    X, y = tables["iris"]
    for preset in PRESETS:
        clf = AnnealedClassifier(bits=5, method=preset, tol=0, patience=None, max_iter=30, random_state=4).fit(X, y)
        expected = AnnealedClassifier.from_paper(5, preset=preset).set_params(max_iter=30, random_state=4).fit(X, y)
        np.testing.assert_array_equal(weights_of(clf), weights_of(expected))


def test_presets_seeds_bits_and_sweeps_differ(tables):
    """Equality above is not that of constants."""
    X, y = tables["iris"]
    runs = [("literal", 5, 0, 100), ("matched", 5, 0, 100), ("literal", 5, 1, 100), ("literal", 6, 0, 100)]
    found = [both(X, y, preset, bits, 10, seed, sweeps)[0] for preset, bits, seed, sweeps in runs]
    assert len({weights.tobytes() for weights in found}) == len(runs)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["iris", "150 features", "4000 rows"])
def test_a_memory_map_of_the_rows_gives_the_same_weights(tables, tmp_path, name, preset):
    X, y = tables[name]
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    fits = [
        AnnealedClassifier.from_paper(5, preset=preset).set_params(max_iter=30, random_state=3).fit(rows, y)
        for rows in (X, mapped)
    ]
    np.testing.assert_allclose(*map(weights_of, fits), rtol=1e-12, atol=1e-12)


def test_a_resumed_training_of_the_paper_is_the_same(tables, tmp_path):
    X, y = tables["digits"]
    clf = AnnealedClassifier.from_paper(10, preset="matched").set_params(max_iter=20, random_state=5)
    expected = weights_of(clf.fit(X, y))
    path = tmp_path / "half.safetensors"
    clf.set_params(max_iter=9, checkpoint=path).fit(X, y)
    clf.set_params(max_iter=20, checkpoint__resume=True).fit(X, y)
    np.testing.assert_array_equal(weights_of(clf), expected)


@pytest.mark.parametrize("bits", [1, 4, 10])
def test_the_qubo_of_a_class_is_that_of_equations_18_and_19(bits):
    """`Q = 4PᵀGP` and `q = 4Pᵀ(g − δG1)` with the levels `u = P(2b − 1)`, `p_k = δ·2^k/(2^K − 1)`."""
    generator = np.random.default_rng(bits)
    size, half_range = 4, 0.5
    X, g = generator.normal(size=(20, size)), generator.normal(size=size)
    G = X.T @ X / 20 + np.diag([1e-3] * (size - 1) + [0.0])
    problem = QuadraticProblem(Curvature(G), g, Encoding(bits, half_range))
    p = half_range * 2.0 ** np.arange(bits) / (2**bits - 1)
    P = np.kron(np.eye(size), p)
    matrix, offset = problem.to_qubo()
    expected = 4 * P.T @ G @ P + np.diag(4 * P.T @ (g - half_range * G.sum(axis=1)))
    symmetric = (matrix + matrix.T) / 2
    np.testing.assert_allclose(symmetric, (expected + expected.T) / 2, rtol=1e-12, atol=1e-14)
    # Its value is twice the surrogate `gᵀu + ½uᵀGu` of the update that the bits stand for.
    for b in generator.integers(0, 2, size=(20, size * bits)):
        u = P @ (2 * b - 1)
        np.testing.assert_allclose(problem.decode(b.reshape(size, bits)), u, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(b @ matrix @ b + offset, 2 * (g @ u + 0.5 * u @ G @ u), rtol=1e-9, atol=1e-12)
