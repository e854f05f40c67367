import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from random_problems import random_problem

from annealfit._support.errors import InvalidInputError
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import ExactSolver, SimulatedAnnealer
from annealfit.samplers.native import _kernel, annealer, annealing


def family(n_problems=10, parameters=7, bits=3):
    """Problems with one curvature and gradients and ranges of their own, as training makes them."""
    base = random_problem(0, parameters, bits)
    generator = np.random.default_rng(1)
    return [
        QuadraticProblem(base.shared_curvature, generator.normal(size=parameters), Encoding(bits, float(width)))
        for width in generator.uniform(1e-4, 2.0, size=n_problems)
    ]


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_small_problems_are_solved_exactly(bits):
    problem = random_problem(bits, 4, bits)
    found = SimulatedAnnealer(num_sweeps=1000, num_reads=16).sample(problem, seed=0)
    assert found.best_energy == pytest.approx(ExactSolver().sample(problem).best_energy, rel=1e-12)


def test_energies_are_the_problems_own():
    for problem, found in zip(family(), SimulatedAnnealer(num_reads=3).solve(family(), range(10)), strict=True):
        np.testing.assert_allclose(found.energies, problem.energy(found.bits), rtol=1e-9)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_results_do_not_depend_on_companions_order_or_threads(precision):
    problems, seeds = family(), list(range(100, 110))
    make = lambda threads: SimulatedAnnealer(num_sweeps=70, num_reads=5, precision=precision, num_threads=threads)  # noqa: E731
    together = make(1).solve(problems, seeds)
    two_threads = make(2).solve(problems, seeds)
    alone = [make(1).sample(problem, seed=seed) for problem, seed in zip(problems, seeds, strict=True)]
    backwards = make(1).solve(problems[::-1], seeds[::-1])[::-1]
    for reference, *others in zip(together, two_threads, alone, backwards, strict=True):
        for other in others:
            np.testing.assert_array_equal(other.bits, reference.bits)
            np.testing.assert_allclose(other.energies, reference.energies, rtol=1e-12)


def test_more_reads_begin_with_the_fewer():
    problem = random_problem(0, 6, 3)
    few, many = (SimulatedAnnealer(num_reads=reads).sample(problem, seed=3) for reads in (4, 40))
    np.testing.assert_array_equal(many.bits[:4], few.bits)


def test_seeds_decide():
    problem = random_problem(0, 10, 5)
    anneal = SimulatedAnnealer(num_sweeps=3, beta_range=(0.01, 0.1))
    np.testing.assert_array_equal(anneal.sample(problem, seed=1).bits, anneal.sample(problem, seed=1).bits)
    assert not np.array_equal(anneal.sample(problem, seed=1).bits, anneal.sample(problem, seed=2).bits)


def test_problems_of_several_curvatures_and_bits_at_once():
    problems = [random_problem(0, 4, 2), random_problem(1, 6, 3), random_problem(2, 4, 1)]
    found = SimulatedAnnealer(num_sweeps=500, num_reads=8).solve(problems, [1, 2, 3])
    for problem, samples in zip(problems, found, strict=True):
        assert samples.best_energy == pytest.approx(ExactSolver().sample(problem).best_energy, rel=1e-9)


@pytest.mark.parametrize("factor", [1e-120, 1e-30, 1e30, 1e120])
def test_any_scale_of_energy_and_range_anneals_alike(factor):
    """Single precision holds up to 1e38; the lanes are scaled by powers of two before they are rounded."""
    problem = random_problem(0, 5, 3)
    expected = SimulatedAnnealer(num_reads=4).sample(problem, seed=1)
    power = 2.0 ** np.round(np.log2(factor))
    scaled = QuadraticProblem(problem.curvature * power, problem.gradient * power, problem.encoding)
    np.testing.assert_array_equal(SimulatedAnnealer(num_reads=4).sample(scaled, seed=1).bits, expected.bits)


