import dimod
import numpy as np
import pytest
from hypothesis import given, settings
from random_problems import problems, random_problem

from annealfit._support.errors import InvalidInputError
from annealfit.samplers import ExactSolver
from annealfit.samplers.native import exact


@settings(max_examples=60)
@given(problems(max_variables=12))
def test_the_minimum_is_dimods(problem):
    samples = ExactSolver().sample(problem)
    expected = dimod.ExactSolver().sample(problem.to_bqm()).first.energy
    matrix, offset = problem.to_qubo()
    assert samples.best_energy == pytest.approx(expected, rel=1e-9, abs=1e-9 * (np.abs(matrix).sum() + abs(offset)))


def test_chunks_do_not_change_the_answer(monkeypatch):
    problem = random_problem(4, 5, 2)
    whole = ExactSolver().sample(problem)
    monkeypatch.setattr(exact, "_CHUNK", 7)
    np.testing.assert_array_equal(ExactSolver().sample(problem).bits, whole.bits)


def test_too_many_variables_are_refused_with_a_remedy():
    with pytest.raises(InvalidInputError, match=r"2\^25 states; the limit is 24.*SimulatedAnnealer"):
        ExactSolver().sample(random_problem(0, 5, 5))
