"""The compiled kernel against plain NumPy fed the same random numbers: every final bit equal."""

import itertools

import llvmlite.binding
import numpy as np
import pytest
import reference_annealer as reference
from scipy import stats

from annealfit._support._vectors import log2_coefficients
from annealfit._support.randomness import child_seeds, descend
from annealfit.samplers.native import _kernel

LANES = _kernel.LANES

# D, K, sweeps, final β: one bit to thirty, two parameters to sixty, hot to frozen
PROBLEMS = [
    (2, 1, 50, 3), (60, 1, 20, 3), (3, 2, 50, 30), (40, 3, 10, 1), (19, 5, 20, 3), (7, 8, 40, 1e4),
    (30, 10, 10, 0.02), (19, 20, 10, 3), (60, 20, 3, 1e6), (5, 30, 20, 3),
]  # fmt: skip


def start(seeds, parameters, bits):
    words = np.zeros((parameters, LANES), dtype=np.uint32)
    streams = np.zeros((_kernel.STATE_WORDS, LANES), dtype=np.uint32)
    _kernel.start_block(seeds, bits, words, streams)
    return words, streams


def block(seed, parameters, bits, sweeps, cold, dtype):
    generator = np.random.default_rng(seed)
    data = generator.normal(size=(2 * parameters, parameters))
    curvature = data.T @ data / (2 * parameters)
    gradient = generator.normal(size=(parameters, LANES))
    widths = generator.uniform(0.5, 2.0, size=LANES)
    steps = 2 * widths * 2.0 ** np.arange(bits)[:, None] / (2.0**bits - 1)
    betas = np.geomspace(0.01, cold, sweeps)[:, None] * generator.uniform(0.5, 2.0, size=LANES)
    seeds = generator.integers(0, 2**63, size=LANES, dtype=np.uint64)
    words, streams = start(seeds, parameters, bits)
    arrays = [np.ascontiguousarray(array, dtype=dtype) for array in (curvature, gradient, steps, betas)]
    return arrays, words, streams


@pytest.mark.parametrize(("parameters", "bits", "sweeps", "cold"), PROBLEMS)
def test_double_precision_flip_for_flip(parameters, bits, sweeps, cold):
    arrays, words, streams = block(1, parameters, bits, sweeps, cold, np.float64)
    states, expected_streams = _kernel.unpack_bits(words, bits), streams.copy()
    start = states.copy()
    reference.anneal(*arrays, states, expected_streams)
    _kernel.anneal_group(*arrays, words, streams)
    np.testing.assert_array_equal(_kernel.unpack_bits(words, bits), states)
    np.testing.assert_array_equal(streams, expected_streams)
    assert (states != start).any()


