"""One look for the page and the plots: every colour and font is named here.

The eight series colours were searched for, not picked: whatever the eye's colour vision (tests simulate the three kinds
of colour blindness), any two of them differ clearly, and each stands out from its ground. Blue is our own default,
3 bits; vermilion the paper's, 20 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

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
DASHES = {"literal": "dotted", "matched": "solid", "annealfit": "solid", None: "dashed"}  # of lines, by preset

# The same colours for series that have no bits, as samplers: the most different ones first, each with its own marker.
SERIES = tuple(BIT_COLOURS[bits].light for bits in (3, 20, 1, 2, 15, 5, 10, 0))
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")

INK, SOFT, FAINT = PAGE["ink"].light, PAGE["soft"].light, "#c7cdd4"
RIGHT, WRONG = BIT_COLOURS[1].light, BIT_COLOURS[20].light  # a prediction; always with a word beside it
MAP = "Blues"  # of a confusion matrix: light to dark, which no eye mistakes


def bits_colour(bits: int | None) -> str:
    """The colour of a method with so many bits in a plot."""
    return BIT_COLOURS.get(bits or 0, OTHER_BITS).light


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
