import numpy as np
import pytest

from annealfit._support.errors import InvalidInputError
from annealfit.data.convolution import Images, Network
from annealfit.models.baselines import _batch_gradients, solve_logistic, train_adam, train_sgd
from annealfit.training.objectives import ConvNet, LinearHead


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_gradient_vanishes_at_the_logistic_optimum(blobs, n_classes):
    X, y = blobs
    head = LinearHead.of_arrays(X, y % n_classes, n_classes, 1e-2)
    slope = head.at(solve_logistic(X, y % n_classes, 1e-2).weights).gradients
    assert np.abs(slope).max() < 1e-5  # lbfgs stops near 1e-6


def test_sgd_approaches_the_optimum_from_above(blobs):
    X, y = blobs
    head = LinearHead.of_arrays(X, y, 3, 1e-2)
    result = train_sgd(head, np.zeros((5, 3)), rate=0.2, steps=2000)
    best = head.at(solve_logistic(X, y, 1e-2).weights).loss
    losses = [row["loss"] for row in result.history]
    assert len(losses) == 2000
    assert losses == sorted(losses, reverse=True)
    assert best <= losses[-1] <= best * 1.01


def test_invalid_arguments_of_baselines_are_refused(blobs):
    X, y = blobs
    with pytest.raises(InvalidInputError, match="above 0"):
        solve_logistic(X, y, 0.0)
    with pytest.raises(InvalidInputError, match="learning rate"):
        train_sgd(LinearHead.of_arrays(X, y, 3, 0.0), np.zeros((5, 3)), rate=0)


# Adam on a network


@pytest.fixture
def small_net():
    network = Network.of((9, 9, 2), [(3, 3, 2), (2, 2, 1)])
    generator = np.random.default_rng(0)
    filters = [generator.normal(size=(shape.filters, shape.n_parameters)) * 0.5 for shape in network.layers]
    images = Images(generator.random((50, 9, 9, 2)), np.arange(50) % 3, 3, generator.uniform(0.5, 2, 50), dtype=float)
    net = ConvNet(images, network, filters, [0, 1], 0.01)
    return net, net.first_weights(generator.normal(size=(network.n_features + 1, 3)))


def gradient_of(net, part, weights):
    """The gradient of a network in the shape of the weights of one part."""
    at = net.at(weights)
    if part != "head":
        return net.layer(part, at, 0).at(weights[part]).gradients
    found = np.empty_like(weights[part])
    found[net.network.order] = at.gradients.T
    return found


def test_the_gradients_of_a_batch_of_all_images_are_those_of_the_objective(small_net):
    net, weights = small_net
    found = _batch_gradients(net, weights, np.arange(50))
    for part in net.parts:
        np.testing.assert_allclose(found[part], gradient_of(net, part, weights), rtol=1e-9, atol=1e-12)


def test_the_first_step_of_adam_is_the_rate_times_the_sign(small_net):
    net, weights = small_net
    result = train_adam(net, weights, rate=1e-3, epochs=1, batch_size=50)
    for part in net.parts:
        step = result.weights[part] - weights[part]
        np.testing.assert_allclose(step, -1e-3 * np.sign(gradient_of(net, part, weights)), rtol=1e-4)


def test_adam_follows_the_recurrence_of_its_paper(small_net):
    """Three steps on all images, written out for one weight."""
    net, weights = small_net
    result = train_adam(net, weights, rate=1e-2, epochs=3, batch_size=50)
    now, first, second, value = dict(weights), 0.0, 0.0, weights["conv1"][1, 2]
    for step in range(1, 4):
        gradient = gradient_of(net, "conv1", now)[1, 2]
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        corrected = first / (1 - 0.9**step), second / (1 - 0.999**step)
        value -= 1e-2 * (1 - (step - 1) / 3) * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)
        now = train_adam(net, weights, rate=1e-2, epochs=3, batch_size=50, on_epoch=_after(step)).weights
    assert result.weights["conv1"][1, 2] == pytest.approx(value, rel=1e-9)
    assert [row["iteration"] for row in result.history] == [1, 2, 3]


def _after(step):
    return lambda row: row["iteration"] == step


def test_adam_decreases_the_loss_and_leaves_layers_that_are_not_trained(small_net):
    net, weights = small_net
    frozen = ConvNet(net.images, net.network, net.filters, [1], 0.01)
    result = train_adam(frozen, frozen.first_weights(weights["head"]), rate=1e-2, epochs=20, batch_size=10, seed=1)
    assert result.history[-1]["loss"] < 0.8 * result.history[0]["loss"]
    assert set(result.weights) == {"conv2", "head"}
    assert frozen.at(result.weights).loss == result.history[-1]["loss"]
    with pytest.raises(InvalidInputError, match="learning rate"):
        train_adam(frozen, weights, rate=0)
