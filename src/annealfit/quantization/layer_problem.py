"""The problem of a layer: which levels, and which scales, reproduce its outputs best."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit.problems.curvature import Curvature
from annealfit.quantization.grids import Grid

_ROUNDING = 1e-12  # of an output's power
_RIDGE = 1e-9  # of the mean diagonal, where groups of inputs are too alike to tell their scales apart


@dataclass(frozen=True, eq=False)
class Rounding:
    """An answer: the number of each weight's level, 0 … count − 1, and the scale of each output (and group)."""

    numbers: NDArray[np.int64]  # (P, D)
    scales: Array  # (P, G)
    bounds: Array | None = None  # what no levels with these scales can get below, (P,); −∞ where nothing is known

    def take(self, chosen: NDArray[np.bool_], other: Rounding) -> Rounding:
        """The other one's rows where chosen (P,), else the own."""
        rows = chosen[:, None]
        bounds = np.where(chosen, *(_known(one.bounds, len(chosen)) for one in (other, self)))
        return Rounding(
            np.where(rows, other.numbers, self.numbers),
            np.where(rows, other.scales, self.scales),
            bounds if np.isfinite(bounds).any() else None,
        )


@dataclass(frozen=True, eq=False)
class LayerProblem:
    """Choose weights `q_p` for each of P outputs, on a grid, to minimise its mean squared error `E_p`.

        E_p(q) = qᵀHq − 2c_pᵀq + k_p,

    with `H` the Gram matrix of the inputs, `c_p = Hw_p` and `k_p = w_pᵀHw_p`: then `E_p = (w_p − q)ᵀH(w_p − q)`. Where
    the inputs differ from those that the outputs are to be reproduced from, c and k say so. All outputs share H.
    Weights are levels of the grid times the scale of the output, or of the output and a group of consecutive inputs.
    """

    metric: Curvature  # H, (D, D), its diagonal above 0
    correlations: Array  # c, (P, D)
    powers: Array  # k, (P,)
    weights: Array  # w, (P, D): what is rounded
    grid: Grid
    starts: NDArray[np.intp]  # the first input of each group, (G,)
    first_scales: Array  # scales that suit the weights alone, or that were given, (P, G)
    are_scales_fixed: bool = False

    @property
    def n_outputs(self) -> int:
        """`P`."""
        return len(self.weights)

    @property
    def n_inputs(self) -> int:
        """`D`."""
        return self.metric.size

    def take(self, outputs: NDArray[np.intp]) -> LayerProblem:
        """The problem of these outputs; one may be among them several times."""
        return replace(
            self,
            correlations=self.correlations[outputs],
            powers=self.powers[outputs],
            weights=self.weights[outputs],
            first_scales=self.first_scales[outputs],
        )

    def damped(self, share: float) -> LayerProblem:
        """The problem with inputs that have independent noise besides: a share of their mean power.

        It pulls every weight towards its own value, which is what counts for inputs that the Gram matrix has not seen.
        """
        if share == 0:
            return self
        noise = share * float(self.metric.diagonal.mean())
        return replace(
            self,
            metric=Curvature(self.metric.matrix + noise * np.eye(self.n_inputs)),
            correlations=self.correlations + noise * self.weights,
            powers=self.powers + noise * (self.weights**2).sum(axis=1),
        )

    def spread(self, scales: Array) -> Array:
        """Scales (…, G) as one per input, (…, D)."""
        lengths = np.diff(self.starts, append=self.n_inputs)
        return np.repeat(scales, lengths, axis=-1)

    def values(self, rounding: Rounding) -> Array:
        """The weights that an answer stands for, (P, D)."""
        return self.spread(rounding.scales) * self.grid.at(rounding.numbers)

    def errors(self, rounding: Rounding) -> Array:
        """`E_p` of each output, (P,): never below 0, which it could be by rounding."""
        values = self.values(rounding)
        return np.maximum(self.metric.energies(-self.correlations, values) + self.powers, 0.0)

    def nearest(self, scales: Array) -> Rounding:
        """Every weight at its nearest level, with these scales (P, G)."""
        spread = self.spread(scales)
        units = np.divide(self.weights, spread, out=np.zeros_like(spread), where=spread > 0)
        return Rounding(self.grid.nearest(units), scales)

    def better(self, one: Rounding, other: Rounding) -> Rounding:
        """The better one of two answers, output by output; the other where they are the same but for rounding."""
        return one.take(self.errors(other) <= self.errors(one) + _ROUNDING * self.powers, other)

    def fitted(self, rounding: Rounding) -> Rounding:
        """The same levels with the scales that suit them best: a least-squares problem with one unknown per group.

        Scales that would not be above 0, or that rounding makes worse, stay as they are.
        """
        if self.are_scales_fixed:
            return rounding
        levels = self.grid.at(rounding.numbers).astype(float)
        ends = np.append(self.starts[1:], self.n_inputs)
        matrices = np.empty((self.n_outputs, len(self.starts), len(self.starts)))
        for group, (first, end) in enumerate(zip(self.starts, ends, strict=True)):
            products = levels[:, first:end] @ self.metric.matrix[first:end]
            matrices[:, group] = np.add.reduceat(products * levels, self.starts, axis=1)
        sides = np.add.reduceat(self.correlations * levels, self.starts, axis=1)
        scales = _solve(matrices, sides)
        usable = (np.isfinite(scales) & (scales > 0)).all(axis=1, keepdims=True)
        fitted = Rounding(rounding.numbers, np.where(usable, scales, rounding.scales))
        return self.better(rounding, fitted)


def _known(bounds: Array | None, count: int) -> Array:
    return np.full(count, -np.inf) if bounds is None else bounds


def _solve(matrices: Array, sides: Array) -> Array:
    """Solutions (P, G) of systems (P, G, G), each with a touch of a ridge if it has more than one unknown."""
    count = sides.shape[1]
    if count == 1:
        with np.errstate(divide="ignore", invalid="ignore"):  # levels that are all 0 have no scale
            return sides / matrices[:, 0]
    sizes = np.trace(matrices, axis1=1, axis2=2) / count
    ridges = np.where(sizes > 0, _RIDGE * sizes, 1.0)[:, None, None] * np.eye(count)
    return np.linalg.solve(matrices + ridges, sides[..., None])[..., 0].astype(np.float64, copy=False)
