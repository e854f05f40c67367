"""Simulated annealing of many problems at once, compiled by numba.

The problems ("lanes") share a symmetric curvature G (D x D) and differ in their gradient g, their bit
weights and their temperatures.  Parameter j of a lane has K bits, b_jk in {0, 1}, and the value

    u_j = sum_k steps_k (b_jk - 1/2),        E(b) = u'Gu + 2 g'u.

A sweep proposes to flip every bit once, parameter after parameter and bit after bit, and accepts with
the Metropolis probability min(1, exp(-beta dE)).  It is the same Markov chain that a dense
single-flip annealer in variable order runs on the (DK)-variable problem, but with the fields
h = Gu + g a proposal costs O(1):  dE = 2 (d h_j + d**2 G_jj / 2)  for a change d = +-steps_k.

Three things make it fast.

*   A block of LANES lanes is one vector value (see `_vectors`), which stays in registers while the bits
    of a parameter are visited; acceptance is a mask, never a branch.
*   "uniform < exp(-beta dE)" is tested as "log2(uniform) <= -beta dE / ln 2".  The logarithm does not
    depend on the state, so the processor computes it ahead, while the previous flip, on which the
    energy does depend, is being decided.  It needs no clamping either.
*   Only h_j matters while parameter j is visited, so its accepted changes are summed and reach the
    other fields later.  And as these are read one by one, the update can wait further: changed
    parameters are put on a list, whose effect on a field is added when it is read, and only a full
    list is applied to all fields, in one pass over them in place of PENDING passes.

The bits of a parameter are packed in one uint32 word a lane, b_j0 in the top bit, so that shifting
the word left brings the next bit to the sign position: bit k is (word >> (31 - k)) & 1, and the
32 - K low bits are zero.
"""

from functools import cache

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from annealfit._support._vectors import (
    LANES,
    any_lane,
    convert,
    flip_sign,
    load,
    log2_uniform,
    multiply_add,
    repeat,
    select,
    store,
)
from annealfit._support.compiled import array, compiled, constant, splitmix

MOST_BITS = 32  # of a parameter: one 32-bit word
PENDING = 4  # changed parameters that wait for one update of the fields: what fits in sixteen AVX2 registers
STATE_WORDS = 4  # 32-bit words in the state of a random stream
COLDEST = 1e30  # the largest β in units of the largest energy: far beyond it single precision ends
SWEEPS_PER_GROUP = 32  # between two recomputations of the fields, which keep single precision from drifting

_WORDS = array(types.uint32, 2)


@compiled(types.void(constant(types.uint64, 1), types.int64, _WORDS, _WORDS))
def start_block(seeds, bits, words, random_state):
    """Random bits and random streams of the lanes with these seeds, (n,) uint64 with n <= LANES.

    Overwrites words (D, LANES) and random_state (STATE_WORDS, LANES). A stream starts from two outputs
    of SplitMix64, as its author advises for the xoshiro family. They differ, since SplitMix64 is a
    bijection of a counter, so a state is never the forbidden all-zero one. The bits are made of
    further outputs.
    """
    for lane in range(len(seeds)):
        for half in range(2):
            output = splitmix(seeds[lane], half)
            random_state[2 * half, lane] = np.uint32(output)
            random_state[2 * half + 1, lane] = np.uint32(output >> np.uint64(32))
        for j in range(len(words)):
            top = np.uint32(splitmix(seeds[lane], j + 2) >> np.uint64(32))
            words[j, lane] = top & ~np.uint32((1 << (MOST_BITS - bits)) - 1)


def unpack_bits(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint8]:
    """Bits (D, bits, L) uint8 of packed words (D, L)."""
    shifts = np.arange(MOST_BITS - 1, MOST_BITS - 1 - bits, -1, dtype=np.uint32)
    return ((words[:, np.newaxis] >> shifts[:, np.newaxis]) & np.uint32(1)).astype(np.uint8)


