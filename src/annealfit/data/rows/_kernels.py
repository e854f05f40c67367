"""Compiled passes over rows: Gram matrices, and the sums of the links, whose arrays are (classes, n)."""

import math

import numpy as np
from llvmlite import ir
from numba import int32, intp, njit, types, void
from numba.extending import intrinsic

from annealfit._support._vectors import LANES, convert, load, multiply_add, repeat, store
from annealfit._support.compiled import In1, In2, In3, InInt1, Out1, Out2, Out3, compiled, constant

InInt32, SUMS = constant(int32, 1), types.UniTuple(types.float64, 2)
ROWS_IN_REGISTERS = 64  # rows whose sums are added up in registers
ROWS = 512  # at a time: their outputs of ten classes stay in the cache
FUSED = {"contract", "nsz"}  # a product and a sum may become one instruction; nothing is reordered
ANY_ORDER = {"reassoc", "contract", "nsz"}  # sums may be vectorised; their order is the same at every call

LEAST_EXPONENT = -80.0  # smaller exponents count as this one: a probability of 1e-35
# log 2 in two parts; the first has so few digits that its integer multiples are exact.
LOG_2_HIGH, LOG_2_LOW = 0.693359375, math.log(2) - 0.693359375
ROUND_TO_INTEGER = 1.5 * 2.0**52  # adding it leaves no digits behind the point; the integer is in the last bits
TAYLOR = tuple(1 / math.factorial(power) for power in range(13, -1, -1))


@njit(forceinline=True)
def add_in_double(totals, place, vector):
    """Add a vector of any precision to one in double, in an array as in `load`."""
    before = load(totals, place)
    store(totals, place, before + convert(vector, before))


