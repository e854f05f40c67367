"""The rehearsal device refuses what a QPU refuses, bills as it does, disturbs coefficients and fails on demand."""

from __future__ import annotations

from collections import Counter

import dimod
import numpy as np
import pytest

pytest.importorskip("dwave.system")

import contextlib

from dwave.cloud.api.exceptions import ResourceLimitsExceededError
from dwave.system.coupling_groups import coupling_groups

from annealfit._support.errors import InvalidInputError
from annealfit.hardware.feasibility import published_device
from annealfit.hardware.topologies import ideal_chip
from annealfit.samplers import MockQPU
from annealfit.samplers.dwave.mock_qpu import FAULTS


@pytest.fixture(scope="module")
def device():
    return MockQPU("Z12")


def pair(device, field=0.0, coupling=-1.0):
    first, second = device.edgelist[0]
    return dimod.BinaryQuadraticModel({first: field, second: 0.0}, {(first, second): coupling}, 0.0, "SPIN")


@pytest.mark.parametrize(
    ("model", "parameters", "message"),
    [
        ({"coupling": 1.5}, {"auto_scale": False}, "J is 1.5; this solver takes -2 to 1"),
        ({"coupling": -2.5}, {"auto_scale": False}, "J is -2.5"),
        ({"field": 4.5}, {"auto_scale": False}, "h is 4.5; this solver takes -4 to 4"),
        ({}, {"num_reads": 0}, "num_reads is 0; .* at least 1 and at most 10000"),
        ({}, {"num_reads": 20_000}, "num_reads is 20000"),
        ({}, {"num_reads": 10_000, "annealing_time": 500}, "at most 1.0; ask for fewer reads"),
        ({}, {"annealing_time": 5000}, "annealing_time is 5000"),
        ({}, {"num_sweeps": 10}, "num_sweeps is not a parameter of this solver"),
    ],
)
def test_what_a_device_refuses(device, model, parameters, message):
    with pytest.raises(ValueError, match=message):
        device.sample(pair(device, **model), **parameters)


def test_a_qubit_takes_only_so_much_coupling():
    device = MockQPU("P16", field_noise=0, coupling_noise=0)
    assert device.properties["per_qubit_coupling_range"] == [-18.0, 15.0]
    assert "per_group_coupling_range" not in device.properties
    qubit = max(device.adjacency, key=lambda q: len(device.adjacency[q]))
    model = dimod.BinaryQuadraticModel({}, {(qubit, other): -2.0 for other in device.adjacency[qubit]}, 0.0, "SPIN")
    with pytest.raises(ValueError, match="the sum of the couplings of one qubit is -30; this solver takes -18 to 15"):
        device.sample(model, auto_scale=False)
    assert len(device.sample(model, num_reads=1)) == 1  # scaled, it fits
    assert device._scale(model, {}).get_quadratic(qubit, next(iter(device.adjacency[qubit]))) == pytest.approx(-1.2)
    fits = dimod.BinaryQuadraticModel({}, dict(list(model.quadratic.items())[:9]), 0.0, "SPIN")  # 9 × −2
    assert len(device.sample(fits, auto_scale=False)) == 1


def test_a_group_of_couplers_takes_only_so_much_on_an_advantage2(device):
    assert device.properties["per_group_coupling_range"] == [-13.0, 10.0]
    assert "per_qubit_coupling_range" not in device.properties
    largest = max(coupling_groups(device.to_networkx_graph()), key=len)
    assert len(largest) == 10
    model = dimod.BinaryQuadraticModel({}, dict.fromkeys(largest, -2.0), 0.0, "SPIN")
    with pytest.raises(ValueError, match="the sum of the couplings of one group is -20; this solver takes -13 to 10"):
        device.sample(model, auto_scale=False)
    assert device._scale(model, {}).get_quadratic(*largest[0]) == pytest.approx(-1.3)
    # The two groups of a qubit are summed apart: 20 couplers of −1 are two sums of −10.
    qubit = max(device.adjacency, key=lambda q: len(device.adjacency[q]))
    both = {(other, qubit): -1.0 for other in device.adjacency[qubit]}
    assert len(both) == 20
    assert len(device.sample(dimod.BinaryQuadraticModel({}, both, 0.0, "SPIN"), auto_scale=False)) == 1


def test_a_model_off_the_graph_is_refused(device):
    with pytest.raises(dimod.exceptions.BinaryQuadraticModelStructureError):
        device.sample(dimod.BinaryQuadraticModel({}, {(0, 999_999): 1.0}, 0.0, "SPIN"))


def test_scaling_is_the_devices_when_asked_for():
    quiet = MockQPU("Z12", field_noise=0, coupling_noise=0)
    answer = quiet.sample(pair(quiet, coupling=-1000.0), num_reads=5)
    assert answer.first.energy == -1000.0


