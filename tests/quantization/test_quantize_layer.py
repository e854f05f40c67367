"""quantize_layer: biases, drift, groups, dead inputs, odd weights, and every kind of bad input."""

import warnings

import dimod
import numpy as np
import pytest
import scipy.sparse
from small_layers import all_levels, output_error, random_layer

from annealfit._support.errors import InvalidInputError, SamplerError
from annealfit.quantization import Annealed, Grid, InputMoments, Nearest, Sampled, layer_problems, quantize_layer
from annealfit.samplers import DimodSampler, ExactSolver, MockQPU, QPUSampler, Sampler, Samples

METHODS = ["nearest", "gptq", "gptq_search", "descent", "annealed"]


@pytest.mark.parametrize("method", METHODS)
def test_a_bias_keeps_the_mean_of_every_output(method):
    weights, inputs = random_layer(0, 20, 5, n_rows=300)
    bias = np.arange(5.0)
    result = quantize_layer(weights, inputs, bits=1, bias=bias, method=method)
    before, after = inputs @ weights + bias, inputs @ result.weights + result.bias
    np.testing.assert_allclose(after.mean(axis=0), before.mean(axis=0), rtol=1e-9, atol=1e-9)
    wanted = ((after - before) ** 2).sum() / ((before - before.mean(axis=0)) ** 2).sum()
    assert result.error == pytest.approx(wanted, rel=1e-9)


def test_fewer_rows_than_inputs_warn_as_their_error_is_not_that_of_others():
    weights, inputs = random_layer(0, 40, 5, n_rows=2000)

    def errors(count):
        result = quantize_layer(weights, inputs[:count], bits=2)
        others = inputs[1000:]
        return result.error, ((others @ (weights - result.weights)) ** 2).sum() / ((others @ weights) ** 2).sum()

    with pytest.warns(UserWarning, match="inputs are 20 rows of 40 numbers"):
        told, true = errors(20)
    assert true > 3 * told
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told, true = errors(500)
        quantize_layer(weights, inputs[:20], bits=2, method="nearest")
    assert true < 1.5 * told


def test_a_bias_lets_the_error_fall():
    weights, inputs = random_layer(1, 20, 5, n_rows=300)
    plain = quantize_layer(weights, inputs, bits=1)
    free = quantize_layer(weights, inputs, bits=1, bias=np.zeros(5))
    left = (inputs @ (weights - plain.weights)).var(axis=0).sum()
    assert ((inputs @ (weights - free.weights) - free.bias) ** 2).mean(axis=0).sum() < left
    assert plain.bias is None


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("method", ["gptq_search", "annealed"])
def test_outputs_are_reproduced_from_other_inputs(method, with_bias):
    # The layer is fed by layers that are quantised already: X̂Q should be XW, not X̂W.
    weights, reference = random_layer(2, 15, 6, n_rows=300)
    inputs = np.maximum(reference * 0.8 + np.random.default_rng(0).normal(size=reference.shape), 0)
    bias = np.ones(6) if with_bias else None
    made_up = quantize_layer(weights, inputs, bits=2, bias=bias, reference=reference, method=method)
    ignored = quantize_layer(weights, inputs, bits=2, bias=bias, method=method)
    wanted = reference @ weights + (0 if bias is None else bias)

    def left(result):
        return ((inputs @ result.weights + (0 if bias is None else result.bias) - wanted) ** 2).sum()

    assert left(made_up) < 0.9 * left(ignored)
    total = (wanted**2).sum() if bias is None else ((wanted - wanted.mean(axis=0)) ** 2).sum()
    assert made_up.error == pytest.approx(left(made_up) / total, rel=1e-9)


def test_scales_of_groups():
    weights, inputs = random_layer(3, 21, 4, n_rows=300)
    weights[:8] *= 5
    whole, groups = (quantize_layer(weights, inputs, bits=1, group_size=size) for size in (None, 8))
    assert whole.scales.shape == (4,)
    assert groups.scales.shape == (3, 4)
    assert groups.error < 0.7 * whole.error
    np.testing.assert_allclose(groups.weights, np.repeat(groups.scales, [8, 8, 5], axis=0) * groups.levels, rtol=1e-12)
    by_sampler = quantize_layer(weights[:8], inputs[:, :8], bits=1, group_size=4, method=ExactSolver())
    annealed = quantize_layer(weights[:8], inputs[:, :8], bits=1, group_size=4)
    assert annealed.error <= by_sampler.error * (1 + 1e-9)


