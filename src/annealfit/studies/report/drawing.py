"""One look for the page, the documentation and the plots: colours, fonts, axes with plain numbers, labels kept apart.

The eight series colours were searched for, not picked: for full colour vision and for the three kinds of colour
blindness (the tests simulate them) any two differ clearly, and each stands out from its ground. Blue is our own
default, 3 bits; vermilion the paper's, 20 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike

from annealfit._support.errors import InvalidInputError, require
from annealfit._support.files import replacing
from annealfit.studies.records import printable

FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
NUMBERS_FONT = 'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace'


@dataclass(frozen=True)
class Colour:
    """A colour on a light ground, on which plots are drawn, and on a dark one."""

    light: str
    dark: str


# What a page is made of.
PAGE = {
    "paper": Colour("#ffffff", "#14171a"),
    "panel": Colour("#f5f7f9", "#1e2328"),
    "ink": Colour("#1a1d21", "#e8eaed"),
    "soft": Colour("#555e69", "#a5adb7"),
    "line": Colour("#d5dae0", "#3a4149"),
    "link": Colour("#0b57a4", "#83bdff"),
    "focus": Colour("#b34700", "#ffb27a"),
    "near": Colour("#0a6b4f", "#6fd6b0"),
    "near-ground": Colour("#e3f4ee", "#12312a"),
    "far": Colour("#8a4b00", "#ffc07a"),
    "far-ground": Colour("#fdf3e4", "#38290f"),
    "warning": Colour("#a33b00", "#ffab7d"),
    "warning-ground": Colour("#fdeee6", "#3a2318"),
    "heat": Colour("#0072b2", "#4aa8f0"),
}

# Series of a chart, by the bits of a method; 0 is a method without bits.
BIT_COLOURS = {
    0: PAGE["ink"],
    1: Colour("#02a876", "#03744f"),
    2: Colour("#7d1777", "#9b5a9a"),
    3: Colour("#0072b2", "#4aa8f0"),
    5: Colour("#ee3246", "#fb3576"),
    10: Colour("#953145", "#df8fbe"),
    15: Colour("#584300", "#dec58a"),
    20: Colour("#d55e00", "#ff8a3d"),
}
OTHER_BITS = PAGE["soft"]

# The same colours for series that have no bits, as samplers: the most different ones first, each with its own marker.
SERIES = tuple(BIT_COLOURS[bits].light for bits in (3, 20, 1, 2, 15, 5, 10, 0))
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")

INK, SOFT, FAINT = PAGE["ink"].light, PAGE["soft"].light, "#c7cdd4"
MAP = "Blues"  # of a matrix: light to dark, which no eye mistakes


def css_variables() -> str:
    """The colours and fonts as CSS variables, light and dark, and light again on printed paper."""
    colours = PAGE | {f"bits-{bits}": colour for bits, colour in BIT_COLOURS.items()} | {"bits-other": OTHER_BITS}
    light = " ".join(f"--{name}: {colour.light};" for name, colour in colours.items())
    dark = " ".join(f"--{name}: {colour.dark};" for name, colour in colours.items())
    fonts = f"--font: {FONT}; --numbers-font: {NUMBERS_FONT};"
    return (
        f":root {{ color-scheme: light dark; {fonts} {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )


PICTURE_FORMATS = ("png", "svg", "pdf")
_DOTS_PER_INCH = 150
_LONGEST_TEXT = 60


def plotting(module: str) -> Any:
    """A module of matplotlib, imported when something is drawn."""
    return require(f"matplotlib.{module}", extra="plot", purpose="drawing figures")


def make_figure(**options: Any) -> Any:
    """A figure of its own: not pyplot's, so no global state, no display, and safe in threads."""
    return plotting("figure").Figure(layout="constrained", dpi=_DOTS_PER_INCH, **options)


def save_figure(figure: Any, path: Path) -> Path:
    """Write the figure, whole or not at all; its ending is its format."""
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix.lstrip(".").lower(), dpi=_DOTS_PER_INCH)
    return path


def save_pixels(image: ArrayLike, file: IO[bytes]) -> None:
    """Write a grey image with values from 0 to 1 as PNG, a pixel for each."""
    pixels = np.nan_to_num(np.asarray(image, float))
    plotting("image").imsave(file, pixels, cmap="gray", vmin=0, vmax=1, format="png")


def check_picture(path: Path) -> None:
    """Refuse what cannot be drawn, before the work is done: a foreign ending, matplotlib missing."""
    plotting("figure")
    if path.suffix.lstrip(".").lower() not in PICTURE_FORMATS:
        raise InvalidInputError(f"{path.name} does not end in a format for figures: {', '.join(PICTURE_FORMATS)}")


def dress(axes: Any, grid: str = "both", *, log: str = "", **labels: Any) -> None:
    """The look of a panel in which all is drawn: labels, a light grid behind, no frame on top and at the right.

    The axes named in `log` ("x", "y" or "xy") become logarithmic.
    """
    axes.set(**labels)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.grid(axis=grid, color=FAINT, linewidth=0.6, alpha=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=SOFT, labelcolor=INK, labelsize=9)
    use_logarithm(axes, *log)


def legend_below(figure: Any, handles: Sequence[Any]) -> None:
    """One legend for all panels, below them, in as many columns as there is room for."""
    inches = 0.5 + 0.075 * max(len(handle.get_label()) for handle in handles)
    columns = max(1, min(len(handles), int(figure.get_figwidth() / inches)))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def shown_plainly(text: str) -> str:
    r"""The text as it is, one line of at most so many characters: matplotlib reads mathematics between dollar signs.

    >>> shown_plainly("5$ or\n6$"), len(shown_plainly("x" * 100_000))
    ('5\\$ or 6\\$', 60)
    """
    line = printable(text[: _LONGEST_TEXT + 1])
    return (line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…").replace("$", r"\$")


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
