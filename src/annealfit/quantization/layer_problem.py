"""The problem of a layer: levels and scales whose outputs are nearest to those of the layer's weights.

For each output p choose weights `q`, levels of a grid times a scale, to minimise the mean squared error

    E_p(q) = qᵀHq − 2c_pᵀq + k_p,

with `H` the Gram matrix of the inputs, shared by all outputs, `c_p = Hw_p` and `k_p = w_pᵀHw_p` for the weights `w_p`:
then `E_p = (w_p − q)ᵀH(w_p − q)`. Where the inputs differ from those that the outputs are to be reproduced from, c and
k say so. `LayerProblem` is this; `Layer` makes it of what a user gives, and `to_problems` writes it over bits.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.arrays import Array, as_real
from annealfit._support.errors import InvalidInputError, check_number
from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import Problems
from annealfit.quantization.grids import Grid
from annealfit.quantization.moments import InputMoments

_EPSILON = float(np.finfo(float).eps)
_ROUNDING = 1e-12  # of an output's power
_LARGEST = 1e50  # weight or input: products of squares of both neither overflow nor vanish
_LOST = 1e-3  # of the power: rounding of more than that is told
_RIDGE = 1e-9  # of the mean diagonal, where groups of inputs are too similar to tell their scales apart
_DEAD = 1e-14  # of the largest input's power: less is rounding, or nothing at all


@dataclass(frozen=True, eq=False)
class Rounding:
    """An answer: the number of each weight's level, 0 … count − 1, and the scale of each output (and group)."""

    numbers: NDArray[np.int64]  # (P, D)
    scales: Array  # (P, G)
    bounds: Array | None = None  # lower bounds of the errors with these scales, (P,); −∞ where nothing is known

    def take(self, chosen: NDArray[np.bool_], other: Rounding) -> Rounding:
        """The other one's rows where chosen (P,), else the own."""
        bounds = [np.full(len(chosen), -np.inf) if one.bounds is None else one.bounds for one in (other, self)]
        known = np.where(chosen, *bounds)
        return Rounding(
            np.where(chosen[:, None], other.numbers, self.numbers),
            np.where(chosen[:, None], other.scales, self.scales),
            known if np.isfinite(known).any() else None,
        )


