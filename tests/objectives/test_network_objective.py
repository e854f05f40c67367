"""The loss of a network, its gradient and its curvature: against automatic differentiation and finite differences."""

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from autograd.scipy.special import logsumexp

from annealfit.data import convolution
from annealfit.data.convolution import Images, Network, shifts_within
from annealfit.training.objectives import FILTER_CURVATURES, ConvNet, LinearHead
from annealfit.training.objectives import conv_net as conv_net_module

NETWORKS = {  # image shape, layers of (filters, kernel, pool)
    "one layer": ((8, 8, 1), [(2, 3, 2)]),
    "colour": ((7, 7, 3), [(3, 2, 3)]),
    "two layers": ((12, 11, 2), [(3, 3, 2), (4, 2, 2)]),
    "three layers": ((14, 14, 1), [(2, 3, 2), (3, 2, 1), (2, 2, 2)]),
}
REGULARIZATION = 0.05
COUNT = 12


@pytest.fixture(params=[(name, classes) for name in NETWORKS for classes in (2, 3)], ids=str)
def case(request):
    """A network, the weights of all its layers by name, and images with labels and weights."""
    name, n_classes = request.param
    return make_case(name, n_classes)


def make_case(name, n_classes, count=COUNT, dtype=np.float64, **more):
    network = Network.of(*NETWORKS[name])
    generator = np.random.default_rng(n_classes)
    weights = {
        f"conv{number}": generator.normal(size=(shape.filters, shape.n_parameters))
        for number, shape in enumerate(network.layers, start=1)
    }
    outputs = 1 if n_classes == 2 else n_classes
    weights["head"] = generator.normal(size=(network.n_features + 1, outputs)) * 0.5
    pixels = generator.random((count, *NETWORKS[name][0]))
    labels, row_weights = np.arange(count) % n_classes, generator.uniform(0.2, 2.0, count)
    images = Images(pixels, labels, n_classes, row_weights, dtype=dtype)
    return net_of(network, weights, images, **more), weights


def net_of(network, weights, images, trained=None, **more):
    filters = [weights[f"conv{number}"] for number in range(1, len(network.layers) + 1)]
    trained = range(len(filters)) if trained is None else trained
    return ConvNet(images, network, filters, trained, REGULARIZATION, **more)


def point_of(net, part, weights, iteration=0):
    """The network at some weights, as a point of the head or of the filters of one layer."""
    at = net.at(weights)
    return at if part == "head" else net.layer(part, at, iteration).at(weights[part])


def as_in_point(net, part, values):
    """Weights, or derivatives with respect to them, in the order of a point of this part."""
    return values[net.network.order] if part == "head" else values


def layer_names(weights):
    return [name for name in weights if name != "head"]


def differentiable_outputs(weights, pixels, network):
    """The outputs (N, outputs) of a network, written for automatic differentiation: no kernel, no winners."""
    maps = pixels
    for number, shape in enumerate(network.layers, start=1):
        own = weights[f"conv{number}"]
        (high, wide), (height, width), kernel = shape.convolved, shape.pooled, shape.kernel
        patches = [maps[:, i : i + high, j : j + wide] for i in range(kernel) for j in range(kernel)]
        convolved = anp.einsum("pnyxc,fpc->nyxf", anp.array(patches), own[:, :-1].reshape(len(own), len(patches), -1))
        rectified = anp.maximum(convolved + own[:, -1], 0)
        pool = shape.pool
        windows = [
            rectified[:, i : height * pool : pool, j : width * pool : pool][:, :height, :width]
            for i in range(pool)
            for j in range(pool)
        ]
        maps = anp.max(anp.array(windows), axis=0)
    features = anp.transpose(maps, (0, 3, 1, 2)).reshape(len(pixels), -1)
    return anp.dot(features, weights["head"][:-1]) + weights["head"][-1]


