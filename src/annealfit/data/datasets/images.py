"""An image as a model sees it: read from a file in one way, made grey and resized in one way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, choose, require
from annealfit._support.files import BoundedReader, StrPath, check_regular
from annealfit.data.datasets import resizing
from annealfit.data.datasets.errors import CorruptFileError

# Numbers in double precision take 24 bytes per pixel; more than this is no picture that a model looks at.
MOST_PIXELS = 24_000_000


@dataclass(frozen=True)
class ImagePreparation:
    """What is done to images between the file and the model; a model remembers it.

    >>> ImagePreparation(size=(2, 2))(np.ones((1, 4, 4, 3))).round(12).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    """

    size: tuple[int, int] | None = None  # height and width; None keeps what comes
    color: bool = False
    resize: str = "area"  # see `resizing`

    def __post_init__(self) -> None:
        choose("resize", self.resize, resizing.METHODS)

    def __call__(self, images: NDArray[np.float64]) -> NDArray[np.float64]:
        """Images (N, H, W), or (N, H, W, 3) in colour, from images (N, H, W) or (N, H, W, 3) with values in [0, 1]."""
        chosen = images if self.color else resizing.to_grey(images)
        height, width = images.shape[1:3] if self.size is None else self.size
        return np.clip(resizing.resize(chosen, height, width, self.resize), 0.0, 1.0)  # cubic and lanczos overshoot


def read_image(path: StrPath) -> NDArray[np.float64]:
    """An image (H, W, 3) in [0, 1], upright; what is transparent becomes white, the colour of paper."""
    pillow = require("PIL.Image", extra="images", purpose="reading image files")
    orient = require("PIL.ImageOps", extra="images", purpose="reading image files").exif_transpose
    check_regular(path)  # which a pipe among images is not: reading it would wait for ever
    try:
        with BoundedReader(path) as content, pillow.open(content) as file:
            _check_pixels(path, *file.size)  # which the header states, before room is made for them
            image, kind = orient(file), file.format
            image.load()
    except (FileNotFoundError, FileFormatError):
        raise
    except pillow.DecompressionBombError as error:
        raise FileFormatError(f"{path} has too many pixels to be read safely: {error}; make it smaller") from error
    except pillow.UnidentifiedImageError as error:
        raise CorruptFileError(f"{path} is not a readable image; repair or remove it") from error
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow's readers raise on foreign or damaged files
        raise CorruptFileError(f"{path} is not a readable image: {error}; repair or remove it") from error
    if image.mode.startswith("I;16") or (image.mode == "I" and kind == "PPM"):
        return _read_deep(image)
    if image.mode in ("I", "F"):
        raise FileFormatError(
            f"{path} has 32-bit pixels (mode {image.mode}), and which value is white is unknown; "
            f"save it with 8 or 16 bits"
        )
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = pillow.alpha_composite(pillow.new("RGBA", image.size, "white"), image)
    pixels = np.asarray(image.convert("RGB"), dtype=np.float64)
    pixels /= 255.0
    return pixels


def _check_pixels(path: StrPath, width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        raise FileFormatError(
            f"{path} has {width} × {height} pixels, and {MOST_PIXELS:,} are the most that are read; make it smaller"
        )


def _read_deep(image: Any) -> NDArray[np.float64]:
    """16 bits per pixel, of which Pillow's conversions would clip everything above 255; a portable map's too."""
    pixels = np.asarray(image, dtype=np.float64)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        pixels = np.where(pixels == transparent, 65535.0, pixels)
    return np.repeat(pixels[..., None] / 65535.0, 3, axis=2)
