"""quantize_layer: the weights of a trained layer to a few levels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, check_number
from annealfit._support.randomness import child_seed, seed_of
from annealfit._support.threads import blas_threads
from annealfit.problems.problem import Problems
from annealfit.quantization.coupled import CoupledLayer
from annealfit.quantization.grids import Grid
from annealfit.quantization.layer_problem import Layer, Rounding, to_problems
from annealfit.quantization.methods import CLASSICAL, GPTQ, Annealed, methods_of
from annealfit.quantization.moments import InputMoments

_READS_OF_GROUP = 4  # of an anneal of a group of outputs that has inputs of its own


@dataclass(frozen=True, eq=False)
class QuantizedLayer:
    """A layer on a grid. Shapes are those of the weights that were given, (n_inputs, n_outputs).

    Errors are relative: the mean squared error of the outputs over their mean square (their variance, where a bias
    absorbs the mean), on the inputs that were given.
    """

    weights: NDArray[Any]  # dequantised: scales times levels
    levels: NDArray[np.int16]  # whole numbers of the grid
    scales: Array  # (n_outputs,), or (n_groups, n_outputs)
    bias: Array | None  # corrected so that outputs keep their mean; None if none was given
    error: float
    power: float  # what errors are shares of: the mean square of the outputs, summed over them
    errors: Mapping[str, float]  # what each method that was tried gave by itself, in turn
    seconds: Mapping[str, float]  # what each took
    output_errors: Array  # of each output, (n_outputs,)
    grid: Grid
    group_size: int | None
    method: str
    lower_bound: float | None = None  # of the error with these scales, where a method knows one
    # For which outputs no levels with these scales are better, as damped, by more than 1e-9 of the output's power.
    proven: NDArray[np.bool_] | None = None

    @property
    def packed_levels(self) -> NDArray[np.uint8]:
        """The levels in as few bits as the grid takes, input by input."""
        return self.grid.pack(self.levels)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed levels and of scales in single precision."""
        return self.grid.packed_bytes(self.levels.size) + 4 * self.scales.size

    def __repr__(self) -> str:
        inputs, outputs = self.levels.shape
        return (
            f"QuantizedLayer({inputs}×{outputs}, {self.grid.count} levels, {self.method}, error {self.error:.4g}, "
            f"{self.packed_bytes} bytes)"
        )


