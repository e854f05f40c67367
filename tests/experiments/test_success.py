"""Shares, their intervals and times to solution, against values worked out by hand."""

import math

import pytest

from annealfit.studies.sampler_study import Estimate, estimate_share, time_to_solution


@pytest.mark.parametrize(
    ("seconds", "share", "expected"),
    [
        (1.0, 0.5, math.log(0.01) / math.log(0.5)),  # 6.64 reads
        (3.0, 0.1, 3 * math.log(0.01) / math.log(0.9)),
        (2.0, 0.99, 2.0),
        (2.0, 0.999, 2.0),  # there is no third of a read
        (2.0, 1.0, 2.0),
        (2.0, 0.0, math.inf),
    ],
)
def test_time_to_solution_by_hand(seconds, share, expected):
    assert time_to_solution(seconds, share) == pytest.approx(expected)


def test_an_interval_by_hand():
    """Wilson's for 1 of 4 and z = 1.96: centre (1/4 + z²/8)/(1 + z²/4), half its width √(3/64 + z²/64)·z/(1 + z²/4)."""
    z2 = 1.959964**2
    centre, half = (0.25 + z2 / 8) / (1 + z2 / 4), math.sqrt(z2 * (3 / 64 + z2 / 64)) / (1 + z2 / 4)
    found = estimate_share(1, 4)
    assert found.value == 0.25
    assert (found.low, found.high) == (pytest.approx(centre - half, abs=1e-6), pytest.approx(centre + half, abs=1e-6))


def test_never_and_always_have_open_ends_and_no_read_says_nothing():
    never, always = estimate_share(0, 64), estimate_share(64, 64)
    assert (never.value, never.low, always.value, always.high) == (0.0, 0.0, 1.0, 1.0)
    z2 = 1.959964**2
    assert never.high == pytest.approx(z2 / (64 + z2), abs=1e-6)
    assert always.low == pytest.approx(64 / (64 + z2), abs=1e-6)
    assert estimate_share(0, 0) == Estimate(0.0, 0.0, 1.0)
