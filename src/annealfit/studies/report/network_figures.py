"""Pictures of a network: its filters before and after training, and what its layers make of an image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.data.convolution import join_filters
from annealfit.data.features import RandomConvFeatures
from annealfit.studies.report.drawing import make_figure, save_figure, shown_plainly
from annealfit.studies.report.palette import INK
from annealfit.studies.training_run import TrainingRun

_MOST_SHOWN = 32  # filters or maps of a layer
_CELL = 0.62  # inches


def draw_filters(before: Sequence[NDArray[np.float64]], after: Sequence[NDArray[np.float64]]) -> Any:
    """The filters (F, channels, k, k) of every layer, before training above and after it below.

    Blue is negative, red positive, white nothing; the largest weight of a row is written beside it. Of several
    channels the mean is shown.
    """
    shown = [min(len(filters), _MOST_SHOWN) for filters in before]
    figure = make_figure(figsize=(1.4 + _CELL * max(shown), (2 * _CELL + 0.55) * len(before)))
    for layer, (part, count) in enumerate(zip(_parts(figure, len(before)), shown, strict=True)):
        channels = before[layer].shape[1]
        note = "" if channels == 1 else f", mean of {channels} channels"
        part.suptitle(f"Layer {layer + 1}{note}", fontsize=9, color=INK)
        rows = part.subplots(2, count, squeeze=False)
        for name, filters, panels in zip(("before", "after"), (before, after), rows, strict=True):
            pictures = filters[layer][:count].mean(axis=1)
            most = float(np.abs(pictures).max()) or 1.0
            for axes, picture in zip(panels, pictures, strict=True):
                axes.imshow(picture, cmap="RdBu_r", vmin=-most, vmax=most)
            _label_row(panels, f"{name}\n±{most:.2g}")
    return figure


def draw_maps(features: RandomConvFeatures, image: NDArray[np.float64]) -> Any:
    """An image and the outputs of every layer for it, each map on its own scale from 0, black, to its largest."""
    maps = [outputs[0] for outputs in layer_maps(features, image[None])]
    shown = [min(found.shape[2], _MOST_SHOWN) for found in maps]
    figure = make_figure(figsize=(1.4 + _CELL * max(shown), (_CELL + 0.45) * (1 + len(maps))))
    first, *parts = _parts(figure, 1 + len(maps))
    first.suptitle("A test image", fontsize=9, color=INK)
    panels = first.subplots(1, max(shown), squeeze=False)[0]
    panels[0].imshow(image, cmap="gray", vmin=0, vmax=1)
    _label_row(panels, "image")
    for layer, (part, found, count) in enumerate(zip(parts, maps, shown, strict=True), start=1):
        part.suptitle(f"Layer {layer}: after ReLU and pooling", fontsize=9, color=INK)
        panels = part.subplots(1, count, squeeze=False)[0]
        for axes, own in zip(panels, found.transpose(2, 0, 1), strict=False):
            axes.imshow(own, cmap="gray", vmin=0, vmax=max(float(own.max()), 1e-12))
        _label_row(panels, "maps")
    return figure


def layer_maps(features: RandomConvFeatures, images: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The outputs (n, h, w, filters) of every layer for images as the features take them."""
    given = features.as_images(images).astype(np.float64)
    if features.pixel_scaler_ is not None:
        given = features.pixel_scaler_.transform(given.reshape(len(given), -1)).reshape(given.shape)
    weights = [join_filters(*layer) for layer in zip(features.filters_, features.biases_, strict=True)]
    return features.network_.maps(given, weights)


def save_network_figures(run: TrainingRun, folder: Path) -> list[Path]:
    """Write the filters and the maps of the first sample image as PNG."""
    features = run.model.features
    assert run.initial_filters is not None, "the training of a network"
    return [
        save_figure(draw_filters(run.initial_filters, features.filters_), folder / "filters.png"),
        save_figure(draw_maps(features, run.records[0].sample_images[0]), folder / "maps.png"),
    ]


def _parts(figure: Any, count: int) -> list[Any]:
    return list(np.atleast_1d(figure.subfigures(count, 1)))


def _label_row(panels: Any, name: str) -> None:
    for axes in panels:
        axes.set_axis_off()
    panels[0].text(
        -0.15, 0.5, shown_plainly(name), transform=panels[0].transAxes, ha="right", va="center", fontsize=8, color=INK
    )
