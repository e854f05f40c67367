"""What all plots have in common: their frame, axes with plain numbers, labels that keep apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import require
from annealfit._support.files import replacing
from annealfit.studies.report.palette import FAINT, INK, SOFT

LABEL = {"fontsize": 8, "color": INK}
LEADER = {"arrowstyle": "-", "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
_PURPOSE = "drawing figures"
_DOTS_PER_INCH = 150
# Where a label may stand around its marker, in points, and which part of it stands there: near before far.
Place = tuple[float, float, str, str]
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
_PLACES: tuple[Place, ...] = tuple(
    (distance * x, distance * y, {1: "left", 0: "center", -1: "right"}[x], {1: "bottom", 0: "center", -1: "top"}[y])
    for distance in (7, 16, 28, 42)
    for x, y in _SIDES
)


def plotting(module: str) -> Any:
    """A module of matplotlib, imported when something is drawn."""
    return require(f"matplotlib.{module}", extra="plot", purpose=_PURPOSE)


def make_figure(**options: Any) -> Any:
    """A figure of its own: not pyplot's, so no global state, no display, and safe in threads."""
    return plotting("figure").Figure(layout="constrained", dpi=_DOTS_PER_INCH, **options)


def save_figure(figure: Any, path: Path) -> Path:
    """Write the figure, whole or not at all; its ending is its format."""
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix.lstrip(".").lower(), dpi=_DOTS_PER_INCH)
    return path


def dress(axes: Any, grid: str = "both") -> None:
    """The look of a panel: a light grid behind, no frame on top and at the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.grid(axis=grid, color=FAINT, linewidth=0.6, alpha=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=SOFT, labelcolor=INK, labelsize=9)


def shown_plainly(text: str) -> str:
    r"""The text as it is, one line of at most so many characters: matplotlib reads mathematics between dollar signs.

    >>> shown_plainly("5$ or\n6$"), len(shown_plainly("x" * 100_000))
    ('5\\$ or 6\\$', 60)
    """
    line = "".join(character if character.isprintable() else " " for character in text[: _LONGEST_TEXT + 1])
    return (line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…").replace("$", r"\$")


_LONGEST_TEXT = 60


def use_logarithm(axes: Any, *names: str) -> None:
    """Make "x" or "y" axes logarithmic, with plain numbers at few ticks; called when all is drawn."""
    for name in names:
        getattr(axes, f"set_{name}scale")("log")
        axis = getattr(axes, f"{name}axis")
        low, high = sorted(axis.get_view_interval())
        ticks = log_ticks(low, high)
        axis.set_ticks(ticks, [number_text(tick) for tick in ticks])
        axis.set_ticks([], minor=True)
        getattr(axes, f"set_{name}lim")(low, high)


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """A few round numbers between two positive ones: powers of ten, thinned or with numbers between them.

    >>> log_ticks(0.8, 1200), log_ticks(0.4, 7), log_ticks(1.1, 1.9)
    ([1.0, 10.0, 100.0, 1000.0], [0.5, 1.0, 2.0, 5.0], [1.2, 1.4, 1.6, 1.8])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for parts in ((1, 2, 5), (1, 3), (1,)):
        ticks = [part * 10.0**power for power in range(first, last + 1) for part in parts]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) <= most:
            break
    else:
        every = math.ceil((last - first + 1) / most)
        inside = [tick for tick in inside if round(math.log10(tick)) % every == 0]
    if len(inside) >= 3:
        return inside
    power = 10.0 ** math.floor(math.log10((high - low) / 2))
    step = next(power * part for part in (1, 2, 5, 10) if (high - low) / (power * part) <= most)
    return [round(n * step, 12) for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number_text(value: float) -> str:
    """A number as people write it; a power of ten where the zeros would have to be counted.

    >>> [number_text(value) for value in (1000.0, 0.05, 1e-5, 3e7)]
    ['1,000', '0.05', '10⁻⁵', '3·10⁷']
    """
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.10g}"
    power = math.floor(math.log10(abs(value)) + 1e-9)
    factor = value / 10.0**power
    raised = "10" + str(power).translate(_RAISED)
    return raised if math.isclose(factor, 1) else f"{factor:.3g}·{raised}"


def spread_apart(heights: NDArray[np.float64], distance: float) -> NDArray[np.float64]:
    """The heights moved apart to at least `distance`, in the same order and about the same mean.

    >>> spread_apart(np.array([3.0, 0.0, 3.0]), 2.0).round(2).tolist()
    [2.33, -0.67, 4.33]
    """
    order = np.argsort(heights, kind="stable")
    moved = heights.astype(float)
    for below, above in pairwise(order):
        moved[above] = max(moved[above], moved[below] + distance)
    return moved - (moved - heights).mean()


def label_ends(axes: Any, ends: Sequence[tuple[str, str, float, float]]) -> None:
    """Name curves at the right edge, one name below the other, with a line to the end of the curve.

    `ends` has a curve's name, its colour and its last point. The panels must have their places already
    (`figure.draw_without_rendering()`).
    """
    if not ends:
        return
    per_point = axes.figure.dpi / 72
    pixels = axes.transData.transform([(x, y) for _, _, x, y in ends])
    heights = spread_apart(pixels[:, 1], 11 * per_point)
    edge = axes.get_window_extent().x1 + 6 * per_point
    for (name, colour, x, y), pixel, height in zip(ends, pixels, heights, strict=True):
        axes.annotate(
            shown_plainly(name),
            (x, y),
            ((edge - pixel[0]) / per_point, (height - pixel[1]) / per_point),
            textcoords="offset points",
            va="center",
            arrowprops={**LEADER, "color": colour, "relpos": (0, 0.5)},
            **LABEL,
        )


def label_point(axes: Any, text: str, place: tuple[float, float]) -> Any:
    """A label of a marker, with a thin line to it; `part_labels` finds its place."""
    leader = {**LEADER, "color": SOFT, "linewidth": 0.5, "shrinkB": 4}
    return axes.annotate(shown_plainly(text), place, (0, 0), textcoords="offset points", arrowprops=leader, **LABEL)


def part_labels(axes: Any, labels: Sequence[Any]) -> None:
    """Put each label beside its marker, where it covers as few others as possible and stays inside the panel."""
    extent_of = plotting("text").Text.get_window_extent  # without its leader
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
