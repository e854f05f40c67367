"""Labelled images, and what is done to them between a file and a model: reading, grey conversion, resizing.

Resizing is separable: with weights R (h, H) and C (w, W), whose rows sum to 1, an image P (H, W) becomes R P Cᵀ (h, w).
When an image shrinks, the kernels widen with the reduction, so that every pixel counts (antialiasing); "nearest" and
"zoom" are the exceptions: they look at one pixel and at two. A new method is a function from (n_in, n_out) to the
weights, and its name in `RESIZE_METHODS`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import FileFormatError, InvalidInputError, choose, require
from annealfit._support.files import BoundedReader, StrPath, check_regular
from annealfit.data.datasets.formats import CorruptFileError, DataWarning
from annealfit.data.rows import SlicedTable

MAX_PIXELS = 24_000_000  # of an image file; in double precision a pixel takes 24 bytes
_STACK = 4096  # images that are converted and resized at a time: 26 MB of 28×28
# Of red, green and blue: ITU-R BT.601, and the mean of the channels.
GREY_WEIGHTS = {"luma": np.array([0.299, 0.587, 0.114]), "mean": np.full(3, 1 / 3)}


@dataclass(frozen=True, eq=False)
class Part:
    """Labelled images that are read by index: an array (N, H, W) or (N, H, W, 3), or image files."""

    labels: NDArray[np.intp]
    images: NDArray[Any] | Sequence[Path]
    white: float = 1.0  # the largest value of an array

    @property
    def has_color(self) -> bool:
        """Whether images have three channels, as all image files do."""
        return not isinstance(self.images, np.ndarray) or self.images.ndim == 4

    def pick(self, indices: NDArray[np.intp]) -> Iterator[Array]:
        """Yield these images, with values in [0, 1], as stacks (n, H, W) or (n, H, W, 3) of one size each."""
        if isinstance(self.images, np.ndarray):
            for start in range(0, len(indices), _STACK):
                yield self.images[indices[start : start + _STACK]] / float(self.white)
        else:
            for index in indices:
                try:
                    image = read_image(self.images[index])
                except (FileFormatError, OSError):
                    readable_images(self.images)  # names all that are wrong
                    raise
                yield image[None]


@dataclass(frozen=True, eq=False)
class Parts:
    """The training and test part of a data set; one that comes as a single pool has no test part."""

    train: Part
    test: Part | None
    class_names: tuple[str, ...]
    remarks: tuple[str, ...] = ()  # on files that are missing or not the official ones

    @property
    def given(self) -> tuple[Part, ...]:
        """The parts there are: one or two."""
        return (self.train,) if self.test is None else (self.train, self.test)


@dataclass(frozen=True)
class ImagePreparation:
    """Grey conversion and resizing of images; a model stores the preparation of its training images.

    >>> ImagePreparation(size=(2, 2))(np.ones((1, 4, 4, 3))).round(12).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    """

    size: tuple[int, int] | None = None  # height and width; None keeps the native size
    color: bool = False
    resize: str = "area"  # a key of RESIZE_METHODS
    grey: str = "luma"  # a key of GREY_WEIGHTS

    def __post_init__(self) -> None:
        choose("resize", self.resize, RESIZE_METHODS)
        choose("grey", self.grey, GREY_WEIGHTS)

    def __call__(self, images: Array) -> Array:
        """Prepare images (N, H, W) or (N, H, W, 3) with values in [0, 1]; the result is (N, h, w) unless in colour."""
        chosen = images if self.color else to_grey(images, self.grey)
        height, width = images.shape[1:3] if self.size is None else self.size
        return np.clip(resize(chosen, height, width, self.resize), 0.0, 1.0)  # bicubic and lanczos overshoot


class ImageTable(SlicedTable):
    """The chosen images of a part, (N, H, W) or (N, H, W, 3), read and prepared anew for every slice."""

    def __init__(self, part: Part, chosen: NDArray[np.intp], preparation: ImagePreparation) -> None:
        self._part, self._chosen, self._preparation = part, chosen, preparation
        first = self[:1]
        self.source, self.shape, self.dtype = part, (len(chosen), *first.shape[1:]), first.dtype

    def __getitem__(self, rows: Any) -> Array:
        stacks = [self._preparation(stack) for stack in self._part.pick(self._chosen[rows])]
        if len({stack.shape[1:] for stack in stacks}) > 1:
            sizes = sorted({f"{stack.shape[1]}×{stack.shape[2]}" for stack in stacks})
            raise InvalidInputError(
                f"the images have different sizes ({', '.join(sizes[:4])}); give a size to resize them to"
            )
        return np.concatenate(stacks)


def readable_images(files: Sequence[Path], *, skip: bool = False) -> list[Path]:
    """Return the image files that can be read; one error names all others, or a warning if they are skipped."""
    wrong: dict[Path, Exception] = {}
    for file in files:
        try:
            read_image(file)
        except (FileFormatError, OSError) as error:
            wrong[file] = error
    if not wrong:
        return list(files)
    found = f"{len(wrong)} of {len(files)} images cannot be read: {', '.join(map(str, wrong))}"
    if skip and len(wrong) < len(files):
        warnings.warn(f"{found}; they are left out", DataWarning, stacklevel=2)
        return [file for file in files if file not in wrong]
    first, *others = wrong.values()
    if not others:
        raise first
    raise CorruptFileError(
        f"{found} (the first: {first}); repair or remove them, or leave them out: --skip-unreadable, in Python "
        "skip_unreadable=True"
    ) from first


def read_image(path: StrPath) -> Array:
    """Read an image file as (H, W, 3) in [0, 1], upright; transparent pixels become white, the colour of paper."""
    pillow = require("PIL.Image", extra="images", purpose="reading image files")
    orient = require("PIL.ImageOps", extra="images", purpose="reading image files").exif_transpose
    check_regular(path)
    try:
        with BoundedReader(path) as content, pillow.open(content) as file:
            width, height = file.size  # as the header states, before memory is allocated
            if width * height > MAX_PIXELS:
                raise FileFormatError(
                    f"{path} has {width} × {height} pixels, and {MAX_PIXELS:,} are the most that are read; "
                    "make it smaller"
                )
            image, kind = orient(file), file.format
            image.load()
    except (FileNotFoundError, PermissionError, FileFormatError):
        raise
    except pillow.DecompressionBombError as error:
        raise FileFormatError(f"{path} has too many pixels to be read safely: {error}; make it smaller") from error
    except pillow.UnidentifiedImageError as error:
        raise CorruptFileError(f"{path} is not a readable image; repair or remove it") from error
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow's readers raise on damaged files
        raise CorruptFileError(f"{path} is not a readable image: {error}; repair or remove it") from error
    if image.mode.startswith("I;16") or (image.mode == "I" and kind == "PPM"):  # Pillow's own conversions clip at 255
        pixels, transparent = np.asarray(image, dtype=np.float64), image.info.get("transparency")
        if isinstance(transparent, int):
            pixels = np.where(pixels == transparent, 65535.0, pixels)
        return np.repeat(pixels[..., None] / 65535.0, 3, axis=2)
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


def to_grey(images: Array, method: str = "luma") -> Array:
    """Convert colour (N, H, W, 3) to grey (N, H, W); grey images are returned unchanged."""
    return images if images.ndim == 3 else images @ GREY_WEIGHTS[method]


def resize(images: Array, height: int, width: int, method: str = "area") -> Array:
    """Resample images (N, H, W) or (N, H, W, channels) to `height` × `width`; the same size changes nothing.

    >>> resize(np.arange(16.0).reshape(1, 4, 4), 2, 2).tolist()
    [[[2.5, 4.5], [10.5, 12.5]]]
    """
    if images.shape[1:3] == (height, width):
        return images
    rows, columns = _weights(images.shape[1], height, method), _weights(images.shape[2], width, method)
    if images.ndim == 3:
        return rows @ images @ columns.T
    return np.moveaxis(rows @ np.moveaxis(images, 3, 1) @ columns.T, 1, 3)


@lru_cache(maxsize=64)
def _weights(n_in: int, n_out: int, method: str) -> Array:
    """Return the matrix (n_out, n_in) that resamples a line of pixels; each row sums to 1."""
    matrix = RESIZE_METHODS[method](n_in, n_out)
    matrix /= matrix.sum(axis=1, keepdims=True)
    matrix.setflags(write=False)
    return matrix


def _area(n_in: int, n_out: int) -> Array:
    """How much of output pixel i, [i s, (i+1) s] with s = n_in/n_out, each input pixel [j, j+1] covers."""
    edges = np.arange(n_out + 1) * (n_in / n_out)
    pixels = np.arange(n_in)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.maximum(overlap, 0.0)


def _nearest(n_in: int, n_out: int) -> Array:
    """The pixel under the centre (i + ½) n_in/n_out, in whole numbers so that no rounding moves it."""
    chosen = (2 * np.arange(n_out) + 1) * n_in // (2 * n_out)
    return np.eye(n_in)[chosen]


def _zoom(n_in: int, n_out: int) -> Array:
    """Linear interpolation between two pixels, first on first and last on last, as `scipy.ndimage.zoom(order=1)`."""
    positions = np.linspace(0.0, n_in - 1.0, n_out)[:, None]
    return np.maximum(1.0 - np.abs(positions - np.arange(n_in)), 0.0)


def _by_kernel(kernel: Callable[[Array], Array], support: float) -> Callable[[int, int], Array]:
    """Weights k((j + ½ − c)/r) around each output pixel's centre c, r = max(1, n_in/n_out)."""

    def matrix(n_in: int, n_out: int) -> Array:
        scale = n_in / n_out
        centres = (np.arange(n_out)[:, None] + 0.5) * scale
        distance = (np.arange(n_in) + 0.5 - centres) / max(scale, 1.0)
        return np.where(np.abs(distance) < support, kernel(distance), 0.0)

    return matrix


def _cubic(x: Array) -> Array:
    """Keys' cubic with a = −½, the value for which it reproduces quadratics."""
    x = np.abs(x)
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x < 1.0, near, far)


RESIZE_METHODS: dict[str, Callable[[int, int], Array]] = {
    "area": _area,
    "bilinear": _by_kernel(lambda x: 1.0 - np.abs(x), 1.0),
    "bicubic": _by_kernel(_cubic, 2.0),
    "lanczos": _by_kernel(lambda x: np.sinc(x) * np.sinc(x / 3.0), 3.0),
    "nearest": _nearest,
    "zoom": _zoom,
}
