import numpy as np
import pytest

from annealfit._support.randomness import child_seed, child_seeds, seed_of


def test_children_differ_from_each_other_and_do_not_repeat():
    seeds = child_seeds(0, np.arange(300)[:, None], np.arange(300))
    assert len(np.unique(seeds)) == 300 * 300


def test_a_path_is_not_its_permutation_or_its_prefix():
    assert len({child_seed(5, 1, 2), child_seed(5, 2, 1), child_seed(5, 1), child_seed(5), child_seed(6, 1, 2)}) == 5


def test_vectorised_children_are_the_single_ones():
    many = child_seeds(9, 4, np.arange(10))
    assert many.tolist() == [child_seed(9, 4, index) for index in range(10)]


def test_every_bit_is_about_fair():
    seeds = child_seeds(1, np.arange(20_000))
    shares = ((seeds[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).mean(axis=0)
    assert np.abs(shares - 0.5).max() < 5 * 0.5 / np.sqrt(len(seeds))  # five standard deviations


def test_seed_of_follows_scikit_learn():
    assert seed_of(7) == 7
    assert seed_of(np.random.RandomState(0)) == seed_of(np.random.RandomState(0))
    with pytest.raises(ValueError, match="seed"):
        seed_of("seven")
    with pytest.raises(ValueError, match="between 0 and"):
        seed_of(-1)


def test_a_path_has_no_component_below_0():
    for draw in (child_seed, child_seeds):
        with pytest.raises(OverflowError):
            draw(1, -1)
