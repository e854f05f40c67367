"""The annealer over levels: its distribution, what it finds, and what it returns when time is short."""

import itertools
import time

import numpy as np
import pytest
from random_problems import random_problem
from scipy import stats

from annealfit._support.errors import InvalidInputError
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import ExactSolver, LatticeSolver, LevelAnnealer
from annealfit.samplers.native import _levels, levels
from annealfit.samplers.native.levels import LevelChains


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


def test_limits_that_are_not_reached_change_nothing():
    problem = random_problem(2, 20, 3)
    settings = {"num_sweeps": 100, "num_reads": 20, "start": "random"}
    plain = LevelAnnealer(**settings).sample(problem, seed=4)
    limited = LevelAnnealer(time_limit=1000.0, interrupt_function=lambda: False, **settings).sample(problem, seed=4)
    np.testing.assert_array_equal(limited.bits, plain.bits)


def hot(problem, **settings):
    """An anneal that starts cold, and would leave all good states if nothing ended it."""
    return LevelAnnealer(num_reads=8, beta_range=(1e4, 1e-6), **settings).sample(problem, seed=1)


@pytest.mark.parametrize("size", [30, 150])
@pytest.mark.parametrize("groups", [0, 1, 3])
def test_an_interrupt_returns_the_best_states_polished(size, groups):
    problem, calls = random_problem(3, size, 3), []

    def interrupt():
        calls.append(1)
        return len(calls) > groups

    found = hot(problem, num_sweeps=3200, interrupt_function=interrupt)
    assert found.info["num_sweeps"] == 32 * groups
    np.testing.assert_allclose(found.energies, problem.energy(found.bits), rtol=1e-9)
    start = LevelAnnealer(num_sweeps=0, polish=False).sample(problem).best_energy
    assert (found.energies <= start + 1e-9 * abs(start)).all()
    assert all(is_settled(problem, bits) for bits in found.bits)
    rough = hot(problem, num_sweeps=3200, interrupt_function=iter([False] * groups + [True]).__next__, polish=False)
    assert (found.energies <= rough.energies + 1e-9 * abs(start)).all()
    assert (rough.energies <= start + 1e-9 * abs(start)).all()  # the best seen, not where the chain is


def is_settled(problem, bits):
    """Whether no other level of one parameter lowers the energy."""
    count = problem.encoding.bits
    levels, energy = bits @ (1 << np.arange(count)), problem.energy(bits)
    for parameter in range(problem.n_parameters):
        moved = np.repeat(levels[None], 1 << count, axis=0)
        moved[:, parameter] = np.arange(1 << count)
        if (problem.energy((moved[..., None] >> np.arange(count)) & 1) < energy - 1e-9 * abs(energy)).any():
            return False
    return True


@pytest.mark.parametrize("size", [30, 150])
def test_a_time_limit_returns_the_best_states_polished(size):
    """Ten million sweeps would take hours; the limit leaves time to polish, so that every read is a local minimum."""
    problem = random_problem(4, size, 3)
    LevelAnnealer().prepare()
    found = hot(problem, num_sweeps=10_000_000, time_limit=1.0)
    assert 0 < found.info["num_sweeps"] < 10_000_000
    np.testing.assert_allclose(found.energies, problem.energy(found.bits), rtol=1e-9)
    start = LevelAnnealer(num_sweeps=0).sample(problem).best_energy
    assert (found.energies <= start + 1e-9 * abs(start)).all()
    assert all(is_settled(problem, bits) for bits in found.bits)


def test_a_limit_that_has_passed_gives_the_start():
    """Nothing is annealed or polished, and nothing is worse than the rounded relaxation."""
    problem = random_problem(5, 40, 3)
    found = LevelAnnealer(num_reads=3, time_limit=1e-9, num_sweeps=100).sample(problem)
    assert found.info["num_sweeps"] == 0
    start = LevelAnnealer(num_reads=3, num_sweeps=0, polish=False).sample(problem)
    np.testing.assert_array_equal(found.bits, start.bits)


