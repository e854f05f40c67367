"""What couplings add up to at a qubit: compared with the program that D-Wave's own functions embed."""

from __future__ import annotations

import dimod
import dwave.graphs
import networkx
import numpy as np
import pytest
from dwave.embedding import embed_bqm
from dwave.system.coupling_groups import coupling_groups
from random_problems import random_problem

from annealfit._support.errors import SamplerError
from annealfit.hardware.chip import Chip
from annealfit.hardware.limits import (
    PER_GROUP,
    PER_QUBIT,
    CouplingLimit,
    TileLimit,
    coupling_limits,
    resolve,
    torque_compensation,
)

CHIPS = {"zephyr": Chip("Z3", dwave.graphs.zephyr_graph(3)), "pegasus": Chip("P4", dwave.graphs.pegasus_graph(4))}


def embedded_totals(model, tile, chain_strength, limit, graph):
    """The sums of an embedded model, by D-Wave's embedding and groups."""
    embedded = embed_bqm(model, tile, graph, chain_strength=chain_strength)
    if limit == PER_QUBIT:
        return [sum(embedded.adj[qubit].values()) for qubit in embedded.variables]
    return [
        sum(embedded.get_quadratic(*coupler, default=0.0) for coupler in group if set(coupler) <= {*embedded.variables})
        for group in coupling_groups(graph)
    ]


@pytest.mark.parametrize(("family", "name"), [("zephyr", PER_GROUP), ("zephyr", PER_QUBIT), ("pegasus", PER_QUBIT)])
def test_no_reversal_of_a_problem_exceeds_the_excess(family, name):
    """All gauges of six variables, programmed by D-Wave's own embedding."""
    chip = CHIPS[family]
    low, high = -2.0, 1.0
    for tile in chip.tiles(6, 3):
        limit = TileLimit.of(CouplingLimit(name, low, high), tile, chip.graph)
        couplings = np.triu(np.random.default_rng(3).uniform(-1, 1, size=(6, 6)), 1)
        for code in range(32):  # the first spin stays: turning all changes nothing
            signs = np.array([1, *(1 - 2 * (code >> bit & 1) for bit in range(5))])
            model = dimod.BinaryQuadraticModel(np.zeros(6), couplings * np.outer(signs, signs), "SPIN")
            totals = embedded_totals(model, tile, 0.7, name, chip.graph)
            excess = max(max(totals) / high, min(totals) / low)
            assert excess <= limit.excess(np.abs(couplings).max(), 0.7) + 1e-12


def test_equal_couplings_of_chains_of_one_qubit_reach_the_excess():
    graph = CHIPS["pegasus"].graph
    triangle = next(clique for clique in networkx.enumerate_all_cliques(graph) if len(clique) == 3)
    tile = {variable: (qubit,) for variable, qubit in enumerate(triangle)}
    limit = TileLimit.of(CouplingLimit(PER_QUBIT, -2.0, 1.0), tile, graph)
    model = dimod.BinaryQuadraticModel(np.zeros(3), np.triu(np.full((3, 3), 0.4), 1), "SPIN")
    totals = embedded_totals(model, tile, 0.7, PER_QUBIT, graph)
    assert limit.excess(0.4, 0.7) == pytest.approx(max(totals)) == pytest.approx(0.8)


def test_problems_are_scaled_down_as_far_as_a_limit_asks_and_no_further():
    chip = CHIPS["zephyr"]
    problem = random_problem(0, 6, 2, 0.5)
    tile = chip.clique(problem.n_variables)
    fields, couplings, _ = problem.to_ising()
    free = resolve(fields, couplings)
    wide = TileLimit.of(CouplingLimit(PER_GROUP, -13.0, 10.0), tile, chip.graph)
    assert resolve(fields, couplings, limits=[wide]).scale == free.scale
    narrow = TileLimit.of(CouplingLimit(PER_GROUP, -0.5, 0.3), tile, chip.graph)
    bound = resolve(fields, couplings, limits=[wide, narrow])
    assert bound.scale > free.scale
    strength = torque_compensation(couplings, 2.0)
    assert narrow.excess(bound.largest_coupling, bound.chain_strength) == pytest.approx(1)
    assert bound.chain_strength == pytest.approx(strength / bound.scale)


def test_limits_that_are_none():
    assert coupling_limits({}) == coupling_limits({PER_QUBIT: None}) == ()
    assert [limit.name for limit in coupling_limits({PER_GROUP: [-13, 10], PER_QUBIT: [-18, 15]})] == [
        PER_QUBIT,
        PER_GROUP,
    ]
    with pytest.raises(SamplerError, match=r"per_qubit_coupling_range is \[0, 15\]; it has to go from below 0"):
        coupling_limits({PER_QUBIT: [0, 15]})
    # Only Zephyr graphs have groups.
    assert list(CouplingLimit(PER_GROUP, -13.0, 10.0).groups(CHIPS["pegasus"].graph)) == []
