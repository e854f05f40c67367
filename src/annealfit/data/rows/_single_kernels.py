"""Compiled passes over rows of many features, copied in single precision: products, sums, and the copy itself.

Every row is read once, from where it is stored. A BLAS copies its operands into an order of its own first, which takes
as long as the product if there are only ten outputs.
"""

from numba import float32, float64, void

from annealfit._support._vectors import LANES, convert, load, multiply_add, repeat
from annealfit._support.compiled import In1, In2, Out1, Out2, array, compiled, constant
from annealfit.data.rows._kernels import ANY_ORDER, ROWS_IN_REGISTERS, add_in_double

InSingle2, OutSingle2 = constant(float32, 2), array(float32, 2)
OUTPUTS_AT_ONCE = 5  # their sums for four rows fit into the registers of AVX-512


@compiled(void(InSingle2, InSingle2, float64, In1, Out2), void(In2, In2, float64, In1, Out2), fastmath=ANY_ORDER)
def project_rows(features, weights, unit, offsets, outputs):
    """Set outputs (O, n) to `unit·WXᵀ + offsets`, of features (n, d), weights (O, d) and offsets (O,)."""
    count, size = features.shape
    grouped = len(weights) // OUTPUTS_AT_ONCE * OUTPUTS_AT_ONCE
    nothing = features.dtype.type(0)
    for row in range(0, count, 4):
        # The last row is computed several times where the number of rows is no multiple of four.
        second, third, fourth = min(row + 1, count - 1), min(row + 2, count - 1), min(row + 3, count - 1)
        x, y, z, u = features[row], features[second], features[third], features[fourth]
        for first in range(0, grouped, OUTPUTS_AT_ONCE):
            w0, w1, w2 = weights[first], weights[first + 1], weights[first + 2]
            w3, w4 = weights[first + 3], weights[first + 4]
            x0 = x1 = x2 = x3 = x4 = nothing
            y0 = y1 = y2 = y3 = y4 = nothing
            z0 = z1 = z2 = z3 = z4 = nothing
            u0 = u1 = u2 = u3 = u4 = nothing
            for j in range(size):
                x0 += x[j] * w0[j]
                x1 += x[j] * w1[j]
                x2 += x[j] * w2[j]
                x3 += x[j] * w3[j]
                x4 += x[j] * w4[j]
                y0 += y[j] * w0[j]
                y1 += y[j] * w1[j]
                y2 += y[j] * w2[j]
                y3 += y[j] * w3[j]
                y4 += y[j] * w4[j]
                z0 += z[j] * w0[j]
                z1 += z[j] * w1[j]
                z2 += z[j] * w2[j]
                z3 += z[j] * w3[j]
                z4 += z[j] * w4[j]
                u0 += u[j] * w0[j]
                u1 += u[j] * w1[j]
                u2 += u[j] * w2[j]
                u3 += u[j] * w3[j]
                u4 += u[j] * w4[j]
            outputs[first, row], outputs[first + 1, row], outputs[first + 2, row] = x0, x1, x2
            outputs[first + 3, row], outputs[first + 4, row] = x3, x4
            outputs[first, second], outputs[first + 1, second], outputs[first + 2, second] = y0, y1, y2
            outputs[first + 3, second], outputs[first + 4, second] = y3, y4
            outputs[first, third], outputs[first + 1, third], outputs[first + 2, third] = z0, z1, z2
            outputs[first + 3, third], outputs[first + 4, third] = z3, z4
            outputs[first, fourth], outputs[first + 1, fourth], outputs[first + 2, fourth] = u0, u1, u2
            outputs[first + 3, fourth], outputs[first + 4, fourth] = u3, u4
        for o in range(grouped, len(weights)):
            w = weights[o]
            x0 = y0 = z0 = u0 = nothing
            for j in range(size):
                x0 += x[j] * w[j]
                y0 += y[j] * w[j]
                z0 += z[j] * w[j]
                u0 += u[j] * w[j]
            outputs[o, row], outputs[o, second], outputs[o, third], outputs[o, fourth] = x0, y0, z0, u0
    for o in range(len(outputs)):
        for row in range(count):
            outputs[o, row] = unit * outputs[o, row] + offsets[o]


