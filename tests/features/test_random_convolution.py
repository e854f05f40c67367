import numpy as np
import pytest
from scipy.signal import correlate
from sklearn.base import clone

from annealfit import RandomConvFeatures
from annealfit._support.errors import InvalidInputError
from annealfit.data.features import random_convolution

IMAGES = np.random.default_rng(0).random((7, 8, 8))


def test_the_papers_example_has_18_features():
    assert RandomConvFeatures(n_filters=2, kernel_size=3, pool_size=2).fit(IMAGES).n_features_out_ == 18


@pytest.mark.parametrize("height", [5, 8, 11])
@pytest.mark.parametrize("kernel", [1, 3, 4])
@pytest.mark.parametrize("pool", [1, 2, 3])
def test_the_papers_formula_for_d(height, kernel, pool):
    width, filters = height + 1, 3
    expected = ((height - kernel + 1) // pool) * ((width - kernel + 1) // pool) * filters
    images = np.zeros((2, height, width))
    if expected == 0:
        with pytest.raises(InvalidInputError, match="pooling by"):
            RandomConvFeatures(filters, kernel, pool).fit(images)
    else:
        assert RandomConvFeatures(filters, kernel, pool).fit_transform(images).shape == (2, expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_against_scipys_correlation_and_a_plain_loop(channels):
    images = np.random.default_rng(1).random((3, 7, 9, channels))
    model = RandomConvFeatures(n_filters=2, kernel_size=3, pool_size=2, random_state=5).fit(images)
    expected = []
    for image in images:
        maps = []
        for kernel, bias in zip(model.filters_[0], model.biases_[0], strict=True):
            total = sum(correlate(image[:, :, c], kernel[c], mode="valid", method="direct") for c in range(channels))
            activated = np.maximum(total + bias, 0)
            maps.append([[activated[r : r + 2, c : c + 2].max() for c in (0, 2, 4)] for r in (0, 2)])
        expected.append(np.ravel(maps))
    np.testing.assert_allclose(model.transform(images), expected, rtol=1e-12, atol=1e-14)


def test_filters_are_uniform_within_the_inverse_root_of_the_fan_in():
    model = RandomConvFeatures(n_filters=500, kernel_size=3, pool_size=2, random_state=0).fit(IMAGES)
    for values in (model.filters_[0], model.biases_[0]):
        assert np.abs(values).max() <= 1 / 3
        assert np.abs(values).max() > 0.99 / 3
        assert abs(values.mean()) < 0.03


def test_the_published_bank_is_one_for_all_seeds():
    generator = np.random.RandomState(42)
    expected = np.array([generator.uniform(-np.sqrt(6 / 11), np.sqrt(6 / 11)) for _ in range(18)]).reshape(2, 3, 3)
    for seed in (1, 2):
        model = RandomConvFeatures(filters="published", random_state=seed).fit(IMAGES)
        np.testing.assert_array_equal(model.filters_[0][:, 0], expected)
        np.testing.assert_array_equal(model.biases_[0], 0)
    corner = max(np.sum(IMAGES[0, r : r + 3, c : c + 3] * expected[1]) for r in (0, 1) for c in (0, 1))
    assert model.transform(IMAGES)[0, 9] == pytest.approx(max(corner, 0))  # cross-correlation, ReLU, 2×2 pooling


@pytest.mark.parametrize("options", [{"n_filters": 3}, {"kernel_size": 4}, {"n_filters": [2, 2]}])
def test_the_published_bank_fits_its_own_layer_only(options):
    with pytest.raises(InvalidInputError, match=r'one layer of 2 filters of 3×3 on grey.*or use filters="uniform"'):
        RandomConvFeatures(filters="published", pool_size=1, **options).fit(IMAGES)
    with pytest.raises(InvalidInputError, match="2 of 3×3 on 3 channels"):
        RandomConvFeatures(filters="published").fit(np.zeros((2, 8, 8, 3)))


def test_layers_compose():
    images = np.random.default_rng(2).random((4, 12, 12))
    two = RandomConvFeatures([3, 5], [3, 2], [2, 1], random_state=1).fit(images)
    assert two.output_shape_ == (4, 4, 5)
    first = RandomConvFeatures(3, 3, 2, random_state=1).fit(images)
    np.testing.assert_array_equal(first.filters_[0], two.filters_[0])
    middle = first.transform(images).reshape(4, 3, 5, 5).transpose(0, 2, 3, 1)
    second = RandomConvFeatures(5, 2, 1).fit(middle)
    second.filters_, second.biases_ = two.filters_[1:], two.biases_[1:]
    np.testing.assert_allclose(second.transform(middle), two.transform(images), rtol=1e-12)


def test_flattened_rows_are_the_same_images():
    colour = np.random.default_rng(3).random((4, 6, 5, 3))
    model = RandomConvFeatures(image_shape=(6, 5, 3), random_state=0).fit(colour.reshape(4, -1))
    np.testing.assert_array_equal(model.transform(colour), model.transform(colour.reshape(4, -1)))
    square = RandomConvFeatures(random_state=0).fit(IMAGES.reshape(7, 64))
    np.testing.assert_array_equal(square.transform(IMAGES), RandomConvFeatures(random_state=0).fit_transform(IMAGES))


def test_the_seed_decides():
    first = RandomConvFeatures(random_state=1)
    np.testing.assert_array_equal(first.fit_transform(IMAGES), clone(first).fit_transform(IMAGES))
    assert not np.array_equal(first.transform(IMAGES), RandomConvFeatures(random_state=2).fit_transform(IMAGES))


def test_batches_do_not_change_the_features_and_bound_the_patches(monkeypatch):
    whole = RandomConvFeatures(random_state=0).fit(IMAGES)
    expected = whole.transform(IMAGES)
    monkeypatch.setattr(random_convolution, "_BATCH_BYTES", 1)  # one image at a time
    batches = []
    original = random_convolution.sliding_window_view
    monkeypatch.setattr(
        random_convolution,
        "sliding_window_view",
        lambda chunk, *a, **k: batches.append(len(chunk)) or original(chunk, *a, **k),
    )
    np.testing.assert_allclose(whole.transform(IMAGES), expected, rtol=1e-12)
    assert batches == [1] * len(IMAGES)


@pytest.mark.parametrize("standardize", ["pixels", "features"])
def test_standardisation_is_fitted_on_training_data_only(standardize):
    model = RandomConvFeatures(standardize=standardize, random_state=0).fit(IMAGES)
    before = model.transform(IMAGES[:2])
    model.transform(IMAGES * 100)
    np.testing.assert_array_equal(model.transform(IMAGES[:2]), before)
    if standardize == "features":
        trained = model.transform(IMAGES)
        live = trained.std(axis=0) > 0
        np.testing.assert_allclose(trained.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(trained[:, live].std(axis=0), 1, rtol=1e-9)


@pytest.mark.parametrize("standardize", ["none", "pixels", "features"])
def test_tensors_round_trip(standardize):
    model = RandomConvFeatures([2, 3], 3, [2, 1], standardize=standardize, random_state=3)
    images = np.random.default_rng(4).random((5, 10, 10))
    model.fit(images)
    again = RandomConvFeatures.from_tensors(*model.to_tensors())
    np.testing.assert_array_equal(again.transform(images), model.transform(images))
    assert list(again.get_feature_names_out()) == list(model.get_feature_names_out())


def test_feature_names_follow_the_columns():
    names = RandomConvFeatures(n_filters=2, random_state=0).fit(IMAGES).get_feature_names_out()
    assert names[0] == "filter0_row0_column0"
    assert names[-1] == "filter1_row2_column2"
    assert len(set(names)) == 18


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (np.zeros((2, 2, 2)), {}, r"kernel \(3×3\) is larger than its input \(2×2\)"),
        (np.zeros((2, 7)), {}, "not square"),
        (np.full((2, 8, 8), np.nan), {}, "NaN"),
        (np.full((2, 8, 8), np.inf), {}, "infinity"),
        (np.zeros((0, 8, 8)), {}, "minimum of 1 is required"),
        (np.zeros((2, 1, 8, 8, 8)), {}, "5 dimensions"),
        (IMAGES, {"n_filters": 0}, "at least 1"),
        (IMAGES, {"kernel_size": 2.5}, "at least 1"),
        (IMAGES, {"kernel_size": [3, 3], "pool_size": [2, 2, 2]}, "different numbers of layers"),
        (IMAGES, {"standardize": "yes"}, "'features', 'none', 'pixels'"),
        (IMAGES, {"filters": "paper"}, "'published'"),
        (IMAGES, {"image_shape": (4, 16)}, "image_shape"),
        (np.zeros((3, 64)), {"image_shape": (8,)}, "image shape"),
        (np.zeros((3, 64)), {"image_shape": (8, 9)}, "expected"),
    ],
)
def test_bad_input(images, options, message):
    with pytest.raises((InvalidInputError, ValueError, TypeError), match=message):
        RandomConvFeatures(**options).fit(images)


def test_ragged_images_are_refused():
    with pytest.raises(ValueError, match="inhomogeneous"):
        RandomConvFeatures().fit([[[1.0, 2.0]], [[1.0]]])


def test_another_image_shape_than_in_fit_is_refused():
    model = RandomConvFeatures().fit(IMAGES)
    with pytest.raises(InvalidInputError, match=r"expected \(8, 8, 1\)"):
        model.transform(np.zeros((1, 9, 9)))
