"""A comparison of samplers for its reader: the figure, energy against time and training, and the gist in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.errors import require
from annealfit.experiments.sampler_study import Comparison
from annealfit.experiments.solving import ProblemSet, SolveRow
from annealfit.persistence import replacing

_PURPOSE = "drawing figures"
Styles = dict[str, dict[str, str]]  # of a sampler: colour and marker
# Okabe and Ito's palette, which people with any colour vision can tell apart; the markers tell a ninth sampler apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
_MARKERS = "osD^vPX*"
_TEXT = {"fontsize": 8, "color": "#333333"}
_SMALLEST_SHARE = 1e-6  # a logarithmic axis has no zero
_LEADER = {"arrowstyle": "-", "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
Place = tuple[float, float, str, str]
# Where a label may stand around its marker, in points, and which part of it stands there: near before far.
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
_PLACES: tuple[Place, ...] = tuple(
    (distance * x, distance * y, {1: "left", 0: "center", -1: "right"}[x], {1: "bottom", 0: "center", -1: "top"}[y])
    for distance in (7, 16, 28, 42)
    for x, y in _SIDES
)


def draw_comparison(comparison: Comparison) -> Any:
    """A row of panels per coordinates and bits: energy above the lowest against time per problem set, and training."""
    variants = dict.fromkeys(taken.variant for taken in comparison.problem_sets)
    sets = {variant: [taken for taken in comparison.problem_sets if taken.variant == variant] for variant in variants}
    trained = bool(comparison.training)
    count = max(map(len, sets.values())) + trained
    figure = require("matplotlib.figure", extra="plot", purpose=_PURPOSE).Figure(
        layout="constrained", figsize=(4.4 * count, 4.0 * len(sets)), dpi=150
    )
    grid = figure.subplots(len(sets), count, squeeze=False)
    styles = styles_of([row.sampler for row in comparison.solving])
    labels, ends = [], []
    for panels, (variant, taken_sets) in zip(grid, sets.items(), strict=True):
        for axes, taken in zip(panels, taken_sets, strict=False):
            rows = [row for row in taken.own(comparison.solving) if row.failure is None]
            labels.append((axes, _draw_solving(axes, taken, rows, styles)))
        if trained:
            ends.append((panels[-1], _draw_training(panels[-1], comparison, variant, styles)))
    figure.draw_without_rendering()  # until the panels have their places, labels cannot have theirs
    for axes, curves in ends:
        _label_ends(axes, curves)
    figure.draw_without_rendering()
    for axes, texts in labels:
        _part_labels(axes, texts)
    return figure


def styles_of(samplers: Sequence[str]) -> Styles:
    """Colour and marker of every sampler, by the order in which they are named."""
    return {
        name: {"color": _COLOURS[number % len(_COLOURS)], "marker": _MARKERS[number % len(_MARKERS)]}
        for number, name in enumerate(dict.fromkeys(samplers))
    }


def save_comparison_figure(comparison: Comparison, path: Path) -> Path:
    """Write the figure as PNG."""
    figure = draw_comparison(comparison)
    with replacing(path) as file:
        figure.savefig(file, format="png")
    return path


def summarise_comparison(comparison: Comparison) -> str:
    """Which sampler was best at what, in plain sentences; ties are named together."""
    sentences = []
    for taken in comparison.problem_sets:
        rows = [row for row in taken.own(comparison.solving) if row.failure is None]
        if rows:
            shares = {row.sampler: -row.success.value for row in rows}
            times = {row.sampler: row.seconds_to_solution.value for row in rows}
            fastest = (
                f"fastest to the solution is {_least(times)}"
                if min(times.values()) < math.inf
                else "none solves half of the problems"
            )
            most = -min(shares.values())
            often = f"{_least(shares)} succeeds most often, in {most:.1%} of the reads" if most else "no read succeeds"
            sentences.append(
                f"On the {taken.name} problems ({taken.coordinates}, K = {taken.bits}) {often}; {fastest}."
            )
    optimum = comparison.optimum
    for coordinates, bits in dict.fromkeys((row.coordinates, row.bits) for row in comparison.training):
        records = [record for record in comparison.trained(coordinates, bits) if record.error is None]
        losses = {record.method: record.loss / optimum.loss for record in records}
        if losses:
            sentences.append(
                f"Training ({coordinates}, K = {bits}) ends lowest with {_least(losses)}, at "
                f"{min(losses.values()):.5f} times the optimum, which logistic regression finds in "
                f"{optimum.seconds:.2f} s."
            )
    return " ".join(sentences)


def _least(values: dict[str, float]) -> str:
    return " and ".join(name for name, value in values.items() if value == min(values.values()))


def _draw_solving(axes: Any, taken: ProblemSet, rows: Sequence[SolveRow], styles: Styles) -> list[Any]:
    """A marker per sampler, and a hollow one at a QPU's own time; returns the labels, which have no place yet."""
    ticker = require("matplotlib.ticker", extra="plot", purpose=_PURPOSE)
    axes.set(
        xscale="log", yscale="log", xlabel="Time of a solve, ms (median)", ylabel="Energy of a read above the lowest, %"
    )
    axes.set_title(title_of(taken))
    labels = []
    for row in rows:
        energy = 100 * max(row.residual, _SMALLEST_SHARE)
        places = {row.sampler: 1e3 * row.median_seconds}
        if row.access_seconds is not None:
            places["QPU time"] = 1e3 * row.access_seconds
        axes.plot(list(places.values()), [energy] * len(places), linestyle=":", color=styles[row.sampler]["color"])
        for (name, milliseconds), fill in zip(places.items(), ("full", "none"), strict=False):
            place = milliseconds, energy
            axes.plot(*place, linestyle="none", markersize=7, fillstyle=fill, **styles[row.sampler])
            leader = {**_LEADER, "color": "#999999", "linewidth": 0.5, "shrinkB": 4}
            labels.append(
                axes.annotate(
                    shown_plainly(name), place, (0, 0), textcoords="offset points", arrowprops=leader, **_TEXT
                )
            )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(ticker.LogFormatter())  # says something only where there are few major ticks
    axes.tick_params(which="minor", labelsize=7)
    axes.margins(0.15)
    axes.grid(alpha=0.25)
    return labels