@compiled(void(InSingle2, In2, Out2))
def add_moments(features, values, moments):
    """Add `VX` to moments (O, d), of features (n, d) and values (O, n); d is a multiple of LANES."""
    blocks = features.shape[1] // LANES
    nothing = repeat(0.0, load(moments, 0))
    grouped = len(values) // OUTPUTS_AT_ONCE * OUTPUTS_AT_ONCE
    for first in range(0, len(features), ROWS_IN_REGISTERS):
        last = min(first + ROWS_IN_REGISTERS, len(features))
        for output in range(0, grouped, OUTPUTS_AT_ONCE):
            v0, v1, v2 = values[output], values[output + 1], values[output + 2]
            v3, v4 = values[output + 3], values[output + 4]
            for block in range(blocks):
                sum0 = sum1 = sum2 = sum3 = sum4 = nothing
                for row in range(first, last):
                    x = convert(load(features, row * blocks + block), nothing)
                    sum0 = multiply_add(v0[row], x, sum0)
                    sum1 = multiply_add(v1[row], x, sum1)
                    sum2 = multiply_add(v2[row], x, sum2)
                    sum3 = multiply_add(v3[row], x, sum3)
                    sum4 = multiply_add(v4[row], x, sum4)
                place = output * blocks + block
                add_in_double(moments, place, sum0)
                add_in_double(moments, place + blocks, sum1)
                add_in_double(moments, place + 2 * blocks, sum2)
                add_in_double(moments, place + 3 * blocks, sum3)
                add_in_double(moments, place + 4 * blocks, sum4)
        for output in range(grouped, len(values)):
            v, found = values[output], moments[output]
            for row in range(first, last - 7, 8):
                x0, x1, x2, x3 = features[row], features[row + 1], features[row + 2], features[row + 3]
                x4, x5, x6, x7 = features[row + 4], features[row + 5], features[row + 6], features[row + 7]
                v0, v1, v2, v3 = v[row], v[row + 1], v[row + 2], v[row + 3]
                v4, v5, v6, v7 = v[row + 4], v[row + 5], v[row + 6], v[row + 7]
                for j in range(features.shape[1]):
                    early = (v0 * x0[j] + v1 * x1[j]) + (v2 * x2[j] + v3 * x3[j])
                    found[j] += early + ((v4 * x4[j] + v5 * x5[j]) + (v6 * x6[j] + v7 * x7[j]))
            for row in range(last - (last - first) % 8, last):
                x, v0 = features[row], v[row]
                for j in range(features.shape[1]):
                    found[j] += v0 * x[j]


@compiled(void(In2, In1, OutSingle2), void(InSingle2, In1, OutSingle2))
def subtract_centre(features, centre, copy):
    """Set the first d columns of copy (n, d or more) to `features − centre` in single precision."""
    for row in range(len(features)):
        x, y = features[row], copy[row]
        for j in range(len(centre)):
            y[j] = x[j] - centre[j]


@compiled(
    void(In2, In1, In1, OutSingle2, Out2, Out1), void(InSingle2, In1, In1, OutSingle2, Out2, Out1), fastmath=ANY_ORDER
)
def add_columns(features, weights, centre, copy, totals, farthest):
    """Compute `subtract_centre`, and add to totals (3, d) weighted sums of features (n, d), squares and magnitudes.

    `farthest` (d,) becomes the largest distance of each column from the centre (d,), or what it was.
    """
    sums, squares, magnitudes = totals[0], totals[1], totals[2]
    for row in range(0, len(features), 2):
        other = min(row + 1, len(features) - 1)  # the last row of an odd number is its own pair, with weight 0
        x, y, x_copy, y_copy = features[row], features[other], copy[row], copy[other]
        a, b = weights[row], weights[other] if other > row else 0.0
        for j in range(len(centre)):
            x_distance, y_distance = x[j] - centre[j], y[j] - centre[j]
            x_copy[j], y_copy[j] = x_distance, y_distance
            distance = max(abs(x_distance), abs(y_distance))
            farthest[j] = farthest[j] if farthest[j] >= distance else distance
            sums[j] += a * x[j] + b * y[j]
            squares[j] += a * x[j] * x[j] + b * y[j] * y[j]
            magnitudes[j] += a * abs(x[j]) + b * abs(y[j])
