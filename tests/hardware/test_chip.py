"""Cliques and tiles: every embedding is checked by D-Wave's own verifier."""

from functools import cache
from itertools import combinations

import dwave.graphs
import networkx
import pytest
from dwave.embedding import verify_embedding

from annealfit.hardware.chip import Chip, longest_chain, qubits_of
from annealfit.hardware.topologies import chip_with_defects, ideal_chip

CHIPS = ("P16", "Z12", "P16 with defects", "Z12 with defects")


@cache  # so that embeddings are found once
def chip_named(name):
    topology, _, defects = name.partition(" ")
    return chip_with_defects(topology, 0.02 if defects else 0.0, seed=1)


def is_embedding(embedding, n_variables, chip):
    complete = list(combinations(range(n_variables), 2))
    return sorted(embedding) == list(range(n_variables)) and verify_embedding(embedding, complete, chip.graph)


@pytest.mark.parametrize(
    ("name", "qubits", "couplers", "largest_clique", "chains"),
    [
        ("P16", 5_640, 40_484, 180, [3, 5, 7, 10]),
        ("Z12", 4_800, 45_864, 184, [3, 4, 6, 8]),
        ("Z15", 7_440, 71_736, 232, [3, 4, 6, 8]),
    ],
)
def test_ideal_chips_are_as_published(name, qubits, couplers, largest_clique, chains):
    chip = ideal_chip(name)
    assert (len(chip.graph), chip.graph.number_of_edges()) == (qubits, couplers)
    assert chip.largest_clique == largest_clique
    assert [longest_chain(chip.clique(n)) for n in (19, 38, 57, 95)] == chains
    assert is_embedding(chip.clique(largest_clique), largest_clique, chip)
    assert chip.clique(largest_clique + 1) is None


@pytest.mark.parametrize("name", CHIPS)
@pytest.mark.parametrize("n_variables", [2, 19, 95])
def test_cliques_are_embeddings(name, n_variables):
    chip = chip_named(name)
    assert is_embedding(chip.clique(n_variables), n_variables, chip)


@pytest.mark.parametrize("name", CHIPS)
@pytest.mark.parametrize(("n_variables", "at_most"), [(19, 10), (57, 4)])
def test_tiles_are_disjoint_embeddings_with_chains_at_most_one_longer(name, n_variables, at_most):
    chip = chip_named(name)
    tiles = chip.tiles(n_variables, at_most)
    assert len(tiles) == at_most
    for tile in tiles:
        assert is_embedding(tile, n_variables, chip)
        assert longest_chain(tile) <= longest_chain(tiles[0]) + 1
    taken = [qubit for tile in tiles for chain in tile.values() for qubit in chain]
    assert len(taken) == len(set(taken)) == qubits_of(tiles)


def test_tiles_are_packed_more_closely_where_taking_the_nearest_leaves_gaps():
    """On Z12 the nearest first leave room for 8 cliques of 57, column by column 10 fit."""
    chip = ideal_chip("Z12")
    tiles = chip.tiles(57, 11)
    assert len(tiles) == 10
    assert all(is_embedding(tile, 57, chip) for tile in tiles)
    assert qubits_of(tiles) == len({qubit for tile in tiles for chain in tile.values() for qubit in chain})
    assert chip.tiles(57, 20) is tiles  # full is full: nothing is searched again
    assert chip.tiles(57, 4) == tiles[:4]


@pytest.mark.parametrize(("family", "size"), [("zephyr", 2), ("pegasus", 3), ("chimera", 4)])
def test_small_cliques_neither_eat_the_memory_nor_end_the_process(family, size):
    """Minorminer 0.2.22 asks for all memory there is at 5 to 8 variables on Zephyr, and aborts on sparse graphs."""
    graph = getattr(dwave.graphs, f"{family}_graph")(size)
    chip = Chip(family, graph)
    for n_variables in range(1, 10):
        assert is_embedding(chip.clique(n_variables), n_variables, chip)
    sparse = graph.copy()
    sparse.remove_edges_from([edge for index, edge in enumerate(graph.edges) if index % 10])
    empty = graph.copy()
    empty.remove_edges_from(graph.edges)
    for broken in (sparse, empty):
        for n_variables in (2, 3, 4, 6, 9):
            embedding = Chip(family, broken).clique(n_variables)
            assert embedding is None or is_embedding(embedding, n_variables, Chip(family, broken))
    assert Chip(family, empty).largest_clique <= 1


def test_defects_shrink_the_largest_clique_and_depend_on_the_seed():
    chip = chip_with_defects("P16", 0.01)
    assert 130 < chip.largest_clique < 180
    assert is_embedding(chip.clique(chip.largest_clique), chip.largest_clique, chip)
    assert networkx.utils.graphs_equal(chip.graph, chip_with_defects("P16", 0.01).graph)
    assert not networkx.utils.graphs_equal(chip.graph, chip_with_defects("P16", 0.01, seed=1).graph)
    assert 0.005 < 1 - len(chip.graph) / len(ideal_chip("P16").graph) < 0.015
    assert chip_with_defects("P16", 0.0) is ideal_chip("P16")
    assert set(chip.graph) < set(ideal_chip("P16").graph)
