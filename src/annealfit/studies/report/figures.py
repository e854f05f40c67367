"""Every figure, in the style of `drawing`: of a training, of a report, of samplers, of quantised layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.files import replacing
from annealfit.studies.records import Record
from annealfit.studies.report import drawing
from annealfit.studies.report.drawing import FAINT, INK, SERIES, dress, make_figure, shown_plainly

if TYPE_CHECKING:
    from annealfit.data.features import RandomConvFeatures
    from annealfit.studies.sampler_study import Comparison, Estimate, ProblemSet
    from annealfit.studies.training_run import TrainingRun

# --- A training.

# A quantity, its column of the history, what it is drawn against, and its column on validation data.
_PANELS: tuple[tuple[str, str, str, str | None], ...] = (
    ("Training accuracy", "accuracy", "iteration", "validation_accuracy"),
    ("Regularised loss", "loss", "iteration", "validation_cross_entropy"),
    ("Regularised loss", "loss", "seconds", None),
)
# Of a row of predictions, whose height is 1: the line of text, and the bar of probability 1 below it.
_TEXT, _TALLEST = 0.2, 0.7
_MOST_SHOWN = 32  # filters or maps of a layer
_CELL = 0.62  # inches of a filter or map


def save_run_figures(run: TrainingRun, folder: Path) -> list[Path]:
    """Write the figures of a training and its sample images as PNG; returns the paths of the figures."""
    first = run.records[0]
    figures = {"convergence": draw_convergence(run.records, f"{run.dataset.name}: training")}
    if len(first.sample_labels):  # else rows that are no images
        figures["predictions"] = draw_predictions(run.records)
        for label, pixels in list(zip(first.sample_labels.tolist(), first.sample_images, strict=True))[:10]:
            with replacing(folder / "samples" / f"class-{label}.png") as file:
                drawing.plotting("image").imsave(file, pixels, cmap="gray", vmin=0, vmax=1, format="png")
        if run.initial_filters is not None:
            features = run.model.features
            figures["filters"] = draw_filters(run.initial_filters, features.filters_)
            figures["maps"] = draw_maps(features, first.sample_images[0])
    return [drawing.save_figure(figure, folder / f"{name}.png") for name, figure in figures.items()]


def draw_convergence(records: Sequence[Record], title: str) -> Any:
    """Training accuracy and loss against iterations, loss against time; a method without iterations is a level.

    Dotted: the same on validation data, where there are any; their loss has the training's penalty too.
    """
    figure = make_figure(figsize=(11, 3.6))
    figure.suptitle(shown_plainly(title))
    panels = figure.subplots(1, len(_PANELS))
    solves = len(records[0].class_names) if len(records[0].class_names) > 2 else 1
    across = {
        "seconds": "Seconds of training",
        "iteration": f"Iteration ({f'{solves} solves' if solves > 1 else 'a solve'}, or an SGD step)",
    }
    if "layer" in records[0].history:
        across["iteration"] = "Turn of a layer, or an epoch of Adam"
    for axes, (label, column, against, validation) in zip(panels, _PANELS, strict=True):
        for record, colour in zip(records, SERIES, strict=False):
            _draw_course(axes, record, colour, column, against, validation)
        # A method that is done in ten iterations stands beside one that takes a thousand.
        dress(axes, log="x", xlabel=across[against], ylabel=label)
    drawing.legend_below(figure, panels[0].get_legend_handles_labels()[0])
    return figure


def _draw_course(axes: Any, record: Record, colour: str, column: str, across: str, validation: str | None) -> None:
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
    names = [shown_plainly(name[:12]) for name in records[0].class_names]
    # One panel per method, not one per bar chart: forty panels would take longer to draw than the training did.
    figure = make_figure(figsize=(1.4 + 2.9 * len(records), 0.8 * len(labels) + 0.9))
    widths = {"width_ratios": [1] + [3.2] * len(records)}
    first, *panels = figure.subplots(1, 1 + len(records), sharey=True, gridspec_kw=widths)
    for row, image in enumerate(images):
        first.imshow(image, cmap="gray", vmin=0, vmax=1, extent=(0, 0.9, row + 0.9, row))
    first.set(xlim=(0, 0.9), ylim=(len(labels), 0), aspect="equal", anchor="E")
    first.set_axis_off()
    for axes, record in zip(panels, records, strict=True):
        for row, truth in enumerate(labels):
            _draw_probabilities(axes, record, row, truth)
        axes.set_title(shown_plainly(record.method), fontsize=10)
        turned = max(map(len, records[0].class_names)) > 2
        axes.set_xticks(range(len(names)), names, fontsize=7, rotation=90 if turned else 0)
        axes.tick_params(length=0)
        axes.yaxis.set_visible(False)
        axes.spines[:].set_visible(False)
        axes.set_xlim(-0.6, len(names) - 0.4)
    return figure


def _draw_probabilities(axes: Any, record: Record, row: int, truth: int) -> None:
    """A line of text and below it a bar per class; the true class is outlined, the chosen one coloured."""
    probabilities, names = record.sample_probabilities[row], record.class_names
    winner, base = int(probabilities.argmax()), row + _TEXT + _TALLEST
    faces, edges = [FAINT] * len(names), ["none"] * len(names)
    faces[winner], edges[truth] = drawing.RIGHT if winner == truth else drawing.WRONG, INK
    style = {"color": faces, "edgecolor": edges, "linewidth": 1.2}
    axes.bar(range(len(names)), -_TALLEST * probabilities, bottom=base, width=0.8, **style)
    axes.axhline(base, color=FAINT, linewidth=0.8, zorder=0)
    verdict = "right" if winner == truth else f"says {names[winner]}"
    text = shown_plainly(f"{names[truth]}: {probabilities[truth]:.0%}, {verdict}")
    axes.text(-0.4, row + _TEXT / 2, text, fontsize=7, va="center", color=INK)


def draw_filters(before: Sequence[NDArray[np.float64]], after: Sequence[NDArray[np.float64]]) -> Any:
    """The filters (F, channels, k, k) of every layer, before training above and after it below.

    Blue is negative, red positive, white zero; the largest weight of a row is written beside it. Of several channels
    the mean is shown.
    """
    shown = [min(len(filters), _MOST_SHOWN) for filters in before]
    figure = make_figure(figsize=(1.4 + _CELL * max(shown), (2 * _CELL + 0.55) * len(before)))
    parts = figure.subfigures(len(before), 1, squeeze=False)[:, 0]
    for layer, (part, count) in enumerate(zip(parts, shown, strict=True)):
        channels = before[layer].shape[1]
        note = "" if channels == 1 else f", mean of {channels} channels"
        part.suptitle(f"Layer {layer + 1}{note}", fontsize=9, color=INK)
        rows = part.subplots(2, count, squeeze=False)
        for name, filters, panels in zip(("before", "after"), (before, after), rows, strict=True):
            pictures = filters[layer][:count].mean(axis=1)
            most = float(np.abs(pictures).max()) or 1.0
            _draw_pictures(panels, pictures, f"{name}\n±{most:.2g}", cmap="RdBu_r", vmin=-most, vmax=most)
    return figure


def draw_maps(features: RandomConvFeatures, image: NDArray[np.float64]) -> Any:
    """An image and the outputs of every layer for it, each map on its own scale from 0, black, to its largest."""
    from annealfit.data.convolution import join_filters

    given = features.as_images(image[None]).astype(np.float64)
    if features.pixel_scaler_ is not None:
        given = features.pixel_scaler_.transform(given.reshape(1, -1)).reshape(given.shape)
    weights = [join_filters(*layer) for layer in zip(features.filters_, features.biases_, strict=True)]
    maps = [outputs[0].transpose(2, 0, 1)[:_MOST_SHOWN] for outputs in features.network_.maps(given, weights)]
    most = max(map(len, maps))
    figure = make_figure(figsize=(1.4 + _CELL * most, (_CELL + 0.45) * (1 + len(maps))))
    first, *parts = figure.subfigures(1 + len(maps), 1)
    first.suptitle("A test image", fontsize=9, color=INK)
    grey = {"cmap": "gray", "vmin": 0, "vmax": 1}
    _draw_pictures(first.subplots(1, most, squeeze=False)[0], [image], "image", **grey)
    for layer, (part, found) in enumerate(zip(parts, maps, strict=True), start=1):
        part.suptitle(f"Layer {layer}: after ReLU and pooling", fontsize=9, color=INK)
        scaled = found / np.maximum(found.max(axis=(1, 2), keepdims=True), 1e-12)
        _draw_pictures(part.subplots(1, len(found), squeeze=False)[0], scaled, "maps", **grey)
    return figure


def _draw_pictures(panels: Any, pictures: Any, name: str, **colours: Any) -> None:
    for axes in panels:
        axes.set_axis_off()
    for axes, picture in zip(panels, pictures, strict=False):
        axes.imshow(picture, **colours)
    left = {"transform": panels[0].transAxes, "ha": "right", "va": "center", "fontsize": 8, "color": INK}
    panels[0].text(-0.15, 0.5, shown_plainly(name), **left)


# --- The evidence for the published images.


def draw_evidence(evidence: Mapping[str, Any]) -> Any:
    """Left: recalls of the paper's MNIST row and of readings of it. Right: how close banks come."""
    figure = make_figure(figsize=(11, 4.2))
    recalls, chance = figure.subplots(1, 2)
    own = {entry["reading"]: entry for entry in evidence["readings"] if entry["row"] == "mnist"}
    shown = ("published", "filters drawn for each seed", "real MNIST, zoom")
    chosen = [name for name in shown if name in own]
    places = range(len(own["published"]["paper"]))
    recalls.plot(places, own["published"]["paper"], color=INK, marker="o", linewidth=2.2, label="the paper")
    for name, colour, marker in zip(chosen, SERIES, drawing.MARKERS[1:], strict=False):
        recalls.plot(places, own[name]["recalls"], color=colour, marker=marker, linewidth=1.2, label=name)
    banks = evidence["banks"]
    chance.hist(banks["random"], bins=20, color=FAINT, label=f"{len(banks['random'])} random banks")
    chance.axvline(banks["published"], color=SERIES[0], linewidth=2)
    dress(recalls, xlabel="Class of the row that the paper calls MNIST", ylabel="Recall of the classical baseline, %")
    recalls.set_xticks(places)
    dress(
        chance,
        xlabel=f"Mean difference from the paper's recalls over {banks['rows']} rows, points",
        ylabel="Random filter banks",
    )
    chance.set_xlim(left=0)
    drawing.legend_below(figure, [*recalls.get_legend_handles_labels()[0], *chance.get_legend_handles_labels()[0]])
    return figure