def test_dead_inputs_are_rounded_to_nearest_and_cost_nothing():
    weights, inputs = random_layer(4, 12, 3, n_rows=100)
    inputs[:, [2, 7]] = 0.0
    live = [j for j in range(12) if j not in (2, 7)]
    whole = quantize_layer(weights, inputs, bits=2)
    part = quantize_layer(weights[live], inputs[:, live], bits=2, scales=whole.scales)
    np.testing.assert_array_equal(whole.levels[live], part.levels)
    nearest = Grid.of(2).nearest(weights[[2, 7]] / whole.scales)
    np.testing.assert_array_equal(whole.levels[[2, 7]], Grid.of(2).at(nearest))
    constant = inputs.copy()
    constant[:, 2] = 3.0  # which a bias absorbs, and nothing else does
    biased = quantize_layer(weights, constant, bits=2, bias=np.zeros(3))
    np.testing.assert_array_equal(
        biased.levels[live], quantize_layer(weights, inputs, bits=2, bias=np.zeros(3)).levels[live]
    )


def test_a_layer_that_sees_nothing_has_no_error():
    weights, inputs = random_layer(5, 6, 3)
    result = quantize_layer(weights, np.zeros_like(inputs), bits=2)
    assert result.error == 0.0
    np.testing.assert_array_equal(result.levels, quantize_layer(weights, bits=2, method="nearest").levels)


@pytest.mark.parametrize("kind", ["symmetric", "ternary"])
@pytest.mark.parametrize("method", METHODS)
def test_weights_that_are_constant_or_zero(kind, method):
    _, inputs = random_layer(6, 8, 1, n_rows=100)
    weights = np.column_stack([np.full(8, 0.7), np.zeros(8), np.full(8, -0.2)])
    result = quantize_layer(weights, inputs, bits=2, levels=kind, method=method)
    np.testing.assert_allclose(result.weights, weights, atol=1e-9)
    assert result.error == pytest.approx(0.0, abs=1e-12)


def test_a_weight_and_a_row_are_enough():
    result = quantize_layer([[0.3]], [[2.0]], bits=1)
    assert result.weights[0, 0] == pytest.approx(0.3)
    assert result.packed_bytes == 5


def test_the_same_seed_the_same_levels_whatever_the_threads():
    weights, inputs = random_layer(7, 40, 30, n_rows=100)
    one, two, other = (
        quantize_layer(weights, inputs, method=Annealed(num_sweeps=20, num_reads=2, num_threads=n), random_state=seed)
        for n, seed in ((1, 3), (2, 3), (1, 4))
    )
    np.testing.assert_array_equal(one.levels, two.levels)
    np.testing.assert_array_equal(one.scales, two.scales)
    assert (one.levels != other.levels).any()


def test_damping_serves_inputs_that_were_not_seen():
    weights, inputs = random_layer(8, 40, 10, n_rows=2000)
    seen, unseen = inputs[:40], inputs[40:]
    method = Annealed(num_sweeps=50, num_reads=1)
    errors = [
        output_error(weights, quantize_layer(weights, seen, bits=2, damping=share, method=method).weights, unseen)
        for share in (0.0, 0.03)
    ]
    assert errors[1] < 0.9 * errors[0]


def test_what_comes_back():
    weights, inputs = random_layer(9, 10, 3)
    result = quantize_layer(weights.astype(np.float32), inputs, bits=2, levels="ternary")
    assert result.weights.dtype == np.float32
    assert result.levels.dtype == np.int16
    assert result.output_errors.shape == (3,)
    assert result.seconds.keys() == result.errors.keys()
    assert "3 levels" in repr(result)
    assert result.packed_bytes == 8 + 12  # 30 weights of two bits, three scales
    levels = result.grid.unpack(result.packed_levels, (10, 3))
    np.testing.assert_array_equal(levels, result.levels)
    with pytest.raises(AttributeError):
        result.error = 0.0


def test_problems_of_a_layer_for_other_solvers():
    weights, inputs = random_layer(10, 9, 4)
    problems = layer_problems(weights, inputs)
    assert len(problems) == 4
    assert problems[0].n_variables == 9
    assert layer_problems(weights, inputs, bits=2, levels="ternary")[0].n_variables == 18
    assert problems[2].to_bqm().num_variables == 9


