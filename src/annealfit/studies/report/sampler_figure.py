"""A comparison of samplers for its reader: the figure, energy against time and training, and the gist in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from annealfit.studies.report.drawing import (
    dress,
    label_ends,
    label_point,
    make_figure,
    part_labels,
    save_figure,
    use_logarithm,
)
from annealfit.studies.report.palette import MARKERS, SERIES
from annealfit.studies.sampler_study import Comparison
from annealfit.studies.solving import ProblemSet, SolveRow

Styles = dict[str, dict[str, str]]  # of a sampler: colour and marker

_SMALLEST_SHARE = 1e-6  # a logarithmic axis has no zero


def draw_comparison(comparison: Comparison) -> Any:
    """A row of panels per coordinates and bits: energy above the lowest against time per problem set, and training."""
    variants = dict.fromkeys(taken.variant for taken in comparison.problem_sets)
    sets = {variant: [taken for taken in comparison.problem_sets if taken.variant == variant] for variant in variants}
    trained = bool(comparison.training)
    count = max(map(len, sets.values())) + trained
    figure = make_figure(figsize=(4.4 * count, 4.0 * len(sets)))
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
        label_ends(axes, curves)
    figure.draw_without_rendering()
    for axes, texts in labels:
        part_labels(axes, texts)
    return figure


def styles_of(samplers: Sequence[str]) -> Styles:
    """Colour and marker of every sampler, by the order in which they are named."""
    return {
        name: {"color": SERIES[number % len(SERIES)], "marker": MARKERS[number % len(MARKERS)]}
        for number, name in enumerate(dict.fromkeys(samplers))
    }


def save_comparison_figure(comparison: Comparison, path: Path) -> Path:
    """Write the figure as PNG."""
    return save_figure(draw_comparison(comparison), path)


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
            often = f"success is most often with {_least(shares)}, in {most:.1%} of the reads"
            often = often if most else "no read succeeds"
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
    *others, last = [name for name, value in values.items() if value == min(values.values())] or values
    return f"{', '.join(others)} and {last}" if others else last


def _draw_solving(axes: Any, taken: ProblemSet, rows: Sequence[SolveRow], styles: Styles) -> list[Any]:
    """A marker per sampler, and a hollow one at a QPU's own time; returns the labels, which have no place yet."""
    axes.set(xlabel="Time of a solve, ms (median)", ylabel="Energy of a read above the lowest, %")
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
            labels.append(label_point(axes, name, place))
    axes.set(xscale="log", yscale="log")
    axes.margins(0.15)
    dress(axes)
    use_logarithm(axes, "x", "y")
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
    axes.set(xlabel="Iteration", ylabel="Loss above the optimum, share of it", title=title)
    dress(axes)
    if ends:
        use_logarithm(axes, "y")
    return ends