def differentiable_loss(weights, net):
    images = net.images
    outputs = differentiable_outputs(weights, images.pixels, net.network)
    if outputs.shape[1] == 1:
        outputs = anp.concatenate([anp.zeros_like(outputs), outputs], axis=1)
    losses = logsumexp(outputs, axis=1) - outputs[np.arange(len(outputs)), images.labels]
    trained = ["head", *(f"conv{layer + 1}" for layer in net.trained)]
    penalties = [(weights[name][:, :-1] if name != "head" else weights[name][:-1]) ** 2 for name in trained]
    penalty = 0.5 * REGULARIZATION * sum(anp.sum(squares) for squares in penalties)
    return anp.sum(images.weights * losses) / images.weights.sum() + penalty


def gauss_newton(net, weights, name):
    """`Σ a_n J_nᵀ S_n J_n / Σ a_n` (F·D, F·D) with the Jacobians of automatic differentiation."""

    def outputs_of(own):
        return differentiable_outputs({**weights, name: own}, net.images.pixels, net.network)

    jacobians = autograd.jacobian(outputs_of)(weights[name])
    jacobians = jacobians.reshape(*jacobians.shape[:2], -1)
    logits = outputs_of(weights[name])
    if logits.shape[1] == 1:
        share = 1 / (1 + np.exp(-logits))
        hessians = (share * (1 - share))[:, :, None]
    else:
        share = np.exp(logits - logits.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        hessians = share[:, :, None] * np.eye(share.shape[1]) - share[:, :, None] * share[:, None, :]
    row_weights = net.images.weights / net.images.weights.sum()
    return np.einsum("n,nci,ncd,ndj->ij", row_weights, jacobians, hessians, jacobians)


def test_the_loss_is_that_of_plain_numpy_for_the_head_and_for_every_layer(case):
    net, weights = case
    expected = differentiable_loss(weights, net)
    for part in net.parts:
        point = point_of(net, part, weights)
        assert point.loss == pytest.approx(expected, rel=1e-12)
        assert point.figures() == net.at(weights).figures()
        np.testing.assert_array_equal(point.weights, as_in_point(net, part, weights[part]))


def test_gradients_are_those_of_automatic_differentiation(case):
    net, weights = case
    expected = autograd.grad(lambda own: differentiable_loss(own, net))(weights)
    for part in net.parts:
        found = point_of(net, part, weights).gradients
        own = as_in_point(net, part, expected[part])
        own = own.T if part == "head" else own
        np.testing.assert_allclose(found, own, rtol=1e-9, atol=1e-12)


def test_gradients_are_those_of_finite_differences(case):
    net, weights = case
    for part in layer_names(weights):
        point = point_of(net, part, weights)
        for position in list(np.ndindex(*point.weights.shape))[::5]:
            step = np.zeros_like(point.weights)
            step[position] = 1e-6
            rise = point.moved(step).loss - point.moved(-step).loss
            assert point.gradients[position] == pytest.approx(rise / 2e-6, rel=1e-5, abs=1e-8)


def test_curvatures_are_those_of_automatic_differentiation(case):
    net, weights = case
    for part in layer_names(weights):
        point, expected = point_of(net, part, weights), gauss_newton(net, weights, part)
        np.testing.assert_allclose(point.joint_gram(), expected, rtol=1e-9, atol=1e-12)
        size = point.layer.n_parameters
        for number, found in enumerate(point.filter_grams()):
            own = slice(number * size, (number + 1) * size)
            np.testing.assert_allclose(found, expected[own, own], rtol=1e-9, atol=1e-12)


def test_filter_curvatures_are_the_grams_and_the_penalty(case):
    net, weights = case
    point = point_of(net, "conv1", weights)
    ridge = np.full(point.layer.n_parameters, REGULARIZATION)
    ridge[-1] = 0
    (joint,) = FILTER_CURVATURES["joint"](point.layer)(point)
    np.testing.assert_allclose(joint.matrix, point.joint_gram() + np.diag(np.tile(ridge, point.layer.n_blocks)))
    for curvature, gram in zip(FILTER_CURVATURES["by_filter"](point.layer)(point), point.filter_grams(), strict=True):
        np.testing.assert_allclose(curvature.matrix, gram + np.diag(ridge))
        assert curvature.is_convex


def test_curvature_along_directions_is_that_of_the_joint_matrix(case):
    net, weights = case
    generator = np.random.default_rng(5)
    for part in layer_names(weights):
        point = point_of(net, part, weights)
        directions = generator.normal(size=(2, *point.weights.shape))
        count, filters, size = directions.shape
        placed = np.zeros((count, filters, filters, size))
        placed[:, np.arange(filters), np.arange(filters)] = directions
        flat = placed.reshape(count * filters, filters * size)
        ridge = np.diag(np.tile(point.layer.ridge, filters))
        expected = flat @ (point.joint_gram() + ridge) @ flat.T
        before = point.weights - directions[1]
        np.testing.assert_allclose(point.step_from(before), directions[1], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(point.curvature_along(directions, before), expected, rtol=1e-9, atol=1e-12)


def test_the_curvature_is_the_second_derivative_where_the_network_is_linear():
    """Along one filter of the last layer, with no winner changing, outputs are linear: Gauss-Newton is the Hessian."""
    net, weights = make_case("two layers", 3)
    point = point_of(net, "conv2", weights)
    direction = np.zeros_like(point.weights)
    direction[1] = np.random.default_rng(0).normal(size=point.layer.n_parameters) * 1e-4
    curvature = point.curvature_along(direction[None])[1, 1]
    difference = point.moved(direction).loss - 2 * point.loss + point.moved(-direction).loss
    assert difference == pytest.approx(curvature, rel=1e-3)


def test_a_move_adds_the_updates_and_leaves_the_other_layers(case):
    net, weights = case
    for part in net.parts:
        point = point_of(net, part, weights)
        updates = np.random.default_rng(1).normal(size=point.gradients.shape) * 0.1
        reached = point.moved(updates)
        changed = {**weights, part: weights[part].copy()}
        if part == "head":
            changed[part][net.network.order] += updates.T
        else:
            changed[part] += updates
        np.testing.assert_array_equal(reached.weights, as_in_point(net, part, changed[part]))
        assert reached.loss == pytest.approx(net.at(changed).loss, rel=1e-12)


def test_weights_are_repetitions():
    net, weights = make_case("two layers", 3)
    times = np.arange(COUNT) % 3 + 1
    weighted = Images(net.images.pixels, net.images.labels, 3, times.astype(float), dtype=np.float64)
    repeated = Images(np.repeat(net.images.pixels, times, axis=0), np.repeat(net.images.labels, times), 3, dtype=float)
    one, other = (net_of(net.network, weights, images) for images in (weighted, repeated))
    for part in net.parts:
        points = point_of(one, part, weights), point_of(other, part, weights)
        assert points[0].loss == pytest.approx(points[1].loss, rel=1e-12)
        np.testing.assert_allclose(points[0].gradients, points[1].gradients, rtol=1e-9, atol=1e-12)
    points = [point_of(net, "conv1", weights) for net in (one, other)]
    np.testing.assert_allclose(points[0].joint_gram(), points[1].joint_gram(), rtol=1e-9, atol=1e-12)


def test_shifted_copies_are_images():
    net, weights = make_case("two layers", 3)
    shifts = shifts_within(1)
    copied = Images(net.images.pixels, net.images.labels, 3, dtype=float, shifts=shifts)
    written_out = Images(copied.take(np.arange(len(copied))), np.tile(net.images.labels, 5), 3, dtype=float)
    points = [point_of(net_of(net.network, weights, images), "conv1", weights) for images in (copied, written_out)]
    assert points[0].loss == points[1].loss
    np.testing.assert_array_equal(points[0].gradients, points[1].gradients)
    np.testing.assert_array_equal(points[0].filter_grams(), points[1].filter_grams())


def test_single_precision_is_close(case):
    net, weights = case
    pixels, images = net.images.pixels, net.images
    single = net_of(net.network, weights, Images(pixels, images.labels, images.n_classes, images.weights))
    for part in net.parts:
        exact, found = point_of(net, part, weights), point_of(single, part, weights)
        assert found.loss == pytest.approx(exact.loss, rel=1e-5)
        np.testing.assert_allclose(found.gradients, exact.gradients, rtol=1e-3, atol=1e-5)


def test_neither_threads_nor_cached_features_change_a_bit(monkeypatch):
    monkeypatch.setattr(convolution, "ROWS_PER_CHUNK", 5)
    monkeypatch.setattr(conv_net_module, "_VALUES_AT_ONCE", 5 * 3 * 3 * 19)
    net, weights = make_case("two layers", 3, count=23, dtype=np.float32)

    def results():
        point = point_of(net, "conv1", weights)
        return [np.array(point.loss), point.gradients, point.filter_grams()]

    whole = results()
    monkeypatch.setattr("annealfit._support.threads.processors", lambda: 1)
    alone = results()
    monkeypatch.setattr(convolution, "KEPT_BYTES", 0)
    streamed = results()
    for one, two, three in zip(whole, alone, streamed, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def test_images_of_a_curvature_are_drawn_for_every_iteration():
    net, weights = make_case("one layer", 3, count=40, curvature_rows=7, seed=3)
    points = [point_of(net, "conv1", weights, iteration) for iteration in (0, 1, 0)]
    drawn = [point.layer.positions for point in points]
    assert len(set(drawn[0])) == 7
    assert not np.array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])
    chosen = Images(
        *(values[drawn[1]] for values in (net.images.pixels, net.images.labels)),
        3,
        net.images.weights[drawn[1]],
        dtype=np.float64,
    )
    expected = point_of(net_of(net.network, weights, chosen), "conv1", weights).filter_grams()
    np.testing.assert_allclose(points[1].filter_grams(), expected, rtol=1e-12, atol=1e-14)


def test_a_part_is_the_loss_on_some_images_with_a_weight_and_parts_are_nested():
    net, weights = make_case("two layers", 3, count=40, curvature_rows=20, seed=3)
    net.images.weights[::2] = 0.0
    small, large = net.part(5), net.part(12)
    for part, count in ((small, 5), (large, 12)):
        images = part.images
        assert len(images) == len(images.labels) == len(set(images.weights)) == count
        assert (images.weights > 0).all()
        chosen = Images(images.take(slice(None)), images.labels, 3, images.weights, dtype=np.float64)
        expected = net_of(net.network, weights, chosen).at(weights)
        assert part.at(weights).loss == pytest.approx(expected.loss, rel=1e-12)
        assert part.curvature_rows == -(-count // 4)
    assert set(small.images.weights) < set(large.images.weights)
    np.testing.assert_array_equal(net.part(5).images.weights, small.images.weights)
    assert net.part(20) is net


def test_layers_that_are_not_trained_are_fixed_and_not_penalised():
    net, weights = make_case("two layers", 3, trained=[1])
    assert net.parts == ("conv2", "head")
    given = {name: weights[name] for name in net.parts}
    point = point_of(net, "conv2", given)
    np.testing.assert_array_equal(point.filters[0], weights["conv1"])
    assert point.loss == pytest.approx(differentiable_loss(weights, net), rel=1e-12)


def test_there_is_no_certificate():
    net, weights = make_case("one layer", 3)
    for part in net.parts:
        point = point_of(net, part, weights)
        assert not point.is_within(1e9)
        assert point.lower_bound() == -np.inf


def test_the_head_is_a_linear_head_on_the_features_of_the_network():
    net, weights = make_case("two layers", 3, trained=[1])
    images = net.images
    features = net.network.forward(images.pixels, [weights["conv1"], weights["conv2"]]).features
    head = LinearHead.of_arrays(features[:, :-1], images.labels, 3, REGULARIZATION, images.weights)
    found, expected = net.at(weights), head.at(weights["head"][net.network.order])
    filters = 0.5 * REGULARIZATION * (weights["conv2"][:, :-1] ** 2).sum()
    assert found.loss == pytest.approx(expected.loss + filters, rel=1e-12)
    np.testing.assert_allclose(found.gradients, expected.gradients, rtol=1e-10, atol=1e-14)