def test_a_dimod_sampler_and_the_mock_qpu():
    from dwave.samplers import SimulatedAnnealingSampler

    weights, inputs = random_layer(11, 10, 3)
    exact = quantize_layer(weights, inputs, bits=1, method=ExactSolver())
    by_dimod = quantize_layer(
        weights, inputs, bits=1, method=DimodSampler(SimulatedAnnealingSampler(), num_reads=20, num_sweeps=100)
    )
    assert by_dimod.error <= 1.2 * exact.error
    assert by_dimod.method == "DimodSampler"
    device = MockQPU("Z12", seed=1)
    by_device = quantize_layer(weights, inputs, bits=1, method=QPUSampler(device, num_reads=50, backoff_seconds=0.0))
    assert by_device.error <= by_device.errors["descent"] * (1 + 1e-9)
    assert np.isfinite(by_device.errors["QPUSampler"])


class Failing(Sampler):
    def __init__(self, share=1.0):
        self.share = share

    def solve(self, problems, seeds):
        answers = [Samples.of(p, np.ones((1, p.n_variables))) for p in problems]
        count = round(self.share * len(problems))
        return [Samples.failed(p, "no connection") for p in problems[:count]] + answers[count:]


def test_a_sampler_that_fails():
    weights, inputs = random_layer(12, 8, 4)
    with pytest.raises(SamplerError, match="solved none of 4 outputs: no connection"):
        quantize_layer(weights, inputs, bits=1, method=Failing())
    partly = quantize_layer(weights, inputs, bits=1, method=Failing(0.5))
    assert partly.error <= partly.errors["descent"] * (1 + 1e-9)


