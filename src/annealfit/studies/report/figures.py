"""Figures of a run: the convergence curves, and sample predictions with their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from annealfit._support.files import replacing
from annealfit.studies import Record, TrainingRun
from annealfit.studies.report.drawing import dress, make_figure, plotting, save_figure, shown_plainly, use_logarithm
from annealfit.studies.report.network_figures import save_network_figures
from annealfit.studies.report.palette import FAINT, INK, RIGHT, SERIES, WRONG

# A quantity, its column of the history, what it is drawn against, and its column on validation data.
_PANELS = (
    ("Training accuracy", "accuracy", "iteration", "validation_accuracy"),
    ("Regularised loss", "loss", "iteration", "validation_cross_entropy"),
    ("Regularised loss", "loss", "seconds", None),
)
# Of a row of predictions, whose height is 1: the line of text, and the bar of probability 1 below it.
_TEXT, _TALLEST = 0.2, 0.7


def draw_convergence(records: Sequence[Record], title: str) -> Any:
    """Training accuracy and loss against iterations, loss against time; a method without iterations is a level.

    Dotted: the same on validation data, where there are any; their loss has the training's penalty too.
    """
    figure = make_figure(figsize=(11, 3.6))
    figure.suptitle(shown_plainly(title))
    panels = figure.subplots(1, len(_PANELS))
    for axes, (label, column, across, validation) in zip(panels, _PANELS, strict=True):
        for record, colour in zip(records, SERIES, strict=False):
            _draw_course(axes, record, colour, (across, column, validation))
        dress(axes)
        axes.set(xlabel=_across(across, records), ylabel=label)
        use_logarithm(axes, "x")  # a method that is done in ten iterations stands beside one that takes a thousand
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def _across(across: str, records: Sequence[Record]) -> str:
    if across == "seconds":
        return "Seconds of training"
    if "layer" in records[0].history:
        return "Turn of a layer, or an epoch of Adam"
    solves = len(records[0].class_names) if len(records[0].class_names) > 2 else 1
    return f"Iteration ({solves} solves, or an SGD step)" if solves > 1 else "Iteration (a solve, or an SGD step)"


def _draw_course(axes: Any, record: Record, colour: str, columns: tuple[str, str, str | None]) -> None:
    across, column, validation = columns
    name = shown_plainly(record.method)
    if not record.history:
        level = record.loss if column == "loss" else record.train["accuracy"]
        axes.axhline(level, color=colour, linestyle="--", linewidth=1.2, label=name)
        return
    places = np.maximum(record.history[across], 1e-4)  # a logarithmic axis has no zero
    axes.plot(places, record.history[column], color=colour, linewidth=1.5, label=name)
    if validation in record.history:
        values = np.array(record.history[validation])
        if column == "loss":
            values += np.subtract(record.history["loss"], record.history["cross_entropy"])
        axes.plot(places, values, color=colour, linewidth=1.2, linestyle=":", label=f"{name}, validation")


def draw_predictions(records: Sequence[Record], n_samples: int = 10) -> Any:
    """One test image of each class and the probabilities each method gives it; the true class is outlined."""
    images, labels = records[0].sample_images[:n_samples], records[0].sample_labels[:n_samples].tolist()
    names = records[0].class_names
    # One panel per method, not one per bar chart: forty panels would take longer to draw than the training did.
    figure = make_figure(figsize=(1.4 + 2.9 * len(records), 0.8 * len(labels) + 0.9))
    first, *panels = figure.subplots(
        1, 1 + len(records), sharey=True, gridspec_kw={"width_ratios": [1] + [3.2] * len(records)}
    )
    for row, image in enumerate(images):
        first.imshow(image, cmap="gray", vmin=0, vmax=1, extent=(0, 0.9, row + 0.9, row))
    first.set(xlim=(0, 0.9), ylim=(len(labels), 0), aspect="equal", anchor="E")
    first.set_axis_off()
    for axes, record in zip(panels, records, strict=True):
        _draw_probabilities(axes, record, labels)
        axes.set_title(shown_plainly(record.method), fontsize=10)
        turned = max(map(len, names)) > 2
        axes.set_xticks(
            range(len(names)), [shown_plainly(name[:12]) for name in names], fontsize=7, rotation=90 if turned else 0
        )
        axes.tick_params(length=0)
        axes.yaxis.set_visible(False)
        axes.spines[:].set_visible(False)
    return figure


def _draw_probabilities(axes: Any, record: Record, labels: Sequence[int]) -> None:
    """A row of bars per sample, all as one collection; the true class is outlined, the chosen one coloured."""
    corners, faces, edges = [], [], []
    for row, truth in enumerate(labels):
        probabilities = record.sample_probabilities[row]
        winner = int(probabilities.argmax())
        for place, height in enumerate(_TALLEST * probabilities):
            left, right, base = place - 0.4, place + 0.4, row + _TEXT + _TALLEST
            corners.append([(left, base), (right, base), (right, base - height), (left, base - height)])
            faces.append(FAINT if place != winner else RIGHT if winner == truth else WRONG)
            edges.append(INK if place == truth else "none")
        verdict = "right" if winner == truth else f"says {record.class_names[winner]}"
        text = f"{record.class_names[truth]}: {probabilities[truth]:.0%}, {verdict}"
        axes.text(-0.4, row + _TEXT / 2, shown_plainly(text), fontsize=7, va="center", color=INK)
    last = len(record.class_names) - 0.4
    bases = [[(-0.6, row + _TEXT + _TALLEST), (last, row + _TEXT + _TALLEST)] for row in range(len(labels))]
    collections = plotting("collections")
    axes.add_collection(collections.LineCollection(bases, colors=FAINT, linewidths=0.8))
    axes.add_collection(collections.PolyCollection(corners, facecolors=faces, edgecolors=edges, linewidths=1.2))
    axes.set_xlim(-0.6, last)


def save_run_figures(run: TrainingRun, folder: Path) -> list[Path]:
    """Write the run's figures and its sample images as PNG; returns the paths of the figures."""
    image = plotting("image")
    paths = [save_figure(draw_convergence(run.records, f"{run.dataset.name}: training"), folder / "convergence.png")]
    if not len(run.records[0].sample_labels):
        return paths  # of rows that are no images
    paths.append(save_figure(draw_predictions(run.records), folder / "predictions.png"))
    samples = zip(run.records[0].sample_labels.tolist(), run.records[0].sample_images, strict=True)
    for label, pixels in list(samples)[:10]:
        with replacing(folder / "samples" / f"class-{label}.png") as file:
            image.imsave(file, pixels, cmap="gray", vmin=0, vmax=1, format="png")
    if run.initial_filters is not None:
        paths += save_network_figures(run, folder)
    return paths