@dataclass(frozen=True, eq=False)
class LayerProblem:
    """The levels of P outputs on a grid. A scale is that of an output, or of a group of its inputs."""

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
        names = ("correlations", "powers", "weights", "first_scales")
        return replace(self, **{name: getattr(self, name)[outputs] for name in names})

    def damped(self, share: float) -> LayerProblem:
        """The problem with independent noise in the inputs, a share of their mean power: it pulls weights to their own.

        That is what counts for inputs that the Gram matrix has not seen.
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
        return np.repeat(scales, np.diff(self.starts, append=self.n_inputs), axis=-1)

    def errors(self, rounding: Rounding) -> Array:
        """`E_p` of each output, (P,): never below 0, which it could be by rounding."""
        values = self.spread(rounding.scales) * self.grid.at(rounding.numbers)
        return np.maximum(self.metric.energies(-self.correlations, values) + self.powers, 0.0)

    def rounding_errors(self, values: Array) -> Array:
        """What rounding can contribute to the errors of values (P, D), (P,): `ε(D + 8)·D·Σ_i H_ii(|v_i| + |w_i|)²`."""
        sizes = (np.abs(values) + np.abs(self.weights)) ** 2
        return _EPSILON * (self.n_inputs + 8) * self.n_inputs * (sizes @ self.metric.diagonal)

    def nearest(self, scales: Array) -> Rounding:
        """Every weight at its nearest level, with these scales (P, G)."""
        return Rounding(self.grid.nearest(self.weights, self.spread(scales)), scales)

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
        count = len(self.starts)
        matrices = np.empty((self.n_outputs, count, count))
        for group, (first, end) in enumerate(zip(self.starts, [*self.starts[1:], self.n_inputs], strict=True)):
            products = levels[:, first:end] @ self.metric.matrix[first:end]
            matrices[:, group] = np.add.reduceat(products * levels, self.starts, axis=1)
        sides = np.add.reduceat(self.correlations * levels, self.starts, axis=1)
        if count == 1:
            with np.errstate(divide="ignore", invalid="ignore"):  # levels that are all 0 have no scale
                scales = sides / matrices[:, 0]
        else:
            sizes = np.trace(matrices, axis1=1, axis2=2) / count
            ridges = np.where(sizes > 0, _RIDGE * sizes, 1.0)[:, None, None] * np.eye(count)
            scales = np.linalg.solve(matrices + ridges, sides[..., None])[..., 0].astype(float, copy=False)
        usable = (np.isfinite(scales) & (scales > 0)).all(axis=1, keepdims=True)
        both = np.stack([rounding.scales, np.where(usable, scales, rounding.scales)])
        before, after = ((both[..., None, :] @ matrices)[..., 0, :] * both - 2 * sides * both).sum(axis=-1)
        chosen = (after <= before + _ROUNDING * self.powers)[:, None]
        return Rounding(rounding.numbers, np.where(chosen, both[1], both[0]))


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer as it was given, checked, and its problem over the inputs that are not always 0."""

    weights: Array  # (P, D): transposed
    moments: InputMoments
    bias: Array | None
    groups: NDArray[np.intp]  # of each input, (D,)
    live: NDArray[np.intp]  # inputs that are not always 0 (or constant, where a bias absorbs them)
    all_scales: Array  # that suit the weights alone, or that were given, (P, all groups)
    problem: LayerProblem

    @classmethod
    def of(
        cls,
        weights: ArrayLike,
        inputs: Any,
        gram: ArrayLike | None,
        grid: Grid,
        group_size: int | None = None,
        scales: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        reference: Any = None,
    ) -> Layer:
        """The layer of what `quantize_layer` is given, or an error that says what is wrong with it."""
        matrix = as_real(weights, "weights", ndim=2)
        if matrix.size == 0:
            raise InvalidInputError(f"weights have shape {matrix.shape}; expected (n_inputs, n_outputs), both ≥ 1")
        rows = np.ascontiguousarray(matrix.T)
        moments = _moments(matrix, inputs, gram, reference)
        biases = None if bias is None else as_real(bias, "bias", ndim=1)
        if biases is not None and len(biases) != len(rows):
            raise InvalidInputError(f"bias has {len(biases)} entries and the weights {len(rows)} outputs")
        if biases is not None and gram is not None:
            raise InvalidInputError("a bias is corrected by the inputs' means, which gram does not tell: pass inputs")
        if group_size is not None:
            check_number("group_size", group_size, Integral, minimum=1, remedy="None is one scale per output")
        groups = np.arange(len(matrix)) // (group_size or len(matrix))
        starts = np.unique(groups, return_index=True)[1]
        if scales is None:
            all_scales = grid.scales_of(rows, starts)
        else:
            all_scales = _given_scales(scales, (len(rows), len(starts)), group_size)
        centred = moments if biases is None else moments.centred()
        powers = centred.gram.diagonal()
        live = np.flatnonzero(powers > _DEAD * max(float(powers.max()), 0.0))
        live = live if len(live) else np.arange(moments.size)
        live_groups, live_starts = np.unique(groups[live], return_index=True)
        hessian = centred.gram[np.ix_(live, live)]
        # What a dead input was before the layers below it were quantised still has to be made up for.
        correlations = rows @ centred.cross.T[:, live]
        depends = bool(hessian.diagonal().max() > 0)
        problem = LayerProblem(
            metric=Curvature(hessian if depends else np.eye(len(live))),
            correlations=np.ascontiguousarray(correlations if depends else rows),  # else near to the weights themselves
            powers=np.einsum("pi,pi->p", rows @ centred.target_gram, rows),
            weights=np.ascontiguousarray(rows[:, live]),
            grid=grid,
            starts=live_starts,
            first_scales=np.ascontiguousarray(all_scales[:, live_groups]),
            are_scales_fixed=scales is not None or not depends,
        )
        if depends:
            _check_rounding(problem)
        return cls(rows, moments, biases, groups, live, all_scales, problem)

    def expand(self, rounding: Rounding) -> tuple[NDArray[np.int64], Array, Array, Array | None]:
        """Levels and values (P, all inputs), scales (P, all groups), and the bias with which outputs keep their mean.

        Inputs that are always 0 get their nearest level.
        """
        scales = self.all_scales.copy()
        scales[:, np.unique(self.groups[self.live])] = rounding.scales
        spread = np.take(scales, self.groups, axis=1)
        numbers = self.problem.grid.nearest(self.weights, spread)
        numbers[:, self.live] = rounding.numbers
        levels = self.problem.grid.at(numbers)
        values, bias = spread * levels, self.bias
        if bias is not None:
            bias = bias + self.weights @ self.moments.target_means - values @ self.moments.means
        return levels, values, scales, bias


def _check_rounding(problem: LayerProblem) -> None:
    """Warn where the weights cancel on these inputs, so that little of the outputs is left but rounding."""
    rounding, power = float(problem.rounding_errors(np.zeros_like(problem.weights)).sum()), float(problem.powers.sum())
    if rounding <= _LOST * power:
        return
    remedy = "merge inputs that are nearly the same, or give the bias, which absorbs their means"
    if power <= 0 < rounding:
        raise InvalidInputError(f"the weights cancel on these inputs, and the outputs are lost to rounding; {remedy}")
    warnings.warn(
        f"the weights cancel on these inputs: the outputs' power is {power:.3g}, of which up to {rounding:.3g} is "
        f"rounding, and errors are not known better than that; {remedy}",
        RuntimeWarning,
        stacklevel=4,
    )


