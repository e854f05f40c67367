"""`annealfit train FOLDER` chooses size, colour and network, says so, and can be overridden and resumed."""

import json
import subprocess
import sys

import numpy as np
import pytest

from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit.cli.training import _choose_network
from annealfit.studies.image_choice import choose_network, layers_for

image, drawing = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.ImageDraw")
LONG_ENOUGH = ("--time-limit", 900, "--no-plots", "--json")  # all ends by iterations


def corners(kind):
    """Corners on a circle of radius 1, at angle 0."""
    if kind == "star":
        return [(np.exp(1j * np.pi * k / 5) * (1 if k % 2 else 0.45)) for k in range(10)]
    count = {"triangle": 3, "square": 4, "circle": 60}[kind]
    return [np.exp(2j * np.pi * k / count) for k in range(count)]


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Four plain shapes, dark on light, anywhere, of several sizes, turned."""
    folder, generator = tmp_path_factory.mktemp("shapes"), np.random.default_rng(0)
    for kind in ("circle", "square", "star", "triangle"):
        (folder / kind).mkdir()
        for number in range(48):
            picture = image.new("L", (192, 192), 230)
            radius = generator.uniform(35, 60)
            centre = complex(*generator.uniform(radius, 192 - radius, 2))
            turned = radius * np.exp(1j * generator.uniform(0, 7))
            points = [centre + turned * point for point in corners(kind)]
            drawing.Draw(picture).polygon([(point.real, point.imag) for point in points], fill=30)
            picture.resize((48, 48)).save(folder / kind / f"{number}.png")
    return folder


def train(*arguments):
    command = [sys.executable, "-m", "annealfit", "train", *map(str, (*arguments, *LONG_ENOUGH))]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_four_shapes_without_a_flag(shapes, tmp_path):
    result = train(shapes, "--max-iter", 150, "--out", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    (record,) = json.loads(result.stdout).values()
    assert record["test"]["accuracy"] >= 0.9
    assert "144 training images of 32×32 pixels (--size)" in result.stderr
    assert "of 29 images held out" in result.stderr
    assert "Chosen: grey, filters (8, 16) of 5×5" in result.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["image_size"], config["color"], config["classifier"]["shifts"]) == (32, False, 1)
    command = [sys.executable, "-m", "annealfit", "predict", tmp_path / "run", shapes / "star", "--json"]
    answers = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    stars = [max(answer["classes"], key=answer["classes"].get) == "star" for answer in answers]
    assert sum(stars) >= 40
    again = train(shapes, "--max-iter", 160, "--out", tmp_path / "run", "--resume")
    assert again.returncode == 0, again.stderr
    assert "held out" not in again.stderr  # the choice is that of the run


def test_options_override_the_choice(shapes, tmp_path):
    result = train(shapes, "--size", 16, "--filters", 3, "--max-iter", 5, "--out", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert "Chosen" not in result.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["image_size"], config["features"]["n_filters"], "choice" in config) == (16, 3, False)


def test_colour_is_chosen_where_it_tells_the_classes_apart():
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1], 30)
    images = generator.uniform(0, 0.2, (60, 12, 12, 3))
    images[..., 0] += np.where(labels, 0.5, 0)[:, None, None]
    images[..., 1] += np.where(labels, 0, 0.5 * 0.299 / 0.587)[:, None, None]  # as bright
    found = choose_network(images, labels, color=None, seed=0, time_limit=900)
    assert found.color
    assert len(found.tried) == 4
    grey = choose_network(images, labels, color=False, seed=0, time_limit=900)
    assert not grey.color
    assert max(grey.tried.values()) < max(found.tried.values())


def test_few_images_are_not_held_out():
    found = choose_network(np.zeros((8, 8, 8)), np.repeat([0, 1], 4), color=None, seed=0, time_limit=9)
    assert found.tried == {}
    assert "fewer than 5 training images" in found.describe()


@pytest.mark.parametrize("side", [3, 4, 7, 8, 12, 16, 28, 32, 64])
def test_networks_fit_images_of_any_size(side):
    from annealfit import RandomConvFeatures

    images = np.random.default_rng(0).random((2, side, side))
    for layers in layers_for(side).values():
        found = RandomConvFeatures(**layers, random_state=0).fit_transform(images)
        assert found.shape[1] % np.atleast_1d(layers["n_filters"])[-1] == 0
        assert (found[0] != found[1]).any()


CHOICE = {
    "layers": {"n_filters": [8, 16], "kernel_size": 3, "pool_size": [2, 1]},
    **{"color": False, "shifts": 1, "seconds": 3.5, "max_iter": 500, "held_out": 6},
}


def resumed(folder, document):
    (folder / "config.json").write_text(document if isinstance(document, str) else json.dumps(document))
    return _choose_network(None, None, None, 0, 1.0, folder, True)


def test_the_choice_of_a_run_is_that_of_its_configuration(tmp_path):
    assert resumed(tmp_path, {"image_size": 9, "choice": CHOICE}) == (9, CHOICE)
    with pytest.raises(InvalidInputError, match="given by options"):
        resumed(tmp_path, {"image_size": 9})


@pytest.mark.parametrize(
    "document",
    [
        *('{"choice":', "[]", "\ufffe", {"image_size": 9, "choice": 1}, {"image_size": 9, "choice": {}}),
        *({"image_size": size, "choice": CHOICE} for size in (None, 0, "x", 1.5)),
        *({"image_size": 9, "choice": CHOICE | change} for change in ({"color": 1}, {"seconds": -1}, {"shifts": "1"})),
        *({"image_size": 9, "choice": CHOICE | {"layers": layers}} for layers in ({}, {"n_filters": [8, None]}, 3)),
    ],
)
def test_a_damaged_configuration_is_named(tmp_path, document):
    with pytest.raises(FileFormatError, match=r"config\.json"):
        resumed(tmp_path, document)
