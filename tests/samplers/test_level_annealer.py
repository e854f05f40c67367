"""The heat bath over levels: its chain, its distribution, and what it finds."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from random_problems import random_problem
from scipy import stats

from annealfit._support.errors import InvalidInputError
from annealfit.problems.curvature import Curvature
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import ExactSolver, LatticeSolver, LevelAnnealer
from annealfit.samplers.native import _levels

sys.path.insert(0, str(Path(__file__).parent.parent / "equivalence"))
import reference_levels as reference


def lanes(seed, size, bits, count=5):
    generator = np.random.default_rng(seed)
    data = generator.normal(size=(2 * size, size))
    curvature = data.T @ data / (2 * size)
    top = 2**bits - 1
    spacings = generator.uniform(0.5, 2.0, count) / top
    levels = generator.integers(0, top + 1, size=(count, size))
    seeds = generator.integers(0, 2**63, size=count, dtype=np.uint64)
    return curvature, generator.normal(size=(count, size)), spacings, top, levels, seeds


@pytest.mark.parametrize(("size", "bits", "coldest"), [(2, 1, 3), (9, 2, 30), (19, 3, 300), (7, 4, 1e4), (12, 6, 1e6)])
def test_the_kernel_is_the_reference_draw_for_draw(size, bits, coldest):
    curvature, gradients, spacings, top, levels, seeds = lanes(size, size, bits)
    betas = np.geomspace(1.0, coldest, 6)[:, None] / (spacings**2 * top)
    expected = reference.anneal(curvature, gradients, spacings, top, betas, levels, seeds)
    fields = ((levels - top / 2) * spacings[:, None]) @ curvature + gradients
    counters = np.zeros(len(seeds), dtype=np.uint64)
    _levels.anneal_levels(*Curvature(curvature).packed, spacings, top, betas, levels, fields, seeds, counters)
    np.testing.assert_array_equal(levels, expected)
    np.testing.assert_array_equal(counters, 6 * size)
    np.testing.assert_allclose(fields, ((levels - top / 2) * spacings[:, None]) @ curvature + gradients, atol=1e-12)


@pytest.mark.parametrize(
    ("curvature", "bits"),
    [([[1.0, 0.6], [0.6, 0.8]], 2), ([[1.0, 0.5], [0.5, 1.0]], 1), ([[-1.0, 0.5], [0.5, 0.0]], 2)],
)
def test_it_samples_boltzmanns_distribution_exactly(curvature, bits):
    """χ² of 20,000 reads at one temperature against all states' weights; fails by chance once in 10,000 runs."""
    problem = QuadraticProblem(curvature, [0.3, -0.2], Encoding(bits, 1.0))
    reads, beta = 20_000, 1.5
    sampler = LevelAnnealer(60, reads, "random", polish=False, beta_schedule_type="custom", beta_schedule=[beta] * 60)
    bits_found = sampler.sample(problem, seed=3).bits
    states = np.array(list(itertools.product([0, 1], repeat=problem.n_variables))).reshape(-1, 2, bits)
    weights = np.exp(-beta * problem.energy(states))
    codes = bits_found.reshape(reads, -1) @ (1 << np.arange(problem.n_variables))
    expected_codes = states.reshape(len(states), -1) @ (1 << np.arange(problem.n_variables))
    counts = np.array([(codes == code).sum() for code in expected_codes])
    assert stats.chisquare(counts, reads * weights / weights.sum()).pvalue > 1e-4


@pytest.mark.parametrize("centre", [-300.0, -0.5, 3.2, 500.0, 1400.0])
@pytest.mark.parametrize("width", [20.0, 200.0, 5000.0])
def test_wide_gaussians_are_cut_to_the_box_and_rounded(centre, width):
    """Mean and variance of 4,000 draws against those of the discretised Gaussian, to 5 standard errors."""
    top, count = 1023, 4000
    sharpness = 0.5 / width**2
    seeds, counters = np.array([7], dtype=np.uint64), np.zeros(1, dtype=np.uint64)
    draws = np.array([_levels._wide_draw(centre, sharpness, top, seeds, counters, 0) for _ in range(count)])
    levels = np.arange(top + 1)
    exponents = -sharpness * (levels - centre) ** 2
    weights = np.exp(exponents - exponents.max())
    weights /= weights.sum()
    mean = weights @ levels
    deviation = np.sqrt(weights @ (levels - mean) ** 2)
    assert abs(draws.mean() - mean) < 5 * deviation / np.sqrt(count) + 0.01
    assert draws.std() == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("start", ["relaxation", "random"])