def test_the_default_temperatures_reach_the_resolution_of_the_encoding():
    """With one parameter the minimum is known. Half of all reads end within a level of it, one bit or eight.

    Not all, because between levels such as 0111 and 1000 single flips climb, and 100 sweeps are few.
    """
    for bits in (1, 2, 3, 5, 8):
        errors = []
        for minimum in np.linspace(-0.45, 0.45, 20):
            problem = QuadraticProblem([[1.0]], [-minimum], Encoding(bits, 0.5))
            found = SimulatedAnnealer(num_reads=20).sample(problem, seed=0)
            errors.extend(np.abs(problem.decode(found.bits) - minimum).ravel() / problem.encoding.resolution)
        assert np.median(errors) <= 2


def test_the_effective_schedule_and_timing_are_recorded():
    given = SimulatedAnnealer(num_sweeps=7, beta_range=(0.5, 2.0)).sample(random_problem(0, 3, 2))
    assert given.info["beta_range"] == (0.5, 2.0)
    assert given.info["num_sweeps"] == 7
    automatic = SimulatedAnnealer(num_sweeps=7).sample(random_problem(0, 3, 2))
    hot, cold = automatic.info["beta_range"]
    assert 0 < hot <= cold
    assert automatic.info["sampling_seconds"] > 0


def test_a_time_limit_ends_the_anneal_within_a_group_of_sweeps():
    problem = random_problem(0, 40, 5)
    started = time.monotonic()
    found = SimulatedAnnealer(num_sweeps=100_000_000, num_reads=3, time_limit=0.3).sample(problem)
    assert time.monotonic() - started < 60  # the whole anneal would take hours
    assert 0 < found.info["num_sweeps"] < 100_000_000
    assert found.info["num_sweeps"] % _kernel.SWEEPS_PER_GROUP == 0
    assert len(found.energies) == 3


def test_an_interrupt_returns_the_best_so_far():
    problem = random_problem(0, 20, 3)
    calls = []

    def interrupt():
        calls.append(1)
        return len(calls) > 3

    # heating up: early states are better than late ones
    settings = {"num_sweeps": 3200, "num_reads": 8, "beta_range": (1e4, 1e-4)}
    found = SimulatedAnnealer(interrupt_function=interrupt, **settings).sample(problem, seed=1)
    assert found.info["num_sweeps"] == 3 * _kernel.SWEEPS_PER_GROUP
    first = SimulatedAnnealer(num_sweeps=32, num_reads=8, beta_range=(1e4, 1e4)).sample(problem, seed=1)
    assert found.energies.mean() <= first.energies.mean() + 0.05 * abs(first.energies.mean())


def test_an_interrupt_function_that_says_no_changes_nothing():
    problem = random_problem(0, 8, 3)
    plain = SimulatedAnnealer(num_sweeps=100, num_reads=20).sample(problem, seed=4)
    watched = SimulatedAnnealer(num_sweeps=100, num_reads=20, interrupt_function=lambda: False).sample(problem, seed=4)
    np.testing.assert_array_equal(watched.bits, plain.bits)