# --- A comparison of samplers.

_APART = 0.22  # between the markers of one sampler, in rows


def draw_success(comparison: Comparison) -> Any:
    """A row of two panels per problem set and bits: success probability and time to solution, a line per sampler.

    Bars are 95 % intervals. A sampler that never succeeded has an arrow from the least time that its reads allow.
    """
    rows: dict[tuple[str, int], list[ProblemSet]] = {}
    for taken in comparison.problem_sets:
        rows.setdefault((taken.name, taken.bits), []).append(taken)
    names = list(dict.fromkeys(row.sampler for row in comparison.solving))
    figure = make_figure(figsize=(9.0, (1.1 + 0.38 * len(names)) * len(rows) + 0.4))
    bases = dict.fromkeys(taken.coordinates for taken in comparison.problem_sets)
    colours = (SERIES[1], SERIES[0], *SERIES[2:])  # the second coordinates, ours, are blue
    styles = {
        name: drawing.series_style(number) | {"color": colours[number % len(SERIES)]}
        for number, name in enumerate(bases)
    }
    for (shares, times), sets in zip(figure.subplots(len(rows), 2, squeeze=False), rows.values(), strict=True):
        for number, taken in enumerate(sets):
            shift, style = _APART * (number - (len(sets) - 1) / 2), styles[taken.coordinates]
            for row in (row for row in taken.own(comparison.solving) if row.failure is None):
                place = names.index(row.sampler) + shift
                _draw_estimate(shares, row.success, place, 100.0, style)
                _draw_estimate(times, row.seconds_to_solution, place, 1e3, style)
        unproven = [taken.coordinates for taken in sets if not taken.truth.is_proven]
        best_known = f"; best known, not proven: {', '.join(unproven)}" if unproven else ""
        shares.set_title(
            f"{sets[0].name.capitalize()} problems, K = {sets[0].bits}{best_known}", fontsize=10, loc="left"
        )
        for axes, labels in ((shares, list(map(shown_plainly, names))), (times, [""] * len(names))):
            axes.set_yticks(range(len(names)), labels, fontsize=9)
            axes.set_ylim(len(names) - 0.4, -0.6)  # the first sampler at the top
        dress(shares, xlabel="Reads that are the optimum, %", xlim=(-3, 103))
        dress(times, log="x", xlabel="Time to solution (99 %), ms; open arrow: at least")
        for axes in (shares, times):
            axes.tick_params(axis="y", length=0)
    drawing.legend_below(figure, [drawing.legend_entry(name, **style) for name, style in styles.items()])
    return figure


