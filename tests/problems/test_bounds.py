import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_problems import problems
from scipy.optimize import minimize

from annealfit import AnnealedClassifier
from annealfit._support.errors import InvalidInputError
from annealfit.problems.bounds import box_minimum, lower_bounds
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import ExactSolver, Sampler, SimulatedAnnealer


@settings(max_examples=300)
@given(problems(max_variables=12))
def test_no_state_lies_below_the_bound(problem):
    exact = ExactSolver().sample(problem).best_energy
    assert problem.lower_bound() <= exact
    assert lower_bounds([problem], tight=True)[0] <= exact


@settings(max_examples=100)
@given(problems(max_variables=12), st.floats(1e-3, 1e3))
def test_nor_does_any_point_of_the_box(problem, stretch):
    """Also with a gradient so large that all of the box's corners are in play."""
    problem = QuadraticProblem(problem.shared_curvature, problem.gradient * stretch, problem.encoding)
    delta = problem.encoding.range
    points = np.random.default_rng(0).uniform(-delta, delta, size=(500, problem.n_parameters))
    assert problem.lower_bound() <= problem.energy_of_update(np.vstack([points, np.sign(points) * delta])).min()


@given(problems(max_variables=40))
def test_the_bound_is_tight_on_the_box(problem):
    """scipy's L-BFGS-B finds the same continuous minimum: the bound lies just below it."""
    delta = problem.encoding.range
    found = minimize(
        problem.energy_of_update,
        np.zeros(problem.n_parameters),
        jac=lambda u: 2 * (problem.curvature @ u + problem.gradient),
        bounds=[(-delta, delta)] * problem.n_parameters,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-12},
    )
    scale = abs(found.fun)
    # 1e-3: the bound's coordinate descent stops after 30 sweeps, however ill-conditioned the problem
    assert problem.lower_bound() >= found.fun - 1e-3 * scale
    assert problem.energy_of_update(box_minimum(problem)) <= found.fun + 1e-3 * scale


def test_flat_directions_are_bounded_too():
    problem = QuadraticProblem(np.zeros((2, 2)), [1.0, 0.0], Encoding(1, 0.5))
    np.testing.assert_allclose(problem.lower_bound(), -1.0, rtol=1e-12)


def test_late_in_a_training_the_tight_bound_is_nearer(digits_features):
    taken = []
    sampler = Watching(taken)
    AnnealedClassifier(max_iter=21, tol=0, sampler=sampler, random_state=5).fit(*digits_features)
    late = taken[-1]
    quick, tight = lower_bounds(late).sum(), lower_bounds(late, tight=True).sum()
    continuous = sum(problem.energy_of_update(box_minimum(problem)) for problem in late)
    assert quick < tight <= continuous  # all negative
    assert tight > 1.01 * continuous


class Watching(Sampler):
    def __init__(self, taken):
        self.taken = taken

    def solve(self, problems, seeds):
        self.taken.append(problems)
        return SimulatedAnnealer().solve(problems, seeds)


def test_one_bound_per_problem():
    many = [QuadraticProblem([[1.0]], [g], Encoding(1, 1.0)) for g in (-0.5, 0.0, 2.0)]
    np.testing.assert_allclose(lower_bounds(many), [-0.25, 0.0, -3.0], atol=1e-9)


@pytest.mark.parametrize("curvature", [[[-1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
def test_a_problem_that_is_not_convex_has_no_bound(curvature):
    with pytest.raises(InvalidInputError, match="negative eigenvalue"):
        QuadraticProblem(curvature, [0.0, 0.0], Encoding(2, 1.0)).lower_bound()


def test_the_minimum_of_what_bends_down_is_at_a_corner():
    problem = QuadraticProblem(-np.eye(2), [0.0, 0.0], Encoding(2, 1.0))
    assert np.abs(box_minimum(problem)).tolist() == [1.0, 1.0]
    assert lower_bounds([problem]).tolist() == [-np.inf]


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_singular_and_badly_scaled_curvatures_are_bounded_too(seed):
    generator = np.random.default_rng(seed)
    size = int(generator.integers(2, 6))
    rank = int(generator.integers(0, size))
    factors = generator.normal(size=(size, rank)) * 10.0 ** generator.uniform(-4, 4, size=(size, 1))
    gradient = generator.normal(size=size) * generator.integers(0, 2, size=size) * 10.0 ** generator.uniform(-4, 4)
    problem = QuadraticProblem(factors @ factors.T, gradient, Encoding(2, 10.0 ** generator.uniform(-3, 3)))
    exact = ExactSolver().sample(problem).best_energy
    assert problem.lower_bound() <= exact + 1e-12 * abs(exact)