@compiled(void(In2, In1, In1, intp, intp, Out2))
def gram_of_block(features, origin, roots, first, last, gram):
    """Set gram to `Σ r² (x − o)(x − o)ᵀ` of the features first … last − 1 of rows (n, d) and a constant 1.

    `origin` is (d,) and `roots` (n,).
    """
    own, size = origin[first:last], last - first
    blocks = -(-size // LANES)
    rooted = np.zeros((ROWS_IN_REGISTERS, blocks * LANES))
    products, sums, total = np.zeros((blocks * LANES, blocks * LANES)), np.zeros(size), 0.0
    nothing = repeat(0.0, load(rooted, 0))
    for start in range(0, len(features), ROWS_IN_REGISTERS):
        count = min(ROWS_IN_REGISTERS, len(features) - start)
        for row in range(count):
            x, y, root = features[start + row, first:last], rooted[row], roots[start + row]
            for j in range(size):
                y[j] = root * (x[j] - own[j])
            for j in range(size):
                sums[j] += root * y[j]
            total += root * root
        for block in range(blocks):
            for i in range(0, min((block + 1) * LANES, size), 4):
                sum0 = sum1 = sum2 = sum3 = nothing
                for row in range(count):
                    x, y = load(rooted, row * blocks + block), rooted[row]
                    sum0 = multiply_add(y[i], x, sum0)
                    sum1 = multiply_add(y[i + 1], x, sum1)
                    sum2 = multiply_add(y[i + 2], x, sum2)
                    sum3 = multiply_add(y[i + 3], x, sum3)
                place = i * blocks + block
                add_in_double(products, place, sum0)
                add_in_double(products, place + blocks, sum1)
                add_in_double(products, place + 2 * blocks, sum2)
                add_in_double(products, place + 3 * blocks, sum3)
    for i in range(size):
        for j in range(i + 1):
            gram[i, j] = gram[j, i] = products[j, i]
        gram[i, size] = gram[size, i] = sums[i]
    gram[size, size] = total


@compiled(void(In2, In1, In1, Out1), fastmath=ANY_ORDER)
def add_squares(features, origin, values, found):
    """Add `Σ v (x − o)²` to `found` (d,), of features (n, d or more), origin (d,) and values (n,)."""
    for row in range(len(features)):
        x, value = features[row], values[row]
        for j in range(len(origin)):
            found[j] += value * (x[j] - origin[j]) ** 2


@compiled(void(In1, InInt32, InInt1, In1, Out2), void(In1, InInt1, InInt1, In1, Out2))
def gram_of_sparse_block(data, rows, starts, values, gram):
    """Set gram to `Σ v x xᵀ` of sparse columns and a constant 1.

    Column j has the entries starts[j] … starts[j + 1] − 1 of data and rows; values are (n,).
    """
    size, scaled = len(starts) - 1, np.zeros(len(values))
    for j in range(size):
        total = 0.0
        for k in range(starts[j], starts[j + 1]):
            scaled[rows[k]] = data[k] * values[rows[k]]
            total += scaled[rows[k]]
        gram[j, size] = gram[size, j] = total
        for i in range(j + 1):
            product = 0.0
            for k in range(starts[i], starts[i + 1]):
                product += data[k] * scaled[rows[k]]
            gram[i, j] = gram[j, i] = product
        for k in range(starts[j], starts[j + 1]):
            scaled[rows[k]] = 0.0
    gram[size, size] = values.sum()


# Sums of the softmax and the logistic link


def _bitcast(source, target, llvm_type):
    @intrinsic
    def cast(typing_context, value):
        return target(source), lambda context, builder, signature, given: builder.bitcast(given[0], llvm_type)

    return cast


_as_integer = _bitcast(types.float64, types.int64, ir.IntType(64))
_as_number = _bitcast(types.int64, types.float64, ir.DoubleType())


@njit(nogil=True, inline="always", fastmath=FUSED)
def exponential(x):
    """Return `exp(x)` for x ≤ 0, to two units in the last place. It vectorises; the C library's does not."""
    x = LEAST_EXPONENT if x < LEAST_EXPONENT else x  # NaN stays NaN
    doublings = x * (1 / math.log(2)) + ROUND_TO_INTEGER
    power = _as_number((_as_integer(doublings) << 52) + (1023 << 52))
    doublings -= ROUND_TO_INTEGER
    x = (x - doublings * LOG_2_HIGH) - doublings * LOG_2_LOW
    result = TAYLOR[0]
    for coefficient in TAYLOR[1:]:
        result = result * x + coefficient
    return result * power


@njit(nogil=True, fastmath=FUSED)
def _exponentials(outputs, first, last, found, best, largest, total):
    """Set `found` (C, n) to exp(z − max z) for some rows, with the first largest output, its class, and the sums."""
    size = last - first
    output = outputs[0, first:last]
    for i in range(size):
        best[i], largest[i], total[i] = 0, output[i], 0
    for c in range(1, len(outputs)):
        output = outputs[c, first:last]
        for i in range(size):
            best[i] = c if output[i] > largest[i] else best[i]
            largest[i] = output[i] if output[i] > largest[i] else largest[i]
    for c in range(len(outputs)):
        output, row = outputs[c, first:last], found[c, first:last]
        for i in range(size):
            row[i] = exponential(output[i] - largest[i])
            total[i] += row[i]


@njit(nogil=True, fastmath=FUSED)
def _divide(found, first, last, total):
    """Divide some rows of exponentials by their sums; the sums become their inverses."""
    for i in range(last - first):
        total[i] = 1 / total[i]
    for c in range(len(found)):
        row = found[c, first:last]
        for i in range(last - first):
            row[i] *= total[i]


@compiled(SUMS(In2, InInt1, In1, Out2, Out2), fastmath=FUSED)
def evaluate(outputs, labels, weights, probabilities, residuals):
    """Compute the softmax π (C, n) of outputs and `a(π − y)`; return `Σ aℓ` and the weight of the right rows.

    A row is right if its first largest output is. Without weights a (n,) every row has the weight 1.
    """
    best, largest, total = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
    loss = right = 0.0
    for first in range(0, outputs.shape[1], ROWS):
        last = min(first + ROWS, outputs.shape[1])
        _exponentials(outputs, first, last, probabilities, best, largest, total)
        for row in range(first, last):
            i, weight = row - first, weights[row] if len(weights) else 1.0
            loss += weight * (math.log(total[i]) + (largest[i] - outputs[labels[row], row]))
            right += weight if best[i] == labels[row] else 0.0
        _divide(probabilities, first, last, total)
        for c in range(len(outputs)):
            probability, residual = probabilities[c, first:last], residuals[c, first:last]
            for i in range(last - first):
                residual[i] = probability[i]
            if len(weights):
                for i in range(last - first):
                    residual[i] *= weights[first + i]
        for row in range(first, last):
            own = probabilities[labels[row], row] - 1
            residuals[labels[row], row] = own * weights[row] if len(weights) else own
    return loss, right


@compiled(SUMS(In2, InInt1, In1, Out2, Out2), fastmath=FUSED)
def evaluate_logit(outputs, labels, weights, probabilities, residuals):
    """Compute `evaluate` for two classes, whose one output (1, n) is the logit of the second."""
    logits, probability, residual = outputs[0], probabilities[0], residuals[0]
    for i in range(len(logits)):
        odds = exponential(-abs(logits[i]))  # of the less likely class
        likely = 1 / (1 + odds)
        probability[i] = likely if logits[i] > 0 else odds * likely
        residual[i] = odds
    loss = right = 0.0
    for i in range(len(logits)):
        weight, logit = weights[i] if len(weights) else 1.0, logits[i] if labels[i] == 1 else -logits[i]
        loss += weight * (math.log1p(residual[i]) + max(-logit, 0.0))
        right += weight if (logits[i] > 0) == (labels[i] == 1) else 0.0
        residual[i] = weight * (probability[i] - labels[i])
    return loss, right


@compiled(void(In2, Out1), fastmath=FUSED)
def mean_variances(outputs, variances):
    """Compute the mean over the classes of `π(1 − π)` (n,), with π the softmax of outputs (C, n)."""
    best, largest, total = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
    weights = np.empty_like(outputs)
    for first in range(0, outputs.shape[1], ROWS):
        last = min(first + ROWS, outputs.shape[1])
        _exponentials(outputs, first, last, weights, best, largest, total)
        own = variances[first:last]
        own[:] = 0
        for c in range(len(outputs)):
            weight = weights[c, first:last]
            for i in range(len(own)):
                own[i] += weight[i] * weight[i]
        for i in range(len(own)):
            own[i] = max(1 - own[i] / (total[i] * total[i]), 0.0) / len(outputs)  # rounding may make it negative


@compiled(void(In2, In1, Out2, Out1), fastmath=FUSED)
def tilt(logits, biases, probabilities, entropies):
    """Compute the softmax of logits (C, n) plus biases (C,), and its entropies (n,). A bias of −∞ leaves a class out.

    `H(π) = log Σ exp(z) − Σ π z` with z measured from the largest: no term is negative, so nothing cancels.
    """
    largest, total, shares = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
    for first in range(0, logits.shape[1], ROWS):
        last = min(first + ROWS, logits.shape[1])
        size = last - first
        for i in range(size):
            largest[i], total[i], shares[i] = -np.inf, 0, 0
        for c in range(len(logits)):
            logit, bias = logits[c, first:last], biases[c]
            for i in range(size):
                value = logit[i] + bias
                largest[i] = largest[i] if largest[i] >= value else value
        for c in range(len(logits)):
            logit, probability, bias = logits[c, first:last], probabilities[c, first:last], biases[c]
            if bias == -np.inf:
                probability[:] = 0
                continue
            for i in range(size):
                value = max(logit[i] + bias - largest[i], LEAST_EXPONENT)
                probability[i] = exponential(value)
                total[i] += probability[i]
                shares[i] += probability[i] * value
        for i in range(size):
            entropies[first + i] = math.log(total[i]) - shares[i] / total[i]
        _divide(probabilities, first, last, total)


@compiled(void(In2, In3, In1, InInt1, Out2, Out3), fastmath=ANY_ORDER)
def sum_over_groups(probabilities, changes, roots, edges, shares, squares):
    """Compute sums over the outputs of each group, of changes z (m, C, n) under probabilities π (C, n).

    The outputs of group g are edges[g] … edges[g + 1] − 1. Set `shares` (m·G, n) to `√a Σ π z`, and `squares` (G, m, m)
    to `Σ_n a Σ π z z'`; row n has the weight `a = roots[n]²`, or 1 if `roots` is empty.
    """
    count, groups = len(changes), len(edges) - 1
    weighted = np.empty(len(probabilities[0]))
    shares[:] = 0
    squares[:] = 0
    for g in range(groups):
        for c in range(edges[g], edges[g + 1]):
            probability = probabilities[c]
            for a in range(count):
                change, share = changes[a, c], shares[a * groups + g]
                for i in range(len(change)):
                    weighted[i] = probability[i] * change[i]
                for i in range(len(roots)):
                    weighted[i] *= roots[i]
                for i in range(len(change)):
                    share[i] += weighted[i]
                for i in range(len(roots)):
                    weighted[i] *= roots[i]
                for b in range(a + 1):
                    other, total = changes[b, c], 0.0
                    for i in range(len(other)):
                        total += weighted[i] * other[i]
                    squares[g, a, b] += total
        for a in range(count):
            for b in range(a):
                squares[g, b, a] = squares[g, a, b]