def test_energies_are_those_of_the_problem_that_was_asked(device):
    model = pair(device, field=0.3)
    answer = device.sample(model, num_reads=20, auto_scale=False)
    np.testing.assert_allclose(answer.record.energy, model.energies(answer))


def test_noise_has_the_size_that_was_published():
    device = MockQPU("Z12")
    model = dimod.BinaryQuadraticModel(
        dict.fromkeys(device.nodelist, 0.5), dict.fromkeys(device.edgelist, 0.5), 0.0, "SPIN"
    )
    disturbed = device._disturb(model, np.random.default_rng(0))
    fields = np.array([disturbed.linear[q] - 0.5 for q in device.nodelist])
    couplings = np.array([disturbed.get_quadratic(*e) - 0.5 for e in device.edgelist])
    # The standard deviation of a sample of n is known to about 1/√(2n): 1 % and 0.3 % here.
    assert fields.std() == pytest.approx(0.025, rel=0.05)
    assert couplings.std() == pytest.approx(0.015, rel=0.02)
    assert abs(couplings.mean()) < 5 * 0.015 / np.sqrt(len(couplings))


def test_strong_noise_changes_answers_and_none_does_not():
    # A field of 0.2 decides an otherwise free spin, unless noise is larger than it.
    share = {}
    for noise in (0.0, 0.5):
        device = MockQPU("Z12", field_noise=noise, seed=1)
        qubit = device.nodelist[0]
        model = dimod.BinaryQuadraticModel({qubit: 0.2}, {}, 0.0, "SPIN")
        share[noise] = np.mean([device.sample(model, auto_scale=False).first.sample[qubit] == -1 for _ in range(60)])
    assert share[0.0] > 0.95
    assert share[0.5] < 0.85


def test_timing_is_dwaves_estimate(device):
    answer = device.sample(pair(device), num_reads=50, annealing_time=100)
    expected = published_device(ideal_chip("Z12")).access_seconds(2, 50, annealing_time=100)
    assert answer.info["timing"]["qpu_access_time"] == pytest.approx(expected * 1e6)
    longer = device.sample(pair(device), num_reads=100, annealing_time=100)
    assert longer.info["timing"]["qpu_access_time"] > answer.info["timing"]["qpu_access_time"]


@pytest.mark.parametrize(
    ("fault", "error"),
    [("timeout", TimeoutError), ("connection", ConnectionError), ("refused", ResourceLimitsExceededError)],
)
def test_faults_that_are_raised(fault, error):
    device = MockQPU("Z12", faults={fault: 1.0})
    with pytest.raises(error):
        device.sample(pair(device))
    assert device.injected == [fault]


def test_fewer_reads_and_broken_chains_come_back_as_answers():
    short = MockQPU("Z12", faults={"fewer_reads": 1.0})
    assert short.sample(pair(short), num_reads=10).record.num_occurrences.sum() == 5
    broken = MockQPU("Z12", faults={"broken_chains": 1.0})
    states = broken.sample(pair(broken), num_reads=100).record.sample
    assert 0.2 < (states[:, 0] != states[:, 1]).mean() < 0.8  # ferromagnetic, so never apart on a sound device


def test_faults_come_at_their_rate_and_are_kept():
    device = MockQPU("Z12", faults=0.5, seed=3)
    for _ in range(200):
        with contextlib.suppress(OSError):
            device.sample(pair(device))
    counts = Counter(device.injected)
    assert set(counts) == set(FAULTS)
    assert 70 < sum(counts.values()) < 130  # 100 expected, ± 4 standard deviations


def test_the_same_seed_is_the_same_device():
    def run():
        device = MockQPU("Z12", faults={"fewer_reads": 0.3}, seed=5)
        return [
            device.sample(pair(device, field=0.1, coupling=0.05), num_reads=4).record.sample.tolist() for _ in range(5)
        ]

    assert run() == run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"faults": {"gremlins": 0.1}}, "fault is 'gremlins'; choose one of"),
        ({"faults": 2.0}, "faults is 2.0; .* at most 1"),
        ({"faults": -0.1}, "faults is -0.1"),
        ({"faults": {"timeout": 0.7, "refused": 0.7}}, "add up to 1.4"),
        ({"topology": "K5000"}, "topology is 'K5000'"),
        ({"field_noise": -1}, "field_noise is -1"),
        ({"defects": 2}, "defect rate is 2"),
    ],
)
def test_settings_that_make_no_device(options, message):
    with pytest.raises(InvalidInputError, match=message):
        MockQPU(**options)


def test_defects_are_missing_from_the_graph():
    device = MockQPU("Z12", defects=0.05, seed=2)
    assert 4400 < len(device.nodelist) < 4700
    assert set(device.properties["qubits"]) == set(device.nodelist)
