"""Random problems of every shape, for the tests of many rooms."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem


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