def _moments(matrix: Array, inputs: Any, gram: ArrayLike | None, reference: Any) -> InputMoments:
    """The moments of the inputs of weights (D, P), checked; the unit matrix where nothing is known of them."""
    if inputs is not None and gram is not None:
        raise InvalidInputError("inputs and gram were both given; one of them is enough")
    if reference is not None and inputs is None:
        raise InvalidInputError("reference goes with inputs, row by row")
    if inputs is None:
        moments = InputMoments.of_gram(np.eye(len(matrix)) if gram is None else gram)
    else:
        moments = InputMoments.of(inputs, reference)
    if moments.size != len(matrix):
        raise InvalidInputError(
            f"weights have {len(matrix)} inputs and {'gram' if inputs is None else 'inputs'} {moments.size}; weights "
            "are (n_inputs, n_outputs): pass weights.T if yours are the other way round"
        )
    spread = np.sqrt(np.abs(moments.covariance.diagonal()).max())
    sizes = {"weights": np.abs(matrix).max(), "inputs": max(spread, np.abs(moments.means).max())}
    for name, size in sizes.items():
        if size != 0 and not 1 / _LARGEST <= size <= _LARGEST:
            raise InvalidInputError(
                f"{name} are up to {size:.3g}, which is too {'large' if size > 1 else 'small'} to be squared (limits "
                f"{1 / _LARGEST:g} and {_LARGEST:g}); multiply them by a number, and divide the outputs by it"
            )
    return moments


def _given_scales(scales: ArrayLike, shape: tuple[int, int], group_size: int | None) -> Array:
    """Scales as (P, G)."""
    wanted = (shape[1], shape[0]) if group_size else (shape[0],)
    given = as_real(scales, "scales", ndim=len(wanted))
    if given.shape != wanted:
        raise InvalidInputError(f"scales have shape {given.shape}; expected {wanted}")
    if not (given > 0).all():
        raise InvalidInputError(f"scales hold {given.min():g}; they must be above 0")
    return np.ascontiguousarray(np.atleast_2d(given).T)


def to_problems(problem: LayerProblem, scales: Array) -> tuple[Problems, Array]:
    """The outputs of a layer, with these scales (P, G), as problems over bits; and what energies lack to be errors.

    A grid of 2^K levels is a K-bit code. Any other number of levels, three above all, takes several one-bit
    parameters for each weight, whose multiples add up to all levels: two of the same size for a ternary one. With
    scales per group every output has a metric of its own.
    """
    grid, spacings = problem.grid, problem.grid.step * problem.spread(scales)
    if not (spacings > 0).all():
        raise InvalidInputError("an output has the scale 0, all its weights being 0: there is nothing to choose")
    bits, multiples = bit_code(grid)
    shifts = spacings * (grid.origin + (grid.count - 1) / 2)  # of every value, so that the levels lie around 0
    offsets = problem.metric.energies(-problem.correlations, shifts) + problem.powers
    slopes = shifts @ problem.metric.matrix - problem.correlations
    of_parameters = np.repeat(multiples, problem.n_inputs)
    outer = np.outer(multiples, multiples)
    top = (grid.count - 1) / 2 if len(multiples) == 1 else 0.5
    if len(problem.starts) == 1:
        metric = problem.metric if len(multiples) == 1 else Curvature(np.kron(outer, problem.metric.matrix))
        gradients = np.tile(slopes, len(multiples)) * of_parameters
        return Problems((metric,), gradients, top * spacings[:, 0], bits), offsets
    matrices = (spacing[:, None] * problem.metric.matrix * spacing for spacing in spacings)
    metrics = tuple(Curvature(np.kron(outer, matrix)) for matrix in matrices)
    gradients = np.tile(slopes * spacings, len(multiples)) * of_parameters
    return Problems(metrics, gradients, np.full(len(spacings), top), bits), offsets


def bit_code(grid: Grid) -> tuple[int, Array]:
    """Bits per parameter, and the multiples of the parameters that a weight is the sum of.

    >>> bit_code(Grid.of(2)), bit_code(Grid.of(2, "ternary"))[1].tolist(), bit_code(Grid.of(3, "with_zero"))[1].tolist()
    ((2, array([1.])), [1.0, 1.0], [1.0, 2.0, 3.0])
    """
    top = grid.count - 1
    bits = top.bit_length()
    if grid.count == 2**bits:
        return bits, np.ones(1)
    powers = 2 ** np.arange(bits - 1)
    return 1, np.append(powers, top - powers.sum()).astype(float)


def levels_of_bits(grid: Grid, bits: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The numbers of the levels (D,) that the bits (parameters, K) of a problem of `to_problems` stand for."""
    width, multiples = bit_code(grid)
    if len(multiples) == 1:
        return bits.astype(np.int64) @ (1 << np.arange(width))
    return multiples.astype(np.int64) @ bits[:, 0].astype(np.int64).reshape(len(multiples), -1)
