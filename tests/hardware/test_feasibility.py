"""What fits, what it costs, and what is said where it does not."""

import math

import pytest
from dwave.system.testing import MockDWaveSampler

from annealfit._support.errors import InvalidInputError, SamplerError
from annealfit.hardware.chip import Chip
from annealfit.hardware.feasibility import Workload, assess, published_device
from annealfit.hardware.limits import ADVANTAGE, Device, DeviceRanges, device_of_solver, published_timing
from annealfit.hardware.topologies import ideal_chip


@pytest.fixture(scope="module")
def papers_rows():
    """The paper's problems, 1 to 20 bits at d = 18, one class at a time."""
    devices = {name: published_device(ideal_chip(name)) for name in ("P16", "Z12", "Z15")}
    return {
        (name, bits): assess(Workload(features=18, classes=1, bits=bits), device)
        for name, device in devices.items()
        for bits in range(1, 21)
    }


def test_sizes_are_the_papers(papers_rows):
    row = papers_rows["P16", 15]
    assert (row.variables, row.couplings) == (285, 40_470)
    assert (papers_rows["P16", 20].variables, papers_rows["P16", 20].couplings) == (380, 72_010)
    assert all(row.couplings == row.variables * (row.variables - 1) // 2 for row in papers_rows.values())


@pytest.mark.parametrize(("name", "most"), [("P16", 9), ("Z12", 9), ("Z15", 12)])
def test_the_papers_bits_embed_as_far_as_the_cliques_reach(papers_rows, name, most):
    """Ten bits embed neither on Advantage nor on Advantage2; the fifteen that the paper recommends on none."""
    assert [bits for bits in range(1, 21) if papers_rows[name, bits].embeds] == list(range(1, most + 1))
    assert {row.most_bits for (chip, _), row in papers_rows.items() if chip == name} == {most}
    assert not papers_rows[name, 15].embeds


@pytest.mark.parametrize(("name", "longest"), [("P16", [3, 5, 7, 10]), ("Z12", [3, 4, 6, 8]), ("Z15", [3, 4, 6, 8])])
def test_chains_are_the_known_ones(papers_rows, name, longest):
    placements = [papers_rows[name, bits].placement for bits in (1, 2, 3, 5)]
    assert [placement.longest_chain for placement in placements] == longest
    at_three_bits = papers_rows["P16", 3].placement
    assert (at_three_bits.shortest_chain, at_three_bits.longest_chain) == (6, 7)
    assert at_three_bits.qubits_of_a_class == 381 == at_three_bits.qubits_of_a_call


def test_what_does_not_embed_has_no_placement_and_no_cost(papers_rows):
    row = papers_rows["P16", 10]
    assert (row.embeds, row.placement, row.cost) == (False, None, None)


def test_where_no_number_of_bits_fits():
    device = published_device(ideal_chip("Z12"))
    assert assess(Workload(features=512, classes=10, bits=2), device).most_bits == 0
    bare = Chip("bare", ideal_chip("Z12").graph.subgraph([0, 1, 2]).copy())
    nothing = assess(Workload(features=18, classes=10, bits=2), Device(bare, published_timing()))
    assert nothing.largest_clique < 2
    assert nothing.most_bits == 0


def test_bits_are_capped_by_the_encoding_not_by_the_chip():
    assert assess(Workload(1, 1, 1), published_device(ideal_chip("P16"))).most_bits == 30


def test_a_call_holds_all_classes_side_by_side_at_two_bits():
    device = published_device(ideal_chip("P16"))
    row = assess(Workload(features=18, classes=10, bits=2, reads=100, iterations=200), device)
    placement, cost = row.placement, row.cost
    assert placement.classes_at_once == 10
    assert placement.qubits_of_a_call >= 10 * placement.qubits_of_a_class
    assert (cost.calls_of_an_iteration, cost.calls, cost.reads_of_a_call) == (1, 200, 100)
    expected = device.access_seconds(placement.qubits_of_a_call, 100)
    assert cost.access_seconds_of_a_call == expected
    assert cost.access_seconds == 200 * expected


def test_classes_that_do_not_fit_at_once_take_more_calls():
    row = assess(Workload(features=18, classes=10, bits=9, iterations=3), published_device(ideal_chip("P16")))
    assert row.placement.classes_at_once == 1
    assert (row.cost.calls_of_an_iteration, row.cost.calls) == (10, 30)


@pytest.mark.parametrize("reads", [3_000, 4_000, 25_000])
def test_reads_are_split_where_a_call_would_take_longer_than_the_limit(reads):
    device = published_device(ideal_chip("Z12"))
    row = assess(Workload(features=18, classes=2, bits=1, reads=reads, iterations=1), device)
    cost = row.cost
    assert cost.reads_of_a_call * cost.calls >= reads
    assert cost.access_seconds_of_a_call <= 1
    one_fewer = math.ceil(reads / (cost.calls - 1)) if cost.calls > 1 else None
    if one_fewer is not None:  # so fewer calls would not do
        qubits = row.placement.qubits_of_a_call
        assert device.access_seconds(qubits, one_fewer) > 1


def test_a_longer_anneal_costs_more_and_must_be_within_the_devices_range():
    device = published_device(ideal_chip("Z12"))
    usual, longer = (
        assess(Workload(18, 2, 1, annealing_microseconds=time), device).cost.access_seconds_of_a_call
        for time in (None, 120.0)
    )
    assert longer - usual == pytest.approx(100 * (120 - 20) * 1e-6)
    for time in (0.1, 5_000):
        with pytest.raises(InvalidInputError, match=r"annealing time .* at least 0.5 and at most 2000"):
            assess(Workload(18, 2, 1, annealing_microseconds=time), device)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bits": 0}, "bits is 0; it must be a whole number, at least 1 and at most 30"),
        ({"bits": 31}, "at most 30"),
        ({"features": 0}, "features is 0"),
        ({"classes": 0}, "classes is 0"),
        ({"reads": 0}, "reads is 0"),
        ({"iterations": -1}, "iterations is -1"),
        ({"annealing_microseconds": 0}, "annealing time is 0"),
    ],
)
def test_workloads_out_of_limits_are_refused(wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        Workload(**{"features": 18, "classes": 10, "bits": 3, **wrong})


@pytest.fixture(scope="module")
def properties():
    return MockDWaveSampler(topology_type="zephyr", topology_shape=[3, 4]).properties


def test_a_solvers_own_limits_are_used(properties):
    own = {
        **properties,
        "h_range": [-3.0, 3.0],
        "extended_j_range": [-1.5, 1.0],
        "problem_timing_data": {**published_timing(), "typical_programming_time": 500_000.0},
        "problem_run_duration_range": [0.0, 600_000.0],
        "num_reads_range": [1, 50],
        "annealing_time_range": [1.0, 100.0],
    }
    device = device_of_solver(own)
    assert device.assumed == ()
    assert device.ranges == DeviceRanges(field=3.0, coupling=1.0, chain=1.5)
    cost = assess(Workload(features=4, classes=2, bits=2, reads=100, iterations=1), device).cost
    assert cost.calls == 2
    assert cost.reads_of_a_call == 50
    assert 0.5 < cost.access_seconds_of_a_call <= 0.6
    with pytest.raises(InvalidInputError, match="at most 100"):
        assess(Workload(4, 2, 2, annealing_microseconds=200), device)


def test_what_a_solver_does_not_publish_is_assumed_and_named(properties):
    """MockDWaveSampler's problem_timing_data is None."""
    device = device_of_solver(properties)
    assert device.assumed == ("problem_timing_data",)
    assert device.timing == published_timing()
    bare = {key: properties[key] for key in ("topology", "qubits", "couplers")}
    device = device_of_solver(bare)
    assert len(device.assumed) == 7
    assert device.ranges == ADVANTAGE
    assert device.duration_limit_seconds == 1


def test_limits_of_the_wrong_kind_are_refused(properties):
    for wrong in ({"h_range": 4}, {"num_reads_range": [1]}, {"annealing_time_range": ["fast", "slow"]}):
        with pytest.raises(InvalidInputError, match="limits in solver.json cannot be read"):
            device_of_solver({**properties, **wrong}, "solver.json")


def test_a_device_too_slow_for_one_read_is_refused(properties):
    device = device_of_solver({**properties, "problem_run_duration_range": [0, 1000.0]})
    with pytest.raises(SamplerError, match="one read on MockDWaveSampler takes longer than a call may, 0.001 s"):
        assess(Workload(4, 2, 2), device)
