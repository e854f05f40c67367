"""Features of rows that do not fit into memory: the same numbers, later."""

import dask.array as da
import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from annealfit import AnnealedClassifier, RandomConvFeatures
from annealfit.data.features import RowScaler
from annealfit.data.rows import MappedTable

IMAGES = np.random.default_rng(0).random((300, 8, 8))
LABELS = (IMAGES.reshape(300, -1).mean(axis=1) > 0.5).astype(int)


@pytest.fixture
def mapped(tmp_path):
    def save(array):
        np.save(tmp_path / "table.npy", array)
        return np.load(tmp_path / "table.npy", mmap_mode="r")

    return save


@pytest.mark.parametrize("standardize", ["none", "pixels", "features"])
@pytest.mark.parametrize("shape", [(300, 8, 8), (300, 64)])
def test_random_convolution_of_dask_arrays_is_lazy(standardize, shape):
    expected = RandomConvFeatures(standardize=standardize, random_state=0).fit_transform(IMAGES)
    images = da.from_array(IMAGES.reshape(shape), chunks=(70, *[5] * (len(shape) - 1)))
    features = RandomConvFeatures(standardize=standardize, random_state=0).fit(images)
    found = features.transform(images)
    assert isinstance(found, da.Array)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.compute(), expected, atol=1e-12)


@pytest.mark.parametrize("standardize", ["pixels", "features"])
def test_random_convolution_is_fitted_slice_by_slice(mapped, standardize, monkeypatch):
    monkeypatch.setattr("annealfit.data.rows.rows.CHUNK_BYTES", 2**14)
    expected = RandomConvFeatures(standardize=standardize, random_state=0).fit_transform(IMAGES)
    found = RandomConvFeatures(standardize=standardize, random_state=0).fit_transform(mapped(IMAGES))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_scaler_for_everything(mapped):
    rows = 5 + 3 * np.random.default_rng(0).standard_normal((500, 4))
    rows[:, 2] = 7.0  # a constant is left as it is
    expected = StandardScaler().fit_transform(rows)
    np.testing.assert_allclose(RowScaler().fit_transform(rows), expected, atol=1e-12)
    table = RowScaler().fit_transform(mapped(rows))
    assert isinstance(table, MappedTable)
    np.testing.assert_allclose(table[100:250], expected[100:250], atol=1e-12)
    lazy = RowScaler().fit_transform(da.from_array(rows, chunks=(150, 3)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), expected, atol=1e-12)
    assert RowScaler().fit_transform(rows.astype(np.float32)).dtype == np.float32


def test_a_pipeline_trains_on_a_mapped_file_and_on_dask_arrays(mapped):
    rows = 5 + IMAGES.reshape(300, -1)
    expected = make_pipeline(StandardScaler(), AnnealedClassifier(max_iter=5, random_state=0)).fit(rows, LABELS)
    for given in (mapped(rows), da.from_array(rows, chunks=(100, 64))):
        model = make_pipeline(RowScaler(), AnnealedClassifier(max_iter=5, random_state=0)).fit(given, LABELS)
        np.testing.assert_allclose(model[-1].coef_, expected[-1].coef_, rtol=1e-7)
        assert model.score(given, LABELS) == expected.score(rows, LABELS)