@pytest.mark.skipif(
    not llvmlite.binding.get_host_cpu_features().get("fma", False),
    reason="the reference mimics fused multiply-add, which this processor lacks",
)
@pytest.mark.parametrize(("parameters", "bits", "sweeps", "cold"), PROBLEMS)
def test_single_precision_flip_for_flip(parameters, bits, sweeps, cold):
    arrays, words, streams = block(2, parameters, bits, sweeps, cold, np.float32)
    states = _kernel.unpack_bits(words, bits)
    reference.anneal_single(*arrays, states, streams.copy(), log2_coefficients(5, 2.0**-23))
    _kernel.anneal_group(*arrays, words, streams)
    np.testing.assert_array_equal(_kernel.unpack_bits(words, bits), states)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_infinitely_cold_is_greedy_and_infinitely_hot_flips_all(dtype):
    arrays, words, streams = block(3, 10, 6, 30, 3, dtype)
    states = _kernel.unpack_bits(words, 6)
    arrays[3][:] = 0
    flipped = words.copy()
    _kernel.anneal_group(*arrays[:3], arrays[3][:1], flipped, streams.copy())
    np.testing.assert_array_equal(_kernel.unpack_bits(flipped, 6), 1 - states)
    arrays[3][:] = 1e30
    _kernel.anneal_group(*arrays, words, streams)
    reference.anneal(*[array.astype(float) for array in arrays], states, streams.copy())
    np.testing.assert_array_equal(_kernel.unpack_bits(words, 6), states)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_at_a_fixed_temperature_states_are_boltzmanns(dtype):
    """All 64 states of D = 3, K = 2; 96,000 samples, 60 sweeps apart. χ² on 63 degrees, fails below p = 1e-3."""
    generator = np.random.default_rng(5)
    parameters, bits, beta, blocks = 3, 2, 1.3, 1000
    data = generator.normal(size=(6, parameters))
    curvature, gradient = data.T @ data / 6, generator.normal(size=parameters) * 0.5
    steps = 2 * 2.0 ** np.arange(bits) / (2.0**bits - 1)
    every = ((np.arange(64)[:, None] >> np.arange(6)) & 1).reshape(64, parameters, bits)
    updates = ((every - 0.5) * steps).sum(axis=2)
    weights = np.exp(-beta * (np.einsum("sd,de,se->s", updates, curvature, updates) + 2 * updates @ gradient))
    wide = [np.repeat(a[:, None], LANES, axis=1) for a in (gradient, steps)]
    arrays = [np.ascontiguousarray(a, dtype=dtype) for a in (curvature, *wide, np.full((60, LANES), beta))]
    counts = np.zeros(64)
    for _ in range(blocks):
        seeds = generator.integers(0, 2**63, size=LANES, dtype=np.uint64)
        words, streams = start(seeds, parameters, bits)
        for _ in range(6):
            _kernel.anneal_group(*arrays, words, streams)
            codes = _kernel.unpack_bits(words, bits).reshape(6, LANES).astype(int) << np.arange(6)[:, None]
            counts += np.bincount(codes.sum(axis=0), minlength=64)
    assert stats.chisquare(counts, weights / weights.sum() * counts.sum()).pvalue > 1e-3


def test_streams_and_first_states_come_from_the_tree_of_seeds():
    seeds = child_seeds(7, np.arange(5))
    words, streams = start(seeds, 3, 10)
    outputs = descend(seeds, np.arange(5)[:, None])
    np.testing.assert_array_equal(streams[::2, :5], outputs[:2] & np.uint64(2**32 - 1))
    np.testing.assert_array_equal(streams[1::2, :5], outputs[:2] >> np.uint64(32))
    np.testing.assert_array_equal(words[:, :5], (outputs[2:] >> np.uint64(54)) << np.uint64(22))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("geometric", [True, False])
def test_groups_and_cuts_change_nothing(dtype, geometric):
    """One call of 100 sweeps = calls of 64 and 36 = groups with temperatures made by hand."""
    (curvature, gradient, steps, _), words, streams = block(4, 8, 5, 1, 3, dtype)
    shares, intercept, slope = np.linspace(0, 1, 100), np.full(LANES, -2.0 if geometric else 0.1), np.full(LANES, 3.0)
    runs = []
    for cuts in ([0, 100], [0, 64, 100]):
        state = words.copy(), streams.copy()
        for first, last in itertools.pairwise(cuts):
            _kernel.anneal_block(curvature, gradient, steps, shares[first:last], intercept, slope, geometric, *state)
        runs.append(state[0])
    state = words.copy(), streams.copy()
    line = intercept + shares[:, None] * slope
    betas = (np.exp(line) if geometric else line).astype(dtype)
    for first in range(0, 100, _kernel.SWEEPS_PER_GROUP):
        _kernel.anneal_group(curvature, gradient, steps, betas[first : first + _kernel.SWEEPS_PER_GROUP], *state)
    for run in runs:
        np.testing.assert_array_equal(run, state[0])


def test_packing_is_undone_by_unpacking():
    bits = np.random.default_rng(0).integers(0, 2, size=(5, 9, 3)).astype(np.uint8)
    np.testing.assert_array_equal(_kernel.unpack_bits(_kernel.pack_bits(bits), 9), bits)
