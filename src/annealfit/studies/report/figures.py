"""Every figure, in the style of `drawing`: of a training, a study, samplers, chips and quantised layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit._support.files import replacing
from annealfit.studies.records import Record
from annealfit.studies.report import drawing
from annealfit.studies.report.drawing import FAINT, INK, SERIES, dress, make_figure, shown_plainly

if TYPE_CHECKING:
    from annealfit.hardware.feasibility import Feasibility
    from annealfit.studies.sampler_study import Comparison
    from annealfit.studies.training_run import TrainingRun

# --- A training.

# A quantity, its column of the history, what it is drawn against, and its column on validation data.
_PANELS: tuple[tuple[str, str, str, str | None], ...] = (
    ("Training accuracy", "accuracy", "iteration", "validation_accuracy"),
    ("Regularised loss", "loss", "iteration", "validation_cross_entropy"),
    ("Regularised loss", "loss", "seconds", None),
)
_MOST_SHOWN = 32  # filters of a layer
_CELL = 0.62  # inches of a filter


def save_run_figures(run: TrainingRun, folder: Path) -> None:
    """Write the figures of a training and its sample images as PNG."""
    first = run.records[0]
    figures = {"convergence": draw_convergence(run.records, f"{run.dataset.name}: training")}
    if len(first.sample_labels):  # else rows that are no images
        for label, pixels in list(zip(first.sample_labels.tolist(), first.sample_images, strict=True))[:10]:
            with replacing(folder / "samples" / f"class-{label}.png") as file:
                drawing.save_pixels(pixels, file)
        if run.initial_filters is not None:
            figures["filters"] = draw_filters(run.initial_filters, run.model.features.filters_)
    for name, figure in figures.items():
        drawing.save_figure(figure, folder / f"{name}.png")


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
            name, history = shown_plainly(record.method), record.history
            if not history:
                level = record.loss if column == "loss" else record.train["accuracy"]
                axes.axhline(level, color=colour, linestyle="--", linewidth=1.2, label=name)
                continue
            places = np.maximum(history[against], 1e-4)  # a logarithmic axis has no zero
            axes.plot(places, history[column], color=colour, linewidth=1.5, label=name)
            if validation in history:
                penalty = np.subtract(history["loss"], history["cross_entropy"]) if column == "loss" else 0.0
                style = {"linewidth": 1.2, "linestyle": ":", "label": f"{name}, validation"}
                axes.plot(places, history[validation] + penalty, color=colour, **style)
        # A method that is done in ten iterations stands beside one that takes a thousand.
        dress(axes, log="x", xlabel=across[against], ylabel=label)
    drawing.legend_below(figure, panels[0].get_legend_handles_labels()[0])
    return figure


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
            left = {"transform": panels[0].transAxes, "ha": "right", "va": "center", "fontsize": 8, "color": INK}
            panels[0].text(-0.15, 0.5, f"{name}\n±{most:.2g}", **left)
            for axes, picture in zip(panels, pictures, strict=True):
                axes.set_axis_off()
                axes.imshow(picture, cmap="RdBu_r", vmin=-most, vmax=most)
    return figure


# --- A comparison of samplers.


def draw_success(found: Comparison) -> Any:
    """A row of two panels per problem set: share of reads that are the optimum, with its interval; time to solution."""
    names = list(dict.fromkeys(row.sampler for row in found.solving))
    sets = found.problem_sets
    figure = make_figure(figsize=(9.0, (1.2 + 0.3 * len(names)) * len(sets) + 0.4))
    for (shares, times), taken in zip(figure.subplots(len(sets), 2, squeeze=False), sets, strict=True):
        for row in (row for row in taken.own(found.solving) if row.failure is None):
            place, share = names.index(row.sampler), row.success
            shares.plot([100 * share.low, 100 * share.high], [place, place], color=FAINT, linewidth=3, zorder=1)
            shares.plot([100 * share.value], [place], color=SERIES[0], marker="o")
            if math.isfinite(row.seconds_to_solution):
                times.plot([1e3 * row.seconds_to_solution], [place], color=SERIES[0], marker="o")
        known = "" if taken.proven.all() else "; best known, not proven"
        title = f"{taken.name.capitalize()} problems, {taken.coordinates}, K = {taken.problems.bits}{known}"
        shares.set_title(title, fontsize=10, loc="left")
        for axes, labels in ((shares, list(map(shown_plainly, names))), (times, [""] * len(names))):
            axes.set_yticks(range(len(names)), labels, fontsize=9)
            axes.set_ylim(len(names) - 0.4, -0.6)  # the first sampler at the top
        dress(shares, xlabel="Reads that are the optimum, %", xlim=(-3, 103))
        dress(times, log="x" if times.lines else "", xlabel="Time to solution (99 %), ms; none: never")
    return figure


# --- What fits a chip.

_MOST_CURVES = 5


def check_drawable(path: Path, features: Sequence[int]) -> None:
    """Refuse what cannot be drawn, before the work is done: a foreign ending, too many curves, matplotlib missing."""
    drawing.check_picture(path)
    if (count := len(set(features))) > _MOST_CURVES:
        raise InvalidInputError(
            f"a figure of {count} numbers of features cannot be read; draw at most {_MOST_CURVES} of them"
        )


def draw_feasibility(rows: Sequence[Feasibility]) -> Any:
    """Left, variables against bits under each chip's largest clique. Right, couplings below the analog error."""
    from annealfit.hardware.limits import ERROR_LEVELS

    level = ERROR_LEVELS[1]
    figure = make_figure(figsize=(10, 4))
    sizes, shares = figure.subplots(1, 2)
    for number, features in enumerate(dict.fromkeys(row.features for row in rows)):
        own = sorted((row for row in rows if row.features == features), key=lambda row: row.bits)
        style = {"color": SERIES[number], "marker": drawing.MARKERS[number]}
        variables = {row.bits: row.variables for row in own}
        sizes.plot(list(variables), list(variables.values()), label=f"d = {features}", **style)
        for line, name in zip(("-", "--", ":", "-."), own[0].resolutions, strict=False):
            known = {row.bits: row.resolutions[name] for row in own if name in row.resolutions}
            below = [100 * resolution.share_below[level] for resolution in known.values()]
            shares.plot(list(known), below, linestyle=line, label=f"d = {features}, {name}", **style)
    cliques = {row.chip: row.largest_clique for row in rows}
    for (chip, clique), line in zip(cliques.items(), cycle(("--", ":", "-.", "-"))):
        sizes.axhline(clique, color=drawing.SOFT, linewidth=1.1, linestyle=line, label=f"{chip}: {clique}")
    for axes in (sizes, shares):
        axes.set_xticks(sorted({row.bits for row in rows}))
        axes.legend(frameon=False, fontsize=8)
    dress(sizes, xlabel="Bits per weight update", ylabel="Variables of a problem, and largest cliques")
    label = f"Couplings below an error of {level} of the range, %"
    dress(shares, xlabel="Bits per weight update", ylabel=label, ylim=(-3, 103))
    return figure


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
        number = _METHODS.get(method, 5 + place % 3)
        style = {"color": SERIES[number], "marker": drawing.MARKERS[number]}
        axes.plot(range(len(names)), values, markersize=6, label=METHOD_TITLES.get(method, method), **style)
    slanted = sum(map(len, names)) > 11 * len(names) or len(names) > 12  # else the names would touch
    angle = {"rotation": 30, "ha": "right"} if slanted else {}
    axes.set_xticks(range(len(names)), [shown_plainly(name) for name in names], **angle)
    axes.margins(0.08)
    axes.set_title(shown_plainly(title), fontsize=10, loc="left")
    dress(axes, log="y", ylabel="Squared error of the outputs, relative")
    drawing.legend_below(figure, axes.get_legend_handles_labels()[0])
    return drawing.save_figure(figure, path)
