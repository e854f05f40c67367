"""Layers whose outputs are weighted together: tr(EᵀHES) against brute force, and against answers without weights."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_layers import all_levels, random_layer

from annealfit._support.errors import InvalidInputError
from annealfit.quantization import Annealed, Grid, quantize_layer
from annealfit.samplers import ExactSolver


def cost(weights, quantized, inputs, output_weights):
    """tr(EᵀHES) as it is written."""
    rest = weights - quantized
    return float(np.trace(rest.T @ inputs.T @ inputs / len(inputs) @ rest @ output_weights))


def random_output_weights(seed, size, rank=3):
    factor = np.random.default_rng(seed).normal(size=(rank, size))
    return factor.T @ factor


@pytest.mark.parametrize(("bits", "method"), [(1, "annealed"), (2, "annealed"), (1, ExactSolver())])
def test_beside_brute_force_at_given_scales(bits, method):
    for seed in range(3):
        weights, inputs = random_layer(seed, 4 if bits == 1 else 2, 3)
        output_weights, scales = random_output_weights(seed, 3), np.full(3, 0.8 / (2**bits - 1))
        columns = all_levels(Grid.of(bits), len(weights))
        least = min(
            cost(weights, scales * np.array(choice).T, inputs, output_weights)
            for choice in itertools.product(columns, repeat=3)
        )
        settings = {"scales": scales, "output_weights": output_weights, "method": method}
        found = quantize_layer(weights, inputs, bits=bits, **settings)
        reached = cost(weights, found.weights, inputs, output_weights)
        assert found.error == pytest.approx(reached / cost(weights, 0, inputs, output_weights), rel=1e-9, abs=1e-12)
        assert reached >= least * (1 - 1e-9)
        if method == "annealed":  # no proof: moves are of one output at a time
            assert reached <= least * (1.2 if bits == 2 else 1 + 1e-9)


def test_output_by_output_with_an_exact_solver_is_a_minimum_of_each_output():
    weights, inputs = random_layer(4, 5, 3)
    output_weights, scales = random_output_weights(4, 3), np.full(3, 0.8)
    found = quantize_layer(weights, inputs, bits=1, scales=scales, output_weights=output_weights, method=ExactSolver())
    reached = cost(weights, found.weights, inputs, output_weights)
    for output, column in itertools.product(range(3), all_levels(Grid.of(1), 5)):
        other = found.weights.copy()
        other[:, output] = 0.8 * column
        assert cost(weights, other, inputs, output_weights) >= reached * (1 - 1e-9)


@pytest.mark.parametrize("method", ["nearest", "gptq", "descent", "annealed"])
def test_the_unit_matrix_gives_what_is_found_without(method):
    weights, inputs = random_layer(1, 20, 5)
    plain = quantize_layer(weights, inputs, bits=2, method=method, bias=np.zeros(5))
    found = quantize_layer(weights, inputs, bits=2, method=method, bias=np.zeros(5), output_weights=np.eye(5))
    np.testing.assert_array_equal(found.levels, plain.levels)
    assert found.error == pytest.approx(plain.error, rel=1e-9)


@given(
    seed=st.integers(0, 2**31),
    bits=st.integers(1, 4),
    n_inputs=st.integers(1, 12),
    n_outputs=st.integers(1, 6),
    rank=st.integers(1, 6),
    group_size=st.sampled_from([None, None, 1, 3]),
    with_bias=st.booleans(),
    with_reference=st.booleans(),
)
def test_never_worse_than_without(seed, bits, n_inputs, n_outputs, rank, group_size, with_bias, with_reference):
    weights, inputs = random_layer(seed, n_inputs, n_outputs)
    reference = inputs + 0.1 * random_layer(seed + 1, n_inputs, 1)[1] if with_reference else None
    output_weights = random_output_weights(seed, n_outputs, rank)
    output_weights[0] = output_weights[:, 0] = 0  # an output that does not matter
    settings = {"bits": bits, "group_size": group_size, "reference": reference, "random_state": seed}
    settings |= {"bias": np.zeros(n_outputs)} if with_bias else {}

    def f(quantized):
        wanted, given = (inputs if reference is None else reference) @ weights, inputs @ quantized
        rest = wanted - given - (wanted - given).mean(axis=0) * with_bias
        return float(np.trace(rest.T @ rest @ output_weights))

    quick = Annealed(num_sweeps=10, num_reads=1)
    descent, annealed = (
        quantize_layer(weights, inputs, method=method, output_weights=output_weights, **settings)
        for method in ("descent", quick)
    )
    plain = quantize_layer(weights, inputs, method="descent", **settings)
    slack = 1e-9 * f(0 * weights) + 1e-12
    assert f(descent.weights) <= f(plain.weights) + slack
    assert f(annealed.weights) <= f(descent.weights) + slack
    assert annealed.error == pytest.approx(min(annealed.errors.values()), rel=1e-6, abs=1e-9)
    np.testing.assert_array_equal(descent.levels[:, 0], plain.levels[:, 0])


def test_it_is_far_below_the_answer_without_where_few_directions_count():
    weights, inputs = random_layer(3, 40, 16, n_rows=200)
    output_weights = random_output_weights(3, 16, rank=4)
    found = {
        m: quantize_layer(weights, inputs, method=m, output_weights=output_weights) for m in ("descent", "annealed")
    }
    plain = quantize_layer(weights, inputs, method="descent")
    plain_error = cost(weights, plain.weights, inputs, output_weights) / cost(weights, 0, inputs, output_weights)
    assert found["descent"].error < 0.5 * plain_error
    assert found["annealed"].error < 0.8 * found["descent"].error


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.eye(2), r"shape \(2, 2\); expected \(n_outputs, n_outputs\) = \(3, 3\)"),
        (np.triu(np.ones((3, 3))), "differ from their transpose by 1"),
        (np.diag([1.0, 1.0, -1.0]), "eigenvalue -1"),
        (np.full((3, 3), np.nan), "NaN"),
    ],
)
def test_what_is_no_matrix_of_costs_is_refused(given, message):
    with pytest.raises(InvalidInputError, match=message):
        quantize_layer(*random_layer(0, 4, 3), output_weights=given)
