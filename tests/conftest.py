"""Fixtures shared by the tests: small real data, and random problems of every shape."""

from __future__ import annotations

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before SciPy is loaded: one of scikit-learn's checks asks for it

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from annealfit import RandomConvFeatures, load_dataset
from annealfit.encoding import Encoding
from annealfit.problem import QuadraticProblem

# Fixed examples: a red test is red again on the next run. No deadline, because machines differ.
settings.register_profile(
    "annealfit",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("annealfit")


def random_problem(seed: int, n_parameters: int, bits: int, range_: float = 0.5) -> QuadraticProblem:
    """A convex problem like those of training: G from correlated features, g of the same scale."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(3 * n_parameters, n_parameters)) + generator.normal(size=(3 * n_parameters, 1))
    curvature = features.T @ features / len(features)
    gradient = generator.normal(size=n_parameters) * curvature.diagonal() * range_
    return QuadraticProblem(curvature, gradient, Encoding(bits, range_))


@st.composite
def problems(draw: st.DrawFn, max_variables: int = 60) -> QuadraticProblem:
    bits = draw(st.integers(1, min(20, max_variables)))
    n_parameters = draw(st.integers(1, max(1, max_variables // bits)))
    range_ = draw(st.floats(1e-6, 1e3))
    return random_problem(draw(st.integers(0, 2**32)), n_parameters, bits, range_)


@pytest.fixture(scope="session")
def digits_features() -> tuple[np.ndarray, np.ndarray]:
    data = load_dataset("digits", seed=42)
    return RandomConvFeatures(random_state=42).fit_transform(data.X_train), data.y_train


@pytest.fixture(scope="session")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(7)
    centres = generator.normal(size=(3, 4)) * 2
    labels = np.repeat(np.arange(3), 20)
    return centres[labels] + generator.normal(size=(60, 4)), labels