def test_single_precision_does_not_drift():
    """After 20,000 sweeps the chain still knows its energies: single and double end equally low."""
    problem = random_problem(5, 30, 10)
    settings = {"num_sweeps": 20_000, "num_reads": 16, "beta_range": (1.0, 1e3)}
    single, double = (SimulatedAnnealer(precision=p, **settings).sample(problem, seed=1) for p in ("single", "double"))
    spread = double.energies.std() + 1e-6 * abs(double.energies.mean())
    assert abs(single.energies.mean() - double.energies.mean()) < 3 * spread


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_reads": 0}, "num_reads is 0; it must be a whole number, at least 1"),
        ({"num_sweeps": -1}, "num_sweeps is -1"),
        ({"num_sweeps": 10, "num_sweeps_per_beta": 3}, "multiple of num_sweeps_per_beta"),
        ({"beta_range": (0.0, 3.0)}, "above 0"),
        ({"beta_range": (1.0, np.inf)}, "finite"),
        ({"beta_range": 3.0}, r"pair \(hot, cold\)"),
        ({"beta_schedule_type": "cubic"}, "'custom', 'geometric', 'linear'"),
        ({"beta_schedule": [1.0]}, "only with it"),
        ({"beta_schedule_type": "custom"}, "only with it"),
        ({"beta_schedule_type": "custom", "beta_schedule": [1.0, 2.0]}, "num_sweeps must be 2, not 100"),
        ({"beta_schedule_type": "custom", "beta_schedule": [-1.0], "num_sweeps": 1}, "none below 0"),
        ({"precision": "half"}, "'double', 'single'"),
        ({"time_limit": 0}, "time_limit is 0"),
        ({"interrupt_function": 5}, "must be callable"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        SimulatedAnnealer(**settings)


def test_bad_thread_counts():
    with pytest.raises(InvalidInputError, match="num_threads is 0"):
        SimulatedAnnealer(num_threads=0).sample(random_problem(0, 2, 2))


def test_running_out_of_memory_is_an_error_with_a_remedy(monkeypatch):
    def no_memory(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(annealer.Lanes, "_advance", no_memory)
    with pytest.raises(InvalidInputError, match=r"7 lanes of 3 parameters needs more memory .* fewer reads"):
        SimulatedAnnealer(num_reads=7).sample(random_problem(0, 3, 2))


def test_an_all_zero_problem_is_answered():
    problem = QuadraticProblem(np.zeros((2, 2)), np.zeros(2), Encoding(2, 0.5))
    assert SimulatedAnnealer(normalize=True, beta_range=(0.1, 1.0)).sample(problem).best_energy == 0
    assert SimulatedAnnealer().sample(problem).best_energy == 0


def test_importing_compiles_nothing_and_does_not_load_numba():
    program = "import annealfit, annealfit.samplers, sys; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_first_use_says_why_it_takes_a_moment(tmp_path):
    program = (
        "from annealfit import Encoding, QuadraticProblem\n"
        "from annealfit.samplers import SimulatedAnnealer\n"
        "SimulatedAnnealer().sample(QuadraticProblem([[1.0]], [1.0], Encoding(1, 1.0)))\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert "Compiling code for this machine" in runs[0].stderr
    assert runs[1].stderr == ""  # compiled code is kept on disk


def test_as_many_threads_as_the_process_may_use_unless_told(monkeypatch):
    monkeypatch.setattr(annealing, "processors", lambda: 3)

    def threads_used(num_threads, count):
        barrier = threading.Barrier(min(num_threads or 3, count))  # all of them are needed at the same time

        def run(_):
            barrier.wait(timeout=60)
            return threading.get_ident()

        return len(set(annealing.in_threads(run, range(count), num_threads, annealing.new_flag())))

    assert [threads_used(1, 6), threads_used(None, 6), threads_used(None, 2), threads_used(2, 6)] == [1, 3, 2, 2]


def test_an_error_in_one_thread_asks_the_others_to_stop():
    stop = annealing.new_flag()

    def run(item):
        if item == 0:
            raise RuntimeError("no more")
        while not stop[0]:
            time.sleep(0.001)

    with pytest.raises(RuntimeError, match="no more"):
        annealing.in_threads(run, range(4), 2, stop)


@pytest.mark.parametrize("seed", [None, 1.5, "one"])
def test_seeds_that_are_not_whole_numbers(seed):
    with pytest.raises(InvalidInputError, match="whole numbers"):
        SimulatedAnnealer().sample(random_problem(0, 2, 2), seed=seed)


@pytest.mark.parametrize("shift", [0.5, 0.9, 2.0])
def test_problems_that_are_not_convex_are_cooled_too(shift):
    gaps = []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        factor = generator.normal(size=(5, 5))
        curvature = factor @ factor.T / 5 - shift * np.eye(5)
        problem = QuadraticProblem(curvature, generator.normal(size=5), Encoding(3, 0.5))
        best = ExactSolver().sample(problem).best_energy
        gaps.append(1 - SimulatedAnnealer(num_reads=1).sample(problem, seed=seed).best_energy / best)
    assert np.mean(gaps) < 0.03


def test_one_seed_for_each_problem():
    with pytest.raises(InvalidInputError, match="2 problems and 1 seeds"):
        SimulatedAnnealer().solve(family(2), [1])


def test_problems_of_several_curvatures_share_the_time():
    problems = [random_problem(seed, 30, 3) for seed in range(3)]
    found = SimulatedAnnealer(num_sweeps=10**9, time_limit=0.6).solve(problems, [1, 2, 3])
    assert all(0 < samples.info["num_sweeps"] < 10**9 for samples in found)