def quantize_layer(
    weights: ArrayLike,
    inputs: Any = None,
    gram: ArrayLike | None = None,
    bits: int = 2,
    *,
    method: Any = "annealed",
    levels: str | Grid = "symmetric",
    group_size: int | None = None,
    scales: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    reference: Any = None,
    damping: float = 0.0,
    output_weights: ArrayLike | None = None,
    random_state: Any = 0,
) -> QuantizedLayer:
    """Round a layer's weights to a few levels each, so that its outputs change as little as possible.

    Minimises `‖X(W − Q)‖²` over `Q = scales · levels`: for every output a quadratic problem over levels, all with the
    Gram matrix `XᵀX` of the inputs.

    Parameters
    ----------
    weights : (n_inputs, n_outputs)
        Of a trained layer, `outputs = inputs @ weights + bias`.
    inputs : (n_samples, n_inputs), or `InputMoments`
        What the layer sees: some hundred rows, better thousands; fewer than inputs warn. A convolution's are patches
        (`convolution_moments`).
    gram : (n_inputs, n_inputs), instead of inputs
        `XᵀX`, or any multiple of it.
    bits : int
        Bits per weight, 1 to 8.
    method : word, Sampler or object
        "nearest" and "gptq" are the field's, with scales from the weights alone; "gptq_search" searches each
        output's scale, too; "descent" goes on from the best of them by single weights; "annealed" anneals from there,
        and "lattice" proves its answer where the layer is small (some 50 inputs). A sampler of `annealfit.samplers`
        is asked for the levels with the scales of "descent". An object has a method `improve`, as
        `annealfit.quantization.Annealed` has.
    levels : {"symmetric", "with_zero", "twos_complement", "ternary"} or Grid
        Which whole numbers: see `Grid.of`.
    group_size : int or None
        So many consecutive inputs of an output share a scale; None is one scale per output.
    scales : (n_outputs,) or (n_groups, n_outputs), or None
        Fixed scales. None leaves them to the method.
    bias : (n_outputs,) or None
        The layer's bias. It is corrected so that every output keeps its mean; only the rest counts as error.
    reference : (n_samples, n_inputs) or None
        The inputs that the outputs are to be reproduced from, where `inputs` come from layers that are quantised
        already.
    damping : float
        Minimise the error of inputs that have noise besides, this share of their mean power. With few rows it keeps
        what was never seen from being sacrificed; errors are told without it. With output_weights their diagonal is
        damped by the same share.
    output_weights : (n_outputs, n_outputs) or None
        What errors of the outputs cost, a symmetric positive semidefinite matrix `S`: then `tr(EᵀHES)` is minimised,
        with `E = W − Q` and `H` the Gram matrix, and errors are shares of `tr(WᵀHWS)`. "nearest" and GPTQ round as
        without it, "descent" goes on from its answer output after output, and every other method from there.
    random_state : int, RandomState or None
        Seed of every anneal.

    Returns
    -------
    QuantizedLayer
        `.weights`, `.levels`, `.scales`, `.bias`, `.error` and more. Output by output it is the best answer of all
        methods that were tried, `.errors`; "nearest", "gptq" and "gptq_search" try nothing else.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> inputs = generator.normal(size=(200, 12)) @ generator.normal(size=(12, 12))
    >>> weights = generator.normal(size=(12, 4))
    >>> by_gptq = quantize_layer(weights, inputs, bits=2, method="gptq")
    >>> annealed = quantize_layer(weights, inputs, bits=2, method="annealed")
    >>> annealed.levels[:, 0].tolist(), annealed.error < 0.7 * by_gptq.error
    ([1, 3, 1, 3, 3, 3, -1, -1, -1, -1, -1, 3], True)

    """
    layer = Layer.of(weights, inputs, gram, Grid.of(bits, levels), group_size, scales, bias, reference)
    check_number("damping", damping, minimum=0, remedy="0.01 to 0.03 helps where rows are few")
    chain, seed = methods_of(method), seed_of(random_state)
    rows, columns = getattr(inputs, "shape", (1, 1))[:2]  # moments do not say
    if rows < columns and chain[-1].name != "nearest":
        warnings.warn(
            f"inputs are {rows} rows of {columns} numbers: levels fit these rows, and the error on others is several "
            "times as large as the one that is told; give some times as many rows as numbers",
            stacklevel=2,
        )
    if inputs is None and gram is None and chain[-1].name != "nearest":
        raise InvalidInputError(
            f"method is {chain[-1].name!r}, which needs to know what the layer sees: pass inputs (n_samples, "
            "n_inputs) or gram; without data there is only method='nearest'"
        )
    plain, coupled = layer.problem, None if output_weights is None else CoupledLayer.of(layer, output_weights)
    problem, total = plain.damped(float(damping)), float(plain.powers.sum()) if coupled is None else coupled.power
    pulled = coupled.damped(float(damping)) if coupled is not None and coupled.is_coupled else None
    best: Rounding | None = None  # output by output
    kept: Rounding | None = None  # with all outputs weighted
    errors: dict[str, float] = {}
    seconds: dict[str, float] = {}

    def share(error: float) -> float:
        return error / total if total > 0 else 0.0

    def whole_error(rounding: Rounding) -> float:
        return float(plain.errors(rounding).sum()) if coupled is None else coupled.error(rounding)

    with blas_threads(float(plain.n_outputs) * plain.n_inputs**2):
        for number, own in enumerate(chain):
            began = time.perf_counter()
            if pulled is None or best is None or own in CLASSICAL:
                found = own.improve(problem, best, child_seed(seed, number))
                best = found if best is None else problem.better(best, found)
            if pulled is not None:
                kept = best if kept is None else pulled.better(kept, best)
                if not getattr(own, "starts_from_nothing", False):
                    found = kept = pulled.improve(own, kept, child_seed(seed, number, 1))
            seconds[own.name] = time.perf_counter() - began
            errors[own.name] = share(whole_error(found))
    assert best is not None  # there is at least one method
    if coupled is not None and kept is not None:
        best = replace(kept.take(coupled.weights.diagonal() <= 0, best), bounds=None)
    own_errors, bound, proven = plain.errors(best), None, None
    if best.bounds is not None:
        proven = best.bounds >= problem.errors(best) - 1e-9 * problem.powers
        if problem is plain:  # a bound of the damped error says nothing about the error itself
            bound = share(float(np.maximum(best.bounds, 0.0).sum()))
    numbers, values, fitted, corrected = layer.expand(best)
    given = np.asarray(weights).dtype
    return QuantizedLayer(
        weights=np.ascontiguousarray(values.T).astype(given if given.kind == "f" else float),
        levels=np.ascontiguousarray(numbers.T).astype(np.int16),
        scales=fitted.T.copy() if group_size else fitted[:, 0].copy(),
        bias=corrected,
        error=share(whole_error(best)),
        power=total,
        errors=errors,
        seconds=seconds,
        output_errors=np.divide(own_errors, plain.powers, out=np.zeros_like(own_errors), where=plain.powers > 0),
        grid=plain.grid,
        group_size=group_size,
        method=chain[-1].name,
        lower_bound=bound,
        proven=proven,
    )


