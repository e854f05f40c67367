"""The network for a user's own images: colour and layers that do best on images held out for the choice."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from annealfit.data.datasets.images import to_grey
from annealfit.models import AnnealedConvNet

SIZE = 32  # side of the images, if no smaller: enough for shapes, and a network of it trains in seconds
MAX_ITER = 500
HELD_OUT = 0.2
LEAST = 5  # training images of a class, of which one can be held out
MOST = 1000  # images that the choice is made on
SHARE = 0.5  # of the time for the choice
PATIENCE = 40
CHROMA = 0.01  # mean deviation from grey above which images have colour
MOST_SHIFTED = 2000  # training images of which shifted copies are trained on as well


@dataclass(frozen=True)
class NetworkChoice:
    """A network, and the accuracy on held-out images of all that were tried: none where there were too few images."""

    color: bool
    layers: dict[str, Any]  # parameters of `AnnealedConvNet`
    shifts: int
    tried: dict[str, float]
    held_out: int
    seconds: float

    def describe(self) -> str:
        """Return the choice in a sentence."""
        count, kernel = self.layers["n_filters"], self.layers["kernel_size"]
        copies = ", on copies shifted by a pixel too" if self.shifts else ""
        why = "" if self.tried else f" without a comparison, as a class has fewer than {LEAST} training images"
        color = "colour" if self.color else "grey"
        return f"Chosen{why}: {color}, filters {count} of {kernel}×{kernel}{copies}; trained on all training images."


def layers_for(side: int) -> dict[str, dict[str, Any]]:
    """Return the networks to compare for images of this size, by what they know of places.

    >>> layers_for(32)["places do not matter"]
    {'n_filters': (8, 16), 'kernel_size': 5, 'pool_size': (2, 10)}
    """
    kernel = 5 if side >= 16 else 3
    first = side - kernel + 1
    second = first // 2 - kernel + 1
    found: dict[str, dict[str, Any]] = {
        "places matter": {"n_filters": 16, "kernel_size": kernel, "pool_size": max(1, first // 4)}
    }
    if second >= 1:
        found["places do not matter"] = {"n_filters": (8, 16), "kernel_size": kernel, "pool_size": (2, second)}
    return found


def choose_network(
    X: NDArray[Any],
    y: NDArray[Any],
    *,
    color: bool | None,
    seed: int,
    time_limit: float,
    tell: Callable[[str], None] = lambda line: None,
) -> NetworkChoice:
    """Train every candidate for a while on four fifths of the images (N, H, W[, 3]), and compare them on the others.

    `color` None compares grey and coloured images too, if they have colour. `tell` is called with a line for each.
    """
    start = time.perf_counter()
    shifts = int(len(y) <= MOST_SHIFTED)
    has_color = X.ndim == 4 and bool(np.abs(X - X.mean(axis=3, keepdims=True)).mean() > CHROMA)
    colors = [False, True] if color is None and has_color else [bool(color)]
    layers = layers_for(min(X.shape[1:3]))
    if np.bincount(y)[np.unique(y)].min() < LEAST:
        return NetworkChoice(colors[0], [*layers.values()][-1], shifts, {}, 0, 0.0)
    kept = np.arange(len(y))
    if len(y) > MOST:
        kept, _ = train_test_split(kept, train_size=MOST, stratify=y, random_state=seed)
    train, held_out = train_test_split(kept, test_size=HELD_OUT, stratify=y[kept], random_state=seed)
    settings: dict[str, Any] = {"max_iter": MAX_ITER, "patience": PATIENCE, "early_stopping": True}
    settings |= {"time_limit": SHARE * time_limit / (len(colors) * len(layers)), "random_state": seed}
    found: dict[tuple[bool, str], tuple[float, float]] = {}
    tried: dict[str, float] = {}
    for colored, name in product(colors, layers):
        images = X if colored else to_grey(X)
        net = AnnealedConvNet(**layers[name], **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the training that counts comes later
            net.fit(images[train], y[train], validation_data=(images[held_out], y[held_out]))
        best: Any = net.history_[net.best_iteration_ - 1]
        accuracy = float(net.score(images[held_out], y[held_out]))
        found[colored, name] = accuracy, -best["validation_loss"]  # the loss breaks ties
        text = f"{'Colour' if colored else 'Grey'}, {name}"
        tried[text] = accuracy
        tell(f"{text}: {accuracy:.1%} of {len(held_out)} images held out")
    colored, name = max(found, key=lambda candidate: found[candidate])
    return NetworkChoice(colored, layers[name], shifts, tried, len(held_out), time.perf_counter() - start)
