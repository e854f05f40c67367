"""GreedyDescent against the same descent in plain Python, and its local minima."""

import numpy as np
import pytest
from random_problems import random_problem

from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import Problems
from annealfit.samplers import GreedyDescent, LatticeSolver


def plain(problem):
    """The descent, by the energies of all moves."""
    levels, top = np.zeros(problem.n_parameters, dtype=int), problem.encoding.levels - 1

    def energies(states):
        return problem.energy((states[..., None] >> np.arange(problem.encoding.bits)) & 1)

    while True:
        moves = np.repeat(levels[None], problem.n_parameters * (top + 1), axis=0)
        for j in range(problem.n_parameters):
            moves[j * (top + 1) : (j + 1) * (top + 1), j] = np.arange(top + 1)
        found = energies(moves)
        if found.min() >= energies(levels) - 1e-9 * np.abs(found).max():
            return levels
        levels = moves[found.argmin()]


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_the_descent_is_the_plain_one(bits):
    for seed in range(10):
        problem = random_problem(seed, 6, bits)
        levels = GreedyDescent().sample(problem).best_bits @ (1 << np.arange(bits))
        np.testing.assert_array_equal(levels, plain(problem))


def test_chains_are_as_good_or_better_and_often_optimal():
    gaps = []
    for seed in range(20):
        problem = random_problem(seed, 12, 1)
        first, second = GreedyDescent().sample(problem), GreedyDescent(chains=True).sample(problem)
        best = LatticeSolver().sample(problem).best_energy
        assert best - 1e-9 <= second.best_energy <= first.best_energy + 1e-9
        gaps.append(second.best_energy - best)
    assert np.mean(np.array(gaps) < 1e-9) > 0.5


def test_ranges_and_threads_and_company_change_nothing():
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(30, 20))
    curvature, gradients = Curvature(matrix.T @ matrix), generator.normal(size=(600, 20)) * 30
    ranges = np.where(np.arange(600) % 3, 0.5, 2.0)
    together = GreedyDescent(num_threads=2).solve(Problems((curvature,), gradients, ranges, 2), [0] * 600)
    for place in (0, 1, 255, 256, 599):
        alone = GreedyDescent().sample(Problems((curvature,), gradients, ranges, 2)[place])
        np.testing.assert_array_equal(alone.bits, together[place].bits)
        assert alone.best_energy == pytest.approx(together[place].best_energy, rel=1e-12)


def test_concave_problems_end_at_corners():
    curvature = Curvature([[-1.0, 0.2], [0.2, -1.0]])
    (answer,) = GreedyDescent().solve(Problems((curvature,), np.array([[0.3, -0.3]]), np.ones(1), 3), [0])
    assert answer.bits.tolist() == [[[0, 0, 0], [1, 1, 1]]]


def test_bad_threads():
    with pytest.raises(ValueError, match="num_threads is 0"):
        GreedyDescent(num_threads=0)
