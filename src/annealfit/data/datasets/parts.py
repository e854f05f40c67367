"""What reading a data set gives: labelled images, of which loading picks only those it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Images are turned into floating point, and resized, this many at a time: 26 MB of 28×28.
_STACK = 4096


@dataclass(frozen=True, eq=False)
class Part:
    """Labelled images of which any can be picked.

    `pick(indices)` gives those images in that order, with values in [0, 1], as stacks (n, H, W) or
    (n, H, W, 3); within a stack all images have one size.
    """

    labels: NDArray[np.intp]
    pick: Callable[[NDArray[np.intp]], Iterator[NDArray[np.float64]]]
    has_color: bool = False


@dataclass(frozen=True, eq=False)
class Parts:
    """The training and the test part; a data set that comes as one has no test part and is split by seed."""

    train: Part
    test: Part | None
    class_names: tuple[str, ...]


def array_part(images: NDArray[Any], labels: NDArray[Any], white: float) -> Part:
    """A part from arrays (N, H, W) or (N, H, W, 3) whose values go from 0 to `white`.

    >>> part = array_part(np.full((3, 2, 2), 255, np.uint8), np.array([0, 1, 1]), 255)
    >>> [stack.tolist() for stack in part.pick(np.array([2]))]
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """

    def pick(indices: NDArray[np.intp]) -> Iterator[NDArray[np.float64]]:
        for start in range(0, len(indices), _STACK):
            yield images[indices[start : start + _STACK]] / float(white)

    return Part(labels.astype(np.intp), pick, has_color=images.ndim == 4)
