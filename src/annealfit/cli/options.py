"""The options that commands share; each is described once, here, and means the same in every command."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, cast

import typer

from annealfit._support.errors import InvalidInputError, choose
from annealfit.data.datasets import DATASETS
from annealfit.data.datasets.resizing import METHODS
from annealfit.data.datasets.subsets import Size
from annealfit.problems.coordinates import COORDINATES
from annealfit.problems.export import FORMATS
from annealfit.samplers.catalogue import SAMPLERS
from annealfit.studies import store

Format = StrEnum("Format", list(FORMATS))  # type: ignore[misc]
HistoryFormat = StrEnum("HistoryFormat", list(store.HISTORY_FORMATS))  # type: ignore[misc]


class Preset(StrEnum):
    """Which settings a training starts from."""

    annealfit = "annealfit"
    literal = "literal"
    matched = "matched"


DatasetArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATASET",
        help=f"One of {', '.join(DATASETS)}; or a folder with a subfolder of images per class; or an npz file. "
        "To train: a table of features too, .npy, .npz or Parquet.",
    ),
]
LabelsOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN|FILE", help="Labels of a table: a column of Parquet, or a .npy file with one per row."
    ),
]
TrainSizeOption = Annotated[
    str | None, typer.Option(metavar="N|all", help="Images or rows to train on. Default: the paper's number, or all.")
]
TestSizeOption = Annotated[
    str | None,
    typer.Option(metavar="N|all", help="Images or rows to test on. Default: the paper's number, or a quarter."),
]
ResizeOption = Annotated[str, typer.Option(help=f"How images are resized: {', '.join(METHODS)}.")]
OnDiskOption = Annotated[
    bool,
    typer.Option("--on-disk", help="Keep features in a temporary file; by itself where they are large for the memory."),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Work the sums over rows out on a Dask cluster, as tcp://10.0.0.1:8786."),
]
BaselinesOption = Annotated[
    bool | None,
    typer.Option(
        "--baselines/--no-baselines",
        help="SGD and logistic regression beside it. Default: where features are in memory.",
    ),
]
RegularizationOption = Annotated[float | None, typer.Option(help="λ of the penalty on the weights. Default: 0.001.")]
TolOption = Annotated[
    float | None, typer.Option(help="Stop where the loss is certified to be so close to its least, relatively.")
]
TimeLimitOption = Annotated[float | None, typer.Option(help="Stop after so many seconds of training.")]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other setting of AnnealedClassifier, as curvature=bound or validation_fraction=0.1; repeatable.",
    ),
]
SizeOption = Annotated[int, typer.Option(help="Side of the images after resizing.")]
DownloadOption = Annotated[
    bool, typer.Option("--download", help="Fetch the data set's files if they are not there yet.")
]
PresetOption = Annotated[
    Preset,
    typer.Option(
        help="annealfit: our defaults. literal: the paper's Algorithm 1 as printed. matched: the same, cooled further."
    ),
]
BitsOption = Annotated[
    int | None,
    typer.Option(help="Bits per weight update, 1 to 30. Default: 3, or 20 with a preset of the paper."),
]
TrainFiltersOption = Annotated[
    bool,
    typer.Option(
        "--train-filters",
        help="Train the filters too, by QUBOs, one per filter; beside it the same network frozen, and by Adam.",
    ),
]
FiltersOption = Annotated[int, typer.Option(help="Random convolution filters.")]
LayersOption = Annotated[str, typer.Option(help="Convolution filters; 16,32 are those of two layers.")]
KernelsOption = Annotated[str, typer.Option(help="Kernel size of the filters, or one per layer.")]
PoolsOption = Annotated[str, typer.Option(help="Max-pooling size, or one per layer.")]
ColorOption = Annotated[bool, typer.Option("--color", help="Keep colours; otherwise images become grey.")]
ImagesOption = Annotated[
    str | None,
    typer.Option(
        metavar="N|all",
        help="Images to train on; all takes all of both parts, to train and to test on.",
        show_default="the paper's number",
    ),
]
KernelOption = Annotated[int, typer.Option(help="Kernel size of the filters.")]
PoolOption = Annotated[int, typer.Option(help="Max-pooling size.")]
StandardizeOption = Annotated[
    str,
    typer.Option(help="none, pixels or features: what gets mean 0 and variance 1 over the training data."),
]
SamplerOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:SETTING=VALUE,…]",
        help=f"What solves the QUBOs: {', '.join(SAMPLERS)}. mock-qpu rehearses on a simulated D-Wave chip.",
        show_default="levels",
    ),
]
BlocksOption = Annotated[
    int | None,
    typer.Option(help="Solve problems in blocks of at most so many variables: for those larger than a chip."),
]
CoordinatesOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,…",
        help=f"Bases in which the bits are chosen, any of {', '.join(COORDINATES)}. The paper's is raw.",
    ),
]
SeedOption = Annotated[int, typer.Option(help="Decides the split, the filters, the initial weights and every anneal.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def parse_numbers(text: str, option_name: str) -> list[int]:
    """The whole numbers that the value of an option lists, with a dash for a range.

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
        numbers += span
    return numbers


