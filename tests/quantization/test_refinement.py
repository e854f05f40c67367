"""Levels moved along the loss of a head: the model's derivatives, the fit of scales, and a loss that never rises."""

import numpy as np
import pytest
from scipy.optimize import minimize

from annealfit._support.errors import InvalidInputError
from annealfit.quantization import Grid, LowBitHead, Refinement, quantize_layer
from annealfit.quantization.refinement import _fit_scales, _joint_curvature, _without_biases
from annealfit.training.objectives import LinearHead


def problem(n_classes=3, n_features=6, n_rows=80, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n_rows, n_features)) @ generator.normal(size=(n_features, n_features))
    y = (X @ generator.normal(size=(n_features, n_classes)) + generator.gumbel(size=(n_rows, n_classes))).argmax(axis=1)
    return LinearHead.of_arrays(X, y, n_classes, 1e-2), X, y


def rounded(head, X, bits=1):
    """The head's optimum, nearly, on a grid."""
    weights = np.zeros((head.n_parameters, head.n_outputs))
    for _ in range(300):
        weights = weights - 0.05 * head.at(weights).gradients.T
    result = quantize_layer(weights[:-1], X, bits=bits, bias=weights[-1], method="gptq")
    grid = result.grid
    return LowBitHead((result.levels.astype(np.int64) - grid.lowest) // grid.step, result.scales, result.bias, grid)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_joint_curvature_is_the_hessian(n_classes):
    head, X, _ = problem(n_classes)
    start = rounded(head, X)
    point, step = head.at(start.weights), 1e-5
    (found,) = _joint_curvature(point)
    flat = found.reshape(head.n_outputs * head.n_parameters, -1)
    for number in range(len(flat)):
        change = np.zeros(len(flat))
        change[number] = step
        ends = [head.at(start.weights + sign * change.reshape(head.n_outputs, -1).T) for sign in (1, -1)]
        slopes = (ends[0].gradients - ends[1].gradients).ravel() / (2 * step)
        np.testing.assert_allclose(flat[number], slopes, rtol=1e-6, atol=1e-7)


def test_twice_each_class_bounds_the_joint_curvature():
    head, X, _ = problem(4)
    point = head.at(rounded(head, X).weights)
    (joint,), blocks = _joint_curvature(point), point.output_grams() + np.diag(head.ridge)
    size = head.n_parameters
    bound = np.zeros_like(joint)
    for c in range(4):
        bound[c, :, c] = 2 * blocks[c]
    difference = (bound - joint).reshape(4 * size, 4 * size)
    assert np.linalg.eigvalsh(difference).min() > -1e-10


def test_biases_are_at_their_best_in_the_model():
    head, X, _ = problem()
    point = head.at(rounded(head, X).weights)
    (curvature,) = _joint_curvature(point)
    metric, slopes = _without_biases(curvature, point.gradients, 0.0)
    flat, gradient = curvature.reshape(21, 21), point.gradients.ravel()

    def least(update):
        def model(biases):
            whole = np.column_stack([update, biases]).ravel()
            return whole @ flat @ whole + 2 * gradient @ whole

        return minimize(model, np.zeros(3), method="BFGS").fun

    update = np.random.default_rng(0).normal(size=(3, 6))
    wanted = least(update) - least(np.zeros((3, 6)))  # energies are counted from no update
    assert metric.energies(slopes, update.ravel()) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_scales_and_biases_are_those_of_least_loss(n_classes):
    head, X, _ = problem(n_classes)
    start = rounded(head, X, bits=2)
    fitted, point = _fit_scales(head, start)
    np.testing.assert_array_equal(fitted.numbers, start.numbers)

    def loss(values):
        scales, biases = np.exp(values[: head.n_outputs]), values[head.n_outputs :]
        return head.at(np.vstack([scales * start.levels, biases])).loss

    wanted = minimize(loss, np.concatenate([np.log(start.scales), start.biases]), options={"gtol": 1e-8}).fun
    assert point.loss <= wanted + 1e-7
    assert (fitted.scales > 0).all()


@pytest.mark.parametrize("scope", ["joint", "per_class", None])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_loss_falls_at_every_step_that_is_kept(scope, n_classes):
    head, X, _ = problem(n_classes, n_rows=200)
    start = rounded(head, X)
    found, losses = Refinement(scope, max_steps=15).refine(head, start, 3)
    assert (np.diff(losses) < 0).all()
    assert len(losses) > 2, "levels were moved"
    assert head.at(found.weights).loss == pytest.approx(losses[-1], rel=1e-9)
    assert np.isin(found.levels, Grid.of(1).levels).all()
    again, _ = Refinement(scope, max_steps=15).refine(head, start, 3)
    np.testing.assert_array_equal(found.numbers, again.numbers)


def test_finds_the_best_levels_of_a_small_head():
    # All 2^8 levels of two classes, each with its best scale and bias.
    head, X, _ = problem(2, n_features=8, n_rows=120, seed=4)
    start = rounded(head, X)
    found, losses = Refinement().refine(head, start, 0)
    least = np.inf
    for number in range(2**8):
        bits = (number >> np.arange(8)) & 1
        try_ = LowBitHead(bits[:, None].astype(np.int64), start.scales, start.biases, start.grid)
        least = min(least, _fit_scales(head, try_)[1].loss)
    assert losses[-1] == pytest.approx(least, rel=1e-6)
    assert found.numbers.shape == (8, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"scope": "all"}, "scope is 'all'"), ({"max_steps": 0}, "max_steps is 0")],
)
def test_bad_settings_of_a_refinement(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        Refinement(**settings)


def test_weights_that_are_all_zero_beside_tiny_features():
    """No scale above 0 lowers the loss, which leaves the anneal without a unit of energy."""
    _, X, y = problem()
    head = LinearHead.of_arrays(1e-50 * X, y, 3, 1e-2)
    nothing = LowBitHead(np.zeros((6, 3), np.int64), np.zeros(3), np.zeros(3), Grid.of(2))
    found, losses = Refinement().refine(head, nothing, 0)
    assert losses == sorted(losses, reverse=True)
    assert np.isfinite(found.weights).all()
