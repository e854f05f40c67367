"""The figure of a quantised network: the error of every layer by every method that was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from annealfit._support.errors import InvalidInputError
from annealfit.studies.report.drawing import dress, make_figure, plotting, save_figure, shown_plainly, use_logarithm
from annealfit.studies.report.hardware_figure import PICTURE_FORMATS
from annealfit.studies.report.palette import MARKERS, SERIES

# What the methods are called where people read them.
METHOD_TITLES = {
    "nearest": "nearest",
    "gptq": "GPTQ",
    "gptq_search": "GPTQ, scales searched",
    "descent": "descent",
    "annealed": "annealed",
    "lattice": "lattice",
}
# Ours is blue, as in all figures; what it is compared with has the other colours.
_ORDER = {"annealed": 0, "gptq": 1, "descent": 2, "gptq_search": 3, "nearest": 4}
_LEAST = 1e-12  # of an error that is drawn: a logarithm has no zero


def check_picture(path: Path) -> None:
    """Refuse what cannot be drawn, before the work is done: a foreign ending, matplotlib missing."""
    plotting("figure")
    if path.suffix.lstrip(".").lower() not in PICTURE_FORMATS:
        raise InvalidInputError(f"{path.name} does not end in a format for figures: {', '.join(PICTURE_FORMATS)}")


def draw_layer_errors(names: Sequence[str], errors: Sequence[Mapping[str, float]], title: str = "") -> Any:
    """Relative squared error of the outputs, layer by layer, a line for each method."""
    methods = [name for name in errors[0] if any(name in one for one in errors)]
    figure = make_figure(figsize=(max(5.0, 2.6 + 0.8 * len(names)), 4.0))
    axes = figure.subplots()
    for place, method in enumerate(methods):
        number = _ORDER.get(method, 5 + place % 3)
        values = [max(one[method], _LEAST) for one in errors]
        label = METHOD_TITLES.get(method, method)
        axes.plot(
            names_on(axes, names), values, color=SERIES[number], marker=MARKERS[number], markersize=6, label=label
        )
    axes.set(ylabel="Squared error of the outputs, relative")
    axes.margins(0.08)
    axes.set_title(shown_plainly(title), fontsize=10, loc="left")
    dress(axes)
    use_logarithm(axes, "y")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def names_on(axes: Any, names: Sequence[str]) -> range:
    """Name the places of the horizontal axis, slanted where they would touch."""
    slanted = sum(map(len, names)) > 11 * len(names) or len(names) > 12
    angle = {"rotation": 30, "ha": "right"} if slanted else {}
    axes.set_xticks(range(len(names)), [shown_plainly(name) for name in names], **angle)
    return range(len(names))


def save_layer_errors(names: Sequence[str], errors: Sequence[Mapping[str, float]], path: Path, title: str = "") -> Path:
    """Draw and write the file; its ending is its format."""
    return save_figure(draw_layer_errors(names, errors, title), path)