def pack_bits(bits: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Packed words (D, L) uint32 of bits (D, K, L); the inverse of `unpack_bits`."""
    shifts = np.arange(MOST_BITS - 1, MOST_BITS - 1 - bits.shape[1], -1, dtype=np.uint32)
    return np.bitwise_or.reduce(bits.astype(np.uint32) << shifts[:, np.newaxis], axis=1)


@njit(forceinline=True)
def _decoded_fields(curvature, gradient, steps, words):
    """Fields h = G u + g, (D, LANES), summed in double precision and rounded to the gradient's dtype."""
    parameters = curvature.shape[0]
    values = np.empty((parameters, LANES), dtype=np.float64)
    zero = repeat(0.0, load(values, 0))
    for j in range(parameters):
        word = load(words, j)
        value = zero
        for k in range(steps.shape[0]):
            value = value + flip_sign(convert(load(steps, k), zero) * -0.5, word << k)
        store(values, j, value)

    fields = np.empty_like(gradient)
    for i in range(parameters):
        given = load(gradient, i)
        field = convert(given, zero)
        for j in range(parameters):
            field = multiply_add(curvature[i, j], load(values, j), field)
        store(fields, i, convert(field, given))
    return fields


@njit(forceinline=True)
def _apply_pending(curvature, fields, pending, changes):
    """fields[i] += sum_n curvature[pending[n], i] * changes[n] for all i, where n < PENDING = 4."""
    row_0, row_1, row_2, row_3 = pending[0], pending[1], pending[2], pending[3]
    change_0, change_1, change_2, change_3 = load(changes, 0), load(changes, 1), load(changes, 2), load(changes, 3)
    for i in range(curvature.shape[0]):
        field = multiply_add(curvature[row_0, i], change_0, load(fields, i))
        field = multiply_add(curvature[row_1, i], change_1, field)
        field = multiply_add(curvature[row_2, i], change_2, field)
        field = multiply_add(curvature[row_3, i], change_3, field)
        store(fields, i, field)


@compiled()
def anneal_group(curvature, gradient, steps, betas, words, random_state):
    """Run one sweep for each row of `betas` on a block of LANES lanes.

    curvature (D, D): symmetric G.  gradient (D, LANES): g.  steps (K, LANES): change of a parameter
    by each of its bits.  betas (S, LANES): inverse temperatures, finite.  These four are float32 or
    all float64, which selects the precision.  words (D, LANES) uint32, packed bits, and
    random_state (4, LANES) uint32, one xoshiro128+ stream per lane, are overwritten.  All arrays are
    C-contiguous.  Lanes do not influence each other; the content of unused ones is arbitrary.

    The fields are recomputed at each call.
    """
    parameters, bits = curvature.shape[0], steps.shape[0]
    fields = _decoded_fields(curvature, gradient, steps, words)
    half_squares = steps * steps * gradient.dtype.type(0.5)
    pending = np.zeros(PENDING, dtype=np.uintp)
    changes = np.zeros((PENDING, LANES), dtype=gradient.dtype)
    waiting = 0
    state_0, state_1 = load(random_state, 0), load(random_state, 1)
    state_2, state_3 = load(random_state, 2), load(random_state, 3)

    for sweep in range(betas.shape[0]):
        # The energies below are in units of -ln(2) / beta: log2 of the acceptance probability.
        scale = load(betas, sweep) * (-2.0 / np.log(2.0))
        for j in range(parameters):
            field = load(fields, j)
            for n in range(waiting):
                field = multiply_add(curvature[pending[n], j], load(changes, n), field)
            field = field * scale
            stiffness = scale * curvature[j, j]
            old_word = load(words, j)
            word = old_word
            total_change = repeat(0.0, field)

            for k in range(bits):
                # xoshiro128+ (Blackman and Vigna, 2021); its weak lowest bit is not used.
                draw = state_0 + state_3
                shifted = state_1 << 9
                state_2 = state_2 ^ state_0
                state_3 = state_3 ^ state_1
                state_1 = state_1 ^ state_2
                state_0 = state_0 ^ state_3
                state_2 = state_2 ^ shifted
                state_3 = (state_3 << 11) | (state_3 >> 21)

                change = flip_sign(load(steps, k), word)  # a bit that is 1 can only go down
                log2_probability = multiply_add(change, field, load(half_squares, k) * stiffness)
                accepted = log2_uniform(draw, field) <= log2_probability
                change = select(accepted, change, 0.0)
                field = multiply_add(change, stiffness, field)
                total_change = total_change + change
                # Drop the bit just visited and note at the other end whether it flipped.
                word = word + word + convert(accepted, word)

            store(words, j, old_word ^ (word << (MOST_BITS - bits)))
            if any_lane(total_change != 0.0):
                if waiting == PENDING:
                    _apply_pending(curvature, fields, pending, changes)
                    waiting = 0
                pending[waiting] = j
                store(changes, waiting, total_change)
                waiting += 1

    store(random_state, 0, state_0)
    store(random_state, 1, state_1)
    store(random_state, 2, state_2)
    store(random_state, 3, state_3)


@compiled()
def anneal_block(curvature, gradient, steps, shares, intercept, slope, geometric, words, random_state):
    """Run one sweep for each of `shares` (S,), in groups of SWEEPS_PER_GROUP.

    The inverse temperature of a lane is the intercept + share * slope, (LANES,) each, or the exponential of it
    where the schedule is geometric. The rest is as in `anneal_group`. Cutting the sweeps into several calls,
    at multiples of SWEEPS_PER_GROUP, changes nothing.
    """
    betas = np.empty((SWEEPS_PER_GROUP, LANES), dtype=gradient.dtype)
    for first in range(0, len(shares), SWEEPS_PER_GROUP):
        count = min(SWEEPS_PER_GROUP, len(shares) - first)
        for row in range(count):
            for lane in range(LANES):
                beta = intercept[lane] + shares[first + row] * slope[lane]
                # Finite also in single precision: so cold a lane accepts no step upward either way.
                betas[row, lane] = min(np.exp(beta) if geometric else beta, COLDEST)
        anneal_group(curvature, gradient, steps, betas[:count], words, random_state)


@cache
def load_for(precision: str) -> None:
    """Load `anneal_block` for "single" or "double" precision; compile it on a machine's first use."""
    real = types.float64 if precision == "double" else types.float32
    matrix, line = array(real, 2), array(types.float64, 1)
    anneal_block.compile((matrix, matrix, matrix, line, line, line, types.boolean, _WORDS, _WORDS))
