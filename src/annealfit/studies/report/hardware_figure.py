"""A figure of what fits a chip: variables against bits, and what of the couplings is lost in analog error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from annealfit._support.errors import InvalidInputError
from annealfit.hardware.feasibility import Feasibility
from annealfit.hardware.limits import ERROR_LEVELS
from annealfit.studies.report.drawing import dress, make_figure, plotting, save_figure, use_logarithm
from annealfit.studies.report.palette import MARKERS, SERIES, SOFT

PICTURE_FORMATS = ("png", "svg", "pdf")
_MOST_CURVES = 5
_LINES = ("-", "--", ":", "-.")  # of coordinates
_FITS = {"all": "full", "some": "left", "none": "none"}  # how much of a marker is filled


def check_drawable(path: Path, features: Sequence[int]) -> None:
    """Refuse what cannot be drawn, before the work is done: a foreign ending, too many curves, matplotlib missing."""
    plotting("figure")
    if path.suffix.lstrip(".").lower() not in PICTURE_FORMATS:
        raise InvalidInputError(f"{path.name} does not end in a format for figures: {', '.join(PICTURE_FORMATS)}")
    count = len(set(features))
    if count > _MOST_CURVES:
        raise InvalidInputError(
            f"a figure of {count} numbers of features cannot be read; draw at most {_MOST_CURVES} of them"
        )


def save_feasibility(rows: Sequence[Feasibility], path: Path) -> None:
    """Draw the rows and write the file; its ending is its format."""
    check_drawable(path, [row.features for row in rows])
    save_figure(draw_feasibility(rows), path)


def draw_feasibility(rows: Sequence[Feasibility]) -> Any:
    """Left, variables against bits under every chip's largest clique; right, the share of couplings below the error.

    A filled marker fits every chip, a half-filled one some, an open one none.
    """
    of_features = _by_features(rows)
    figure = make_figure(figsize=(10, 4))
    sizes, shares = figure.subplots(1, 2)
    largest_cliques = {row.chip: row.largest_clique for row in rows}
    _draw_sizes(sizes, of_features, largest_cliques)
    _draw_shares(shares, of_features)
    for axes in (sizes, shares):
        dress(axes)
        axes.title.set_fontsize(10)
    handles = _legend(of_features, several_chips=len(largest_cliques) > 1)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    return figure


_Curve = dict[int, list[Feasibility]]  # bits → the rows of all chips


def _by_features(rows: Sequence[Feasibility]) -> dict[int, _Curve]:
    curves: dict[int, _Curve] = {}
    for row in rows:
        curves.setdefault(row.features, {}).setdefault(row.bits, []).append(row)
    return {features: dict(sorted(curve.items())) for features, curve in sorted(curves.items())}


def _draw_sizes(axes: Any, curves: Mapping[int, _Curve], largest_cliques: Mapping[str, int]) -> None:
    for index, curve in enumerate(curves.values()):
        _draw_curve(axes, index, curve, [rows[0].variables for rows in curve.values()])
    highest = max(rows[0].variables for curve in curves.values() for rows in curve.values())
    largest = max(largest_cliques.values())
    if highest > 6 * largest:  # else the chips would all be at the bottom
        use_logarithm(axes, "y")
    else:
        axes.set_ylim(0, 1.12 * max(highest, largest))
    for clique in set(largest_cliques.values()):
        axes.axhline(clique, color=SOFT, linestyle="--", linewidth=0.9)
    for level, text in _limit_labels(largest_cliques, closer_than=0.06 * max(highest, largest)):
        axes.annotate(text, (1.01, level), xycoords=("axes fraction", "data"), va="center", fontsize=8, color=SOFT)
    axes.set(title="A class's problem\nagainst the largest clique of each chip", ylabel="Variables")


def _draw_shares(axes: Any, curves: Mapping[int, _Curve]) -> None:
    least, of_couplings, most = ERROR_LEVELS
    names = _coordinates_in(curves)
    for (index, curve), (name, line) in product(enumerate(curves.values()), zip(names, _LINES, strict=False)):
        looked_at = {bits: rows for bits, rows in curve.items() if name in rows[0].resolutions}
        levels = {
            error: [100 * max(row.resolutions[name].share_below[error] for row in rows) for rows in looked_at.values()]
            for error in ERROR_LEVELS
        }
        axes.fill_between(list(looked_at), levels[least], levels[most], color=SERIES[index], alpha=0.2, linewidth=0)
        if len(looked_at) == 1:  # a band has no width there
            axes.vlines(list(looked_at), levels[least], levels[most], color=SERIES[index], alpha=0.2, linewidth=8)
        _draw_curve(axes, index, looked_at, levels[of_couplings], line)
    title = f"Couplings below the analog error:\nmarkers {of_couplings}, band {least} to {most} of the range"
    axes.set(title=title, ylabel="Share of the couplings, %", ylim=(-3, 103))


def _coordinates_in(curves: Mapping[int, _Curve]) -> list[str]:
    """The coordinates of the rows, in order."""
    every = (row for curve in curves.values() for rows in curve.values() for row in rows)
    return list(dict.fromkeys(name for row in every for name in row.resolutions))


def _draw_curve(axes: Any, index: int, curve: _Curve, values: Sequence[float], line: str = "-") -> None:
    """A line with a marker at every number of bits, filled as far as it fits."""
    colour, marker = SERIES[index], MARKERS[index]
    axes.plot(list(curve), values, color=colour, linestyle=line, linewidth=1.2, zorder=2)
    for (bits, rows), value in zip(curve.items(), values, strict=True):
        axes.plot([bits], [value], zorder=3, **_marker(colour, marker, _fit(rows)))
    axes.xaxis.set_major_locator(plotting("ticker").MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.set_xlabel("Bits per weight update")


def _fit(rows: Sequence[Feasibility]) -> str:
    embedded = sum(row.embeds for row in rows)
    return "all" if embedded == len(rows) else "some" if embedded else "none"


def _marker(colour: str, marker: str, fit: str) -> dict[str, Any]:
    return {
        "color": colour,
        "marker": marker,
        "linestyle": "none",
        "markersize": 6,
        "fillstyle": _FITS[fit],
        "markerfacecolor": colour if fit != "none" else "white",
        "markerfacecoloralt": "white",
    }


def _legend(curves: Mapping[int, _Curve], *, several_chips: bool) -> list[Any]:
    lines = plotting("lines")
    words = {"all": "fits every chip", "some": "fits some", "none": "fits none"}
    if not several_chips:
        words = {"all": "fits", "none": "does not fit"}
    seen = {_fit(rows) for curve in curves.values() for rows in curve.values()}
    handles = [
        lines.Line2D([], [], color=colour, marker=marker, label=f"d = {features}")
        for features, colour, marker in zip(curves, SERIES, MARKERS, strict=False)
    ]
    names = _coordinates_in(curves)
    if len(names) > 1:
        handles += [
            lines.Line2D([], [], color=SOFT, linestyle=line, label=name)
            for name, line in zip(names, _LINES, strict=False)
        ]
    return handles + [
        lines.Line2D([], [], label=word, **_marker(SOFT, "o", fit)) for fit, word in words.items() if fit in seen
    ]


def _limit_labels(largest_cliques: Mapping[str, int], closer_than: float) -> list[tuple[float, str]]:
    r"""Where to write which chips' names: lines too close to have one each share a label between them.

    >>> _limit_labels({"P16": 180, "Z12": 184, "Z15": 232}, closer_than=20)
    [(182.0, 'Z12: 184\nP16: 180'), (232.0, 'Z15: 232')]
    """
    groups: list[list[tuple[int, str]]] = []
    for chip, clique in sorted(largest_cliques.items(), key=lambda item: item[1]):
        if not groups or clique - groups[-1][-1][0] >= closer_than:
            groups.append([])
        groups[-1].append((clique, f"{chip}: {clique}"))
    return [((group[0][0] + group[-1][0]) / 2, "\n".join(text for _, text in reversed(group))) for group in groups]
