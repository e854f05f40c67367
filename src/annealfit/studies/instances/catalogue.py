"""The instances by name, and the lowest energy known of each.

The catalogue is the table below: each row stands for every combination of its choices. Rows are only ever added: a
published instance keeps its name, its coefficients and its digest.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from annealfit._support.errors import InvalidInputError

SEED = 42  # of the subset of images, the filters and the training
LATE = 5  # iterations of the training before a late problem
STAGES = {"first": 0, "late": LATE}
WITHIN = 1e-9  # of the best known energy: more than rounding, less than a difference that matters
RECORD_FILE = Path(__file__).with_name("best_known.json")


@dataclass(frozen=True)
class ImageFeatures:
    """What the features of an instance are computed from, and how."""

    dataset: str
    image_size: int
    filters: int
    kernel: int
    pool: int
    images: str = "drawn"  # 1,000 of the training part by the seed; "leading": the first of the test part

    @property
    def n_features(self) -> int:
        """`d = ⌊(size − kernel + 1)/pool⌋² · filters`."""
        return ((self.image_size - self.kernel + 1) // self.pool) ** 2 * self.filters


@dataclass(frozen=True)
class Instance:
    """One problem of one training: that of a class at the first iteration, or after some.

    >>> INSTANCES[0].name, INSTANCES[0].n_variables
    ('digits-d18-k1-raw-first-c0', 19)
    """

    features: ImageFeatures
    bits: int
    coordinates: str
    stage: str  # of `STAGES`
    class_index: int

    @property
    def name(self) -> str:
        """Data set, features d, bits K, coordinates, stage and class."""
        features = self.features
        start = f"{features.dataset}-d{features.n_features}-k{self.bits}"
        return f"{start}-{self.coordinates}-{self.stage}-c{self.class_index}"

    @property
    def n_variables(self) -> int:
        """`(d + 1)·K`."""
        return (self.features.n_features + 1) * self.bits


# Features, bits, classes; each in both coordinates and at both stages. The training parts of emnist and cifar10 come
# in copies that are not complete, or not in one order: their instances are made from the first 100 images of each
# class in the test part, of which there is one file.
_TABLE: tuple[tuple[ImageFeatures, tuple[int, ...], tuple[int, ...]], ...] = (
    # data set, side of the images, filters, kernel, pool
    (ImageFeatures("digits", 8, 2, 3, 2), (1, 2, 5, 10, 20), (0,)),  # d = 18
    (ImageFeatures("digits", 8, 2, 3, 2), (3,), (0, 3, 8)),
    (ImageFeatures("digits", 8, 4, 3, 2), (1, 2, 3, 5, 10), (0,)),  # 36
    (ImageFeatures("digits", 8, 8, 3, 2), (1, 2, 3), (0,)),  # 72
    (ImageFeatures("mnist", 8, 2, 3, 2), (1, 3), (0,)),  # 18
    (ImageFeatures("mnist", 8, 8, 3, 2), (1, 2, 3, 20), (1,)),  # 72
    (ImageFeatures("mnist", 16, 8, 5, 3), (1, 3), (2,)),  # 128
    (ImageFeatures("mnist", 28, 8, 5, 3), (1, 2, 3), (3,)),  # 512
    (ImageFeatures("fashion_mnist", 8, 2, 3, 2), (1, 3), (0,)),  # 18
    (ImageFeatures("fashion_mnist", 8, 4, 3, 2), (2, 5), (6,)),  # 36
    (ImageFeatures("fashion_mnist", 28, 8, 5, 3), (1, 3), (4,)),  # 512
    (ImageFeatures("kmnist", 8, 2, 3, 2), (1, 3), (0,)),  # 18
    (ImageFeatures("kmnist", 8, 8, 3, 2), (2,), (5,)),  # 72
    (ImageFeatures("emnist", 8, 2, 3, 2, "leading"), (1, 3), (0,)),  # 18
    (ImageFeatures("emnist", 8, 4, 3, 2, "leading"), (3, 15), (7,)),  # 36
    (ImageFeatures("cifar10", 8, 2, 3, 2, "leading"), (1, 3), (0,)),  # 18
    (ImageFeatures("cifar10", 8, 8, 3, 2, "leading"), (3,), (9,)),  # 72
    (ImageFeatures("cifar10", 20, 4, 5, 2, "leading"), (1, 2), (8,)),  # 256
)

INSTANCES: tuple[Instance, ...] = tuple(
    Instance(features, *choice)
    for features, bits, classes in _TABLE
    for choice in product(bits, ("raw", "centred"), STAGES, classes)
)
_BY_NAME = {instance.name: instance for instance in INSTANCES}


def find_instance(name: str) -> Instance:
    """The instance of this name, or an error that suggests the nearest name."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    near = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InvalidInputError(f"there is no instance {name!r}; {hint}`annealfit instances list` names all")


def select_instances(patterns: Sequence[str] = ()) -> tuple[Instance, ...]:
    """The instances whose names match one of the patterns (`*` stands for anything), in the catalogue's order.

    >>> [instance.name for instance in select_instances(["digits-d18-k1-centred-*"])]
    ['digits-d18-k1-centred-first-c0', 'digits-d18-k1-centred-late-c0']
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in _BY_NAME):
            raise InvalidInputError(
                f"no instance is called {pattern!r}; names are like {INSTANCES[0].name}, * stands for anything "
                "(quote it), and `annealfit instances list` names all"
            )
    chosen = patterns or ("*",)
    return tuple(i for i in INSTANCES if any(fnmatchcase(i.name, pattern) for pattern in chosen))


@dataclass(frozen=True)
class BestKnown:
    """The lowest energy known of an instance, the bits that have it, and the sampler that found them."""

    energy: float
    proven: bool  # no bits have a lower one; else it is the best of many tries
    found_by: dict[str, Any]  # the sampler and its settings
    bits: str  # of 0 and 1, variable 0 first
    sha256: str  # of the coefficients it was found for
    couplings: int


def best_known(instance: Instance) -> BestKnown:
    """The record of an instance."""
    try:
        return BestKnown(**_records()[instance.name])
    except KeyError as error:
        raise InvalidInputError(f"{instance.name} has no best known energy; find one: tools/best_known.py") from error


@cache
def _records() -> dict[str, dict[str, Any]]:
    records: dict[str, dict[str, Any]] = json.loads(RECORD_FILE.read_text(encoding="utf-8"))
    return records