def title_of(taken: ProblemSet) -> str:
    """What a panel is of."""
    when = f"after {taken.after} iterations" if taken.after else "of the first iteration"
    return f"Problems {when},\n{taken.coordinates}, K = {taken.bits}"


def _draw_training(
    axes: Any, comparison: Comparison, variant: tuple[str, int], styles: Styles
) -> list[tuple[str, str, float, float]]:
    """A curve per sampler; returns name, colour and last point of each."""
    ends = []
    for record in comparison.trained(*variant):
        excess = record.history.get("loss", np.empty(0)) / comparison.optimum.loss - 1
        if not (excess > 0).any():
            continue  # failed, or at the optimum from the start: nothing that a logarithmic axis can show
        shown = np.flatnonzero(excess > 0)
        colour = styles[record.method]["color"]
        axes.plot(shown + 1, excess[shown], color=colour, linewidth=1.3)
        ends.append((record.method, colour, float(shown[-1] + 1), float(excess[shown[-1]])))
    axes.xaxis.get_major_locator().set_params(integer=True)
    title = "Training,\n{}, K = {}".format(*variant)
    axes.set(yscale="log", xlabel="Iteration", ylabel="Loss above the optimum, share of it", title=title)
    axes.grid(alpha=0.25)
    return ends


def _label_ends(axes: Any, ends: Sequence[tuple[str, str, float, float]]) -> None:
    """Name the curves at the right edge, one name below the other, with a line to the end of the curve."""
    if not ends:
        return
    per_point = axes.figure.dpi / 72
    pixels = axes.transData.transform([(x, y) for _, _, x, y in ends])
    heights = _spread(pixels[:, 1], 11 * per_point)
    edge = axes.get_window_extent().x1 + 6 * per_point
    for (name, colour, x, y), pixel, height in zip(ends, pixels, heights, strict=True):
        axes.annotate(
            shown_plainly(name),
            (x, y),
            ((edge - pixel[0]) / per_point, (height - pixel[1]) / per_point),
            textcoords="offset points",
            va="center",
            arrowprops={**_LEADER, "color": colour, "relpos": (0, 0.5)},
            **_TEXT,
        )


def _spread(heights: NDArray[np.float64], distance: float) -> NDArray[np.float64]:
    """The heights moved apart to at least `distance`, in the same order and about the same mean.

    >>> _spread(np.array([3.0, 0.0, 3.0]), 2.0).round(2).tolist()
    [2.33, -0.67, 4.33]
    """
    order = np.argsort(heights, kind="stable")
    moved = heights.astype(float)
    for below, above in pairwise(order):
        moved[above] = max(moved[above], moved[below] + distance)
    return moved - (moved - heights).mean()


def _part_labels(axes: Any, labels: Sequence[Any]) -> None:
    """Put each label beside its marker, where it covers as few others as possible and stays inside the panel."""
    extent_of = require("matplotlib.text", extra="plot", purpose=_PURPOSE).Text.get_window_extent  # without its leader
    panel, obstacles = axes.get_window_extent(), [line.get_window_extent() for line in axes.lines]  # markers are lines

    def put(text: Any, place: Place) -> Any:
        text.set(position=place[:2], horizontalalignment=place[2], verticalalignment=place[3])
        return extent_of(text)

    def cost(text: Any, place: Place) -> int:
        extent = put(text, place)
        inside = panel.x0 <= extent.x0 and extent.x1 <= panel.x1 and panel.y0 <= extent.y0 and extent.y1 <= panel.y1
        return int(extent.count_overlaps(obstacles)) + (0 if inside else 2)

    for text in labels:
        best = min(_PLACES, key=lambda place: cost(text, place))  # the nearest of the best
        obstacles.append(put(text, best))


def shown_plainly(text: str) -> str:
    """The text as it is: matplotlib reads mathematics between dollar signs."""
    return text.replace("$", r"\$")