def test_polishing_that_is_cut_short_is_no_worse_than_the_best_state_seen(monkeypatch):
    """The clock says that all time has passed as soon as annealing has ended: polishing gets none."""
    problem = random_problem(6, 25, 2)
    sampler = LevelAnnealer(num_sweeps=64, num_reads=6, beta_range=(1e4, 1e-6), time_limit=100.0)
    clock, sweep = [0.0], LevelAnnealer._sweep

    def slow_sweep(*arguments):
        done = sweep(*arguments)
        clock[0] = 200.0
        return done

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(LevelAnnealer, "_sweep", slow_sweep)
    found = sampler.sample(problem, seed=2)
    monkeypatch.undo()
    assert found.info["num_sweeps"] == 64
    last = LevelAnnealer(num_sweeps=64, num_reads=6, beta_range=(1e4, 1e-6), polish=False).sample(problem, seed=2)
    start = LevelAnnealer(num_sweeps=0, polish=False).sample(problem).best_energy
    assert (last.energies > start).any()  # where the chain ended
    assert (found.energies <= np.minimum(last.energies, start) + 1e-9 * abs(start)).all()


def test_the_clock_starts_before_the_start_is_computed(monkeypatch):
    """A relaxation that takes the whole limit leaves no time: nothing is annealed, and the start is the answer."""
    problem, clock, first_levels = random_problem(7, 30, 3), [0.0], LevelAnnealer._first_levels

    def slow(*arguments):
        clock[0] += 60.0
        return first_levels(*arguments)

    start = LevelAnnealer(num_sweeps=0, polish=False).sample(problem)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(LevelAnnealer, "_first_levels", slow)
    found = LevelAnnealer(num_sweeps=10_000_000, time_limit=50.0).sample(problem)
    assert found.info["num_sweeps"] == 0
    np.testing.assert_array_equal(found.bits, start.bits)


def test_the_time_of_the_last_energies_is_kept_free(monkeypatch):
    """Annealing and polishing end earlier by the time of the products of the curvature that follow them."""
    seconds, now = [], iter(range(0, 1000, 10))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(now)))  # every product takes 10 s
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    flag_after = levels.flag_after

    def recorded(limit):
        seconds.append(limit)
        return flag_after(limit)

    monkeypatch.setattr(levels, "flag_after", recorded)
    LevelAnnealer(time_limit=100.0).sample(random_problem(8, 10, 2))
    assert seconds == pytest.approx([0.75 * 80.0, 80.0])


@pytest.mark.parametrize("kernel", ["anneal", "polish"])
def test_a_flag_stops_a_kernel_before_it_moves_another_parameter(kernel):
    """The flag is read for every parameter, of every lane and block: once it is set nothing moves."""
    problem = random_problem(9, 40, 3)
    start = np.zeros((20, 40), dtype=np.int64)
    gradients, spacings = np.repeat(problem.gradient[None], 20, axis=0), np.full((20, 40), 0.1)
    chains = LevelChains(
        problem.shared_curvature, gradients, spacings, -3.5, 7, start, np.arange(20, dtype=np.uint64), num_threads=1
    )
    stop = np.ones(1, dtype=np.uint8)
    if kernel == "anneal":
        assert chains.anneal(np.ones((5, 20)), stop) == 0
    else:
        chains.polish(stop)
    np.testing.assert_array_equal(chains.levels, start)
    chains.polish()
    assert (chains.levels != start).any()


def test_problems_of_several_curvatures_share_the_time():
    problems = [random_problem(seed, 30, 3) for seed in range(3)]
    answers = LevelAnnealer(num_sweeps=10_000_000, time_limit=0.6).solve(problems, [1, 2, 3])
    assert all(0 < answer.info["num_sweeps"] < 10_000_000 for answer in answers)


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
