"""Fitted classifiers with low-bit weights: layer after layer, and the head along its loss where labels are given."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_consistent_length

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError
from annealfit._support.randomness import seed_of
from annealfit.data.convolution import join_filters
from annealfit.data.rows import InMemoryRows
from annealfit.quantization.grids import Grid
from annealfit.quantization.moments import InputMoments, Window
from annealfit.quantization.quantize import QuantizedLayer, quantize_layer
from annealfit.quantization.refinement import LowBitHead, Refinement
from annealfit.training.objectives import LinearHead

if TYPE_CHECKING:
    from annealfit.data.features import RandomConvFeatures
    from annealfit.models.files import Estimator


_DAMPING = 0.01  # of a head along its probabilities
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
    layers = _quantize_filters(estimator, found, X, settings)
    own: dict[str, Any] = (
        {} if X is None or y is not None else {"damping": _DAMPING, "output_weights": _curvature(estimator, X)}
    )
    seen = None if X is None else _seen_by_head(estimator, found, X)
    layer = quantize_layer(estimator.coef_.T, seen, bias=estimator.intercept_, **settings, **own)
    layers["head"] = layer
    assert layer.bias is not None, "a bias was given"
    head, losses = LowBitHead(layer.grid.numbers(layer.levels), layer.scales, layer.bias, layer.grid), list[float]()
    if y is not None:
        rows = _labelled(found, X, y)
        head, losses = (refinement or Refinement()).refine(LinearHead(rows, estimator.regularization), head, seed)
    found._set_head(head.weights)
    found.optimality_gap_ = np.inf  # what was certified was so of other weights
    found.quantization_ = LowBitReport(layers, layer.grid, head, losses)
    return found


def _curvature(estimator: Any, X: Any) -> Array | None:
    """`E[diag π − ππᵀ]`, what errors of the classes' scores do to the probabilities; None where two share a score."""
    probabilities = estimator.predict_proba(X)
    if probabilities.shape[1] != len(estimator.coef_):
        return None
    return np.asarray(np.diag(probabilities.mean(axis=0)) - probabilities.T @ probabilities / len(probabilities))


def _labelled(estimator: Any, X: Any, y: Any) -> InMemoryRows:
    features, targets = estimator._features(X), np.asarray(y)
    check_consistent_length(features, targets)
    unknown = np.setdiff1d(targets, estimator.classes_)
    if len(unknown):
        raise InvalidInputError(f"y has labels {unknown.tolist()[:5]} that are not among the classes trained on")
    labels = np.searchsorted(estimator.classes_, targets)
    return InMemoryRows(features, labels, len(estimator.classes_), arithmetic="double")


def _seen_by_head(estimator: Any, found: Any, X: Any) -> InputMoments:
    """The features that the quantised copy has, beside those of the estimator."""
    inputs, reference = found._features(X), estimator._features(X)
    slices = (slice(first, first + _ROWS_AT_ONCE) for first in range(0, inputs.shape[0], _ROWS_AT_ONCE))
    return InputMoments.of_chunks((inputs[rows], reference[rows]) for rows in slices)


def _quantize_filters(estimator: Any, found: Any, X: Any, settings: Mapping[str, Any]) -> dict[str, QuantizedLayer]:
    """The layers of filters of an estimator, none for a linear classifier; the new ones go to its copy."""
    layers = {}
    for number, filters in enumerate(getattr(estimator, "filters_", ())):
        patches = None if X is None else _patches(estimator.features_, found.features_, X, number)
        seen = None if patches is None else InputMoments.of_chunks(patches)
        matrix = filters.reshape(len(filters), -1).T
        layer = quantize_layer(matrix, seen, bias=estimator.biases_[number], **settings)
        layers[f"conv{number + 1}"] = layer
        all_filters, biases = list(found.filters_), list(found.biases_)
        all_filters[number] = np.ascontiguousarray(layer.weights.T).reshape(filters.shape)
        biases[number] = layer.bias
        found.features_ = found.features_.with_filters(all_filters, biases)
    return layers


def _patches(before: RandomConvFeatures, now: RandomConvFeatures, X: Any, layer: int) -> Iterator[tuple[Any, Any]]:
    """The patches that a layer sees, and those that it saw before the layers below it were quantised."""
    network, images, scaler = before.network_, before.as_images(X), before.pixel_scaler_
    window = Window.of(network.layers[layer].kernel)
    for first in range(0, len(images), _ROWS_AT_ONCE):
        part = images[first : first + _ROWS_AT_ONCE].astype(float)
        if scaler is not None:
            part = scaler.transform(part.reshape(len(part), -1)).reshape(part.shape)
        maps = [part, part]
        if layer > 0:
            weights = ([join_filters(*one) for one in zip(f.filters_, f.biases_, strict=True)] for f in (now, before))
            maps = [network.maps(part, own)[layer - 1] for own in weights]
        yield from zip(*(window.patches(own.transpose(0, 3, 1, 2)) for own in maps), strict=True)
