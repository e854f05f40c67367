"""Chips by name and from solver properties; what is not a chip is refused."""

import json

import networkx
import pytest
from dwave.system.testing import MockDWaveSampler

from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit.hardware.topologies import chip_of_solver, chip_with_defects, ideal_chip, read_properties


@pytest.fixture(scope="module")
def solver():
    broken = [5, 17, 40]
    return MockDWaveSampler(topology_type="zephyr", topology_shape=[3, 4], broken_nodes=broken)


def test_a_chip_read_back_from_a_solvers_properties_is_the_solvers_graph(solver, tmp_path):
    path = tmp_path / "solver.json"
    path.write_text(json.dumps(solver.properties))
    chip = chip_of_solver(read_properties(path))
    assert networkx.utils.edges_equal(chip.graph.edges, solver.to_networkx_graph().edges)
    assert set(chip.graph.nodes) == set(solver.nodelist)
    assert chip.name == "MockDWaveSampler"
    assert chip.graph.graph["family"] == "zephyr"
    assert chip.largest_clique > 20
    assert read_properties(path) == json.loads(path.read_text())


@pytest.mark.parametrize("topology_type", ["pegasus", "chimera"])
def test_the_other_families_are_read_too(topology_type):
    solver = MockDWaveSampler(topology_type=topology_type)
    assert networkx.utils.edges_equal(chip_of_solver(solver.properties).graph.edges, solver.to_networkx_graph().edges)


@pytest.mark.parametrize(
    "wrong",
    [
        {"topology": {"type": "moebius", "shape": [3]}},
        {"topology": {"type": "zephyr", "shape": ["three"]}},
        {"topology": {"type": "zephyr"}},
        {"topology": None},
        {"qubits": [0, 999_999]},
        {"qubits": 7},
        {"couplers": [[0, 1, 2]]},
        {"couplers": [[0, 999]]},
        {"couplers": "none"},
    ],
)
def test_properties_that_describe_no_chip_are_refused(solver, wrong):
    with pytest.raises(InvalidInputError, match="needs topology"):
        chip_of_solver({**solver.properties, **wrong}, "solver.json")


def test_a_chip_without_qubits_is_refused(solver):
    with pytest.raises(InvalidInputError, match="no working qubit"):
        chip_of_solver({**solver.properties, "qubits": [], "couplers": []})


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "\x00"])
def test_a_file_that_is_not_json_of_a_mapping_is_refused(tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(FileFormatError, match="broken.json"):
        read_properties(path)


def test_an_unknown_name_or_a_rate_that_is_no_share_is_refused():
    with pytest.raises(InvalidInputError, match="'P16', 'Z12', 'Z15'"):
        ideal_chip("P99")
    for rate in (2, -0.1, float("nan")):
        with pytest.raises(InvalidInputError, match="at least 0 and at most 0.5"):
            chip_with_defects("P16", rate)
