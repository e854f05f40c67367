"""LevelWalk: the kernel against a plain loop, against exact Boltzmann probabilities, and its descent."""

import itertools

import numpy as np
import pytest
import reference_walk

from annealfit.problems.curvature import Curvature
from annealfit.samplers.native.level_walk import LevelWalk, soft_partners


def make_walk(seed, lanes, size, top, n_partners, **settings):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(2 * size, size)) + generator.normal(size=(2 * size, 1))
    metric = Curvature(rows.T @ rows / len(rows))
    return LevelWalk(
        metric,
        generator.normal(size=(lanes, size)),
        generator.uniform(0.3, 1.2, size=(lanes, size)),  # of each parameter its own, as with scales per group
        generator.uniform(-top, 0),
        top,
        generator.integers(0, top + 1, size=(lanes, size)),
        generator.integers(0, 2**63, size=lanes).astype(np.uint64),
        soft_partners(metric, n_partners),
        **settings,
    )


@pytest.mark.parametrize(("size", "top", "n_partners"), [(1, 1, 3), (2, 2, 1), (7, 1, 3), (6, 3, 0), (9, 6, 4)])
def test_the_kernel_is_the_plain_loop(size, top, n_partners):
    walk = make_walk(size, 3, size, top, n_partners)
    betas = np.geomspace(0.05, 30.0, 12)[:, None] * np.array([1.0, 0.3, 3.0])
    wanted = reference_walk.walk(
        walk.metric.matrix, walk.gradients, walk.spacings, walk.origin, top, betas, walk.levels, walk.seeds,
        walk.partners,
    )  # fmt: skip
    walk.anneal(betas)
    np.testing.assert_array_equal(walk.levels, wanted)


def test_its_draws_are_boltzmanns():
    walk = make_walk(1, 20_000, 3, 2, 2)
    for name in ("gradients", "spacings", "levels"):
        setattr(walk, name, np.repeat(getattr(walk, name)[:1], 20_000, axis=0))
    beta = 0.8
    walk.anneal(np.full((20, 20_000), beta))
    states = np.array(list(itertools.product(range(3), repeat=3)))
    energies = walk.metric.energies(walk.gradients[0], walk.spacings[0] * (states + walk.origin))
    weights = np.exp(-beta * (energies - energies.min()))
    wanted = weights / weights.sum()
    found = np.bincount(walk.levels @ [9, 3, 1], minlength=27) / 20_000
    # Five standard deviations of a share of 20,000 independent lanes; 27 of them, so one in 10^5 runs would fail.
    np.testing.assert_array_less(np.abs(found - wanted), 5 * np.sqrt(wanted * (1 - wanted) / 20_000) + 1e-6)


@pytest.mark.parametrize("n_partners", [0, 3])
def test_it_settles_where_no_line_leads_down(n_partners):
    walk = make_walk(5, 4, 8, 3, n_partners)
    before = walk.energies()
    walk.settle()
    energies = walk.energies()
    assert (energies <= before).all()
    for lane in range(4):
        for j in range(8):
            for i in [j, *walk.partners[j]]:
                direction = np.zeros(8, dtype=np.int64)
                direction[i] = -1 if walk.metric.matrix[j, i] > 0 else 1
                direction[j] = 1
                for move in reference_walk.moves_within(walk.levels[lane], direction, 3):
                    values = walk.spacings[lane] * (walk.levels[lane] + move * direction + walk.origin)
                    assert walk.metric.energies(walk.gradients[lane], values) >= energies[lane] - 1e-9


def test_threads_and_companions_change_nothing():
    betas = np.full((5, 40), 2.0)
    one, two = make_walk(3, 40, 6, 3, 2, num_threads=1), make_walk(3, 40, 6, 3, 2, num_threads=2)
    alone = make_walk(3, 40, 6, 3, 2)
    for name in ("gradients", "spacings", "levels", "seeds", "_counters"):
        setattr(alone, name, getattr(alone, name)[7:8].copy())
    for walk in (one, two):
        walk.anneal(betas)
    alone.anneal(betas[:, :1])
    np.testing.assert_array_equal(one.levels, two.levels)
    np.testing.assert_array_equal(one.levels[7], alone.levels[0])


def test_partners_are_the_most_correlated():
    metric = Curvature([[1.0, 0.1, -0.9], [0.1, 4.0, 0.0], [-0.9, 0.0, 1.0]])
    assert soft_partners(metric, 1).tolist() == [[2], [0], [0]]
    assert soft_partners(metric, 5).shape == (3, 2)
