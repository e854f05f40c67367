"""Alternating ordinary trainers: `NetworkTrainer` on a small network, and a matrix factorisation as an oracle."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from annealfit import Method
from annealfit.data.convolution import Images, Network
from annealfit.problems.curvature import Curvature
from annealfit.samplers import LevelAnnealer
from annealfit.training import DampingPolicy, LevenbergMarquardt, Outcome, Stopping, Trainer, run
from annealfit.training.network import NetworkTrainer
from annealfit.training.objectives import FILTER_CURVATURES, ConvNet

# A network of two layers and a head


def network(n_images=40, seed=0):
    shape = Network.of((9, 9, 1), [(2, 3, 2), (3, 2, 1)])
    generator = np.random.default_rng(1)
    filters = [generator.normal(size=(layer.filters, layer.n_parameters)) * 0.5 for layer in shape.layers]
    labels = np.arange(n_images) % 3
    pixels = np.random.default_rng(seed).random((n_images, 9, 9, 1))
    pixels[labels == 1, 4] += 1
    pixels[labels == 2, :, 4] += 1
    return ConvNet(Images(pixels, labels, 3, dtype=float), shape, filters, [0, 1], 1e-3)


def network_trainer(net, max_iter, **options):
    method = Method()
    filter_method = replace(method, curvature=FILTER_CURVATURES["by_filter"], coordinates="raw")
    return NetworkTrainer(
        net,
        LevelAnnealer(),
        method.resolved(),
        filter_method.resolved(FILTER_CURVATURES),
        **{"damping": LevenbergMarquardt(), "head_steps": 2, "bits": 2, "seed": 3, **options},
        stopping=Stopping(max_iter),
    )


def start(net, trainer):
    head = np.zeros((net.network.n_features + 1, 3))
    return trainer.start(net.first_weights(head))


@pytest.fixture(scope="module")
def trained():
    """The result of ten steps, the weights before the first and after every step, and the trainer."""
    net = network()
    trainer = network_trainer(net, 10)
    state = start(net, trainer)
    weights = [state.weights]
    result = run(trainer, state, callbacks=[lambda iteration: weights.append(iteration.state.weights)])
    return result, weights


def test_a_round_is_some_steps_of_the_head_and_one_of_every_layer_the_last_first(trained):
    result, _ = trained
    layers = ["head", "head", "conv2", "conv1"]
    assert [row["layer"] for row in result.history] == [*layers, *layers, "head", "head"]
    assert [row["round"] for row in result.history] == [1] * 4 + [2] * 4 + [3] * 2
    assert [row["iteration"] for row in result.history] == list(range(1, 11))


def test_one_layer_changes_in_a_step_and_the_loss_decreases(trained):
    result, weights = trained
    for row, (before, after) in zip(result.history, itertools.pairwise(weights), strict=True):
        changed = [name for name in before if before[name] is not after[name]]
        assert changed == [row["layer"]]
        assert row["loss_change"] < 0
    losses = [row["loss"] for row in result.history]
    np.testing.assert_allclose(np.diff(losses), [row["loss_change"] for row in result.history[1:]], atol=1e-12)
    assert result.point.loss == losses[-1]


def test_each_layer_keeps_its_own_ranges_previous_step_and_damping(trained):
    result, weights = trained
    layers = result.state.layers
    assert {name: own.ranges.shape for name, own in layers.items()} == {"conv1": (2,), "conv2": (3,), "head": (3,)}
    for name, own in layers.items():
        # The weights before the last step of the layer.
        last = max(index for index, row in enumerate(result.history) if row["layer"] == name)
        np.testing.assert_array_equal(own.previous, weights[last][name])
    first = LevenbergMarquardt().first()
    assert layers["head"].damping is None
    assert layers["conv1"].damping < first  # two steps that were applied
    assert [row["damping"] for row in result.history[:4]] == [None, None, first, first]


def test_without_damping_none_is_recorded():
    net = network()
    trainer = network_trainer(net, 3, damping=DampingPolicy())
    assert not any("damping" in row for row in run(trainer, start(net, trainer)).history)


def test_the_best_weights_on_validation_data_are_those_of_all_layers():
    net, other = network(), network(20, seed=5)
    trainer = network_trainer(net, 10, validation=other)
    result = run(trainer, start(net, trainer))
    best = result.state.best
    assert set(best.weights) == {"head", "conv1", "conv2"}
    row = result.history[best.iteration - 1]
    figures = other.at(best.weights).figures()
    assert (row["validation_accuracy"], row["validation_loss"]) == (figures["accuracy"], figures["loss"])
    assert row["validation_accuracy"] == max(row["validation_accuracy"] for row in result.history)


def test_losses_of_fewer_images_are_no_plateau():
    stopping, state = Stopping(100, patience=3), start(network(), network_trainer(network(), 1))
    falling = [{"loss": loss, "solved": 1, "seconds": 0.0} for loss in (5.0, 4.0, 3.0, 9.0, 8.0, 7.0)]
    assert stopping.before_resuming(state, falling) == "plateau"
    grown = [{**row, "images": 10 if row["loss"] < 6 else 20} for row in falling]
    assert stopping.before_resuming(state, grown) is None
    stuck = [{**row, "loss": 9.0} for row in grown[3:]]
    assert stopping.before_resuming(state, [*grown, *stuck]) == "plateau"


# Matrix factorisation `½‖AB − M‖²`: convex in A and in B, but not in both


class Factor:
    """One factor as an objective, the other one fixed: A (4, 2) has blocks of 2, B (2, 5) has blocks of 5."""

    multiplications = 1.0

    def __init__(self, target, other, *, is_left):
        self.target, self.other, self.is_left = target, other, is_left

    def at(self, weights):
        return FactorPoint(self, weights)


class FactorPoint:
    def __init__(self, factor, weights):
        self.factor, self.weights = factor, weights
        self.residual = self.product(weights) - factor.target
        self.loss = 0.5 * float((self.residual**2).sum())
        other = factor.other.T
        self.gradients = self.residual @ other if factor.is_left else other @ self.residual

    def product(self, weights):
        return weights @ self.factor.other if self.factor.is_left else self.factor.other @ weights

    def step_from(self, previous):
        return self.weights - previous

    def curvature_along(self, directions, previous=None):
        count, blocks, size = directions.shape
        placed = np.zeros((count, blocks, blocks, size))
        placed[:, np.arange(blocks), np.arange(blocks)] = directions
        changes = np.array([self.product(each).ravel() for each in placed.reshape(-1, blocks, size)])
        return changes @ changes.T

    def moved(self, updates, *, remove_class_mean=False):
        return FactorPoint(self.factor, self.weights + updates)

    def is_within(self, gap):
        return False

    def lower_bound(self):
        return -np.inf

    def figures(self):
        return {"loss": self.loss}


def curvature(factor):
    other = factor.other
    if factor.is_left:
        return lambda point: [other @ other.T]  # of a row of A
    return lambda point: [np.kron(other.T @ other, np.eye(5))]  # of both rows of B together


def test_trainers_that_alternate_reach_the_best_factorisation():
    """No factorisation of rank 2 is better than that of the singular values (Eckart and Young 1936)."""
    generator = np.random.default_rng(0)
    exact = generator.normal(size=(4, 2)) @ generator.normal(size=(2, 5))
    target = exact + 0.1 * generator.normal(size=(4, 5))
    weights = {True: generator.normal(size=(4, 2)), False: generator.normal(size=(2, 5))}
    method = Method(curvature=curvature, coordinates="raw").resolved()
    states, losses = {}, []
    for iteration in range(60):
        is_left = iteration % 3 == 0
        factor = Factor(target, weights[not is_left], is_left=is_left)
        options = {"bits": 3, "seed": 3, "stopping": Stopping(60), "damping": LevenbergMarquardt()}
        trainer = Trainer(factor, LevelAnnealer(), method, **options)
        state = states.get(is_left) or trainer.start(weights[is_left])
        states[is_left], row = trainer.step(replace(state, iteration=iteration))
        weights[is_left] = states[is_left].weights
        losses.append(row["loss"])
    assert losses == sorted(losses, reverse=True)
    assert (states[True].ranges.shape, states[False].ranges.shape) == ((4,), (1,))
    best = 0.5 * (np.linalg.svd(target, compute_uv=False)[2:] ** 2).sum()
    assert losses[-1] == pytest.approx(best, rel=1e-3)


# Damping


def outcome(*, accepted, solved=True):
    return Outcome(np.array([-1.0]), np.array([accepted]), np.array([solved]), -1.0)


def test_damping_decreases_after_an_applied_step_and_increases_after_a_refused_one():
    policy = LevenbergMarquardt()
    damping = policy.first()
    assert policy.revise(damping, outcome(accepted=True)) < damping < policy.revise(damping, outcome(accepted=False))
    assert policy.revise(damping, outcome(accepted=False, solved=False)) == damping
    assert DampingPolicy().revise(None, outcome(accepted=True)) is None


def test_damping_is_added_to_the_diagonal_of_a_curvature():
    curvature = Curvature([[2.0, 1.0], [1.0, 4.0]])
    np.testing.assert_allclose(curvature.damped(0.1).matrix, [[2.3, 1.0], [1.0, 4.3]])
    np.testing.assert_allclose(Curvature(np.zeros((2, 2))).damped(0.1).matrix, 0.1 * np.eye(2))
