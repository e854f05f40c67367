import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from annealfit.data.datasets import RESIZE_METHODS
from annealfit.data.datasets.images import resize, to_grey

sizes = st.integers(1, 40)


@given(n_in=sizes, n_out=sizes, method=st.sampled_from(sorted(RESIZE_METHODS)))
def test_a_flat_image_stays_flat(n_in, n_out, method):
    resized = resize(np.full((1, n_in, 3), 0.7), n_out, 5, method)
    assert resized.shape == (1, n_out, 5)
    np.testing.assert_allclose(resized, 0.7, rtol=1e-12)


@given(n_in=sizes, n_out=sizes)
def test_area_is_the_average_of_what_a_pixel_covers(n_in, n_out):
    line = np.random.default_rng(n_in).random(n_in)
    # Each input pixel repeated n_out times and averaged n_in at a time: the same average, without fractions.
    expected = np.repeat(line, n_out).reshape(n_out, n_in).mean(axis=1)
    np.testing.assert_allclose(resize(line[None, :, None], n_out, 1)[0, :, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "lanczos", "nearest"])
# Where a centre falls on the border of two pixels, "nearest" is a matter of Pillow's rounding: not at these sizes.
@pytest.mark.parametrize("size", [(8, 8), (14, 5), (28, 16), (40, 61)])
def test_kernels_are_those_of_pillow(method, size):
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    images = np.random.default_rng(3).random((3, 28, 32))
    resampling = getattr(pillow.Resampling, method.upper())
    expected = [
        np.asarray(pillow.fromarray(image.astype(np.float32)).resize(size[::-1], resampling)) for image in images
    ]
    # Pillow works in single precision, twice: 1e-6 is a few roundings of it.
    np.testing.assert_allclose(resize(images, *size, method), expected, atol=1e-6)


def test_area_is_pillows_box_where_pixels_divide_evenly():
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    image = np.random.default_rng(4).random((32, 32)).astype(np.float32)
    expected = np.asarray(pillow.fromarray(image).resize((8, 8), pillow.Resampling.BOX))
    np.testing.assert_allclose(resize(image[None].astype(float), 8, 8)[0], expected, atol=1e-6)


@pytest.mark.parametrize("size", [8, 13, 1])
def test_zoom_is_scipys(size):
    images = np.random.default_rng(8).random((2, 28, 28))
    expected = [ndimage.zoom(image, size / 28, order=1) for image in images]
    np.testing.assert_allclose(resize(images, size, size, "zoom"), expected, atol=1e-14)


def test_colour_is_resized_channel_by_channel():
    images = np.random.default_rng(5).random((2, 9, 7, 3))
    small = resize(images, 4, 3)
    assert small.shape == (2, 4, 3, 3)
    for channel in range(3):
        np.testing.assert_allclose(small[..., channel], resize(images[..., channel], 4, 3), rtol=1e-12)


def test_the_same_size_changes_no_bit():
    images = np.random.default_rng(6).random((2, 8, 8))
    for method in RESIZE_METHODS:
        np.testing.assert_array_equal(resize(images, 8, 8, method), images)


def test_grey_is_luma():
    red, green, blue = np.eye(3)
    assert to_grey(np.array([[[red, green, blue]]])).tolist() == [[[0.299, 0.587, 0.114]]]


def test_grey_is_the_mean_of_the_channels_where_asked():
    images = np.random.default_rng(9).random((2, 3, 4, 3))
    np.testing.assert_allclose(to_grey(images, "mean"), images.mean(axis=3))
