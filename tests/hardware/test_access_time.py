"""Access time against D-Wave's own estimate, made by a solver object of dwave-cloud-client."""

import pytest
from dwave.cloud.solver import StructuredSolver
from dwave.cloud.testing.mocks import qpu_pegasus_solver_data, qpu_problem_timing_data

from annealfit._support.errors import SamplerError
from annealfit.hardware.feasibility import published_device
from annealfit.hardware.limits import Device, published_timing
from annealfit.hardware.topologies import ideal_chip


@pytest.fixture(scope="module")
def device():
    return published_device(ideal_chip("P16"))


@pytest.fixture(scope="module")
def solver():
    data = qpu_pegasus_solver_data(3)
    data["properties"]["problem_timing_data"] = qpu_problem_timing_data("advantage")
    return StructuredSolver(client=None, data=data)


def test_it_is_the_number_that_dwave_prints_for_all_qubits_of_advantage_system4(device):
    """`estimate_qpu_access_time` documents 42657 µs for its 5,627 qubits and 100 reads; 42640 µs were measured."""
    assert round(device.access_seconds(5_627, 100) * 1e6) == 42_657


@pytest.mark.parametrize("qubits", [1, 57, 570, 1828, 5640])
@pytest.mark.parametrize("reads", [1, 100, 10_000])
@pytest.mark.parametrize("parameters", [{}, {"annealing_time": 200.0}, {"reduce_intersample_correlation": True}])
def test_it_is_dwaves_estimate(device, solver, qubits, reads, parameters):
    expected = solver.estimate_qpu_access_time(qubits, num_reads=reads, **parameters) * 1e-6
    assert device.access_seconds(qubits, reads, **parameters) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("qubits", [57, 3730])
def test_reads_are_divided_evenly_among_as_few_calls_as_the_limit_of_duration_allows(device, qubits):
    calls = device.reads_of_calls(15_000, qubits, annealing_time=50.0)
    assert sum(calls) == 15_000
    assert max(calls) - min(calls) <= 1
    assert device.access_seconds(qubits, max(calls), annealing_time=50.0) <= 1.0
    assert device.access_seconds(qubits, -(-15_000 // (len(calls) - 1)), annealing_time=50.0) > 1.0
    assert device.reads_of_calls(10, qubits, 4) == [3, 3, 2, 2]
    assert len(device.reads_of_calls(20_001, qubits, annealing_time=0.5)) >= 3  # 10,000 are the most of a call


def test_a_device_that_takes_not_even_one_read(device):
    slow = Device(device.chip, device.timing, duration_limit_seconds=0.001)
    with pytest.raises(SamplerError, match="one read on P16 takes longer than a call may, 0.001 s"):
        slow.reads_of_calls(1, 57)


def test_timing_data_of_another_kind_is_refused(device):
    with pytest.raises(SamplerError, match="problem_timing_data"):
        Device(device.chip, {}).access_seconds(57, 100)
    with pytest.raises(SamplerError, match="timing model 9"):
        Device(device.chip, {**published_timing(), "version": "9.0"}).access_seconds(57, 100)
