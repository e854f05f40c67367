"""The options that several commands share, and the estimators, samplers and features that they describe."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import annealfit
from annealfit._support.errors import InvalidInputError, choose
from annealfit.data.datasets import DATASETS, load_dataset
from annealfit.problems.coordinates import COORDINATES
from annealfit.problems.export import FORMATS
from annealfit.samplers.catalogue import SAMPLERS, resolve_sampler
from annealfit.samplers.protocol import Sampler

if TYPE_CHECKING:
    from annealfit.studies import Prepared

Preset = StrEnum("Preset", ["annealfit", "literal", "matched"])  # the settings that a training starts from
Format = StrEnum("Format", list(FORMATS))  # type: ignore[misc]


Dataset = Annotated[
    str,
    Argument(
        metavar="DATASET",
        help=f"One of {', '.join(DATASETS)}; or a folder with a subfolder of images per class; or an npz file. "
        "To train: a table of features too, .npy, .npz or Parquet.",
    ),
]
ImageSize = Annotated[int, Option(help="Side of the images after resizing.")]
Download = Annotated[bool, Option("--download", help="Fetch the files of the data set if they are missing.")]
PresetOption = Annotated[
    Preset,
    Option(
        help="annealfit: our defaults. literal: the paper's Algorithm 1 as printed. matched: the same, cooled further."
    ),
]
Bits = Annotated[int | None, Option(help="Bits per weight update, 1 to 30. Default: 3, or 20 with a paper preset.")]
Filters = Annotated[int, Option(help="Random convolution filters.")]
Kernel = Annotated[int, Option(help="Kernel size of the filters.")]
Pool = Annotated[int, Option(help="Max-pooling size.")]
Standardize = Annotated[str, Option(help="none, pixels or features: what is scaled to mean 0 and variance 1.")]
SamplerOption = Annotated[
    str | None,
    Option(
        metavar="NAME[:SETTING=VALUE,…]",
        help=f"What solves the QUBOs: {', '.join(SAMPLERS)}. mock-qpu rehearses on a simulated D-Wave chip.",
        show_default="levels",
    ),
]
Blocks = Annotated[
    int | None, Option(help="Solve problems in blocks of at most so many variables: for those larger than a chip.")
]
Coordinates = Annotated[
    str | None,
    Option(
        metavar="NAME,…",
        help=f"Bases in which the bits are chosen, any of {', '.join(COORDINATES)}. The paper's is raw.",
    ),
]
Seed = Annotated[int, Option(help="Decides the split, the filters, the initial weights and every anneal.")]
Json = Annotated[bool, Option("--json", help="Print JSON instead of text.")]

_MOST_NUMBERS = 10_000  # of an option that lists some


def parse_numbers(text: str, option_name: str) -> list[int]:
    """The whole numbers that an option lists, each once; a dash is a range.

    >>> parse_numbers("1,2,5-8", "--bits")
    [1, 2, 5, 6, 7, 8]
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            span = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            span = range(0)
        if not span:
            raise InvalidInputError(
                f"{option_name} is {text!r}; write whole numbers as 3, 1-20 or 1,2,5-8; a range starts with the smaller"
            )
        if len(numbers) + span[-1] - span[0] >= _MOST_NUMBERS:  # before there is room for them
            raise InvalidInputError(f"{option_name} is {text!r}; it must be at most {_MOST_NUMBERS:,} numbers")
        numbers += span
    return list(dict.fromkeys(numbers))