BAD = [
    ({"inputs": None}, "needs to know what the layer sees.*method='nearest'"),
    ({"inputs": np.empty((0, 6))}, "no rows"),
    ({"inputs": np.ones((5, 4))}, "weights have 6 inputs and inputs 4.*weights.T"),
    ({"inputs": np.ones((5, 2, 3))}, "shape \\(5, 2, 3\\).*patches"),
    ({"inputs": np.full((5, 6), np.nan)}, "NaN"),
    ({"inputs": np.array([["a"] * 6])}, "expected numbers"),
    ({"gram": np.eye(6)}, "both given"),
    ({"inputs": None, "gram": np.eye(4)}, "weights have 6 inputs and gram 4"),
    ({"inputs": None, "gram": np.ones((6, 4))}, "gram has shape"),
    ({"inputs": None, "gram": -np.eye(6)}, "on its diagonal"),
    ({"inputs": None, "gram": np.triu(np.ones((6, 6)))}, "gram differs from its transpose"),
    ({"inputs": None, "gram": np.eye(6), "bias": np.zeros(3)}, "gram does not tell"),
    ({"inputs": None, "reference": np.ones((5, 6))}, "reference goes with inputs"),
    ({"reference": np.ones((4, 6))}, "must be the same rows"),
    ({"weights": np.full((6, 3), np.inf)}, "NaN or infinity"),
    ({"weights": np.ones((6, 3)) * 1j}, "weights is an array of complex128; expected real numbers"),
    ({"weights": np.full((6, 3), 1e200)}, "weights are up to 1e\\+200, which is too large to be squared"),
    ({"inputs": np.full((5, 6), 1e200)}, "too large to be squared"),
    ({"weights": np.full((6, 3), 1e-200)}, "weights are up to 1e-200, which is too small to be squared"),
    ({"inputs": np.full((5, 6), 1e-200)}, "inputs are up to 1e-200, which is too small"),
    ({"inputs": 1e-200 * np.vander(np.arange(1.0, 6.0), 6)}, "too small to be squared; multiply"),
    ({"weights": np.ones(6)}, "1 dimensions; expected 2"),
    ({"weights": np.ones((6, 0))}, "both ≥ 1"),
    ({"bits": 0}, "bits is 0"),
    ({"bits": 9}, "at most 8"),
    ({"bits": 2.5}, "whole number"),
    ({"levels": "float"}, "levels is 'float'; choose one of"),
    ({"levels": "ternary", "bits": 1}, "ternary.*bits=2"),
    ({"levels": "with_zero", "bits": 1}, "no room for 0"),
    ({"method": "magic"}, "method is 'magic'; choose one of 'annealed'"),
    ({"method": Annealed}, "the class Annealed"),
    ({"method": object()}, "improve"),
    ({"method": dimod.ExactSolver()}, "wrap dimod's: DimodSampler"),
    ({"group_size": 0}, "group_size is 0"),
    ({"scales": [1.0, 2.0]}, "scales have shape \\(2,\\); expected \\(3,\\)"),
    ({"scales": [1.0, 2.0, 0.0]}, "scales hold 0; they must be above 0"),
    ({"scales": ["a", "b", "c"]}, "scales is not an array of numbers"),
    ({"bias": np.zeros(2)}, "bias has 2 entries and the weights 3 outputs"),
    ({"damping": -1.0}, "damping is -1.0"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_is_named(change, message):
    good = {"weights": np.ones((6, 3)), "inputs": np.ones((5, 6)), "bits": 2}
    with pytest.raises(InvalidInputError, match=message):
        quantize_layer(**{**good, **change})


@pytest.mark.parametrize("settings", [{"num_sweeps": 0}, {"num_reads": -1}, {"num_threads": 0.5}])
def test_bad_settings_of_the_annealer(settings):
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        Annealed(**settings)


def test_not_a_sampler():
    with pytest.raises(InvalidInputError, match="wrap dimod's"):
        Sampled("qpu")


def test_without_data_there_is_rounding_to_nearest():
    weights, _ = random_layer(13, 6, 3)
    result = quantize_layer(weights, bits=3, method=Nearest())
    assert result.error == pytest.approx(((weights - result.weights) ** 2).sum() / (weights**2).sum())


def test_moments_come_in_chunks():
    _, inputs = random_layer(14, 5, 1, n_rows=50)
    whole = InputMoments.of(inputs, inputs + 1)
    chunks = InputMoments.of_chunks((inputs[rows], inputs[rows] + 1) for rows in (slice(0, 20), slice(20, 50)))
    for name in ("gram", "means", "cross"):
        np.testing.assert_allclose(getattr(whole, name), getattr(chunks, name), rtol=1e-12)
    sparse = InputMoments.of(scipy.sparse.coo_array(inputs), scipy.sparse.csr_array(inputs + 1))
    np.testing.assert_allclose(sparse.cross, whole.cross, rtol=1e-12)
    np.testing.assert_allclose(whole.centred().cross, np.cov(inputs.T, bias=True), atol=1e-12)


@pytest.mark.parametrize("offset", [1e4, 1e7, 1e8])
def test_inputs_far_from_zero_lose_no_digits_where_a_bias_absorbs_their_mean(offset):
    """Shifted by a power of two's multiple, inputs are the same numbers but for the rounding of the shift itself."""
    weights, inputs = random_layer(0, 6, 4, 200)
    shifted = inputs + offset
    found = quantize_layer(weights, shifted, bits=2, bias=np.zeros(4))
    centred = shifted - shifted.mean(axis=0)
    quantised = found.scales * found.levels
    expected = output_error(weights, quantised, centred - centred.mean(axis=0))
    assert found.error == pytest.approx(expected, rel=1e-7)


def nearly_equal_inputs(distance):
    """Two inputs that differ by so much, and weights that multiply the difference by the inverse of it."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(200, 4))
    inputs[:, 1] = inputs[:, 0] + distance * generator.normal(size=200)
    weights = generator.normal(size=(4, 3))
    weights[:2] = [[1 / distance], [-1 / distance]]
    return weights, inputs


def test_weights_that_cancel_are_told_and_nothing_about_them_counts_as_proven():
    with pytest.warns(RuntimeWarning, match=r"the weights cancel .* is rounding"):
        found = quantize_layer(*nearly_equal_inputs(1e-7), bits=2, method="lattice")
    assert not found.proven.any()
    assert found.lower_bound < 0.5 * found.error
    with pytest.raises(InvalidInputError, match="lost to rounding; merge inputs"):
        quantize_layer(np.array([[1e9], [-1e9]]), gram=[[1.0, 1 + 4e-16], [1 + 4e-16, 1.0]], method="nearest")


@pytest.mark.parametrize("size", [1e3, 1e6, 1e8])
def test_what_is_proven_is_proven_beside_rounding(size):
    """Outputs that are small beside the products they are sums of, against all levels in extended precision."""
    generator = np.random.default_rng(1)
    weights, inputs = generator.normal(size=(4, 30)), generator.normal(size=(200, 4)) + size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rounding
        found = quantize_layer(weights, inputs, bits=2, method="lattice")
    exact, wide = inputs.astype(np.longdouble), weights.astype(np.longdouble)
    choices = all_levels(found.grid, 4).astype(np.longdouble)
    for output in np.flatnonzero(found.proven):
        errors = ((exact @ (wide[:, [output]] - found.scales[output] * choices.T)) ** 2).mean(axis=0)
        own = ((exact @ (wide[:, output] - found.scales[output] * found.levels[:, output])) ** 2).mean()
        assert own <= errors.min() + 2e-9 * ((exact @ wide[:, output]) ** 2).mean()
