import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annealfit._support.errors import InvalidInputError
from annealfit.data.datasets.subsets import choose_balanced, split_stratified


@given(counts=st.lists(st.integers(1, 30), min_size=2, max_size=6), data=st.data())
def test_balanced_as_far_as_the_classes_reach(counts, data):
    labels = np.repeat(np.arange(len(counts)), counts)
    size = data.draw(st.integers(len(counts), len(labels)))
    chosen = choose_balanced(labels, len(counts), size, 42, 0, "n_train")
    assert len(set(chosen.tolist())) == size
    shares = np.bincount(labels[chosen], minlength=len(counts))
    # Nobody has fewer than another by more than the odd one, unless there are no more of it.
    for share, available in zip(shares, counts, strict=True):
        assert share == available or share >= shares.max() - 1


def test_the_seed_and_the_part_decide():
    labels = np.repeat(np.arange(10), 50)
    first, again = (choose_balanced(labels, 10, 105, 7, 0, "n_train") for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, choose_balanced(labels, 10, 105, 8, 0, "n_train"))
    assert not np.array_equal(first, choose_balanced(labels, 10, 105, 7, 1, "n_test"))


@pytest.mark.parametrize("size", [0, 1, 4])
def test_sizes_that_do_not_fit(size):
    with pytest.raises(InvalidInputError, match=f"n_train of it is {size}; it must be at least 2 .* at most 3"):
        choose_balanced(np.array([0, 0, 1]), 2, size, 1, 0, "n_train of it")


def test_all_is_everything_in_order():
    labels = np.array([1, 0, 1])
    assert choose_balanced(labels, 2, "all", 1, 0, "n_train").tolist() == [0, 1, 2]


def test_all_of_one_pool_is_what_the_other_leaves():
    labels = np.repeat([0, 1], 10)
    train, test = split_stratified(labels, 2, "all", 6, 1, "pool")
    assert sorted([*train, *test]) == list(range(20))
    assert len(test) == 6
    with pytest.raises(InvalidInputError, match='only one can be "all"'):
        split_stratified(labels, 2, "all", "all", 1, "pool")


def test_a_class_too_small_to_split():
    with pytest.raises(InvalidInputError, match="fewer than 2 images"):
        split_stratified(np.array([0, 0, 0, 0, 1]), 2, 2, 2, 1, "pool")
