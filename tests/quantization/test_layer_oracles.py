"""The levels of a layer against brute force, plain GPTQ, and Babai's nearest plane."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_layers import least_errors, output_error, random_layer

from annealfit.quantization import GPTQ, Annealed, Grid, InputMoments, Sampled, quantize_layer
from annealfit.quantization.layer_problem import Layer, Rounding, levels_of_bits, to_problems
from annealfit.samplers import ExactSolver, LatticeSolver, SimulatedAnnealer

GRIDS = [(1, "symmetric"), (2, "symmetric"), (2, "ternary"), (2, "twos_complement"), (3, "with_zero")]
# Inputs so few that all levels can be listed.
SIZES = {2: 10, 3: 7, 4: 6, 7: 4}


def squared_errors(weights, quantized, inputs):
    return ((inputs @ (weights - quantized)) ** 2).sum(axis=0)


@pytest.mark.parametrize(("bits", "kind"), GRIDS)
@pytest.mark.parametrize("method", ["annealed", "lattice"])
def test_equals_brute_force_at_given_scales(bits, kind, method):
    grid = Grid.of(bits, kind)
    for seed in range(4):
        weights, inputs = random_layer(seed, SIZES[grid.count], 5)
        scales = np.abs(weights).max(axis=0) / grid.reach * np.array([0.4, 0.6, 0.8, 1.0, 1.2])
        result = quantize_layer(weights, inputs, bits=bits, levels=kind, scales=scales, method=method)
        wanted = least_errors(weights, inputs, grid, scales)
        np.testing.assert_allclose(squared_errors(weights, result.weights, inputs), wanted, rtol=1e-9)
        np.testing.assert_array_equal(result.scales, scales)
        if method == "lattice":
            assert result.proven.all()
            assert result.lower_bound == pytest.approx(result.error, rel=1e-6)


@pytest.mark.parametrize(("bits", "kind"), GRIDS)
def test_equals_brute_force_over_scales_too(bits, kind):
    # 30 outputs, each with levels and scale chosen together: the annealer finds the best there is in all of them.
    grid = Grid.of(bits, kind)
    weights, inputs = random_layer(7, SIZES[grid.count], 30)
    result = quantize_layer(weights, inputs, bits=bits, levels=kind)
    wanted = least_errors(weights, inputs, grid)
    np.testing.assert_allclose(squared_errors(weights, result.weights, inputs), wanted, rtol=1e-9)


def plain_gptq(weights, inputs, scales, grid, order, damping=0.01):
    """GPTQ as its paper prints it: one weight at a time, the inverse of what is left updated every time."""
    gram = inputs.T @ inputs / len(inputs)
    gram = gram + damping * gram.diagonal().mean() * np.eye(len(gram))
    found = np.zeros(weights.shape)
    left, rest = list(order), weights.copy()
    while left:
        j = left[0]
        inverse = np.linalg.inv(gram[np.ix_(left, left)])
        numbers = np.clip(np.rint((rest[j] / scales - grid.lowest) / grid.step), 0, grid.count - 1)
        found[j] = scales * (grid.lowest + grid.step * numbers)
        change = (rest[j] - found[j]) / inverse[0, 0]
        for k, other in enumerate(left):
            rest[other] = rest[other] - inverse[0, k] * change
        left = left[1:]
    return found


@pytest.mark.parametrize(("bits", "kind"), GRIDS)
def test_gptq_is_the_plain_one(bits, kind):
    weights, inputs = random_layer(3, 90, 6, n_rows=200)  # more inputs than are worked on in one block
    result = quantize_layer(weights, inputs, bits=bits, levels=kind, method="gptq")
    by_power = np.argsort(-(inputs**2).sum(axis=0), kind="stable")
    wanted = plain_gptq(weights, inputs, result.scales, Grid.of(bits, kind), by_power)
    np.testing.assert_allclose(result.weights, wanted, rtol=0, atol=1e-9)


def nearest_plane(basis, target):
    """Babai's algorithm: coefficients of a lattice vector near the target, by Gram–Schmidt from the last vector on."""
    orthogonal, _ = np.linalg.qr(basis)
    rest, found = target.copy(), np.zeros(basis.shape[1])
    for j in reversed(range(basis.shape[1])):
        along = orthogonal[:, j] @ basis[:, j]
        found[j] = np.rint(orthogonal[:, j] @ rest / along)
        rest = rest - found[j] * basis[:, j]
    return found


def test_gptq_without_clipping_is_babais_nearest_plane():
    weights, inputs = random_layer(11, 12, 8)
    inputs = inputs[:, np.argsort(-(inputs**2).sum(axis=0))]  # GPTQ begins with the largest
    scale = np.abs(weights).max() / 40  # of 127 levels on either side: nothing is ever clipped
    method = GPTQ(damping=1e-9)
    result = quantize_layer(weights, inputs, bits=8, levels="with_zero", scales=np.full(8, scale), method=method)
    gram = inputs.T @ inputs / len(inputs)
    damped = gram + 1e-9 * gram.diagonal().mean() * np.eye(12)
    # GPTQ decides the first weight first; Babai's algorithm decides the last vector of the basis first.
    basis = np.linalg.cholesky(damped).T[:, ::-1] * scale
    for column, levels in zip(weights.T, result.levels.T, strict=True):
        found = nearest_plane(basis, np.linalg.cholesky(damped).T @ column)
        np.testing.assert_array_equal(levels, found[::-1])
    assert np.abs(result.levels).max() < 127