def parse_layers(text: str, option_name: str) -> int | tuple[int, ...]:
    """A size, or one for every layer.

    >>> parse_layers("2", "--filters"), parse_layers("16,32", "--filters")
    (2, (16, 32))
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InvalidInputError(f"{option_name} is {text!r}; write a whole number above 0, or one per layer as 16,32")
    sizes = tuple(map(int, parts))
    return sizes[0] if len(sizes) == 1 else sizes


def parse_subset(images: str | None, n_train: str | None, n_test: str | None) -> dict[str, Any]:
    """The sizes of both parts as `load_dataset` takes them; `--images all` stands for both parts.

    >>> parse_subset("all", None, "500"), parse_subset("500", None, None)
    ({'n_train': 'all', 'n_test': 500}, {'n_train': 500})
    """
    for name, text in (("--images", images), ("--n-train", n_train), ("--n-test", n_test)):
        if text not in (None, "all") and not (text.isdecimal() and int(text) > 0):
            raise InvalidInputError(f"{name} is {text!r}; give a whole number above 0, or all")
    texts = {"n_train": n_train or images, "n_test": n_test or ("all" if images == "all" else None)}
    return {name: "all" if text == "all" else int(text) for name, text in texts.items() if text is not None}


def parse_coordinates(text: str | None, default: tuple[str, ...] = ("raw", "centred")) -> tuple[str, ...]:
    """The coordinates that the option lists, each once.

    >>> parse_coordinates("centred, raw"), parse_coordinates(None)
    (('centred', 'raw'), ('raw', 'centred'))
    """
    if text is None:
        return default
    return tuple(dict.fromkeys(choose("coordinates", part.strip(), COORDINATES) for part in text.split(",")))


# Parameters of estimators that have options of their own, or are objects.
_NOT_SETTABLE = frozenset(
    {"bits", "max_iter", "sampler", "random_state", "callbacks", "checkpoint", "verbose", "filter_method"}
)


def parse_settings(given: Sequence[str], estimator: Any) -> dict[str, Any]:
    """Parse `--set NAME=VALUE`: a parameter of the estimator or of its method; a Python literal, or else a word."""
    known = {name: name for name in estimator.get_params(deep=False).keys() - _NOT_SETTABLE}
    if "filter_method" in estimator.get_params(deep=False):
        known |= {name: f"filter_method__{name}" for name in annealfit.FilterMethod().get_params()}
        known |= {"trainable": "filter_method__layers", "filter_curvature": "filter_method__curvature"}
    known |= {name: f"method__{name}" for name in annealfit.Method().get_params()}
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            raise InvalidInputError(f"--set {text!r}: write NAME=VALUE, the name one of {', '.join(sorted(known))}")
        try:
            found[known[name]] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[known[name]] = value
    return found


def make_estimator(preset: Preset, train_filters: bool = False, settings: Sequence[str] = (), **options: Any) -> Any:
    """The estimator of a preset with the parameters of the options; None leaves a parameter as the preset has it."""
    given = {name: value for name, value in options.items() if value is not None}
    if train_filters and preset != Preset.annealfit:
        raise InvalidInputError(
            f"--train-filters goes with the preset annealfit, not with {preset}: the paper's filters stay as drawn"
        )
    if train_filters and "tol" in given:
        raise InvalidInputError("--tol needs a certificate, and there is none for filters; leave it out")
    if train_filters:
        estimator = annealfit.AnnealedConvNet(**given)
    elif preset == Preset.annealfit:
        estimator = annealfit.AnnealedClassifier(**given)
    else:
        paper = annealfit.AnnealedClassifier.from_paper(given.pop("bits", 20), preset=str(preset))
        estimator = paper.set_params(**given)
    return estimator.set_params(**parse_settings(settings, estimator))


def make_sampler(text: str | None, blocks: int | None, default: Sampler | str | None, seed: int) -> Sampler:
    """The sampler of `--sampler` and `--blocks`, or else the default one."""
    sampler = resolve_sampler(default if text is None else text, seed)
    return sampler if blocks is None else annealfit.samplers.BlockSampler(sampler, blocks)


def prepare_images(
    dataset: str, filters: int, kernel: int, pool: int, standardize: str, size: int, download: bool, seed: int
) -> Prepared:
    """The images of a data set and their random convolution features."""
    features = annealfit.RandomConvFeatures(
        n_filters=filters, kernel_size=kernel, pool_size=pool, standardize=standardize, random_state=seed
    )
    return annealfit.studies.Prepared.of(load_dataset(dataset, seed=seed, size=size, download=download), features)
