import numpy as np
import pytest

from annealfit import load_dataset
from annealfit.errors import InvalidInputError


def test_digits_split_of_the_paper():
    data = load_dataset("digits", seed=42)
    assert data.X_train.shape == (1000, 8, 8)
    assert data.X_test.shape == (540, 8, 8)
    assert data.class_names == tuple("0123456789")
    assert data.X_train.min() == 0
    assert data.X_train.max() == 1
    for labels, size in ((data.y_train, 1000), (data.y_test, 540)):
        shares = np.bincount(labels, minlength=10) / size
        assert np.abs(shares - 0.1).max() < 0.01  # stratified: as in the whole set


def test_train_and_test_do_not_overlap_and_the_seed_decides():
    data, again, other = (load_dataset("digits", seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(data.X_train, again.X_train)
    assert not np.array_equal(data.y_train, other.y_train)
    images = {image.tobytes() for image in data.X_train}
    assert not images & {image.tobytes() for image in data.X_test}


@pytest.mark.parametrize("sizes", [{"n_train": 5}, {"n_test": 0}, {"n_train": 1500}])
def test_sizes_that_do_not_fit(sizes):
    with pytest.raises(InvalidInputError, match="at least 10 .* at most 1797"):
        load_dataset("digits", **sizes)


def test_an_unknown_name_lists_the_known():
    with pytest.raises(InvalidInputError, match="'digits'"):
        load_dataset("imagenet")
