"""Figures of a run: the convergence curves, and sample predictions with their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.errors import require
from annealfit.experiments import Record, TrainingRun
from annealfit.persistence import replacing

_PURPOSE = "drawing figures"
# Okabe and Ito's palette, which people with any colour vision can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")


def _figure(**options: Any) -> Any:
    # Figure, not pyplot: no global state, no display, safe in threads.
    return require("matplotlib.figure", extra="plot", purpose=_PURPOSE).Figure(layout="constrained", **options)


def convergence(records: Sequence[Record], title: str) -> Any:
    """Training accuracy and loss against iterations; a method without iterations is a dashed line."""
    figure = _figure(figsize=(9, 3.6))
    figure.suptitle(title)
    panels = (("Training accuracy", "accuracy"), ("Regularised loss", "loss"))
    for axes, (label, column) in zip(figure.subplots(1, 2), panels, strict=True):
        for record, colour in zip(records, _COLOURS, strict=False):
            if record.history:
                values = record.history["iteration"], record.history[column]
                axes.plot(*values, color=colour, linewidth=1.3, label=record.method)
            else:
                level = record.loss if column == "loss" else record.train["accuracy"]
                axes.axhline(level, color=colour, linestyle="--", linewidth=1.2, label=record.method)
        axes.set_xlabel("Iteration")
        axes.set_ylabel(label)
        axes.grid(alpha=0.25)
        axes.set_xscale("log")  # a method that is done in fifty iterations stands beside one that takes a thousand
    axes.legend(frameon=False)
    return figure


def sample_predictions(records: Sequence[Record], n_samples: int = 10) -> Any:
    """One test image of each class and the probabilities each method gives it; the true class is outlined."""
    images, labels = records[0].sample_images[:n_samples], records[0].sample_labels[:n_samples]
    figure = _figure(figsize=(2.2 + 2.6 * len(records), 0.95 * len(labels) + 0.6))
    grid = figure.subplots(
        len(labels),
        1 + len(records),
        squeeze=False,
        gridspec_kw={"width_ratios": [1] + [2.4] * len(records)},
    )
    for number, (row, image, truth) in enumerate(zip(grid, images, labels.tolist(), strict=True)):
        row[0].imshow(image, cmap="gray", vmin=0, vmax=1)
        row[0].set_axis_off()
        for axes, record in zip(row[1:], records, strict=True):
            _draw_probabilities(axes, record.sample_probabilities[number], truth, record.class_names)
    for axes, record in zip(grid[0, 1:], records, strict=True):
        axes.set_title(f"{record.method}\n{axes.get_title()}", fontsize=8, pad=2)
    return figure


def _draw_probabilities(axes: Any, probabilities: NDArray[np.float64], truth: int, names: Sequence[str]) -> None:
    winner = int(probabilities.argmax())
    colours = ["#c7cdd4"] * len(names)
    colours[winner] = "#009E73" if winner == truth else "#D55E00"
    bars = axes.bar(range(len(names)), probabilities, color=colours)
    bars[truth].set(edgecolor="black", linewidth=1.2)
    verdict = "right" if winner == truth else f"says {names[winner]}"
    axes.set_title(f"true {names[truth]}: {probabilities[truth]:.0%}, {verdict}", fontsize=7, pad=2)
    axes.set(ylim=(0, 1), yticks=[])
    axes.set_xticks(range(len(names)), names, fontsize=5 if len(names) > 5 else 7)


def save_run_figures(run: TrainingRun, folder: Path) -> list[Path]:
    """Write the run's figures and its sample images as PNG; returns the paths of the figures."""
    image = require("matplotlib.image", extra="plot", purpose=_PURPOSE)
    figures = {
        "convergence.png": convergence(run.records, f"{run.dataset.name}: training"),
        "predictions.png": sample_predictions(run.records),
    }
    for name, figure in figures.items():
        with replacing(folder / name) as file:
            figure.savefig(file, dpi=150, format="png")
    samples = zip(run.records[0].sample_labels.tolist(), run.records[0].sample_images, strict=True)
    for label, pixels in list(samples)[:10]:
        with replacing(folder / "samples" / f"class-{label}.png") as file:
            image.imsave(file, pixels, cmap="gray", vmin=0, vmax=1, format="png")
    return [folder / name for name in figures]
