"""The arithmetic of convolution layers against plain NumPy, and against `RandomConvFeatures`."""

import itertools

import numpy as np
import pytest

from annealfit import RandomConvFeatures
from annealfit._support.errors import InvalidInputError
from annealfit.data import convolution
from annealfit.data.convolution import Images, Network, NetworkRows, shifts_within

NETWORKS = {  # image shape, layers of (filters, kernel, pool)
    "grey": ((8, 8, 1), [(2, 3, 2)]),
    "colour": ((9, 7, 3), [(3, 2, 2)]),
    "deep": ((12, 11, 2), [(3, 3, 2), (4, 2, 2)]),
    "no pooling": ((6, 6, 1), [(2, 3, 1), (3, 2, 1)]),
    "three layers": ((14, 14, 1), [(2, 3, 2), (3, 2, 1), (2, 2, 2)]),
    "more filters than lanes": ((7, 9, 2), [(18, 2, 2), (17, 2, 1)]),
}


@pytest.fixture(params=NETWORKS)
def network(request):
    return Network.of(*NETWORKS[request.param])


def some_weights(network, seed=0, scale=0.5):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(shape.filters, shape.n_parameters)) * scale for shape in network.layers]


def some_images(network, count=5, seed=1):
    first = network.layers[0]
    return np.random.default_rng(seed).random((count, first.height, first.width, first.channels))


def plain_maps(images, network, weights):
    """Every layer's outputs, place by place."""
    maps = []
    for shape, own in zip(network.layers, weights, strict=True):
        kernel, pool = shape.kernel, shape.pool
        height, width = shape.pooled
        outputs = np.zeros((len(images), height, width, shape.filters))
        for n, y, x, f in np.ndindex(*outputs.shape):
            for i, j in itertools.product(range(pool), repeat=2):
                top, left = y * pool + i, x * pool + j
                patch = images[n, top : top + kernel, left : left + kernel].ravel()
                outputs[n, y, x, f] = max(outputs[n, y, x, f], patch @ own[f, :-1] + own[f, -1])
        maps.append(outputs)
        images = outputs
    return maps


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 2e-6)])
def test_maps_are_those_of_plain_loops(network, dtype, tolerance):
    weights, images = some_weights(network), some_images(network)
    found = network.maps(images.astype(dtype), weights)
    for own, expected in zip(found, plain_maps(images, network, weights), strict=True):
        assert own.dtype == dtype
        np.testing.assert_allclose(own, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NETWORKS)
def test_features_are_those_of_random_conv_features_in_the_same_order(name):
    image_shape, layers = NETWORKS[name]
    network = Network.of(image_shape, layers)
    images = some_images(network, 7)
    n_filters, kernels, pools = (list(sizes) for sizes in zip(*layers, strict=True))
    features = RandomConvFeatures(n_filters, kernels, pools, random_state=3).fit(images)
    weights = [
        np.column_stack([filters.transpose(0, 2, 3, 1).reshape(len(filters), -1), biases])
        for filters, biases in zip(features.filters_, features.biases_, strict=True)
    ]
    found = features_of(network, images, weights)
    np.testing.assert_allclose(found, features.transform(images)[:, network.order[:-1]], rtol=1e-12, atol=1e-14)


def features_of(network, images, weights):
    features = network.forward(images, weights).features
    np.testing.assert_array_equal(features[:, -1], 1)
    return features[:, :-1]


def jacobians(network, images, weights, layer, cotangents):
    return network.jacobians(network.forward(images, weights), weights, layer, cotangents)


def test_gradients_are_sums_of_jacobians(network):
    weights, images = some_weights(network), some_images(network, 9)
    cotangents = np.random.default_rng(2).normal(size=(9, network.n_features))
    layers = range(len(weights))
    found = network.gradients(network.forward(images, weights), weights, layers, cotangents)
    for layer, own in zip(layers, found, strict=True):
        expected = jacobians(network, images, weights, layer, cotangents[:, None]).sum(axis=(0, 1))
        np.testing.assert_allclose(own, expected, rtol=1e-12, atol=1e-12)
        (alone,) = network.gradients(network.forward(images, weights), weights, [layer], cotangents)
        np.testing.assert_array_equal(alone, own)


def test_jacobians_are_those_of_finite_differences(network):
    """Features are piecewise linear, so central differences are exact up to rounding."""
    weights, images = some_weights(network), some_images(network, 3)
    generator = np.random.default_rng(2)
    cotangents = generator.normal(size=(3, 2, network.n_features))
    for layer, own in enumerate(weights):
        found = jacobians(network, images, weights, layer, cotangents)
        assert found.shape == (3, 2, *own.shape)
        for position in np.ndindex(*own.shape):
            step = np.zeros_like(own)
            step[position] = 1e-6
            ends = [
                features_of(network, images, [*weights[:layer], own + sign * step, *weights[layer + 1 :]])
                for sign in (1, -1)
            ]
            expected = np.einsum("nrd,nd->nr", cotangents, (ends[0] - ends[1]) / 2e-6)
            np.testing.assert_allclose(found[(slice(None), slice(None), *position)], expected, rtol=1e-6, atol=1e-7)


