"""LevelChains: the kernel against a plain loop, against exact Boltzmann probabilities, its descent, and its flag."""

import itertools
import threading

import numpy as np
import pytest
import reference_levels as reference

from annealfit.problems.curvature import BlockCurvature, Curvature
from annealfit.samplers.native.levels import LevelChains, soft_partners


def make_chains(seed, lanes, size, top, n_partners, *, blocks=1, **settings):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(blocks, 2 * size, size)) + generator.normal(size=(blocks, 2 * size, 1))
    parts = [Curvature(part.T @ part / len(part)) for part in rows]
    curvature = parts[0] if blocks == 1 else BlockCurvature(parts)
    size *= blocks
    return LevelChains(
        curvature,
        generator.normal(size=(lanes, size)),
        generator.uniform(0.3, 1.2, size=(lanes, size)),  # of each parameter its own, as with scales per group
        generator.uniform(-top, 0),
        top,
        generator.integers(0, top + 1, size=(lanes, size)),
        generator.integers(0, 2**63, size=lanes).astype(np.uint64),
        soft_partners(curvature, n_partners),
        **settings,
    )


@pytest.mark.parametrize(("size", "top", "n_partners"), [(1, 1, 3), (2, 2, 1), (7, 1, 3), (6, 3, 0), (9, 6, 4)])
def test_the_kernel_is_the_plain_loop(size, top, n_partners):
    chains = make_chains(size, 3, size, top, n_partners)
    betas = np.geomspace(0.05, 30.0, 12)[:, None] * np.array([1.0, 0.3, 3.0])
    wanted = reference.anneal(
        chains.curvature.matrix, chains.gradients, chains.spacings, chains.origin, top, betas, chains.levels,
        chains.seeds, chains.partners,
    )  # fmt: skip
    assert chains.anneal(betas) == 12
    np.testing.assert_array_equal(chains.levels, wanted)


@pytest.mark.parametrize(("size", "bits", "coldest"), [(2, 1, 3), (9, 2, 30), (19, 3, 300), (7, 4, 1e4), (12, 6, 1e6)])
def test_the_kernel_is_the_plain_loop_without_partners(size, bits, coldest):
    top = 2**bits - 1
    chains = make_chains(size, 4, size, top, 0)
    betas = np.geomspace(1.0, coldest, 6)[:, None] * np.array([0.5, 1.0, 2.0, 4.0])
    wanted = reference.anneal(
        chains.curvature.matrix, chains.gradients, chains.spacings, chains.origin, top, betas, chains.levels,
        chains.seeds, chains.partners,
    )  # fmt: skip
    chains.anneal(betas)
    np.testing.assert_array_equal(chains.levels, wanted)


def test_its_draws_are_boltzmanns():
    chains = make_chains(1, 20_000, 3, 2, 2)
    chains = LevelChains(
        chains.curvature,
        np.repeat(chains.gradients[:1], 20_000, axis=0),
        np.repeat(chains.spacings[:1], 20_000, axis=0),
        chains.origin,
        2,
        np.repeat(chains.levels[:1], 20_000, axis=0),
        chains.seeds,
        chains.partners,
    )
    beta = 0.8
    chains.anneal(np.full((20, 20_000), beta))
    states = np.array(list(itertools.product(range(3), repeat=3)))
    energies = chains.curvature.energies(chains.gradients[0], chains.spacings[0] * (states + chains.origin))
    weights = np.exp(-beta * (energies - energies.min()))
    wanted = weights / weights.sum()
    found = np.bincount(chains.levels @ [9, 3, 1], minlength=27) / 20_000
    # Five standard deviations of a share of 20,000 independent lanes; 27 of them, so one in 10^5 runs would fail.
    np.testing.assert_array_less(np.abs(found - wanted), 5 * np.sqrt(wanted * (1 - wanted) / 20_000) + 1e-6)


@pytest.mark.parametrize("n_partners", [0, 3])
@pytest.mark.parametrize("with_chains", [False, True])
@pytest.mark.parametrize("blocks", [1, 2])
def test_it_ends_where_no_line_leads_down(n_partners, with_chains, blocks):
    chains = make_chains(5, 4, 8, 3, n_partners, blocks=blocks)
    before = chains.energies()
    chains.polish(with_chains=with_chains)
    energies, matrix = chains.energies(), chains.curvature.matrix
    assert (energies <= before).all()
    for lane, j in itertools.product(range(4), range(chains.curvature.size)):
        for i in [j, *chains.partners[j]]:
            if i != j and matrix[i, j] == 0:
                continue  # pairs across blocks are not tried: each of the two is at its best already
            direction = reference.direction_of(matrix, j, i)
            for move in reference.moves_within(chains.levels[lane], direction, 3):
                values = chains.spacings[lane] * (chains.levels[lane] + move * direction + chains.origin)
                assert chains.curvature.energies(chains.gradients[lane], values) >= energies[lane] - 1e-9