@given(
    seed=st.integers(0, 2**31),
    n_inputs=st.integers(1, 20),
    n_outputs=st.integers(1, 6),
    grid=st.sampled_from(GRIDS),
    group_size=st.sampled_from([None, None, 1, 3, 50]),
    with_bias=st.booleans(),
)
def test_never_worse_than_what_it_starts_from(seed, n_inputs, n_outputs, grid, group_size, with_bias):
    bits, kind = grid
    weights, inputs = random_layer(seed, n_inputs, n_outputs)
    bias = np.zeros(n_outputs) if with_bias else None
    method = Annealed(num_sweeps=10, num_reads=1)
    result = quantize_layer(
        weights, inputs, bits=bits, levels=kind, method=method, group_size=group_size, bias=bias, random_state=seed
    )
    assert result.error <= min(result.errors.values()) * (1 + 1e-9) + 1e-12
    assert list(result.errors) == ["nearest", "gptq", "gptq_search", "descent", "annealed"]
    spread = result.scales if group_size is None else np.repeat(result.scales, group_size, axis=0)[:n_inputs]
    np.testing.assert_allclose(result.weights, spread * result.levels, rtol=1e-12)
    assert np.isin(result.levels, result.grid.levels).all()
    seen = inputs if bias is None else inputs - inputs.mean(axis=0)
    assert result.error == pytest.approx(output_error(weights, result.weights, seen), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("bits", "kind"), GRIDS)
@pytest.mark.parametrize("group_size", [None, 2])
def test_energies_of_the_problems_are_the_errors(bits, kind, group_size):
    weights, inputs = random_layer(5, 5, 3)
    grid = Grid.of(bits, kind)
    problem = Layer.of(weights, inputs, None, grid, group_size).problem
    scales = problem.first_scales
    problems, offsets = to_problems(problem, scales)
    generator = np.random.default_rng(0)
    for output, one in enumerate(problems):
        bits_drawn = generator.integers(0, 2, size=(1, one.n_parameters, one.encoding.bits))
        numbers = np.zeros((3, 5), dtype=np.int64)
        numbers[output] = levels_of_bits(grid, bits_drawn[0])
        wanted = problem.errors(Rounding(numbers, scales))[output]
        assert one.energy(bits_drawn[0]) + offsets[output] == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(("bits", "kind"), [(1, "symmetric"), (2, "ternary"), (2, "twos_complement")])
def test_a_sampler_is_asked_for_the_levels(bits, kind):
    grid = Grid.of(bits, kind)
    weights, inputs = random_layer(2, SIZES[grid.count], 4)
    scales = 0.6 * np.abs(weights).max(axis=0) / grid.reach
    result = quantize_layer(weights, inputs, bits=bits, levels=kind, scales=scales, method=ExactSolver())
    wanted = least_errors(weights, inputs, grid, scales)
    np.testing.assert_allclose(squared_errors(weights, result.weights, inputs), wanted, rtol=1e-9)
    assert result.method == "ExactSolver"
    assert result.errors["ExactSolver"] == pytest.approx(result.error, rel=1e-9)


def test_the_answer_is_the_best_of_all_where_a_sampler_is_worse():
    weights, inputs = random_layer(4, 40, 6, n_rows=200)
    result = quantize_layer(weights, inputs, bits=2, method=SimulatedAnnealer(num_sweeps=2))
    assert result.errors["SimulatedAnnealer"] > result.errors["descent"]
    assert result.error == pytest.approx(result.errors["descent"], rel=1e-9)


def test_lattice_says_what_is_proven_and_what_is_not():
    weights, inputs = random_layer(6, 30, 4, n_rows=200)
    whole = quantize_layer(weights, inputs, bits=1, method="lattice")
    assert whole.proven.all()
    assert whole.lower_bound == pytest.approx(whole.error, rel=1e-6)
    short = quantize_layer(weights, inputs, bits=2, method=Sampled(LatticeSolver(time_limit=None, max_nodes=1)))
    assert short.proven is None or not short.proven.all()
    assert short.lower_bound is None or short.lower_bound <= short.error


def test_what_is_proven_with_damping_is_the_damped_error():
    weights, inputs = random_layer(7, 8, 3, n_rows=10)
    scales = quantize_layer(weights, inputs, bits=1, method="descent").scales
    result = quantize_layer(weights, inputs, bits=1, method="lattice", scales=scales, damping=0.3)
    assert result.proven.all()
    assert result.lower_bound is None
    noise = 0.3 * (inputs**2).mean()
    levels = np.array(list(product((-1, 1), repeat=8)))
    for output, scale in enumerate(scales):
        rests = weights[:, output] - scale * np.vstack([result.levels[:, output], levels])
        damped = ((rests @ inputs.T) ** 2).mean(axis=1) + noise * (rests**2).sum(axis=1)
        assert damped[0] == pytest.approx(damped[1:].min(), rel=1e-9)


def test_moments_in_place_of_inputs_and_a_multiple_of_the_gram_matrix():
    weights, inputs = random_layer(8, 9, 3)
    plain = quantize_layer(weights, inputs, bits=1)
    for other in ({"inputs": InputMoments.of(inputs)}, {"gram": 7.0 * inputs.T @ inputs}):
        result = quantize_layer(weights, bits=1, **other)
        np.testing.assert_array_equal(result.levels, plain.levels)
        assert result.error == pytest.approx(plain.error, rel=1e-9)
