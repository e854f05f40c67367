"""Tables of features that come divided into a part to train on and a part to test on."""

import numpy as np
import pytest

from annealfit._support.errors import InvalidInputError
from annealfit.data.datasets.feature_tables import load_table

ROWS = np.arange(60.0).reshape(20, 3)
WORDS = np.array(["yes", "no"] * 10)


@pytest.fixture
def divided(tmp_path):
    def save(**arrays):
        given = {"X_train": ROWS, "y_train": WORDS, "X_test": ROWS[:4] + 0.5, "y_test": WORDS[:4]}
        path = tmp_path / "rows.npz"
        np.savez(path, **{name: value for name, value in (given | arrays).items() if value is not None})
        return path

    return save


def load(path, **sizes):
    given = {"labels": None, "n_train": None, "n_test": None, "seed": 42, "folder": path.parent} | sizes
    return load_table(path, **given)


def test_the_parts_stay_as_they_are(divided):
    data = load(divided())
    assert data.class_names == ("no", "yes")
    order = np.argsort(data.X_train[:, 0])
    np.testing.assert_array_equal(data.X_train[order], ROWS)
    np.testing.assert_array_equal(np.array(data.class_names)[data.y_train[order]], WORDS)
    np.testing.assert_array_equal(np.sort(data.X_test[:, 0]), ROWS[:4, 0] + 0.5)


def test_fewer_rows_are_as_many_of_every_class(divided):
    data = load(divided(), n_train=6, n_test=2)
    assert np.bincount(data.y_train).tolist() == [3, 3]
    assert np.bincount(data.y_test).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y_test": None, "X_test": None}, "has X_train but not X_test, y_test; save all four"),
        ({"y_test": np.array(["yes", "no", "yes", "perhaps"])}, "y_test has labels that y_train does not have"),
        ({"y_train": np.array(["yes"] * 20)}, "class"),
    ],
)
def test_a_part_that_cannot_be_used_says_why(divided, arrays, message):
    with pytest.raises(InvalidInputError, match=message):
        load(divided(**arrays))