def test_chains_with_spacings_of_their_own_end_where_no_two_steps_of_one_level_lead_down():
    chains = make_chains(6, 6, 7, 3, 0)
    chains.polish(with_chains=True)
    energies = chains.energies()
    for lane, (i, j) in itertools.product(range(6), itertools.combinations(range(7), 2)):
        for change in itertools.product([-1, 0, 1], repeat=2):
            moved = chains.levels[lane].copy()
            moved[[i, j]] += change
            if moved.min() >= 0 and moved.max() <= 3:
                values = chains.spacings[lane] * (moved + chains.origin)
                assert chains.curvature.energies(chains.gradients[lane], values) >= energies[lane] - 1e-9


def test_threads_and_companions_change_nothing():
    betas = np.full((5, 40), 2.0)
    one, two = (make_chains(3, 40, 6, 3, 2, num_threads=threads) for threads in (1, 2))
    alone = LevelChains(
        one.curvature, one.gradients[7:8], one.spacings[7:8], one.origin, 3, one.levels[7:8], one.seeds[7:8],
        one.partners,
    )  # fmt: skip
    for chains in (one, two):
        chains.anneal(betas)
    alone.anneal(betas[:, :1])
    np.testing.assert_array_equal(one.levels, two.levels)
    np.testing.assert_array_equal(one.levels[7], alone.levels[0])


def test_partners_are_the_most_correlated():
    curvature = Curvature([[1.0, 0.1, -0.9], [0.1, 4.0, 0.0], [-0.9, 0.0, 1.0]])
    assert soft_partners(curvature, 1).tolist() == [[2], [0], [0]]
    assert soft_partners(curvature, 5).shape == (3, 2)


def block_energies(chains, edges):
    """The energy of each block of the curvature, (L, B)."""
    fields = chains.values @ chains.curvature.matrix + 2 * chains.gradients
    return np.add.reduceat(fields * chains.values, edges, axis=1)


@pytest.mark.parametrize("n_partners", [0, 3])
def test_the_best_states_at_the_ends_of_sweeps_are_kept(n_partners):
    betas = np.geomspace(30.0, 0.01, 25)[:, None] * np.ones(5)  # heating up
    watched, kept = (make_chains(8, 5, 6, 3, n_partners) for _ in range(2))
    energies = [watched.energies()]
    for beta in betas:  # one sweep at a time is the same chain
        watched.anneal(beta[None])
        energies.append(watched.energies())
    kept.keep_best()
    kept.anneal(betas[:20])
    kept.anneal(betas[20:])
    np.testing.assert_array_equal(kept.levels, watched.levels)
    kept.return_to_best()
    np.testing.assert_allclose(kept.energies(), np.min(energies, axis=0), atol=1e-9)
    assert (kept.energies() < watched.energies()).any()
    before = kept.energies()
    kept.polish(with_chains=False)  # from fields that are the best states' own
    assert (kept.energies() <= before + 1e-9).all()


def test_the_best_states_are_kept_block_by_block():
    chains = make_chains(8, 40, 6, 3, 3, blocks=2)
    start = block_energies(chains, [0, 6])
    chains.keep_best()
    chains.anneal(np.geomspace(30.0, 0.01, 25)[:, None] * np.ones(40))
    last = block_energies(chains, [0, 6])
    chains.return_to_best()
    best = block_energies(chains, [0, 6])
    assert (best <= np.minimum(start, last) + 1e-9).all()
    assert (best < np.minimum(start, last) - 1e-9).any()
    better = chains.energies()
    chains.return_to_best()  # again: nothing is better than the best
    np.testing.assert_array_equal(chains.energies(), better)


def test_a_flag_that_is_set_stops_every_kernel_at_once():
    stop = np.ones(1, dtype=np.uint8)
    chains = make_chains(9, 20, 6, 3, 2)
    levels = chains.levels.copy()
    assert chains.anneal(np.ones((50, 20)), stop) == 0
    chains.polish(stop)
    np.testing.assert_array_equal(chains.levels, levels)


def test_a_flag_that_another_thread_sets_stops_an_anneal():
    """Ten million sweeps of a single call would take minutes; the flag is read for every parameter."""
    chains, stop = make_chains(10, 3, 40, 3, 4), np.zeros(1, dtype=np.uint8)
    timer = threading.Timer(0.05, stop.fill, (1,))
    timer.start()
    assert chains.anneal(np.ones((10_000_000, 3)), stop) < 10_000_000
