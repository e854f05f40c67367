"""A curvature of blocks is the curvature of the matrix that has them along its diagonal."""

import numpy as np
import pytest
import scipy.linalg
from random_problems import random_problem

from annealfit.problems.bounds import TIGHT, relax
from annealfit.problems.curvature import BlockCurvature, Curvature
from annealfit.problems.problem import Problems
from annealfit.samplers import ExactSolver, LevelAnnealer, RoundedSampler, SimulatedAnnealer

SIZES = (3, 1, 4)


@pytest.fixture
def curvatures():
    parts = [random_problem(seed, size, bits=1).shared_curvature for seed, size in enumerate(SIZES)]
    return BlockCurvature(parts), Curvature(scipy.linalg.block_diag(*(part.matrix for part in parts)))


def test_everything_that_is_known_of_it(curvatures):
    blocks, whole = curvatures
    values = np.random.default_rng(0).normal(size=(5, sum(SIZES)))
    assert blocks.size == whole.size
    assert blocks.is_convex
    assert whole.is_convex
    for name in ("matrix", "diagonal", "row_sums", "row_norms", "largest_coupling", "inverse", "factor"):
        np.testing.assert_allclose(getattr(blocks, name), getattr(whole, name), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(blocks.times(values), whole.times(values), rtol=1e-12)
    np.testing.assert_allclose(blocks.solve(values), whole.solve(values), rtol=1e-7)
    np.testing.assert_allclose(blocks.energies(values, values[::-1]), whole.energies(values, values[::-1]), rtol=1e-12)
    assert not BlockCurvature([*(part for _, part in blocks.blocks), Curvature([[-1.0]])]).is_convex
    with pytest.raises(ValueError, match="read-only"):
        blocks.matrix[0, 0] = 1.0


def test_problems_are_the_same_ones(curvatures):
    """Bounds and minima over the box, and the optimum, which the default sampler finds too."""
    gradients = np.random.default_rng(1).normal(size=(4, sum(SIZES)))
    blocks, whole = (Problems((curvature,), gradients, np.linspace(0.2, 1.5, 4), bits=2) for curvature in curvatures)
    for found, expected in zip(relax(blocks, **TIGHT), relax(whole, **TIGHT), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # the gap at which both stop
    lowest = [answer.best_energy for answer in ExactSolver().solve(whole, range(4))]
    for sampler in (ExactSolver(), LevelAnnealer(num_reads=8), SimulatedAnnealer(num_reads=16)):
        answers = sampler.solve(blocks, range(4))
        np.testing.assert_allclose([answer.best_energy for answer in answers], lowest, rtol=1e-9)
    rounded = [[a.best_energy for a in RoundedSampler().solve(given, range(4))] for given in (blocks, whole)]
    np.testing.assert_allclose(*rounded, rtol=1e-9)
