"""RandomConvFeatures: frozen random convolution, ReLU and max-pooling, as a scikit-learn transformer."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from annealfit._support.errors import InvalidInputError, choose
from annealfit._support.randomness import seed_of
from annealfit._support.schema import Field, TensorFields, settings_of
from annealfit._support.threads import blas_threads
from annealfit.data.convolution import Network, with_channels
from annealfit.data.features.scaling import fit_scaler, map_dask_rows, scaler_from
from annealfit.data.rows import is_dask, is_out_of_core

_BATCH_BYTES = 8 * 2**20  # of patches in memory at once, which then stay in the processor's cache
_MOST_PIXELS = 2**26  # values of an image that a file may ask for: 8192 × 8192
_MOST_LAYERS = 100
_STANDARDIZATIONS = ("none", "pixels", "features")

Sizes = int | Sequence[int]


@dataclass(repr=False, eq=False)
class RandomConvFeatures(TransformerMixin, BaseEstimator):
    """Images → features by convolution filters that are drawn once and never trained.

    Each layer convolves (stride 1, no padding), applies ReLU, and max-pools in windows of `pool_size`. One layer on H×W
    images gives
    `d = ⌊(H−k+1)/s⌋ · ⌊(W−k+1)/s⌋ · filters` features.

    Parameters
    ----------
    n_filters, kernel_size, pool_size : int, or a sequence with a value per layer
    filters : {"uniform", "published"}
        "uniform" draws filters and biases in ±1/√(fan-in). "published" is the one bank behind the paper's
        tables, for 2 filters of 3×3 on grey images: `RandomState(42).uniform(-a, a, (2, 3, 3))`, no biases.
        Its scale `a = √(6/11)`, Glorot's limit, was fitted to the paper's results: scale, learning rate and
        λ trade off, so others fit nearly as well. `random_state` does not change it.
    standardize : {"none", "pixels", "features"}
        Give every input pixel, or every feature, mean 0 and variance 1 over the training data.
    image_shape : (H, W) or (H, W, channels), or None
        Shape of flattened rows; None takes rows as square grey images.
    random_state : int, RandomState or None

    Attributes
    ----------
    filters_, biases_ : lists with one array per layer, (filters, channels, k, k) and (filters,)
    image_shape_ : (H, W, channels)
    input_shape_ : shape of a row of X in `fit`: that of an image, or (H·W·channels,)
    network_ : `annealfit.data.convolution.Network`, the sizes of all layers
    n_features_out_ : d

    Examples
    --------
    >>> images = np.random.default_rng(0).random((5, 8, 8))
    >>> RandomConvFeatures(n_filters=2, random_state=42).fit_transform(images).shape
    (5, 18)

    """

    n_filters: Sizes = 2
    kernel_size: Sizes = 3
    pool_size: Sizes = 2
    _: KW_ONLY
    filters: str = "uniform"
    standardize: str = "none"
    image_shape: tuple[int, ...] | None = None
    random_state: Any = None

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Draw the filters for images of shape (N, H, W), (N, H, W, channels) or flattened rows (N, H·W·channels)."""
        given = self._draw_filters_for(X)
        if self.standardize == "pixels":
            self.pixel_scaler_ = fit_scaler(given)
        elif self.standardize == "features":
            self.feature_scaler_ = fit_scaler(given, self.transform, self.n_features_out_)
        return self

    def fit_transform(self, X: ArrayLike, y: Any = None, **parameters: Any) -> NDArray[np.float64]:
        """Fit and transform; features that are standardised are computed once for both."""
        if self.standardize != "features" or is_dask(X) or is_out_of_core(X):
            return super().fit_transform(X, y, **parameters)
        features = self.transform(self._draw_filters_for(X))
        self.feature_scaler_ = fit_scaler(features)
        return self.feature_scaler_.transform(features, copy=False)

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Compute features of shape (N, d), batch by batch; of a Dask array lazily, as a Dask array."""
        check_is_fitted(self)
        if is_dask(X):
            lazy: Any = X
            self._check_shape(lazy.shape[1:])
            return map_dask_rows(lazy, copy.copy(self).transform, self.n_features_out_)
        features = self._convolve(self.as_images(X))
        return features if self.feature_scaler_ is None else self.feature_scaler_.transform(features)

    def with_filters(self, filters: Sequence[NDArray[np.float64]], biases: Sequence[NDArray[np.float64]]) -> Self:
        """Return the fitted transformer with other filters, (filters, channels, k, k), and biases, layer by layer."""
        check_is_fitted(self)
        changed = copy.copy(self)
        changed.filters_, changed.biases_ = list(filters), list(biases)
        return changed

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return names such as `filter0_row1_column2`."""
        check_is_fitted(self)
        rows, columns, filters = self.output_shape_
        places = np.ndindex(filters, rows, columns)
        return np.array([f"filter{number}_row{row}_column{column}" for number, row, column in places], dtype=object)

    def to_tensors(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the fitted transformer as tensors and a JSON manifest."""
        check_is_fitted(self)
        named = {"filters": self.filters_, "biases": self.biases_}
        tensors = {f"{name}.{layer}": array for name, arrays in named.items() for layer, array in enumerate(arrays)}
        scaler = self.pixel_scaler_ or self.feature_scaler_
        if scaler is not None:
            tensors["mean"], tensors["scale"] = scaler.mean_, scaler.scale_
        manifest = {
            "pool_sizes": [layer[2] for layer in self.layers()],
            "standardize": self.standardize,
            "image_shape": list(self.image_shape_),
            "input_shape": list(self.input_shape_),
        }
        return tensors, manifest

    @classmethod
    def from_tensors(cls, tensors: Any, manifest: Any) -> Self:
        """Return the transformer that `to_tensors` stored."""
        stored, document = TensorFields.of(tensors), Field.of(manifest)
        pools = [size.whole(minimum=1, maximum=_MOST_PIXELS) for size in document["pool_sizes"].items(_MOST_LAYERS)]
        shape = [size.whole(minimum=1, maximum=_MOST_PIXELS) for size in document["image_shape"].items(3)]
        if not pools or len(shape) != 3 or math.prod(shape) > _MOST_PIXELS:
            document["image_shape"].refuse(
                f"height, width and channels of at most {_MOST_PIXELS} values, and a pool size for each layer"
            )
        channels, filters = shape[2], []
        for layer in range(len(pools)):
            filters.append(stored.real(f"filters.{layer}", (None, channels, None, None)))
            channels, _, height, width = filters[-1].shape
            if height != width or 0 in filters[-1].shape:
                document.refuse(f"square filters in layer {layer + 1}")
        biases = [stored.real(f"biases.{layer}", (len(own),)) for layer, own in enumerate(filters)]
        features = cls(
            n_filters=[len(layer) for layer in filters],
            kernel_size=[layer.shape[-1] for layer in filters],
            pool_size=pools,
            standardize=document["standardize"].one_of(_STANDARDIZATIONS),
            image_shape=tuple(shape),
        )
        with settings_of(document["image_shape"]):
            features._set_shapes(with_channels(shape))
            own = document.get("input_shape")  # 0.2.0 did not store it
            features.input_shape_ = (
                (features.n_features_in_,) if own is None else tuple(size.whole(minimum=1) for size in own.items(3))
            )
            features._check_shape(features.input_shape_)
        features.filters_, features.biases_ = filters, biases
        if features.standardize != "none":
            pixels = features.standardize == "pixels"
            size = (features.n_features_in_ if pixels else features.n_features_out_,)
            scaler = scaler_from(stored.real("mean", size), stored.real("scale", size, positive=True))
            features.pixel_scaler_, features.feature_scaler_ = (scaler, None) if pixels else (None, scaler)
        return features

    def layers(self) -> list[tuple[int, int, int]]:
        """Return (filters, kernel size, pool size) of every layer."""
        given: dict[str, Any] = {name: getattr(self, name) for name in ("n_filters", "kernel_size", "pool_size")}
        n_layers = max(np.size(value) for value in given.values())
        columns = {name: [value] * n_layers if np.ndim(value) == 0 else list(value) for name, value in given.items()}
        if any(len(sizes) != n_layers for sizes in columns.values()):
            raise InvalidInputError(f"{given} describe different numbers of layers; give one number, or one per layer")
        for name, sizes in columns.items():
            if not all(isinstance(size, Integral) and int(size) >= 1 for size in sizes):
                raise InvalidInputError(f"{name} is {given[name]!r}; it must hold whole numbers of at least 1")
        return [(int(filters), int(kernel), int(pool)) for filters, kernel, pool in zip(*columns.values(), strict=True)]

    def as_images(self, X: ArrayLike) -> NDArray[Any]:
        """Return X as images (N, H, W, channels) of the shape that the transformer was fitted on."""
        given = _as_array(X)
        self._check_shape(given.shape[1:])
        return given.reshape(len(given), *self.image_shape_)

    def _draw_filters_for(self, X: Any) -> Any:
        """Draw filters for images of the shape of X, with no scalers yet, and return X, checked."""
        choose("standardize", self.standardize, _STANDARDIZATIONS)
        choose("filters", self.filters, ("uniform", "published"))
        given = X if is_dask(X) or is_out_of_core(X) else _as_array(X)
        self._set_shapes(self._shape_of_images(given))
        self._check_shape(given.shape[1:])
        self.input_shape_ = tuple(given.shape[1:])
        if self.filters == "published":
            shapes = [(shape.filters, shape.channels, shape.kernel) for shape in self.network_.layers]
            if shapes != [(2, 1, 3)]:
                raise InvalidInputError(
                    'filters="published" is one layer of 2 filters of 3×3 on grey images, not '
                    + ", ".join(f"{n} of {size}×{size} on {channels} channels" for n, channels, size in shapes)
                    + ': change the layers, or use filters="uniform"'
                )
            limit = math.sqrt(6 / 11)
            filters = np.random.RandomState(42).uniform(-limit, limit, size=(2, 3, 3))
            self.filters_, self.biases_ = [filters[:, None]], [np.zeros(2)]
            return given
        generator = np.random.default_rng(seed_of(self.random_state))
        self.filters_, self.biases_ = [], []
        for shape in self.network_.layers:
            limit = 1 / np.sqrt(shape.n_parameters - 1)
            size = (shape.filters, shape.channels, shape.kernel, shape.kernel)
            self.filters_.append(generator.uniform(-limit, limit, size=size))
            self.biases_.append(generator.uniform(-limit, limit, size=shape.filters))
        return given

    def _shape_of_images(self, given: Any) -> tuple[int, int, int]:
        shape = given.shape[1:] if given.ndim in (3, 4) else self.image_shape
        if shape is None:
            shape = (math.isqrt(given.shape[1]),) * 2
            if math.prod(shape) != given.shape[1]:
                raise InvalidInputError(
                    f"rows of {given.shape[1]} values are not square grey images; "
                    "pass image_shape=(H, W) or (H, W, channels)"
                )
        if self.image_shape is not None and with_channels(self.image_shape) != with_channels(shape):
            raise InvalidInputError(f"images have shape {shape}, but image_shape is {self.image_shape}")
        return with_channels(shape)

    def _set_shapes(self, image_shape: tuple[int, int, int]) -> None:
        self.network_ = Network.of(image_shape, self.layers())
        self.image_shape_, self.n_features_in_ = image_shape, math.prod(image_shape)
        last = self.network_.layers[-1]
        self.output_shape_ = (*last.pooled, last.filters)
        self.n_features_out_ = self.network_.n_features
        self.pixel_scaler_ = self.feature_scaler_ = None

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        size = self.n_features_in_
        if not (shape == (size,) if len(shape) == 1 else with_channels(shape) == self.image_shape_):
            raise InvalidInputError(
                f"images have shape {shape}; expected {self.image_shape_} (height, width, channels) "
                f"as in fit, or flattened rows of {size} values"
            )

    def _convolve(self, images: NDArray[Any]) -> NDArray[np.float64]:
        layers = self.network_.layers
        # The patch and the responses at every position of a layer.
        values = [math.prod(shape.convolved) * (shape.n_parameters - 1 + shape.filters) for shape in layers]
        batch = max(1, _BATCH_BYTES // (8 * max(self.n_features_in_, *values)))
        features = np.empty((len(images), self.n_features_out_))
        for start in range(0, len(images), batch):
            chunk = images[start : start + batch].astype(np.float64)
            if self.pixel_scaler_ is not None:
                chunk = self.pixel_scaler_.transform(chunk.reshape(len(chunk), -1)).reshape(chunk.shape)
            for filters, biases, shape in zip(self.filters_, self.biases_, layers, strict=True):
                patches = sliding_window_view(chunk, (shape.kernel, shape.kernel), axis=(1, 2))
                with blas_threads(patches.size * len(filters)):
                    convolved = np.tensordot(patches, filters, axes=((3, 4, 5), (1, 2, 3)))
                # Bias and ReLU preserve order, so they may follow the pooling, on far fewer numbers.
                chunk = np.maximum(_max_pool(convolved, shape.pool) + biases, 0)
            # Filter by filter, as a channels-first network flattens.
            features[start : start + batch] = chunk.transpose(0, 3, 1, 2).reshape(len(chunk), -1)
        return features


def _max_pool(images: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    count, height, width, channels = images.shape
    rows, columns = height // size, width // size
    cropped = images[:, : rows * size, : columns * size]
    return cropped.reshape(count, rows, size, columns, size, channels).max(axis=(2, 4))


def _as_array(X: ArrayLike) -> NDArray[Any]:
    array = check_array(X, allow_nd=True, dtype="numeric", ensure_min_samples=1)
    if array.ndim > 4:
        raise InvalidInputError(
            f"images have {array.ndim} dimensions; expected (N, H, W), (N, H, W, channels) or (N, values)"
        )
    return array
