"""The shape of an image: height, width and channels."""

from __future__ import annotations

from collections.abc import Sequence

from annealfit._support.errors import InvalidInputError


def with_channels(shape: Sequence[int]) -> tuple[int, int, int]:
    """(H, W, channels) of a shape that may leave the one channel of grey images out.

    >>> with_channels((8, 8)), with_channels((4, 6, 3))
    ((8, 8, 1), (4, 6, 3))
    """
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise InvalidInputError(f"an image shape is (H, W) or (H, W, channels), not {tuple(shape)}")
    height, width, channels = (*shape, 1)[:3]
    return int(height), int(width), int(channels)
