"""Levels between two ends: the shifted problem's energies are those of the values, to a constant."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annealfit.problems.curvature import Curvature
from annealfit.problems.levels import Levels


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 6), st.floats(-3, 3), st.floats(0.1, 5))
def test_energies_and_constants(seed, bits, size, low, width):
    generator = np.random.default_rng(seed)
    matrix = generator.normal(size=(size, size))
    curvature, gradients = Curvature(matrix + matrix.T), generator.normal(size=(3, size))
    levels = Levels(low, low + width, bits)
    problems = levels.problems(curvature, gradients)
    states = generator.integers(0, 2, size=(3, size, bits)).astype(np.uint8)
    values = levels.decode(states)
    energies = [problem.energy(state) for problem, state in zip(problems, states, strict=True)]
    expected = curvature.energies(gradients, values)
    scale = (abs(low) + width) ** 2 * np.abs(curvature.matrix).sum() + 1  # sums of so much, in double precision
    np.testing.assert_allclose(energies + levels.constants(curvature, gradients), expected, atol=1e-13 * scale)
    np.testing.assert_array_equal(levels.encode(values), states)


def test_ends_are_exact():
    levels = Levels(0.0, 0.3, bits=3)
    assert levels.decode(np.array([[0, 0, 0], [1, 1, 1]], dtype=np.uint8)).tolist() == [0.0, pytest.approx(0.3, 1e-15)]


@pytest.mark.parametrize(("low", "high", "bits"), [(1, 1, 1), (1, 0, 1), (0, np.nan, 1), (0, 1, 0)])
def test_out_of_bounds(low, high, bits):
    with pytest.raises(ValueError, match="high|bits"):
        Levels(low, high, bits)
