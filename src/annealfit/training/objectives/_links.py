"""The softmax of many rows at once, and what is worked out with it, compiled by numba.

Arrays are (classes, n), as in `annealfit.training.objectives.links`; some rows at a time stay in the cache.
"""

import math

import numpy as np
from numba import njit

from annealfit.training.objectives._exponential import EXACT, SMALLEST, exponential

ROWS_AT_ONCE = 512


@njit(nogil=True)
def _space(dtype):
    return np.empty(ROWS_AT_ONCE, dtype)


@njit(nogil=True, fastmath=EXACT)
def _weigh(outputs, first, last, probabilities, best, largest, total):
    """Of the outputs (C, n) of some rows the first largest, and which one it is; and of all of them exponentials.

    Whole arrays come in, and rows are cut out here: a compiler that sees a part of an array does not trust its order.
    """
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
        output, probability = outputs[c, first:last], probabilities[c, first:last]
        for i in range(size):
            probability[i] = exponential(output[i] - largest[i])
            total[i] += probability[i]


@njit(nogil=True, fastmath=EXACT)
def _divide(probabilities, first, last, total):
    """Make the exponentials of some rows probabilities; totals become their inverses."""
    for i in range(last - first):
        total[i] = 1 / total[i]
    for c in range(len(probabilities)):
        probability = probabilities[c, first:last]
        for i in range(last - first):
            probability[i] *= total[i]


@njit(nogil=True, cache=True, fastmath=EXACT)
def softmax_of_rows(outputs, probabilities):
    """The softmax over the classes of outputs (C, n); probabilities (C, n) are overwritten."""
    best, largest, total = _space(outputs.dtype), _space(outputs.dtype), _space(outputs.dtype)
    for first in range(0, outputs.shape[1], ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, outputs.shape[1])
        _weigh(outputs, first, last, probabilities, best, largest, total)
        _divide(probabilities, first, last, total)


@njit(nogil=True, cache=True, fastmath=EXACT)
def evaluate(outputs, labels, probabilities, losses, right):
    """The softmax (C, n) of outputs, and of every row its loss and whether its first largest output is its label's.

    probabilities, losses (n,) in double precision and right (n,) are overwritten.
    """
    best, largest, total = _space(outputs.dtype), _space(outputs.dtype), _space(outputs.dtype)
    for first in range(0, outputs.shape[1], ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, outputs.shape[1])
        _evaluate(outputs, labels, first, last, probabilities, losses, right, best, largest, total)


@njit(nogil=True, fastmath=EXACT)
def _evaluate(outputs, labels, first, last, probabilities, losses, right, best, largest, total):
    """The same of some rows."""
    _weigh(outputs, first, last, probabilities, best, largest, total)
    for row in range(first, last):
        i, label = row - first, labels[row]
        losses[row] = math.log(np.float64(total[i])) + (largest[i] - outputs[label, row])
        right[row] = best[i] == label
    _divide(probabilities, first, last, total)


@njit(nogil=True, cache=True, fastmath=EXACT)
def mean_spreads(outputs, spreads):
    """The mean over the classes of `π(1 − π)`, with π the softmax of outputs (C, n); spreads (n,) are overwritten."""
    best, largest, total = _space(outputs.dtype), _space(outputs.dtype), _space(outputs.dtype)
    weights = np.empty_like(outputs)
    for first in range(0, outputs.shape[1], ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, outputs.shape[1])
        _weigh(outputs, first, last, weights, best, largest, total)
        spread = spreads[first:last]
        for i in range(len(spread)):
            spread[i] = 0
        for c in range(len(outputs)):
            weight = weights[c, first:last]
            for i in range(len(spread)):
                spread[i] += weight[i] * weight[i]
        for i in range(len(spread)):
            # Rounding may take a little more than there is from a row that is decided.
            spread[i] = max(1 - spread[i] / (total[i] * total[i]), 0) / len(outputs)


