"""A curvature of blocks, and of parameters alone, is that of the matrix that has them along its diagonal."""

import numpy as np
import pytest
import scipy.linalg
from random_problems import random_problem

from annealfit.problems.bounds import TIGHT, relax
from annealfit.problems.curvature import BlockCurvature, Curvature
from annealfit.problems.problem import Problems
from annealfit.samplers import ExactSolver, LevelAnnealer, RoundedSampler, SimulatedAnnealer


@pytest.fixture(params=["blocks", "parameters alone between blocks", "parameters alone"])
def curvatures(request):
    parts = [random_problem(seed, size, bits=1).shared_curvature for seed, size in enumerate((3, 1, 4))]
    whole = Curvature(scipy.linalg.block_diag(*(part.matrix for part in parts)))
    if request.param == "parameters alone between blocks":
        alone = np.array([0.5, 2.0])
        parts = [parts[1].diagonal, parts[0], alone, parts[1].diagonal, np.array([1.0])]
        whole = Curvature(scipy.linalg.block_diag(parts[0], parts[1].matrix, np.diag(alone), parts[3], 1.0))
    if request.param == "parameters alone":
        parts, whole = [whole.diagonal], Curvature(np.diag(whole.diagonal))
    return BlockCurvature(parts), whole


def test_everything_that_is_known_of_it(curvatures):
    blocks, whole = curvatures
    size = whole.size
    values = np.random.default_rng(0).normal(size=(5, size))
    assert blocks.size == whole.size
    assert blocks.is_convex
    assert whole.is_convex
    for name in ("matrix", "diagonal", "row_sums", "row_norms", "largest_coupling", "inverse", "factor"):
        np.testing.assert_allclose(getattr(blocks, name), getattr(whole, name), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(blocks.times(values), whole.times(values), rtol=1e-12)
    np.testing.assert_allclose(blocks.solve(values), whole.solve(values), rtol=1e-7)
    np.testing.assert_allclose(blocks.energies(values, values[::-1]), whole.energies(values, values[::-1]), rtol=1e-12)
    for concave in (Curvature([[-1.0]]), np.array([-1.0])):
        assert not BlockCurvature([*(part for _, part in blocks.blocks), concave]).is_convex
    with pytest.raises(ValueError, match="read-only"):
        blocks.matrix[0, 0] = 1.0


def test_problems_are_the_same_ones(curvatures):
    """Bounds and minima over the box, and the optimum, which the default sampler finds too."""
    gradients = np.random.default_rng(1).normal(size=(4, curvatures[1].size))
    blocks, whole = (Problems((curvature,), gradients, np.linspace(0.2, 1.5, 4), bits=2) for curvature in curvatures)
    for found, expected in zip(relax(blocks, **TIGHT), relax(whole, **TIGHT), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # the gap at which both stop
    lowest = [answer.best_energy for answer in ExactSolver().solve(whole, range(4))]
    annealers = LevelAnnealer(num_reads=8), LevelAnnealer(num_reads=8, start="random"), SimulatedAnnealer(num_reads=16)
    for sampler in (ExactSolver(), *annealers):
        answers = sampler.solve(blocks, range(4))
        np.testing.assert_allclose([answer.best_energy for answer in answers], lowest, rtol=1e-9)
    rounded = [[a.best_energy for a in RoundedSampler().solve(given, range(4))] for given in (blocks, whole)]
    np.testing.assert_allclose(*rounded, rtol=1e-9)


def test_parameters_alone_without_curvature_go_to_an_end_of_the_range():
    """Flat ones where their gradient leads; the bound holds for concave ones too, which have two ends to go to."""
    problems = Problems((BlockCurvature([np.array([0.0, 2.0])]),), np.array([[-1.0, 0.5]]), np.array([0.5]), bits=2)
    minima, bounds = relax(problems, **TIGHT)
    np.testing.assert_allclose(minima, [[0.5, -0.25]])
    assert LevelAnnealer().solve(problems, [0])[0].best_energy >= bounds[0]
    concave = Problems((BlockCurvature([np.array([-1.0])]),), np.array([[0.1]]), np.array([0.5]), bits=1)
    minima, bounds = relax(concave, **TIGHT)
    assert (minima.tolist(), bounds.tolist()) == ([[-0.5]], [-np.inf])