@pytest.mark.parametrize("bits", [1, 2, 3])
def test_it_finds_the_ground_state_of_small_problems(bits, start):
    for seed in range(20):
        problem = random_problem(seed, 18 // (3 * bits), bits)
        best = ExactSolver().sample(problem).best_energy
        found = LevelAnnealer(num_sweeps=30, num_reads=10, start=start).sample(problem, seed=seed).best_energy
        np.testing.assert_allclose(found, best, rtol=1e-9, atol=1e-12)


def test_it_comes_close_to_the_proven_optimum_with_many_bits():
    problem = random_problem(5, 8, 12)
    truth = LatticeSolver().sample(problem)
    found = LevelAnnealer(num_sweeps=200, num_reads=5).sample(problem, seed=1)
    assert truth.best_energy <= found.best_energy + 1e-9 * abs(truth.best_energy)
    assert found.best_energy <= truth.best_energy + 1e-4 * abs(truth.best_energy)


def is_settled_over_pairs(problem, bits):
    """Whether no move of one parameter by a level, nor of two, lowers the energy."""
    count, top = problem.encoding.bits, problem.encoding.levels - 1
    levels, energy = bits @ (1 << np.arange(count)), problem.energy(bits)
    for i, j in itertools.combinations(range(problem.n_parameters), 2):
        for change in itertools.product([-1, 0, 1], repeat=2):
            moved = levels.copy()
            moved[[i, j]] += change
            is_there = moved.min() >= 0 and moved.max() <= top
            if is_there and problem.energy((moved[:, None] >> np.arange(count)) & 1) < energy - 1e-12:
                return False
    return True


@pytest.mark.parametrize("seed", range(8))
def test_a_polished_read_is_a_minimum_over_one_parameter_and_over_pairs(seed):
    problem = random_problem(seed, 6, 2)
    read = LevelAnnealer(num_sweeps=0, start="random").sample(problem, seed=4)
    assert is_settled_over_pairs(problem, read.bits[0])
    rough = LevelAnnealer(num_sweeps=0, start="random", polish=False).sample(problem, seed=4)
    assert rough.best_energy > read.best_energy


@pytest.mark.parametrize("seed", range(60))
def test_where_the_energy_bends_down_no_other_level_of_one_parameter_is_better(seed):
    generator = np.random.default_rng(seed)
    size, bits = int(generator.integers(2, 7)), int(generator.integers(1, 4))
    curvature = generator.normal(size=(size, size))
    problem = QuadraticProblem(curvature + curvature.T, generator.normal(size=size), Encoding(bits, 1.0))
    reads = LevelAnnealer(num_reads=10, start="random").sample(problem, seed=seed)
    levels = reads.bits @ (1 << np.arange(bits))
    for parameter, level in itertools.product(range(size), range(1 << bits)):
        moved = levels.copy()
        moved[:, parameter] = level
        assert (problem.energy((moved[..., None] >> np.arange(bits)) & 1) >= reads.energies - 1e-12).all()


def test_chains_of_moves_leave_few_local_minima():
    """From random levels without any annealing: the proven optimum in most reads, where pairs reach few of them."""
    hits, best_by_pairs = [], []
    for seed in range(10):
        problem = random_problem(seed, 12, 3)
        truth = LatticeSolver().sample(problem)
        assert truth.info["proven"]
        reads = LevelAnnealer(num_sweeps=0, num_reads=50, start="random").sample(problem, seed=seed)
        hits.append(np.isclose(reads.energies, truth.best_energy, rtol=1e-9, atol=1e-12).mean())
        assert (reads.energies >= truth.best_energy - 1e-9 * abs(truth.best_energy)).all()
        best_by_pairs.append(is_settled_over_pairs(problem, reads.bits[0]))
    assert np.mean(hits) > 0.8
    assert all(best_by_pairs)


def test_results_do_not_depend_on_threads_or_on_the_company():
    problems = [random_problem(seed, 7, 3) for seed in range(3)]
    alone = LevelAnnealer(num_reads=30, num_threads=1).solve(problems, [1, 2, 3])
    threads = LevelAnnealer(num_reads=30, num_threads=2).solve(problems[::-1], [3, 2, 1])[::-1]
    for one, other in zip(alone, threads, strict=True):
        np.testing.assert_array_equal(one.bits, other.bits)
    assert len(np.unique(LevelAnnealer(num_sweeps=1, num_reads=20, start="random", polish=False)
                         .sample(problems[0]).energies)) > 5  # fmt: skip


def test_it_ends_early_when_asked_to():
    problem = random_problem(1, 5, 2)
    assert LevelAnnealer(num_sweeps=1000, interrupt_function=lambda: True).sample(problem).info["num_sweeps"] == 0
    asked = iter([False, True])
    sampler = LevelAnnealer(num_sweeps=1000, interrupt_function=lambda: next(asked))
    assert 0 < sampler.sample(problem).info["num_sweeps"] < 1000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_reads": 0}, "num_reads is 0"),
        ({"start": "warm"}, "start is 'warm'; choose one of 'random', 'relaxation'"),
        ({"num_sweeps": -1}, "num_sweeps"),
        ({"time_limit": 0}, "time_limit"),
    ],
)
def test_settings_out_of_bounds(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        LevelAnnealer(**settings)
