"""The figure of success: how often samplers find the optimum and how soon, in one coordinates against another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from annealfit.studies.report.drawing import dress, make_figure, plotting, save_figure, shown_plainly, use_logarithm
from annealfit.studies.report.palette import MARKERS, SERIES
from annealfit.studies.sampler_study import Comparison
from annealfit.studies.solving import ProblemSet, SolveRow
from annealfit.studies.success import Estimate

_STYLES = tuple(zip((SERIES[1], SERIES[0], *SERIES[2:]), MARKERS, strict=True))  # of coordinates; ours are blue
_APART = 0.22  # between the markers of one sampler, in rows


def draw_success(comparison: Comparison) -> Any:
    """A row of two panels per problem set and bits: success probability and time to solution, a line per sampler.

    Bars are 95 % intervals. A sampler that never succeeded has an arrow from the least time that its reads allow.
    """
    groups: dict[tuple[str, int], list[ProblemSet]] = {}
    for taken in comparison.problem_sets:
        groups.setdefault((taken.name, taken.bits), []).append(taken)
    names = list(dict.fromkeys(row.sampler for row in comparison.solving))
    figure = make_figure(figsize=(9.0, (1.1 + 0.38 * len(names)) * len(groups) + 0.4))
    bases = list(dict.fromkeys(taken.coordinates for taken in comparison.problem_sets))
    styles = {name: _STYLES[number % len(_STYLES)] for number, name in enumerate(bases)}
    for (shares, times), sets in zip(figure.subplots(len(groups), 2, squeeze=False), groups.values(), strict=True):
        for number, taken in enumerate(sets):
            shift = _APART * (number - (len(sets) - 1) / 2)
            rows = [row for row in taken.own(comparison.solving) if row.failure is None]
            places = [names.index(row.sampler) + shift for row in rows]
            _draw_shares(shares, rows, places, styles[taken.coordinates])
            _draw_times(times, rows, places, styles[taken.coordinates])
        _finish(shares, times, sets, names)
    lines = plotting("lines")
    handles = [
        lines.Line2D([], [], color=colour, marker=marker, linestyle="none", label=name)
        for name, (colour, marker) in styles.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    return figure


def save_success_figure(comparison: Comparison, path: Path) -> Path:
    """Write the figure as PNG."""
    return save_figure(draw_success(comparison), path)


def _draw_shares(axes: Any, rows: Sequence[SolveRow], places: Sequence[float], style: tuple[str, str]) -> None:
    for row, place in zip(rows, places, strict=True):
        _draw_estimate(axes, row.success, place, 100.0, style)


def _draw_times(axes: Any, rows: Sequence[SolveRow], places: Sequence[float], style: tuple[str, str]) -> None:
    for row, place in zip(rows, places, strict=True):
        time = row.seconds_to_solution
        if math.isfinite(time.value):
            _draw_estimate(axes, time, place, 1e3, style)
        if math.isinf(time.high) and math.isfinite(time.low):  # how long it may take is open
            start = 1e3 * (time.value if math.isfinite(time.value) else time.low)
            axes.plot([start], [place], marker=">", color=style[0], markersize=5, fillstyle="none", zorder=2)


def _draw_estimate(axes: Any, estimate: Estimate, place: float, unit: float, style: tuple[str, str]) -> None:
    colour, marker = style
    high = estimate.high if math.isfinite(estimate.high) else estimate.value
    axes.plot([unit * estimate.low, unit * high], [place, place], color=colour, linewidth=1.5, zorder=2)
    axes.plot([unit * estimate.value], [place], color=colour, marker=marker, markersize=5, zorder=3)


def _finish(shares: Any, times: Any, sets: Sequence[ProblemSet], names: Sequence[str]) -> None:
    """Axes, names of the samplers, and a title that says where there is no proof."""
    first = sets[0]
    when = f"after {first.after} iterations" if first.after else "of the first iteration"
    unproven = [taken.coordinates for taken in sets if not taken.truth.is_proven]
    best_known = f"; best known, not proven: {', '.join(unproven)}" if unproven else ""
    shares.set_title(f"Problems {when}, K = {first.bits}{best_known}", fontsize=10, loc="left")
    shares.set(xlabel="Reads that are the optimum, %", xlim=(-3, 103))
    times.set_xlabel("Time to solution (99 %), ms; open arrow: at least")
    for axes, labels in ((shares, list(map(shown_plainly, names))), (times, [""] * len(names))):
        axes.set_yticks(range(len(names)), labels, fontsize=9)
        axes.set_ylim(len(names) - 0.4, -0.6)  # the first sampler at the top
        dress(axes)
        axes.tick_params(axis="y", length=0)
    use_logarithm(times, "x")
