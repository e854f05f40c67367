"""Fitted classifiers with low-bit weights: layer after layer, and the head along its loss where labels are given."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError
from annealfit._support.randomness import seed_of
from annealfit.data.convolution import Network, join_filters
from annealfit.data.rows import InMemoryRows
from annealfit.quantization.grids import Grid
from annealfit.quantization.moments import InputMoments, MomentSums, Window
from annealfit.quantization.quantize import QuantizedLayer, quantize_layer
from annealfit.quantization.refinement import LowBitHead, Refinement
from annealfit.training.objectives import LinearHead

if TYPE_CHECKING:
    from annealfit.data.features import RandomConvFeatures
    from annealfit.models.base import AnnealedEstimator
    from annealfit.models.files import Estimator


_ROWS_AT_ONCE = 1024  # of sparse features that are made dense, and of images


@dataclass(frozen=True, eq=False)
class LowBitReport:
    """What quantising a classifier did: its layers by name, the head last, and the loss of the head."""

    layers: Mapping[str, QuantizedLayer]
    grid: Grid
    head: LowBitHead
    losses: list[float] = field(default_factory=list)  # rounded, scales fitted, after every step kept; none without y

    @property
    def packed_bytes(self) -> int:
        """Of all levels packed, and of scales in single precision."""
        return sum(layer.packed_bytes for layer in self.layers.values())


def quantized(
    estimator: Estimator,
    X: Any,
    y: Any,
    *,
    bits: int,
    levels: str | Grid,
    method: Any,
    refinement: Refinement | None,
    random_state: Any,
) -> Estimator:
    """A copy of the fitted estimator with low-bit weights, `quantization_` telling about it."""
    if X is None and y is not None:
        raise InvalidInputError("labels without X; pass the rows that they belong to")
    seed = seed_of(random_state)
    chosen = method if method is not None else ("nearest" if X is None else "annealed")
    settings: dict[str, Any] = {"bits": bits, "levels": levels, "method": chosen, "random_state": seed % 2**32}
    found = copy.copy(estimator)
    found.__dict__.pop("_partial", None)  # a training in progress is of the weights as they were
    layers = dict(estimator._quantize_layers(found, X, settings))
    moments = None if X is None else _moments(found._features(X), estimator._features(X))
    layer = quantize_layer(estimator.coef_.T, inputs=moments, bias=estimator.intercept_, **settings)
    grid = layer.grid
    numbers = (layer.levels.astype(np.int64) - grid.lowest) // grid.step
    assert layer.bias is not None, "a bias was given"
    head, losses = LowBitHead(numbers, layer.scales, layer.bias, grid), list[float]()
    if y is not None:
        rows = _labelled(found, X, y)
        head, losses = (refinement or Refinement()).refine(LinearHead(rows, estimator.regularization), head, seed)
    found._set_head(head.weights)
    found.optimality_gap_ = np.inf  # what was certified was so of other weights
    found.quantization_ = LowBitReport({**layers, "head": layer}, grid, head, losses)
    return found


def _moments(inputs: Any, reference: Any) -> InputMoments:
    """Of features, dense or sparse, and of those that they were before the layers below were quantised."""
    slices = (slice(first, first + _ROWS_AT_ONCE) for first in range(0, inputs.shape[0], _ROWS_AT_ONCE))
    return InputMoments.of_chunks((inputs[rows], reference[rows]) for rows in slices)


def _labelled(estimator: AnnealedEstimator, X: Any, y: Any) -> InMemoryRows:
    features, targets = estimator._features(X), np.asarray(y)
    check_consistent_length(features, targets)
    unknown = np.setdiff1d(targets, estimator.classes_)
    if len(unknown):
        raise InvalidInputError(f"y has labels {unknown.tolist()[:5]} that are not among the classes trained on")
    labels = np.searchsorted(estimator.classes_, targets)
    return InMemoryRows(features, labels, len(estimator.classes_), arithmetic="double")


def quantized_filters(
    features: RandomConvFeatures, X: Any, settings: Mapping[str, Any]
) -> tuple[RandomConvFeatures, dict[str, QuantizedLayer]]:
    """The same features with low-bit filters, layer after layer, and what each gave."""
    layers: dict[str, QuantizedLayer] = {}
    for number, (filters, biases) in enumerate(zip(features.filters_, features.biases_, strict=True)):
        done = len(layers)
        new = features.with_filters(*_changed(features, layers)) if done else features
        moments = None if X is None else _patch_moments(features, new, X, number)
        matrix = filters.reshape(len(filters), -1).T
        layers[f"conv{number + 1}"] = quantize_layer(matrix, inputs=moments, bias=biases, **settings)
    return features.with_filters(*_changed(features, layers)), layers


def _changed(features: RandomConvFeatures, layers: Mapping[str, QuantizedLayer]) -> tuple[list[Array], list[Array]]:
    """Filters and biases, of those layers that are quantised already what they are now."""
    filters, biases = list(features.filters_), list(features.biases_)
    for number, layer in enumerate(layers.values()):
        filters[number] = np.ascontiguousarray(layer.weights.T).reshape(filters[number].shape)
        biases[number] = biases[number] if layer.bias is None else layer.bias
    return filters, biases


def _patch_moments(before: RandomConvFeatures, now: RandomConvFeatures, X: Any, layer: int) -> InputMoments:
    """Of the patches that a layer sees, and of those that it saw before the layers below it were quantised."""
    window, sums = Window.of(before.network_.layers[layer].kernel), MomentSums()
    for images in _scaled_images(before, X):
        reference, seen = (_inputs_of(before.network_, one, images, layer) for one in (before, now))
        for part in window.chunks(seen):
            sums.add(window.patches(seen[part]), window.patches(reference[part]))
    return sums.moments()


def _scaled_images(features: RandomConvFeatures, X: Any) -> Iterator[NDArray[Any]]:
    images, scaler = features.as_images(X), features.pixel_scaler_
    for first in range(0, len(images), _ROWS_AT_ONCE):
        part = images[first : first + _ROWS_AT_ONCE].astype(float)
        if scaler is not None:
            part = scaler.transform(part.reshape(len(part), -1)).reshape(part.shape)
        yield part


def _inputs_of(network: Network, features: RandomConvFeatures, images: NDArray[Any], layer: int) -> NDArray[Any]:
    """What a layer reads of these images, channels first."""
    if layer > 0:
        weights = [join_filters(*one) for one in zip(features.filters_, features.biases_, strict=True)]
        images = network.maps(images, weights)[layer - 1]
    return images.transpose(0, 3, 1, 2)
