"""One way to read an image: a file gets the answer that the same image from the data set gets."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit.data.datasets import ImagePreparation, is_available, read_image
from annealfit.models.image_classifier import ImageClassifier

SHARED = Path(__file__).parents[2] / "shared" / "data"
DIRECTORY = os.environ.get("ANNEALFIT_DATA") or (str(SHARED) if SHARED.is_dir() else None)
ORIENTATION = 0x0112  # EXIF's tag; 6: rotate by 90° clockwise to see it upright


def annealfit(*arguments):
    result = subprocess.run(
        [sys.executable, "-m", "annealfit", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "ANNEALFIT_DATA": DIRECTORY or ""},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_300_mnist_images_as_files_get_the_labels_they_get_from_the_data_set(tmp_path):
    if DIRECTORY is None or not is_available("mnist", DIRECTORY):
        pytest.skip("mnist is not there: set ANNEALFIT_DATA, or run `annealfit datasets fetch mnist`")
    annealfit("train", "mnist", "--max-iter", 30, "--out", tmp_path / "run")
    whole, small = (load_dataset("mnist", seed=7, n_test=300, size=size, data_dir=DIRECTORY) for size in (None, 8))
    paths = [tmp_path / f"{number}.png" for number in range(300)]
    for path, image in zip(paths, whole.X_test, strict=True):
        Image.fromarray(np.rint(255 * image).astype(np.uint8)).save(path)
    model = ImageClassifier.load(tmp_path / "run" / "model.safetensors")
    expected = [model.class_names[index] for index in model.predict_proba(small.X_test).argmax(axis=1)]
    answers = json.loads(annealfit("predict", tmp_path / "run", *paths, "--top", 1, "--json"))
    assert [next(iter(answer["classes"])) for answer in answers] == expected


@pytest.mark.parametrize("resize", ["area", "bilinear", "nearest"])
@pytest.mark.parametrize("color", [False, True])
def test_a_model_remembers_how_its_images_were_made(tmp_path, resize, color):
    """Also where files have another size than the model's images, and are in colour."""
    generator = np.random.default_rng(0)
    for label, tint in (("blue", (0.2, 0.3, 0.9)), ("red", (0.9, 0.3, 0.2))):
        (tmp_path / "own" / label).mkdir(parents=True)
        for number in range(12):
            pixels = np.clip(generator.random((11, 13, 1)) * np.array(tint), 0, 1)
            Image.fromarray(np.rint(255 * pixels).astype(np.uint8)).save(tmp_path / "own" / label / f"{number}.png")
    data = load_dataset(tmp_path / "own", size=7, color=color, resize=resize, seed=1, n_test=4)
    features = RandomConvFeatures(random_state=0)
    head = AnnealedClassifier(max_iter=10, random_state=0).fit(features.fit_transform(data.X_train), data.y_train)
    ImageClassifier(features, head, data.class_names, data.preparation).save(tmp_path / "model.safetensors")
    model = ImageClassifier.load(tmp_path / "model.safetensors")
    assert (model.preparation.color, model.preparation.resize) == (color, resize)
    read = {model.read_image(path).tobytes() for path in sorted((tmp_path / "own").rglob("*.png"))}
    seen = {np.ascontiguousarray(image).tobytes() for image in np.concatenate([data.X_train, data.X_test])}
    assert seen <= read


def files(folder):
    """The same picture as 8 bits, 16 bits, with transparency, and lying on its side with a note to turn it."""
    grey = np.zeros((8, 12), np.uint8)
    grey[2:6, 1:4] = 255
    Image.fromarray(grey).save(folder / "plain.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(folder / "sixteen.png")
    ink = np.dstack([np.zeros((8, 12, 3), np.uint8), 255 - grey])  # black ink; where there is none, paper is white
    Image.fromarray(ink).save(folder / "transparent.png")
    deep = grey.astype(np.uint16) * 257
    (folder / "map.pgm").write_bytes(b"P5 12 8 65535\n" + deep.astype(">u2").tobytes())
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    Image.fromarray(np.ascontiguousarray(np.rot90(grey))).save(folder / "turned.png", exif=exif)
    return {path.stem: path for path in folder.iterdir() if path.is_file()}, grey / 255


def test_deep_transparent_and_turned_files_are_read_rightly_in_training_and_prediction(tmp_path):
    found, picture = files(tmp_path)
    for path in found.values():
        np.testing.assert_allclose(read_image(path).mean(axis=2), picture, atol=1e-12)
    for label in ("one", "two"):
        (tmp_path / "own" / label).mkdir(parents=True)
        for number, path in enumerate(found.values()):
            (tmp_path / "own" / label / f"{number}{path.suffix}").write_bytes(path.read_bytes())
    data = load_dataset(tmp_path / "own", size=6, n_test=2)
    expected = ImagePreparation((6, 6))(picture[None])[0]
    for image in data.X_train:
        np.testing.assert_allclose(image, expected, atol=1e-12)
    features = RandomConvFeatures(random_state=0)
    head = AnnealedClassifier(max_iter=1, random_state=0).fit(features.fit_transform(data.X_train), data.y_train)
    model = ImageClassifier(features, head, data.class_names, data.preparation)
    for path in found.values():
        np.testing.assert_allclose(model.read_image(path)[..., 0], expected, atol=1e-12)


def test_what_is_no_image_is_refused(tmp_path):
    (tmp_path / "note.png").write_text("no image")
    with pytest.raises(FileFormatError, match=r"note.png is not a readable image.*; repair or remove it"):
        read_image(tmp_path / "note.png")
    with pytest.raises(FileNotFoundError):
        read_image(tmp_path / "nowhere.png")
    with pytest.raises(InvalidInputError, match="resize is 'magic'"):
        ImagePreparation(resize="magic")