def parse_sizes(text: str, option_name: str) -> int | tuple[int, ...]:
    """A number, or one for every layer.

    >>> parse_sizes("2", "--filters"), parse_sizes("16,32", "--filters")
    (2, (16, 32))
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InvalidInputError(f"{option_name} is {text!r}; write a whole number above 0, or one per layer as 16,32")
    sizes = tuple(map(int, parts))
    return sizes[0] if len(sizes) == 1 else sizes


def parse_subset(images: str | None, n_train: str | None, n_test: str | None) -> dict[str, Any]:
    """Which images or rows to load, as `load_dataset` takes it: --images is for both parts, the others for one.

    >>> parse_subset("all", None, "500"), parse_subset("500", None, None)
    ({'n_train': 'all', 'n_test': 500}, {'n_train': 500})
    """
    both = parse_size(images, "--images")
    given: dict[str, Any] = {"n_train": both, "n_test": "all" if both == "all" else None}
    given |= {n: v for n, v in (("n_train", n_train), ("n_test", n_test)) if v is not None}
    named = {name: f"--{name.replace('_', '-')}" for name in given}
    return {n: parse_size(v, named[n]) if isinstance(v, str) else v for n, v in given.items() if v is not None}


def parse_size(text: str | None, option_name: str) -> Size | None:
    """A number of images or rows, or "all".

    >>> parse_size("60000", "--n-train"), parse_size("all", "--n-train")
    (60000, 'all')
    """
    if text is None or text == "all":
        return cast(Size | None, text)
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInputError(f"{option_name} is {text!r}; give a whole number above 0, or all")
    return int(text)


def parse_settings(given: Sequence[str] | None, estimator: Any) -> dict[str, Any]:
    """Settings of an estimator, from words such as `curvature=bound`; numbers, True, False and None are such."""
    known, found = estimator.get_params(deep=False), {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or name not in known or name in _NOT_BY_WORD:
            words = ", ".join(sorted(known.keys() - _NOT_BY_WORD))
            raise InvalidInputError(f"--set {text!r}: write NAME=VALUE, the name one of {words}")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


# They have options of their own, or are objects.
_NOT_BY_WORD = frozenset(
    {"bits", "max_iter", "sampler", "random_state", "callbacks", "checkpoint", "checkpoint_every", "resume", "verbose"}
)


def parse_coordinates(text: str | None, usual: tuple[str, ...] = ("raw", "centred")) -> tuple[str, ...]:
    """The coordinates that the value of the option lists, each once.

    >>> parse_coordinates("centred, raw"), parse_coordinates(None)
    (('centred', 'raw'), ('raw', 'centred'))
    """
    if text is None:
        return usual
    return tuple(dict.fromkeys(choose("coordinates", part.strip(), COORDINATES) for part in text.split(",")))
