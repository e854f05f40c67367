"""A layer as it was given, checked, and the problem that is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.arrays import Array, as_real
from annealfit._support.errors import InvalidInputError, check_number
from annealfit.problems.curvature import Curvature
from annealfit.quantization.grids import Grid
from annealfit.quantization.layer_problem import LayerProblem, Rounding
from annealfit.quantization.moments import InputMoments
from annealfit.quantization.scales import scales_of_weights

_DEAD = 1e-14  # of the largest input's power: less is rounding, or nothing at all


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer as it was given, checked, and its problem over the inputs that are not always 0."""

    weights: Array  # (P, D): transposed
    dtype: np.dtype[Any]  # of the weights as they were given
    moments: InputMoments
    has_data: bool
    live: NDArray[np.intp]  # inputs that are not always 0 (or constant, where a bias absorbs them)
    bias: Array | None
    group_size: int | None
    all_scales: Array  # what the weights alone suggest, or what was given, (P, all groups)
    live_groups: NDArray[np.intp]  # groups that have a live input
    problem: LayerProblem

    @classmethod
    def of(
        cls,
        weights: ArrayLike,
        inputs: Any,
        gram: ArrayLike | None,
        grid: Grid,
        group_size: int | None,
        scales: ArrayLike | None,
        bias: ArrayLike | None,
        reference: Any,
    ) -> Layer:
        """The layer of what `quantize_layer` is given, or an error that says what is wrong with it."""
        matrix = as_real(weights, "weights", ndim=2)
        if matrix.size == 0:
            raise InvalidInputError(f"weights have shape {matrix.shape}; expected (n_inputs, n_outputs), both ≥ 1")
        given = np.asarray(weights).dtype
        rows = np.ascontiguousarray(matrix.T)
        moments, has_data = _moments(len(matrix), inputs, gram, reference)
        _check_sizes(matrix, moments)
        checked_bias = None if bias is None else as_real(bias, "bias", ndim=1)
        if checked_bias is not None and len(checked_bias) != len(rows):
            raise InvalidInputError(f"bias has {len(checked_bias)} entries and the weights {len(rows)} outputs")
        if checked_bias is not None and inputs is None and has_data:
            raise InvalidInputError("a bias is corrected by the inputs' means, which gram does not tell: pass inputs")
        if group_size is not None:
            check_number("group_size", group_size, Integral, minimum=1, remedy="None is one scale per output")
        starts = np.arange(0, len(matrix), group_size or len(matrix))
        all_scales = (
            scales_of_weights(rows, grid, starts)
            if scales is None
            else _given_scales(scales, (len(rows), len(starts)), group_size)
        )
        centred = moments if checked_bias is None else moments.centred()
        live = _live_inputs(centred)
        groups = np.searchsorted(starts, live, side="right") - 1
        live_groups, live_starts = np.unique(groups, return_index=True)
        problem = _problem(centred, rows, live, grid, live_starts, all_scales[:, live_groups], scales is not None)
        return cls(
            rows,
            given if given.kind == "f" else np.dtype(float),
            moments,
            has_data,
            live,
            checked_bias,
            group_size,
            all_scales,
            live_groups,
            problem,
        )

    def expand(self, rounding: Rounding) -> tuple[NDArray[np.int64], Array]:
        """Levels (P, all inputs) and scales (P, all groups): inputs that are always 0 get their nearest level."""
        grid, scales = self.problem.grid, self.all_scales.copy()
        scales[:, self.live_groups] = rounding.scales
        spread = self.spread(scales)
        units = np.divide(self.weights, spread, out=np.zeros_like(self.weights), where=spread > 0)
        numbers = grid.nearest(units)
        numbers[:, self.live] = rounding.numbers
        return grid.at(numbers), scales

    def spread(self, scales: Array) -> Array:
        """Scales (P, all groups) as one per input, (P, all inputs)."""
        size = self.weights.shape[1]
        return np.repeat(scales, np.diff(np.arange(0, size, self.group_size or size), append=size), axis=1)

    def corrected_bias(self, values: Array) -> Array | None:
        """The bias with which the outputs of weights (P, all inputs) have the mean that they had."""
        if self.bias is None:
            return None
        return self.bias + self.weights @ self.moments.target.means - values @ self.moments.means


def _moments(size: int, inputs: Any, gram: ArrayLike | None, reference: Any) -> tuple[InputMoments, bool]:
    """What is known of the inputs, and whether anything is."""
    if inputs is not None and gram is not None:
        raise InvalidInputError("inputs and gram were both given; one of them is enough")
    if reference is not None and inputs is None:
        raise InvalidInputError("reference goes with inputs, row by row")
    if inputs is None and gram is None:
        return InputMoments.of_gram(np.eye(size)), False
    moments = InputMoments.of_gram(gram) if gram is not None else InputMoments.of(inputs, reference)
    if moments.size != size:
        raise InvalidInputError(
            f"weights have {size} inputs and {'gram' if inputs is None else 'inputs'} {moments.size}; weights are "
            "(n_inputs, n_outputs): pass weights.T if yours are the other way round"
        )
    return moments, True


def _check_sizes(matrix: Array, moments: InputMoments) -> None:
    largest, power = np.abs(matrix).max(), max(float(moments.gram.diagonal().max()), 1.0)
    with np.errstate(over="ignore"):
        bound = len(matrix) ** 2 * matrix.size * largest**2 * power  # of the sum of all outputs' squares
    if not np.isfinite(bound):
        raise InvalidInputError(
            f"weights are up to {largest:.3g}, which is too large to be squared; divide the layer's weights by a number"
        )


def _given_scales(scales: ArrayLike, shape: tuple[int, int], group_size: int | None) -> Array:
    """Scales as (P, G)."""
    wanted = (shape[1], shape[0]) if group_size else (shape[0],)
    given = as_real(scales, "scales", ndim=len(wanted))
    if given.shape != wanted:
        raise InvalidInputError(f"scales have shape {given.shape}; expected {wanted}")
    if not (given > 0).all():
        raise InvalidInputError(f"scales hold {given.min():g}; they must be above 0")
    return np.ascontiguousarray(np.atleast_2d(given).T)


def _live_inputs(moments: InputMoments) -> NDArray[np.intp]:
    """Inputs that say something; all of them where none does."""
    powers = moments.gram.diagonal()
    live = np.flatnonzero(powers > _DEAD * max(float(powers.max()), 0.0))
    return live if len(live) else np.arange(moments.size)


def _problem(
    moments: InputMoments,
    weights: Array,
    live: NDArray[np.intp],
    grid: Grid,
    starts: NDArray[np.intp],
    scales: Array,
    fixed: bool,
) -> LayerProblem:
    matrix = moments.gram[np.ix_(live, live)]
    # What a dead input was before the layers below it were quantised still has to be made up for.
    correlations = weights @ moments.cross.T[:, live]
    powers = np.einsum("pi,pi->p", weights @ moments.target.gram, weights)
    if matrix.diagonal().max() <= 0:  # nothing depends on the weights: let them be near to what they are
        matrix, correlations, fixed = np.eye(len(live)), weights, True
    return LayerProblem(
        metric=Curvature(matrix),
        correlations=np.ascontiguousarray(correlations),
        powers=powers,
        weights=np.ascontiguousarray(weights[:, live]),
        grid=grid,
        starts=starts.astype(np.intp),
        first_scales=np.ascontiguousarray(scales),
        are_scales_fixed=fixed,
    )
