"""The main figures of a report as files, drawn from the same numbers as the page's charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from annealfit.studies.records import CLASSICAL, Record
from annealfit.studies.report.cells import Group, dataset_title
from annealfit.studies.report.charts import (
    QUANTITIES,
    by_dataset,
    confusions,
    history_columns,
    main_groups,
    sampled_iterations,
    series_name,
    times,
)
from annealfit.studies.report.comparisons import contender_bits
from annealfit.studies.report.drawing import dress, make_figure, save_figure, shown_plainly, use_logarithm
from annealfit.studies.report.palette import DASHES, FAINT, INK, MAP, SERIES, bits_colour


def save_paper_figures(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write the main figures as SVG and PNG; returns their paths."""
    return [
        save_figure(figure, folder / f"{name}.{ending}")
        for name, figure in _figures(main_groups(records))
        for ending in ("svg", "png")
    ]


def _figures(found: Sequence[Group]) -> Iterator[tuple[str, Any]]:
    for dataset, members in by_dataset(found).items():
        yield f"convergence-{dataset}", _convergence_figure(dataset, members)
        contenders = [g for g in members if g.spec.method == CLASSICAL or g.spec.bits == contender_bits(g.spec.preset)]
        if contenders:
            yield f"confusion-{dataset}", _confusion_figure(dataset, contenders)
    timed = [row for row in times(found) if row["paper"] is not None]
    if timed:
        yield "times", _times_figure(timed)


def _convergence_figure(dataset: str, members: Sequence[Group]) -> Any:
    figure = make_figure(figsize=(11, 4.2))
    figure.suptitle(shown_plainly(f"{dataset_title(dataset)}: means over seeds"))
    panels = figure.subplots(1, 2)
    for axes, quantity in zip(panels, ("accuracy", "cross_entropy"), strict=True):
        title, log = QUANTITIES[quantity]
        for group in members:
            style: dict[str, Any] = {
                "color": bits_colour(group.spec.bits),
                "linestyle": "dashdot" if group.spec.method == CLASSICAL else DASHES[group.spec.preset],
                "linewidth": 1.2,
                "label": shown_plainly(series_name(group)),
            }
            columns, iterations = history_columns(group, quantity), sampled_iterations(group)
            if columns is not None:
                axes.plot(iterations, columns.mean(axis=0)[iterations - 1], **style)
            else:
                level = [r.train["accuracy"] if quantity == "accuracy" else r.cross_entropy for r in group.records]
                axes.axhline(float(np.mean(level)), **style)
        axes.set(xlabel="Iteration", ylabel=title)
        dress(axes)
        use_logarithm(axes, *("xy" if log else "x"))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=7)
    return figure


def _confusion_figure(dataset: str, members: Sequence[Group]) -> Any:
    matrices = confusions(members)
    size = max(3.4, 0.36 * len(matrices[0]["classes"]))  # room for the counts
    figure = make_figure(figsize=(size * len(matrices), size + 0.4))
    figure.suptitle(shown_plainly(f"{dataset_title(dataset)}: test images, true class in rows"))
    for axes, matrix in zip(figure.subplots(1, len(matrices), squeeze=False)[0], matrices, strict=True):
        counts = np.array(matrix["counts"], float)
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        axes.imshow(shares, cmap=MAP, vmin=0, vmax=1)
        for (row, column), share in np.ndenumerate(shares):
            colour = "white" if share > 0.5 else INK if counts[row, column] else FAINT
            axes.text(column, row, f"{counts[row, column]:.0f}", ha="center", va="center", fontsize=6, color=colour)
        names = [shown_plainly(name[:12]) for name in matrix["classes"]]
        axes.set_xticks(range(len(names)), names, fontsize=6, rotation=90)
        axes.set_yticks(range(len(names)), names, fontsize=6)
        axes.set_title(shown_plainly(matrix["name"]), fontsize=8)
    return figure


def _times_figure(rows: Sequence[dict[str, Any]]) -> Any:
    figure = make_figure(figsize=(8, 0.22 * len(rows) + 1.2))
    axes = figure.subplots()
    places = range(len(rows))
    axes.scatter([row["seconds"] for row in rows], places, color=SERIES[0], label="here", zorder=3)
    axes.scatter([row["paper"] for row in rows], places, color=SERIES[1], marker="D", label="paper", zorder=3)
    axes.set_yticks(places, [shown_plainly(f"{row['dataset']}: {row['name']}") for row in rows], fontsize=6)
    axes.set_xlabel("Seconds of a training run")
    axes.invert_yaxis()
    dress(axes, grid="x")
    use_logarithm(axes, "x")
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    return figure
