import numpy as np
import pytest
from hypothesis import given
from random_problems import problems, random_problem

from annealfit._support.errors import InvalidInputError
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import QuadraticProblem
from annealfit.studies.paper_tables import paper_table


@given(problems())
def test_energy_is_twice_the_surrogate(problem):
    bits = np.random.default_rng(0).integers(0, 2, size=(4, problem.n_variables))
    update = problem.decode(bits)
    surrogate = [0.5 * u @ problem.curvature @ u + problem.gradient @ u for u in update]
    np.testing.assert_allclose(problem.energy(bits), 2 * np.array(surrogate), rtol=1e-9, atol=1e-12)


def test_flat_and_folded_bits_are_the_same():
    problem = random_problem(0, 3, 4)
    bits = np.random.default_rng(1).integers(0, 2, size=(5, 3, 4))
    np.testing.assert_array_equal(problem.energy(bits), problem.energy(bits.reshape(5, 12)))
    assert isinstance(problem.energy(bits[0]), float)


def test_table_of_qubo_sizes():
    """The paper's table, from problems of its size (d = 18)."""
    rows = paper_table("qubo_size")
    assert len(rows) == 4
    for row in rows:
        problem = random_problem(0, 19, int(row["bits"]))
        assert problem.n_variables == int(row["logical_variables"])
        assert problem.n_couplings == int(row["quadratic_terms"])


@given(problems(max_variables=24))
def test_couplings_counted_are_the_exports(problem):
    assert problem.n_couplings == problem.to_bqm().num_interactions


def test_sharing_a_curvature_keeps_the_energy():
    problem = random_problem(3, 5, 2)
    gradient, encoding = np.arange(5.0), Encoding(2, 0.1)
    shared, anew = (
        QuadraticProblem(problem.shared_curvature, gradient, encoding),
        QuadraticProblem(problem.curvature, gradient, encoding),
    )
    bits = np.ones(10, dtype=int)
    assert shared.curvature is problem.curvature
    assert shared.energy(bits) == anew.energy(bits)


@pytest.mark.parametrize(
    ("curvature", "gradient", "message"),
    [
        ([[1.0, 0.5], [0.2, 1.0]], [0.0, 0.0], "transpose"),
        ([[np.nan]], [0.0], "NaN or infinity"),
        ([[1.0]], [np.inf], "NaN or infinity"),
        ([[1.0]], [0.0, 0.0], "shape"),
        ([[]], [], "shape"),
        ([1.0], [0.0], "dimensions"),
        ([[1.0], [2.0, 3.0]], [0.0], "not an array of numbers"),
    ],
)
def test_bad_problems_are_refused(curvature, gradient, message):
    with pytest.raises(InvalidInputError, match=message):
        QuadraticProblem(curvature, gradient, Encoding(1, 0.5))


@pytest.mark.parametrize("bits", [[0, 2, 0, 0], [0.5, 0, 0, 0], [-1, 1, 1, 1], [0, 1], [[0], [1]]])
def test_what_is_not_bits_is_refused(bits):
    with pytest.raises(InvalidInputError, match="bits"):
        random_problem(0, 2, 2).energy(bits)


def test_the_old_name_of_the_shared_curvature_warns():
    problem = QuadraticProblem([[2.0]], [1.0], Encoding(1, 0.5))
    with pytest.warns(FutureWarning, match="shared_curvature"):
        assert problem.metric is problem.shared_curvature