def test_of_equal_places_the_first_wins_and_what_is_cut_off_has_no_derivative():
    network = Network.of((3, 3, 1), [(2, 2, 2)])
    images = np.zeros((1, 3, 3, 1))
    images[0, 1, 1] = 1.0  # in all four patches of the window, each time at another place
    weights = np.array([[1.0, 1.0, 1.0, 1.0, 0.0], [-1.0, -1.0, -1.0, -1.0, 0.5]])  # equal; below zero
    found = jacobians(network, images, [weights], 0, np.ones((1, 1, 2)))
    assert found[0, 0, 0].tolist() == [0, 0, 0, 1, 1]  # the first patch has the pixel last; the last 1 is the bias
    assert found[0, 0, 1].tolist() == [0, 0, 0, 0, 0]


def test_at_a_tie_the_derivative_is_the_first_places_and_the_feature_is_convex():
    """The larger of two that tie: along any direction the feature rises at least as fast as its derivative."""
    network = Network.of((3, 3, 1), [(1, 2, 2)])
    generator = np.random.default_rng(0)
    image = generator.random((1, 3, 3, 1))
    patches = np.array([image[0, i : i + 2, j : j + 2].ravel() for i in range(2) for j in range(2)])
    # A filter to which the second and the fourth patch look alike, and larger than the others.
    weights = np.linalg.lstsq(np.vstack([patches, patches[1] - patches[3]]), [1, 2, 1, 2, 0], rcond=None)[0]
    values = patches @ weights
    assert values[1] == pytest.approx(values[3], abs=1e-12)
    assert values[1] > max(values[0], values[2]) + 0.1
    found = jacobians(network, image, [np.append(weights, 0.0)[None]], 0, np.ones((1, 1, 1)))
    derivative = found[0, 0, 0]
    assert any(np.allclose(derivative, np.append(patches[place], 1.0)) for place in (1, 3))
    start = features_of(network, image, [np.append(weights, 0.0)[None]])[0, 0]
    for direction in generator.normal(size=(10, 5)) * 1e-4:
        rise = features_of(network, image, [(np.append(weights, 0.0) + direction)[None]])[0, 0] - start
        assert rise >= derivative @ direction - 1e-12
        assert rise == pytest.approx(max(np.append(patches[p], 1.0) @ direction for p in (1, 3)), abs=1e-12)


def test_batches_do_not_matter(monkeypatch):
    network = Network.of(*NETWORKS["deep"])
    weights, images = some_weights(network), some_images(network, 9)
    cotangents = np.random.default_rng(0).normal(size=(9, 2, network.n_features))

    def results():
        return [
            network.forward(images, weights).features,
            *network.gradients(network.forward(images, weights), weights, (0, 1), cotangents[:, 0]),
        ]

    whole = results()
    monkeypatch.setattr("annealfit.data.convolution._BATCH_BYTES", 1)
    for one, other in zip(results(), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("layers", "message"),
    [([(2, 9, 2)], "layer 1: the kernel"), ([(2, 3, 2), (2, 3, 2)], "layer 2: pooling by 2 leaves nothing")],
)
def test_sizes_that_do_not_fit_are_refused(layers, message):
    with pytest.raises(InvalidInputError, match=message):
        Network.of((8, 8, 1), layers)


def images_of(count=10, **more):
    generator = np.random.default_rng(4)
    pixels = generator.integers(0, 255, size=(count, 5, 6, 2)).astype(np.uint8)
    return Images(pixels, np.arange(count) % 3, 3, **more)


def test_copies_are_shifted_and_have_their_originals_label_and_weight():
    weights = np.arange(1.0, 11.0)
    images = images_of(weights=weights, shifts=shifts_within(1))
    assert len(images) == 50
    taken = images.take(np.array([3, 13, 43]))  # itself, one up, one down
    np.testing.assert_array_equal(taken[0], images.pixels[3].astype(np.float32))
    np.testing.assert_array_equal(taken[1][:-1], taken[0][1:])
    np.testing.assert_array_equal(taken[1][-1], taken[0][-1])  # the edge is repeated
    np.testing.assert_array_equal(taken[2][1:], taken[0][:-1])
    assert images.labels[[3, 13, 43]].tolist() == [0, 0, 0]
    assert images.weights[[3, 13, 43]].tolist() == [4, 4, 4]


def test_pixels_are_scaled_as_they_are_taken():
    mean, scale = np.arange(60.0), np.linspace(1, 2, 60)
    images = images_of(scaling=(mean, scale), dtype=np.float64)
    expected = (images.pixels[[2]].reshape(1, -1) - mean) / scale
    np.testing.assert_allclose(images.take(np.array([2])).reshape(1, -1), expected)


