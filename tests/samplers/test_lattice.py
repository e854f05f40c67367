"""The proven optimum: brute force agrees, no annealed read is below it, and what limits leave is said honestly."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from random_problems import random_problem

from annealfit import AnnealedClassifier
from annealfit._support.errors import InvalidInputError
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem, group_by_curvature
from annealfit.samplers import ExactSolver, LatticeSolver, SimulatedAnnealer
from annealfit.samplers.native import _lattice, lattice
from annealfit.samplers.native.lattice import Branching
from annealfit.studies.instances import best_known, find_instance, make_problem


def scale_of(problem):
    """What rounding is measured by: the sum of all absolute terms at a corner of the box."""
    width = problem.encoding.range
    return width**2 * np.abs(problem.curvature).sum() + 2 * width * np.abs(problem.gradient).sum()


def assert_is_the_optimum(problem, answer):
    exact = ExactSolver().sample(problem).best_energy
    assert answer.info["proven"]
    assert answer.info["gap"] == 0.0
    assert answer.info["lower_bound"] == answer.best_energy
    assert answer.best_energy == pytest.approx(exact, rel=0, abs=1e-11 * scale_of(problem))


def small_problem(seed, *, spread, rank_share=1.0):
    """Up to 12 variables of 1 to 5 bits; the range is anything from far below the Newton step to far above it."""
    generator = np.random.default_rng(seed)
    bits = int(generator.integers(1, 6))
    size = int(generator.integers(1, 12 // bits + 1))
    rows = generator.normal(size=(max(1, round(rank_share * size)), size)) * 10.0 ** generator.uniform(-spread, 0, size)
    gradient = rows.T @ generator.normal(size=len(rows)) * 10.0 ** generator.uniform(-2, 2)
    return QuadraticProblem(rows.T @ rows, gradient, Encoding(bits, 10.0 ** generator.uniform(-3, 2)))


@pytest.mark.parametrize("spread", [0.0, 2.0, 4.0], ids=["even", "uneven", "ill-conditioned"])
def test_it_is_what_brute_force_finds(spread):
    problems = [small_problem(seed, spread=spread) for seed in range(100)]
    for problem, answer in zip(problems, LatticeSolver().solve(problems, range(100)), strict=True):
        assert_is_the_optimum(problem, answer)


@pytest.mark.parametrize(("size", "bits"), [(20, 1), (10, 2), (6, 3), (5, 4), (4, 5), (1, 5), (1, 20)])
@pytest.mark.parametrize("range_", [1e-3, 0.5, 50.0])
def test_sizes_up_to_twenty_variables(size, bits, range_):
    problem = random_problem(size, size, bits, 0.5)
    problem = QuadraticProblem(problem.shared_curvature, problem.gradient, Encoding(bits, range_))
    assert_is_the_optimum(problem, LatticeSolver().sample(problem))


@pytest.mark.parametrize("seed", range(30))
def test_a_curvature_may_be_singular(seed):
    problem = small_problem(seed, spread=1.0, rank_share=0.5)
    assert_is_the_optimum(problem, LatticeSolver().sample(problem))
    tilted = QuadraticProblem(
        problem.shared_curvature, problem.gradient + 1.0, problem.encoding
    )  # no minimum without the box
    assert_is_the_optimum(tilted, LatticeSolver().sample(tilted))


@pytest.mark.parametrize("gradient", [0.0, 1.0])
def test_a_curvature_may_be_zero(gradient):
    problem = QuadraticProblem(np.zeros((4, 4)), np.full(4, gradient), Encoding(3, 0.5))
    assert_is_the_optimum(problem, LatticeSolver().sample(problem))


def test_ties_are_not_searched_one_by_one():
    answer = LatticeSolver().sample(QuadraticProblem(np.eye(60), np.zeros(60), Encoding(2, 1.0)))  # 2^60 optima
    assert answer.info["proven"]
    assert answer.info["nodes"] < 1000
    assert answer.best_energy == pytest.approx(60 / 9)
    whole = QuadraticProblem([[2.0, 1.0], [1.0, 2.0]], [0.0, 0.0], Encoding(3, 7.0))
    assert_is_the_optimum(whole, LatticeSolver().sample(whole))


@pytest.mark.parametrize("bits", range(1, 6))
def test_the_problems_of_a_training_are_proven(digits_features, bits):
    problems = AnnealedClassifier(bits=bits, random_state=42).problems(*digits_features)
    answers = LatticeSolver(time_limit=None).solve(problems, range(10))
    annealed = SimulatedAnnealer(num_reads=32).solve(problems, range(10))
    for problem, answer, reads in zip(problems, answers, annealed, strict=True):
        assert answer.info["proven"]
        assert answer.best_energy <= reads.energies.min() + 1e-12 * scale_of(problem)
        assert problem.lower_bound() <= answer.best_energy


@pytest.mark.parametrize(
    ("name", "nodes"), [("digits-d18-k10-raw-late-c0", 1000), ("digits-d72-k3-raw-late-c0", 20_000)]
)
def test_parameters_at_the_edge_of_the_box_cost_few_nodes(name, nodes):
    """The ball around the minimum over the box proves them; the one around the minimum without a box did not."""
    instance = find_instance(name)
    answer = LatticeSolver(time_limit=None, max_nodes=nodes).sample(make_problem(instance))
    assert answer.info["proven"]
    assert answer.best_energy <= best_known(instance).energy * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_the_ball_bound_holds_for_all_levels(seed):
    """Also where the first levels are far from the best, so that many parameters may leave the edge."""
    generator = np.random.default_rng(seed)
    problem = small_problem(seed, spread=2.0)
    branching, (_, group), *_ = Branching.of(problem.shared_curvature), *group_by_curvature([problem])
    top = problem.encoding.levels - 1
    best = 2.0 * generator.integers(0, top + 1, problem.n_parameters) - top
    shape, _, centres, energy = lattice._lattice_of(branching, group, best)
    for levels in itertools.product(range(-top, top + 1, 2), repeat=problem.n_parameters):
        z = np.array(levels, dtype=float)
        exact = z @ (shape.matrix @ z + 2 * shape.gradient)
        rows = z - centres + np.array([shape.pulls[k + 1 :, k] @ z[k + 1 :] for k in range(len(z))])
        ball = shape.weights @ rows**2 - shape.offset - shape.ball_error
        assert ball <= exact or exact >= energy


@pytest.fixture(scope="module")
def hard_problem():
    """Forty parameters, far from diagonal, nearly all inside the box: more than a few nodes."""
    generator = np.random.default_rng(3)
    features = generator.normal(size=(50, 40)) + 3 * generator.normal(size=(50, 1))
    return QuadraticProblem(features.T @ features / 50, generator.normal(size=40), Encoding(2, 3.0))


@pytest.fixture(scope="module")
def whole(hard_problem):
    answer = LatticeSolver(time_limit=None).sample(hard_problem)
    assert answer.info["proven"]
    assert answer.info["nodes"] > 2000
    return answer


@pytest.mark.parametrize("max_nodes", [1, 10, 100, 1000, 2000])
def test_a_search_that_ends_early_says_how_far_it_got(hard_problem, whole, max_nodes):
    answer = LatticeSolver(time_limit=None, max_nodes=max_nodes).sample(hard_problem)
    info = answer.info
    assert not info["proven"]
    assert info["nodes"] == max_nodes
    assert info["lower_bound"] <= whole.best_energy <= answer.best_energy
    assert info["gap"] == answer.best_energy - info["lower_bound"] > 0
    assert info["lower_bound"] >= hard_problem.lower_bound() - 1e-3 * abs(whole.best_energy)
    again = LatticeSolver(time_limit=None, max_nodes=max_nodes).sample(hard_problem)
    np.testing.assert_array_equal(again.bits, answer.bits)


def test_time_is_a_limit_too(hard_problem, whole):
    answer = LatticeSolver(time_limit=1e-9).sample(hard_problem)
    assert not answer.info["proven"]
    assert answer.info["lower_bound"] <= whole.best_energy <= answer.best_energy


@pytest.mark.parametrize("work", [1.0, 1e5])
def test_chunks_change_nothing(hard_problem, whole, monkeypatch, work):
    monkeypatch.setattr(lattice, "_WORK_PER_CHUNK", work)
    answer = LatticeSolver(time_limit=None).sample(hard_problem)
    np.testing.assert_array_equal(answer.bits, whole.bits)
    assert answer.info["nodes"] == whole.info["nodes"]


def test_an_interrupt_ends_all_searches(hard_problem, whole, monkeypatch):
    monkeypatch.setattr(lattice, "_WORK_PER_CHUNK", 1e5)
    answers = iter([False, False, True])
    solver = LatticeSolver(time_limit=None, num_threads=1, interrupt_function=lambda: next(answers))
    first, second = solver.solve([hard_problem] * 2, [0, 0])
    assert 0 < first.info["nodes"] < whole.info["nodes"]
    assert second.info["nodes"] == 0
    for answer in (first, second):
        assert not answer.info["proven"]
        assert answer.info["lower_bound"] <= whole.best_energy <= answer.best_energy


def test_threads_change_nothing():
    problems = [random_problem(seed, 12, 2) for seed in range(6)]
    seen = set()

    def watch() -> bool:
        seen.add(threading.get_ident())
        return False

    one, other = (
        LatticeSolver(time_limit=None, num_threads=threads, interrupt_function=watch).solve(problems, range(6))
        for threads in (1, 3)
    )
    assert len(seen) > 1
    for first, second in zip(one, other, strict=True):
        np.testing.assert_array_equal(first.bits, second.bits)
        assert first.info["nodes"] == second.info["nodes"]


def test_an_error_in_a_function_of_the_user_reaches_the_user(hard_problem):
    def broken() -> bool:
        raise RuntimeError("no more")

    for threads in (1, 2):
        with pytest.raises(RuntimeError, match="no more"):
            LatticeSolver(num_threads=threads, interrupt_function=broken).solve([hard_problem] * 3, range(3))


def test_a_curvature_that_is_not_convex_is_refused():
    problem = QuadraticProblem([[1.0, 2.0], [2.0, 1.0]], [0.0, 1.0], Encoding(1, 0.5))
    with pytest.raises(InvalidInputError, match=r"negative eigenvalue.*use SimulatedAnnealer"):
        LatticeSolver().sample(problem)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"time_limit": 0}, "time_limit is 0"),
        ({"max_nodes": 0}, "max_nodes is 0"),
        ({"max_nodes": 1.5}, "max_nodes is 1.5"),
        ({"num_threads": 0}, "num_threads is 0"),
        ({"interrupt_function": 3}, "interrupt_function is 3; it must be callable"),
        ({"interrupt_function": "x"}, "interrupt_function is 'x'; it must be callable"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        LatticeSolver(**settings)


@pytest.mark.parametrize("seed", range(20))
def test_no_level_is_below_the_level_bound(seed):
    """At any point, for any part of the parameters; and never below the certificate of the box."""
    problem = random_problem(seed, 6, 2, 1.0)
    branching, generator = Branching.of(problem.shared_curvature), np.random.default_rng(seed)
    states = np.array(np.meshgrid(*[[-3.0, -1.0, 1.0, 3.0]] * 6)).reshape(6, -1).T
    for size in range(1, 7):
        part, lift = branching.matrix[:size, :size], branching.lifts[size, :size]
        assert (lift >= 0).all()
        assert np.linalg.eigvalsh(part - np.diag(lift))[0] > -1e-12
        field, x = generator.normal(size=6) * 3, generator.uniform(-3, 3, size=6)
        levels = states[:, :size]
        energies = np.vecdot(levels @ part + 2 * field[:size], levels)
        shape = _lattice.Lattice(branching.matrix, field, branching.lifts, *np.empty((2, 6)), 3.0, 0.0, 0.0, 0.0, 0.0)
        bound = _lattice.raise_bound(shape, size, field, x, np.empty(6), np.inf)
        assert bound <= energies.min() + 1e-9
        assert bound >= energies.min() - 3 * np.trace(part)  # and not far below either
