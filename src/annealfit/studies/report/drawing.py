"""One look for the page, the documentation and all figures: colours, fonts, plain numbers on axes, separate labels."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.errors import InvalidInputError, require
from annealfit._support.files import replacing
from annealfit.studies.records import Record, printable

if TYPE_CHECKING:
    from annealfit.hardware.feasibility import Feasibility
    from annealfit.studies.execute import TrainingRun
    from annealfit.studies.sampler_study import Comparison

FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
NUMBERS_FONT = 'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace'


@dataclass(frozen=True)
class Colour:
    """A colour on a light ground, on which plots are drawn, and on a dark one."""

    light: str
    dark: str


_COLOURS = tomllib.loads(Path(__file__).with_name("colours.toml").read_text(encoding="utf-8"))
PAGE = {name: Colour(*pair) for name, pair in _COLOURS["page"].items()}  # what a page is made of
BIT_COLOURS = {int(bits): Colour(*pair) for bits, pair in _COLOURS["bits"].items()}  # series, by a method's bits
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
                save_pixels(pixels, file)
        if run.initial_filters is not None:
            figures["filters"] = draw_filters(run.initial_filters, run.model.features.filters_)
    for name, figure in figures.items():
        save_figure(figure, folder / f"{name}.png")


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
    legend_below(figure, panels[0].get_legend_handles_labels()[0])
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
    check_picture(path)
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
        style = {"color": SERIES[number], "marker": MARKERS[number]}
        variables = {row.bits: row.variables for row in own}
        sizes.plot(list(variables), list(variables.values()), label=f"d = {features}", **style)
        for line, name in zip(("-", "--", ":", "-."), own[0].resolutions, strict=False):
            known = {row.bits: row.resolutions[name] for row in own if name in row.resolutions}
            below = [100 * resolution.share_below[level] for resolution in known.values()]
            shares.plot(list(known), below, linestyle=line, label=f"d = {features}, {name}", **style)
    cliques = {row.chip: row.largest_clique for row in rows}
    for (chip, clique), line in zip(cliques.items(), cycle(("--", ":", "-.", "-"))):
        sizes.axhline(clique, color=SOFT, linewidth=1.1, linestyle=line, label=f"{chip}: {clique}")
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
        style = {"color": SERIES[number], "marker": MARKERS[number]}
        axes.plot(range(len(names)), values, markersize=6, label=METHOD_TITLES.get(method, method), **style)
    slanted = sum(map(len, names)) > 11 * len(names) or len(names) > 12  # else the names would touch
    angle = {"rotation": 30, "ha": "right"} if slanted else {}
    axes.set_xticks(range(len(names)), [shown_plainly(name) for name in names], **angle)
    axes.margins(0.08)
    axes.set_title(shown_plainly(title), fontsize=10, loc="left")
    dress(axes, log="y", ylabel="Squared error of the outputs, relative")
    legend_below(figure, axes.get_legend_handles_labels()[0])
    return save_figure(figure, path)