def test_a_digest_tells_everything_apart():
    kinds = [
        images_of(),
        images_of(9),
        images_of(weights=np.ones(10)),
        images_of(shifts=shifts_within(1)),
        images_of(scaling=(np.zeros(60), np.ones(60))),
        images_of(dtype=np.float64),
    ]
    assert len({images.digest() for images in kinds}) == len(kinds)
    assert images_of().digest() == kinds[0].digest()


def test_images_and_labels_have_to_go_together():
    with pytest.raises(InvalidInputError, match="expected"):
        Images(np.zeros((3, 4, 4)), np.zeros(3, int), 2)


def test_layers_with_the_same_weights_are_used_again(monkeypatch):
    monkeypatch.setattr(convolution, "ROWS_PER_CHUNK", 4)
    images, network = images_of(), Network.of((5, 6, 2), [(3, 2, 1), (2, 2, 1), (2, 2, 1)])
    first, second, third = map(np.abs, some_weights(network))  # no feature is cut off
    known = NetworkRows(images, network, [first, second, third])
    before = list(known.chunks())
    changed = [first, 2 * second, third]
    found = list(NetworkRows(images, network, changed, known).chunks())
    for one, other, old in zip(found, NetworkRows(images, network, changed).chunks(), before, strict=True):
        assert np.shares_memory(one.known.inputs[1], old.known.inputs[1])
        assert not np.array_equal(one.features, old.features)
        np.testing.assert_array_equal(one.features, other.features)
        for own, expected in zip(one.known.maxima, other.known.maxima, strict=True):
            np.testing.assert_array_equal(own, expected)


def test_rows_that_are_kept_and_rows_that_are_not_have_the_same_bits(monkeypatch):
    monkeypatch.setattr(convolution, "ROWS_PER_CHUNK", 4)
    images = images_of(weights=np.linspace(1, 2, 10))
    network = Network.of((5, 6, 2), [(3, 2, 2)])
    weights = some_weights(network)
    kept = NetworkRows(images, network, weights)
    monkeypatch.setattr(convolution, "KEPT_BYTES", 0)
    streamed = NetworkRows(images, network, weights)
    assert next(iter(kept.chunks())) is next(iter(kept.chunks()))
    assert next(iter(streamed.chunks())) is not next(iter(streamed.chunks()))
    values = np.random.default_rng(0).normal(size=(2, 4))
    for rows in (kept, streamed):
        assert rows.total_weight == pytest.approx(15)
        assert rows.entries == 10 * rows.n_parameters
        np.testing.assert_allclose(rows.class_shares.sum(), 1)
    for one, other in zip(kept.chunks(), streamed.chunks(), strict=True):
        np.testing.assert_array_equal(one.gram(), other.gram())
        own = values[:, : len(one.labels)]
        np.testing.assert_array_equal(one.moments(own), other.moments(own))
    term = lambda chunk: (chunk.gram(chunk.weights),)  # noqa: E731
    np.testing.assert_array_equal(kept.sum(term)[0], streamed.sum(term)[0])
    assert kept.digest() == streamed.digest() == images.digest()
    by_features = np.random.default_rng(0).normal(size=(4, network.n_features))
    for one, other in zip(kept.chunks(), streamed.chunks(), strict=True):
        found = [
            rows.gradient(chunk, 0, by_features[: len(chunk.labels)])
            for rows, chunk in ((kept, one), (streamed, other))
        ]
        np.testing.assert_array_equal(*found)


def test_sums_of_chunks_are_those_of_their_features():
    """Against plain NumPy, in single precision; the last rows are no multiple of eight."""
    images, network = images_of(21, weights=np.linspace(1, 2, 21)), Network.of((5, 6, 2), [(3, 2, 2)])
    (chunk,) = NetworkRows(images, network, [*map(np.abs, some_weights(network))]).chunks()
    rows = np.column_stack([chunk.features, np.ones(21)]).astype(float)
    generator = np.random.default_rng(0)
    weights, values = generator.normal(size=(rows.shape[1], 3)), generator.normal(size=(3, 21))
    np.testing.assert_allclose(chunk.project(weights), (rows @ weights).T, rtol=1e-4)
    np.testing.assert_allclose(chunk.moments(values), values @ rows, rtol=1e-4, atol=1e-2)
    expected = [images.weights @ power for power in (rows, rows**2, np.abs(rows))]
    np.testing.assert_allclose(chunk.column_sums(), expected, rtol=1e-5)


def test_a_sample_is_the_rows_of_some_images():
    images, network = images_of(30, weights=np.linspace(1, 2, 30)), Network.of((5, 6, 2), [(3, 2, 2)])
    rows = NetworkRows(images, network, [*map(np.abs, some_weights(network))])
    assert rows.sample(30) is rows
    (chunk,), (again,), (whole,) = rows.sample(7).chunks(), rows.sample(7).chunks(), rows.chunks()
    assert len(chunk.labels) == 7
    np.testing.assert_array_equal(chunk.features, again.features)
    places = np.searchsorted(images.weights, chunk.weights)
    np.testing.assert_array_equal(chunk.features, whole.features[places])
    np.testing.assert_array_equal(chunk.labels, images.labels[places])