def _draw_estimate(axes: Any, estimate: Estimate, place: float, unit: float, style: Mapping[str, str]) -> None:
    """A marker and the bar of its interval; an arrow where the upper end is open."""
    is_known = math.isfinite(estimate.value)
    if is_known:
        ends = estimate.low, estimate.high if math.isfinite(estimate.high) else estimate.value
        axes.plot([unit * end for end in ends], [place] * 2, color=style["color"], linewidth=1.5, zorder=2)
        axes.plot([unit * estimate.value], [place], markersize=5, zorder=3, **style)
    if math.isinf(estimate.high) and math.isfinite(estimate.low):
        start = unit * (estimate.value if is_known else estimate.low)
        axes.plot([start], [place], marker=">", color=style["color"], markersize=5, fillstyle="none", zorder=2)


# --- A quantised network.

METHOD_TITLES = {"gptq": "GPTQ", "gptq_search": "GPTQ, scales searched"}  # other methods are called by their names
# Ours is blue, as in all figures; what it is compared with has the other colours.
_METHODS = {"annealed": 0, "gptq": 1, "descent": 2, "gptq_search": 3, "nearest": 4}


def save_layer_errors(names: Sequence[str], errors: Sequence[Mapping[str, float]], path: Path, title: str = "") -> Path:
    """Draw the relative squared error of the outputs, layer by layer, a line for each method; write the file."""
    figure = make_figure(figsize=(max(5.0, 2.6 + 0.8 * len(names)), 4.0))
    axes = figure.subplots()
    for place, method in enumerate(errors[0]):
        values = [max(one[method], 1e-12) for one in errors]  # a logarithm has no zero
        style = drawing.series_style(_METHODS.get(method, 5 + place % 3))
        axes.plot(range(len(names)), values, markersize=6, label=METHOD_TITLES.get(method, method), **style)
    slanted = sum(map(len, names)) > 11 * len(names) or len(names) > 12  # else the names would touch
    angle = {"rotation": 30, "ha": "right"} if slanted else {}
    axes.set_xticks(range(len(names)), [shown_plainly(name) for name in names], **angle)
    axes.margins(0.08)
    axes.set_title(shown_plainly(title), fontsize=10, loc="left")
    dress(axes, log="y", ylabel="Squared error of the outputs, relative")
    drawing.legend_below(figure, axes.get_legend_handles_labels()[0])
    return drawing.save_figure(figure, path)
