"""Compiled kernels of curvatures: coordinate descent in a box (for bounds), products, small linear systems."""

from __future__ import annotations

import numpy as np
from numba import float64, njit
from numba.types import Tuple
from numpy.typing import NDArray

from annealfit._support.compiled import In1, In2, InInt2, Out1, Out2, compiled

IN_REGISTERS = {"reassoc", "contract"}
"""Sums may be added up in vector registers; always in the same order."""


@njit(nogil=True)
def cut_block(
    entries: NDArray[np.float64], edges: NDArray[np.intp], block: int
) -> tuple[int, int, NDArray[np.float64]]:
    """Where a block's parameters begin and end, and its matrix (see `Curvature.packed`)."""
    first, last = edges[block, 0], edges[block + 1, 0]
    return first, last, entries[edges[block, 1] : edges[block + 1, 1]].reshape((last - first, last - first))


@njit(nogil=True)
def _minimise_block(
    curvature: NDArray[np.float64],
    gradients: NDArray[np.float64],
    values: NDArray[np.float64],
    own: slice,
    radii: NDArray[np.float64],
    max_sweeps: float,
    relative_gap: float,
) -> NDArray[np.float64]:
    """The parameters of one block of all problems, whose values are overwritten; returns bounds (P,).

    A bound is lowered by a margin that covers the rounding of its own evaluation. A parameter that stays where it is,
    as most of those at the box's edge do, costs nothing but a look. A row of the curvature is used for all problems
    while it is at hand.
    """
    count, size = len(gradients), len(curvature)
    residuals = gradients[:, own] + np.ascontiguousarray(values[:, own]) @ curvature  # r = Gv + g, kept up to date
    bounds = np.full(count, -np.inf)
    active = np.ones(count, dtype=np.bool_)
    for _ in range(int(max_sweeps)):
        for j in range(size):
            stiffness, row = curvature[j, j], curvature[j]
            for p in range(count):
                if not active[p]:
                    continue
                value, residual, radius = values[p, own], residuals[p], radii[p]
                if stiffness > 0:
                    target = value[j] - residual[j] / stiffness
                elif stiffness == 0:  # flat in this direction: the minimum is at a corner, or anywhere
                    target = -np.sign(residual[j]) * radius
                else:  # bent down: at the corner that the slope in the middle leads to, or at either
                    target = -radius if residual[j] - stiffness * value[j] > 0 else radius
                change = min(max(target, -radius), radius) - value[j]
                if change != 0:
                    value[j] += change
                    for i in range(size):
                        residual[i] += change * row[i]
        for p in range(count):
            if not active[p]:
                continue
            value, residual, gradient, radius = values[p, own], residuals[p], gradients[p, own], radii[p]
            energy = slack = magnitude = 0.0
            for j in range(size):
                energy += value[j] * (residual[j] + gradient[j])
                slack += 2 * (radius * abs(residual[j]) + residual[j] * value[j])
                # |r_j| is a sum of cancelling terms no larger than its parts
                magnitude += radius * (abs(residual[j]) + abs(gradient[j]) + curvature[j, j] * radius)
            margin = 8 * np.finfo(np.float64).eps * size * max_sweeps * magnitude
            bounds[p] = max(bounds[p], energy - slack - margin)
            active[p] = energy - bounds[p] > relative_gap * abs(energy) + 2 * margin
        if not active.any():
            break
    return bounds


@compiled(Tuple((Out2, Out1))(In1, InInt2, In2, In2, In1, float64, float64))
def minimise(
    entries: NDArray[np.float64],
    edges: NDArray[np.intp],
    gradients: NDArray[np.float64],
    starts: NDArray[np.float64],
    radii: NDArray[np.float64],
    max_sweeps: float,
    relative_gap: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Minimise `vᵀGv + 2gᵀv` over |v_j| ≤ radius for each of P problems; returns `(v, lower bounds)`.

    G has blocks (see `Curvature.packed`), whose bounds add up. `gradients`, `starts` (which may be outside of the box)
    and `v` are (P, D), `radii` and the bounds (P,).
    """
    values, bounds = np.empty_like(starts), np.zeros(len(gradients))
    for p in range(len(values)):
        for j in range(values.shape[1]):
            values[p, j] = min(max(starts[p, j], -radii[p]), radii[p])
    for block in range(len(edges) - 1):
        first, last, curvature = cut_block(entries, edges, block)
        bounds += _minimise_block(curvature, gradients, values, slice(first, last), radii, max_sweeps, relative_gap)
    return values, bounds


@compiled(Out2(In1, InInt2, In2))
def multiply(entries: NDArray[np.float64], edges: NDArray[np.intp], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """`Gv` for every row of values (P, D), with the blocks of `Curvature.packed`."""
    products = np.zeros_like(values)
    for block in range(len(edges) - 1):
        first, last, matrix = cut_block(entries, edges, block)
        for j in range(last - first):
            row = matrix[j]
            for p in range(len(values)):
                factor, product = values[p, first + j], products[p, first:last]
                for i in range(len(row)):
                    product[i] += factor * row[i]
    return products


@compiled(Out2(In1, InInt2, In2), fastmath=IN_REGISTERS)
def solve(factors: NDArray[np.float64], edges: NDArray[np.intp], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """`(LLᵀ)⁻¹v` for every row of values (P, D), lower triangular blocks packed as in `Curvature.packed`."""
    solutions = values.copy()
    for block in range(len(edges) - 1):
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
