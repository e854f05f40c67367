"""quantize_layer: weights of a trained layer to a few levels, so that its outputs change as little as possible."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from annealfit._support.errors import InvalidInputError, check_number
from annealfit._support.randomness import child_seed, seed_of
from annealfit._support.threads import blas_threads
from annealfit.problems.problem import Problems
from annealfit.quantization.grids import Grid
from annealfit.quantization.layer_problem import LayerProblem, Rounding
from annealfit.quantization.layers import Layer
from annealfit.quantization.methods import Method, methods_of
from annealfit.quantization.results import QuantizedLayer
from annealfit.quantization.sampled import to_problems


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
        What the layer sees: some hundred rows, better thousands. A convolution's are patches
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
        The layer's bias. What rounding does to the mean of an output is then made up for by the bias, and only what
        varies counts as error.
    reference : (n_samples, n_inputs) or None
        The inputs that the outputs are to be reproduced from, where `inputs` come from layers that are quantised
        already.
    damping : float
        Minimise the error of inputs that have noise besides, this share of their mean power. With few rows it keeps
        what was never seen from being sacrificed; errors are told without it.
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
    layer = Layer.of(weights, inputs, gram, _grid(bits, levels), group_size, scales, bias, reference)
    check_number("damping", damping, minimum=0, remedy="0.01 to 0.03 helps where rows are few")
    chain, seed = methods_of(method), seed_of(random_state)
    if not layer.has_data and chain[-1].name != "nearest":
        raise InvalidInputError(
            f"method is {chain[-1].name!r}, which needs to know what the layer sees: pass inputs (n_samples, "
            "n_inputs) or gram; without data there is only method='nearest'"
        )
    return _run(layer, chain, float(damping), seed)


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
    """The quadratic problems of a layer, one per output: for export, for other solvers, for a look at hardware.

    With scales None each output has that of "gptq_search". Inputs that are always 0 are left out, as nothing depends
    on them, and outputs whose weights are all 0 are refused. Other arguments as in `quantize_layer`.

    >>> problems = layer_problems(np.array([[0.5], [-1.0]]), inputs=np.array([[1.0, 0.2], [0.3, 1.0]]))
    >>> len(problems), problems[0].n_variables
    (1, 2)
    """
    layer = Layer.of(weights, inputs, gram, _grid(bits, levels), None, scales, bias, None)
    start = methods_of("gptq_search")[-1].improve(layer.problem, None, 0)
    return to_problems(layer.problem, start.scales)


def _grid(bits: Any, levels: str | Grid) -> Grid:
    return levels if isinstance(levels, Grid) else Grid.of(bits, levels)


def _run(layer: Layer, chain: Sequence[Method], damping: float, seed: int) -> QuantizedLayer:
    """Run the methods in turn, each from the best answers so far, and keep the best answer of each output."""
    plain = layer.problem
    problem = plain.damped(damping)
    best: Rounding | None = None
    roundings: dict[str, Rounding] = {}
    seconds: dict[str, float] = {}
    with blas_threads(float(plain.n_outputs) * plain.n_inputs**2):
        for number, method in enumerate(chain):
            began = time.perf_counter()
            found = method.improve(problem, best, child_seed(seed, number))
            seconds[method.name] = time.perf_counter() - began
            roundings[method.name] = found
            best = found if best is None else problem.better(best, found)
    assert best is not None  # there is at least one method
    return _result(layer, problem, best, roundings, seconds, chain[-1].name)


def _result(
    layer: Layer,
    minimised: LayerProblem,
    best: Rounding,
    roundings: dict[str, Rounding],
    seconds: dict[str, float],
    method: str,
) -> QuantizedLayer:
    plain = layer.problem
    total = float(plain.powers.sum())
    errors = plain.errors(best)

    def share(error: float) -> float:
        return error / total if total > 0 else 0.0

    levels, scales = layer.expand(best)
    values = layer.spread(scales) * levels
    bound = proven = None
    if best.bounds is not None:
        proven = best.bounds >= minimised.errors(best) - 1e-9 * minimised.powers
        if minimised is plain:  # what bounds a damped error says nothing about the error itself
            bound = share(float(np.maximum(best.bounds, 0.0).sum()))
    return QuantizedLayer(
        weights=np.ascontiguousarray(values.T).astype(layer.dtype),
        levels=np.ascontiguousarray(levels.T).astype(np.int16),
        scales=scales.T.copy() if layer.group_size else scales[:, 0].copy(),
        bias=layer.corrected_bias(values),
        error=share(float(errors.sum())),
        power=total,
        errors={name: share(float(plain.errors(one).sum())) for name, one in roundings.items()},
        seconds=seconds,
        output_errors=np.divide(errors, plain.powers, out=np.zeros_like(errors), where=plain.powers > 0),
        grid=plain.grid,
        group_size=layer.group_size,
        method=method,
        lower_bound=bound,
        proven=proven,
    )
