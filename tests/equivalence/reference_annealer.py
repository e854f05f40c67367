"""The annealer in plain NumPy, vectorised over lanes only: what the kernel must reproduce flip for flip."""

import numpy as np


def draw(state):
    """One xoshiro128+ output of each lane; `state` (4, L) uint32 is overwritten."""
    result = state[0] + state[3]
    shifted = state[1] << np.uint32(9)
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= shifted
    state[3] = (state[3] << np.uint32(11)) | (state[3] >> np.uint32(21))
    return result


def anneal(curvature, gradient, steps, betas, bits, state):
    """Metropolis sweeps in double precision; bits (D, K, L) and state (4, L) are overwritten."""
    values = ((bits - 0.5) * steps).sum(axis=1)
    for beta in betas:
        for j in range(bits.shape[0]):
            for k in range(bits.shape[1]):
                field = curvature[j] @ values + gradient[j]
                change = np.where(bits[j, k] == 1, -steps[k], steps[k])
                difference = 2.0 * change * field + change**2 * curvature[j, j]
                uniform = (draw(state) >> np.uint32(1)) / 2.0**31
                accepted = (difference <= 0) | (uniform < np.exp(np.minimum(-beta * difference, 0.0)))
                bits[j, k] ^= accepted
                values[j] += np.where(accepted, change, 0.0)


def _fused(factor, vector, addend):
    """factor * vector + addend of float32 numbers, rounded once (the product is exact in longdouble)."""
    wide = np.longdouble
    return (wide(factor) * vector.astype(wide) + addend.astype(wide)).astype(np.float32)


def _log2_uniform(words, coefficients):
    number = (words >> np.uint32(1)).astype(np.int32).astype(np.float32)
    fields = number.view(np.uint32)
    exponent = ((fields >> np.uint32(23)).astype(np.int32) - 158).astype(np.float32)
    mantissa = (fields & np.uint32(0x7FFFFF)).astype(np.float32)
    value = np.full_like(mantissa, np.float32(coefficients[-1]))
    for coefficient in reversed(coefficients[:-1]):
        value = _fused(value, mantissa, np.full_like(value, np.float32(coefficient)))
    return _fused(value, mantissa, exponent)


def anneal_single(curvature, gradient, steps, betas, bits, state, coefficients, pending=4):
    """The same with the kernel's single-precision roundings, in its order of summation (FMA machines)."""
    half = np.float32(0.5)
    values = ((bits - 0.5) * steps.astype(float)).sum(axis=1)
    fields = gradient.astype(float)
    for j in range(len(values)):
        fields = fields + curvature[:, j, None].astype(float) * values[j]
    fields = fields.astype(np.float32)
    waiting = []
    for beta in betas:
        scale = beta * np.float32(-2.0 / np.log(2.0))
        for j in range(bits.shape[0]):
            field = fields[j]
            for row, change in waiting:
                field = _fused(curvature[row, j], change, field)
            field = field * scale
            stiffness = scale * curvature[j, j]
            total = np.zeros_like(field)
            for k in range(bits.shape[1]):
                change = np.where(bits[j, k] == 1, -steps[k], steps[k])
                probability = _fused(change, field, steps[k] * steps[k] * (stiffness * half))
                accepted = _log2_uniform(draw(state), coefficients) <= probability
                change = np.where(accepted, change, np.float32(0))
                field = _fused(change, stiffness, field)
                total = total + change
                bits[j, k] ^= accepted
            if np.any(total != 0):
                if len(waiting) == pending:
                    for row, change in waiting:
                        fields = _fused(curvature[row][:, None], np.broadcast_to(change, fields.shape), fields)
                    waiting = []
                waiting.append((j, total))
