"""The palette is for every eye: colours are told apart under colour blindness, and stand out from the ground."""

from itertools import combinations

import numpy as np
import pytest

from annealfit.studies.report.drawing import BIT_COLOURS, PAGE, SERIES, css_variables

# Machado, Oliveira, Fernandes (2009), severity 1.0: what linear RGB looks like to a dichromat.
VISIONS = {
    "full colour vision": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])
CLEARLY_DIFFERENT = 18.0  # in CIE Lab, where 2.3 is just noticeable; Okabe and Ito's palette has 16 between its nearest


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    ratios = TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
    f = np.where(ratios > (6 / 29) ** 3, np.cbrt(ratios), ratios / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(first: str, second: str) -> float:
    dark, light = sorted(TO_XYZ[1] @ linear(colour) for colour in (first, second))
    return float((light + 0.05) / (dark + 0.05))


@pytest.mark.parametrize("ground", ["light", "dark"])
@pytest.mark.parametrize("vision", VISIONS)
def test_series_can_be_told_apart(vision, ground):
    seen = {bits: lab(VISIONS[vision] @ linear(getattr(colour, ground))) for bits, colour in BIT_COLOURS.items()}
    distances = {(a, b): float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(seen, 2)}
    nearest = min(distances, key=distances.__getitem__)
    assert distances[nearest] >= CLEARLY_DIFFERENT, f"{nearest} bits"


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_colours_stand_out_from_their_ground(ground):
    def on(name: str, below: str) -> float:
        return contrast(getattr(PAGE[name], ground), getattr(PAGE[below], ground))

    # WCAG 2.2: 3 for what is drawn (1.4.11), 4.5 for what is read (1.4.3).
    assert (
        min(contrast(getattr(colour, ground), getattr(PAGE["paper"], ground)) for colour in BIT_COLOURS.values()) >= 3
    )
    assert min(on(name, below) for name in ("ink", "soft", "link") for below in ("paper", "panel")) >= 4.5
    assert min(on("near", "near-ground"), on("far", "far-ground"), on("warning", "warning-ground")) >= 4.5
    assert min(on("soft", below) for below in ("near-ground", "far-ground")) >= 4.5
    assert on("focus", "paper") >= 3


def test_plots_and_page_have_the_same_colours():
    assert set(SERIES) == {colour.light for colour in BIT_COLOURS.values()}
    assert all(colour in css_variables() for colour in SERIES)