@njit(nogil=True, cache=True, fastmath=EXACT)
def tilt(logits, biases, probabilities, entropies):
    """The softmax of logits (C, n) with biases (C,) added to them, and its entropies (n,); both are overwritten.

    `H(π) = log Σ exp(z) − Σ π z`, with z measured from the largest: nothing of it is negative, so nothing cancels. A
    bias of −∞ leaves a class out.
    """
    largest, total, shares = _space(logits.dtype), _space(logits.dtype), _space(logits.dtype)
    for first in range(0, logits.shape[1], ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, logits.shape[1])
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
                for i in range(size):
                    probability[i] = 0
            else:
                for i in range(size):
                    value = logit[i] + bias - largest[i]
                    value = SMALLEST if value < SMALLEST else value
                    probability[i] = exponential(value)
                    total[i] += probability[i]
                    shares[i] += probability[i] * value
        for i in range(size):
            entropies[first + i] = math.log(total[i]) - shares[i] / total[i]
        _divide(probabilities, first, last, total)


@njit(nogil=True, fastmath=EXACT)
def _step(outputs, multiples, changes, first, last, balance, moved, common):
    """The outputs of some rows, moved by multiples (m, C) of changes (m, C, n); with `balance` less their mean."""
    size = last - first
    for i in range(size):
        common[i] = 0
    for c in range(len(outputs)):
        before, after = outputs[c, first:last], moved[c, first:last]
        for i in range(size):
            after[i] = before[i]
        for a in range(len(changes)):
            change, multiple = changes[a, c, first:last], multiples[a, c]
            for i in range(size):
                after[i] += multiple * change[i]
        for i in range(size):
            common[i] += after[i]
    if balance:
        for c in range(len(outputs)):
            after = moved[c, first:last]
            for i in range(size):
                after[i] -= common[i] / len(outputs)


@njit(nogil=True, cache=True, fastmath=EXACT)
def move(outputs, multiples, changes, labels, balance, moved, probabilities, losses, right):
    """Outputs (C, n) after multiples (m, C) of changes (m, C, n), in `moved`; and `evaluate` of them.

    With `balance` moved outputs are measured from their mean over the classes. moved, probabilities, losses (n,) and
    right (n,) are overwritten.
    """
    best, largest, total = _space(outputs.dtype), _space(outputs.dtype), _space(outputs.dtype)
    for first in range(0, outputs.shape[1], ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, outputs.shape[1])
        _step(outputs, multiples, changes, first, last, balance, moved, total)
        _evaluate(moved, labels, first, last, probabilities, losses, right, best, largest, total)


@njit(nogil=True, cache=True)
def subtract_labels(probabilities, labels, residuals):
    """`π − y` where y is 1, of probabilities (C, n), in residuals (C, n), which may be the same array."""
    for i in range(len(labels)):
        residuals[labels[i], i] = probabilities[labels[i], i] - 1


@njit(nogil=True, cache=True, fastmath=EXACT)
def move_logit(logits, multiples, changes, labels, moved, probabilities, losses, right):
    """What `move` is for two classes, whose one output is the logit of the second: arrays are (n,), changes (m, n)."""
    for i in range(len(logits)):
        moved[i] = logits[i]
    for a in range(len(changes)):
        change, multiple = changes[a], multiples[a]
        for i in range(len(logits)):
            moved[i] += multiple * change[i]
    for i in range(len(logits)):
        logit = moved[i]
        odds = exponential(-abs(logit))  # of the less likely class
        likely = 1 / (1 + odds)
        probabilities[i] = likely if logit > 0 else odds * likely
        losses[i] = odds
    for i in range(len(logits)):
        logit = moved[i] if labels[i] == 1 else -moved[i]
        losses[i] = math.log1p(losses[i]) + max(-logit, 0.0)
        right[i] = (moved[i] > 0) == (labels[i] == 1)
