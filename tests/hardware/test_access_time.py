"""Access time against D-Wave's own estimate, made by a solver object of dwave-cloud-client."""

import pytest
from dwave.cloud.solver import StructuredSolver
from dwave.cloud.testing.mocks import qpu_pegasus_solver_data, qpu_problem_timing_data

from annealfit._support.errors import SamplerError
from annealfit.hardware.limits import access_seconds, most_reads, published_timing


@pytest.fixture(scope="module")
def solver():
    data = qpu_pegasus_solver_data(3)
    data["properties"]["problem_timing_data"] = qpu_problem_timing_data("advantage")
    return StructuredSolver(client=None, data=data)


def test_it_is_the_number_that_dwave_prints_for_all_qubits_of_advantage_system4():
    """`estimate_qpu_access_time` documents 42657 µs for its 5,627 qubits and 100 reads; 42640 µs were measured."""
    assert round(access_seconds(published_timing(), 5_627, 100) * 1e6) == 42_657


@pytest.mark.parametrize("qubits", [1, 57, 570, 1828, 5640])
@pytest.mark.parametrize("reads", [1, 100, 10_000])
@pytest.mark.parametrize("parameters", [{}, {"annealing_time": 200.0}, {"reduce_intersample_correlation": True}])
def test_it_is_dwaves_estimate(solver, qubits, reads, parameters):
    expected = solver.estimate_qpu_access_time(qubits, num_reads=reads, **parameters) * 1e-6
    assert access_seconds(published_timing(), qubits, reads, **parameters) == pytest.approx(expected, rel=1e-12)


def test_most_reads_is_the_last_number_within_the_limit():
    timing = published_timing()
    for qubits in (57, 3730):
        most = most_reads(timing, 1.0, qubits, annealing_time=50.0)
        assert access_seconds(timing, qubits, most, annealing_time=50.0) <= 1.0
        assert access_seconds(timing, qubits, most + 1, annealing_time=50.0) > 1.0
    assert most_reads(timing, 0.001, 57) == 0


def test_timing_data_of_another_kind_is_refused():
    with pytest.raises(SamplerError, match="problem_timing_data"):
        access_seconds({}, 57, 100)
    with pytest.raises(SamplerError, match="timing model 9"):
        access_seconds({**published_timing(), "version": "9.0"}, 57, 100)
