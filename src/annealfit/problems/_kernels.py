"""Compiled kernels of curvatures: coordinate descent in a box (for bounds), products, small linear systems."""

from __future__ import annotations

import numpy as np
from numba import float64, njit
from numba.types import Tuple
from numpy.typing import NDArray

from annealfit._support.compiled import In1, In2, InInt1, InInt2, Out1, Out2, compiled

EPSILON = float(np.finfo(np.float64).eps)
IN_REGISTERS = {"reassoc", "contract"}
"""Sums may be added up in vector registers; always in the same order."""


@njit(nogil=True)
def cut_block(
    entries: NDArray[np.float64], edges: NDArray[np.intp], block: int
) -> tuple[int, int, NDArray[np.float64]]:
    """Where a block's parameters begin and end, and its matrix (see `Curvature.packed`)."""
    first, last, start = edges[block]
    return first, last, entries[start : start + (last - first) ** 2].reshape((last - first, last - first))


@compiled(Out2(In1, InInt2, InInt1, In1, In2))
def multiply(
    entries: NDArray[np.float64],
    edges: NDArray[np.intp],
    places: NDArray[np.intp],
    alone: NDArray[np.float64],
    values: NDArray[np.float64],
) -> NDArray[np.float64]:
    """`Gv` for every row of values (P, D), with the blocks of `Curvature.packed` and the rest in `Curvature.alone`."""
    products = np.zeros_like(values)
    for p in range(len(values)):
        for k in range(len(places)):
            products[p, places[k]] = alone[k] * values[p, places[k]]
    for block in range(len(edges)):
        first, last, matrix = cut_block(entries, edges, block)
        for j in range(last - first):
            row = matrix[j]
            for p in range(len(values)):
                factor, product = values[p, first + j], products[p, first:last]
                for i in range(len(row)):
                    product[i] += factor * row[i]
    return products


@njit(nogil=True)
def _best_value(stiffness: float, value: float, residual: float, radius: float) -> float:
    """Where a parameter of |v| ≤ radius has the least energy, the others as they are, for `residual` at its value."""
    if stiffness > 0:
        target = value - residual / stiffness
    elif stiffness == 0:  # flat in this direction: the minimum is at a corner, or anywhere
        target = 0.0 if residual == 0 else (-radius if residual > 0 else radius)
    else:  # concave: at the corner that the slope in the middle leads to, or at either
        target = -radius if residual - stiffness * value > 0 else radius
    return min(max(target, -radius), radius)


@compiled(Tuple((Out2, Out1))(In1, InInt2, InInt1, In1, In2, In2, In1, float64, float64))
def minimise(
    entries: NDArray[np.float64],
    edges: NDArray[np.intp],
    places: NDArray[np.intp],
    alone: NDArray[np.float64],
    gradients: NDArray[np.float64],
    starts: NDArray[np.float64],
    radii: NDArray[np.float64],
    max_sweeps: float,
    relative_gap: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Minimise `vᵀGv + 2gᵀv` over |v_j| ≤ radius for each of P problems; returns `(v, lower bounds)`.

    G has blocks (see `Curvature.packed`), whose bounds add up. `gradients`, `starts` (which may be outside of the box)
    and `v` are (P, D), `radii` and the bounds (P,). A bound is lowered by a margin that covers the rounding of its own
    evaluation. A row of the curvature is used for all problems while it is in the cache.
    """
    count = len(gradients)
    values, bounds = np.empty_like(starts), np.zeros(count)
    for p in range(count):
        for j in range(values.shape[1]):
            values[p, j] = min(max(starts[p, j], -radii[p]), radii[p])
    residuals = multiply(entries, edges, places, alone, values)  # r = Gv + g, kept up to date
    for p in range(count):
        for j in range(values.shape[1]):
            residuals[p, j] += gradients[p, j]
        magnitude = 0.0
        for k in range(len(places)):
            j, radius = places[k], radii[p]
            value = _best_value(alone[k], values[p, j], residuals[p, j], radius)
            residuals[p, j] += alone[k] * (value - values[p, j])
            values[p, j] = value
            residual, gradient = residuals[p, j], gradients[p, j]
            bounds[p] += value * (residual + gradient) - 2 * (radius * abs(residual) + residual * value)
            magnitude += radius * (abs(residual) + abs(gradient) + abs(alone[k]) * radius)
        bounds[p] -= 8 * EPSILON * len(places) * magnitude
    best, active = np.empty(count), np.empty(count, dtype=np.bool_)
    for block in range(len(edges)):
        first, last, curvature = cut_block(entries, edges, block)
        for p in range(count):
            best[p], active[p] = -np.inf, True
        unfinished, sweeps = count, 0
        while unfinished > 0 and sweeps < max_sweeps:
            for j in range(last - first):
                stiffness, row = curvature[j, j], curvature[j]
                for p in range(count):
                    if not active[p]:
                        continue
                    value, residual, radius = values[p, first:last], residuals[p, first:last], radii[p]
                    change = _best_value(stiffness, value[j], residual[j], radius) - value[j]
                    if change != 0:
                        value[j] += change
                        for i in range(last - first):
                            residual[i] += change * row[i]
            sweeps += 1
            for p in range(count):
                if not active[p]:
                    continue
                value, residual, gradient = values[p, first:last], residuals[p, first:last], gradients[p, first:last]
                energy = slack = magnitude = 0.0
                for j in range(last - first):
                    energy += value[j] * (residual[j] + gradient[j])
                    slack += 2 * (radii[p] * abs(residual[j]) + residual[j] * value[j])
                    # |r_j| is a sum of cancelling terms no larger than its parts
                    magnitude += radii[p] * (abs(residual[j]) + abs(gradient[j]) + curvature[j, j] * radii[p])
                margin = 8 * EPSILON * (last - first) * max_sweeps * magnitude
                best[p] = max(best[p], energy - slack - margin)
                active[p] = energy - best[p] > relative_gap * abs(energy) + 2 * margin
                unfinished -= not active[p]
        for p in range(count):
            bounds[p] += best[p]
    return values, bounds


@compiled(Out2(In1, InInt2, InInt1, In1, In2), fastmath=IN_REGISTERS)
def solve(
    factors: NDArray[np.float64],
    edges: NDArray[np.intp],
    places: NDArray[np.intp],
    alone: NDArray[np.float64],
    values: NDArray[np.float64],
) -> NDArray[np.float64]:
    """`(LLᵀ)⁻¹v` for every row of values (P, D), lower triangular blocks packed as in `Curvature.packed`."""
    solutions = values.copy()
    for p in range(len(values)):
        for k in range(len(places)):
            solutions[p, places[k]] /= alone[k]
    for block in range(len(edges)):
        first, last, factor = cut_block(factors, edges, block)
        for i in range(last - first):
            row, pivot = factor[i], factor[i, i]
            for p in range(len(values)):  # while the row is at hand
                own, total = solutions[p, first:last], solutions[p, first + i]
                for j in range(i):
                    total -= row[j] * own[j]
                own[i] = total / pivot
        for i in range(last - first - 1, -1, -1):
            row, pivot = factor[i], factor[i, i]
            for p in range(len(values)):
                own = solutions[p, first:last]
                own[i] /= pivot
                found = own[i]
                for j in range(i):
                    own[j] -= row[j] * found
    return solutions
