"""`literal` and `matched` give the weights they have always given (see `paper_trainings`)."""

from itertools import product

import numpy as np
import pytest
from paper_trainings import BITS, PRESETS, REFERENCE, SEEDS, name_of, same_rounding, train


@pytest.mark.parametrize(("preset", "seed", "bits"), list(product(PRESETS, SEEDS, BITS)))
def test_the_papers_presets_give_the_same_weights_bit_for_bit(preset, seed, bits):
    if not same_rounding():
        pytest.skip("this machine's linear algebra rounds differently from that which wrote the reference")
    with np.load(REFERENCE, allow_pickle=False) as stored:
        expected = stored[name_of(preset, seed, bits, 100)]
    np.testing.assert_array_equal(train(preset, seed, bits, 100), expected)