def layer_problems(
    weights: ArrayLike,
    inputs: Any = None,
    gram: ArrayLike | None = None,
    bits: int = 1,
    *,
    levels: str | Grid = "symmetric",
    scales: ArrayLike | None = None,
    bias: ArrayLike | None = None,
) -> Problems:
    """The quadratic problems of a layer, one per output: for export, other solvers and hardware.

    With scales None each output has that of "gptq_search". Inputs that are always 0 are left out, as nothing depends
    on them, and outputs whose weights are all 0 are refused. Other arguments as in `quantize_layer`.

    >>> problems = layer_problems(np.array([[0.5], [-1.0]]), inputs=np.array([[1.0, 0.2], [0.3, 1.0]]))
    >>> len(problems), problems[0].n_variables
    (1, 2)
    """
    layer = Layer.of(weights, inputs, gram, Grid.of(bits, levels), scales=scales, bias=bias)
    return to_problems(layer.problem, GPTQ(search=True).improve(layer.problem, None, 0).scales)[0]


def quantize_groups(
    weights: Array,
    moments: Sequence[InputMoments],
    bias: Array | None,
    output_weights: Sequence[Array | None] | None = None,
    **settings: Any,
) -> QuantizedLayer:
    """Quantise a layer whose outputs come in groups, each with inputs of its own: a convolution in groups.

    Weights are (n_inputs, n_outputs); moments and output_weights are one for each group.
    """
    count = len(moments)
    if count > 1 and settings["method"] == "annealed":  # depthwise filters: many tiny problems
        settings["method"] = (*CLASSICAL, Annealed(num_reads=_READS_OF_GROUP))
    biases = [None] * count if bias is None else np.split(bias, count)
    parts = [
        quantize_layer(matrix, inputs=seen, bias=own, output_weights=coupling, **settings)
        for matrix, seen, own, coupling in zip(
            np.split(weights, count, axis=1), moments, biases, output_weights or [None] * count, strict=True
        )
    ]
    return _side_by_side(parts)


def _side_by_side(parts: Sequence[QuantizedLayer]) -> QuantizedLayer:
    """The layer whose outputs are those of the parts, one part after another; errors count by power."""
    first, power = parts[0], sum(part.power for part in parts)
    if len(parts) == 1:
        return first

    def mean(values: Iterable[float]) -> float:
        total = sum(value * part.power for value, part in zip(values, parts, strict=True))
        return total / power if power > 0 else 0.0

    def joined(name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        return None if any(array is None for array in arrays) else np.concatenate(arrays, axis=-1)

    bounds = [part.lower_bound for part in parts if part.lower_bound is not None]
    return replace(
        first,
        **{name: joined(name) for name in ("weights", "levels", "scales", "bias", "output_errors", "proven")},
        error=mean(part.error for part in parts),
        power=power,
        errors={name: mean(part.errors[name] for part in parts) for name in first.errors},
        seconds={name: sum(part.seconds[name] for part in parts) for name in first.seconds},
        lower_bound=mean(bounds) if len(bounds) == len(parts) else None,
    )
