import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annealfit._support.errors import InvalidInputError
from annealfit.problems.encoding import MAX_BITS, Encoding


@given(st.integers(1, MAX_BITS), st.floats(1e-9, 1e9), st.integers(0, 2**32))
def test_decode_is_the_papers_sum(bits, range_, seed):
    encoding = Encoding(bits, range_)
    sample = np.random.default_rng(seed).integers(0, 2, size=(5, bits))
    weights = range_ * 2.0 ** np.arange(bits) / (2.0**bits - 1)
    np.testing.assert_allclose(encoding.decode(sample), (2 * sample - 1) @ weights, rtol=1e-9, atol=1e-15 * range_)
    np.testing.assert_allclose(encoding.weights, weights, rtol=1e-12)


@given(st.integers(1, MAX_BITS), st.floats(1e-6, 1e6), st.integers(0, 2**32))
def test_encode_inverts_decode_and_rounds_to_the_nearest_level(bits, range_, seed):
    encoding = Encoding(bits, range_)
    generator = np.random.default_rng(seed)
    sample = generator.integers(0, 2, size=(20, bits))
    np.testing.assert_array_equal(encoding.encode(encoding.decode(sample)), sample)
    anywhere = generator.uniform(-range_, range_, size=50)
    error = np.abs(encoding.decode(encoding.encode(anywhere)) - anywhere)
    assert error.max() <= encoding.resolution * (1 + 1e-6)


def test_updates_beyond_the_range_are_clipped_to_it():
    encoding = Encoding(3, 0.5)
    np.testing.assert_array_equal(encoding.decode(encoding.encode([-9.0, 9.0])), [-0.5, 0.5])


def test_levels_are_exactly_symmetric():
    levels = Encoding(5, 0.3).decode((np.arange(32)[:, None] >> np.arange(5)) & 1)
    np.testing.assert_array_equal(levels, -levels[::-1])


@pytest.mark.parametrize("bits", [0, -1, 31, 2.5, "3", None, True])
def test_bad_bits_are_named_with_their_limit(bits):
    with pytest.raises(InvalidInputError, match="at least 1 and at most 30"):
        Encoding(bits, 0.5)


@pytest.mark.parametrize("range_", [0, -0.5, float("nan"), float("inf"), "wide", None])
def test_bad_ranges_are_named_with_their_limit(range_):
    with pytest.raises(InvalidInputError, match="above 0"):
        Encoding(3, range_)
