"""The instances by name. The catalogue is the table below: each row stands for every combination of its choices.

Rows are only ever added. An instance that was published keeps its name, its coefficients and its digest.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from annealfit._support.errors import InvalidInputError

SEED = 42  # of the subset of images, the filters and the training
LATE = 5  # iterations of the training before a late problem
STAGES = {"first": 0, "late": LATE}


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
    """One problem of one training: the class's at the first iteration, or after some.

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


@dataclass(frozen=True)
class _Row:
    features: ImageFeatures
    bits: tuple[int, ...]
    classes: tuple[int, ...] = (0,)
    coordinates: tuple[str, ...] = ("raw", "centred")
    stages: tuple[str, ...] = tuple(STAGES)

    def instances(self) -> Iterator[Instance]:
        for bits in self.bits:
            for coordinates in self.coordinates:
                for stage in self.stages:
                    for class_index in self.classes:
                        yield Instance(self.features, bits, coordinates, stage, class_index)


# The training parts of emnist and cifar10 come in copies that are not complete, or not in one order. Their instances
# are made from the first 100 images of each class in the test part, of which there is one file.
_TABLE = (
    # data set, side of the images, filters, kernel, pool                 d
    _Row(ImageFeatures("digits", 8, 2, 3, 2), (1, 2, 5, 10, 20)),  # 18
    _Row(ImageFeatures("digits", 8, 2, 3, 2), (3,), classes=(0, 3, 8)),
    _Row(ImageFeatures("digits", 8, 4, 3, 2), (1, 2, 3, 5, 10)),  # 36
    _Row(ImageFeatures("digits", 8, 8, 3, 2), (1, 2, 3)),  # 72
    _Row(ImageFeatures("mnist", 8, 2, 3, 2), (1, 3)),  # 18
    _Row(ImageFeatures("mnist", 8, 8, 3, 2), (1, 2, 3, 20), classes=(1,)),  # 72
    _Row(ImageFeatures("mnist", 16, 8, 5, 3), (1, 3), classes=(2,)),  # 128
    _Row(ImageFeatures("mnist", 28, 8, 5, 3), (1, 2, 3), classes=(3,)),  # 512
    _Row(ImageFeatures("fashion_mnist", 8, 2, 3, 2), (1, 3)),  # 18
    _Row(ImageFeatures("fashion_mnist", 8, 4, 3, 2), (2, 5), classes=(6,)),  # 36
    _Row(ImageFeatures("fashion_mnist", 28, 8, 5, 3), (1, 3), classes=(4,)),  # 512
    _Row(ImageFeatures("kmnist", 8, 2, 3, 2), (1, 3)),  # 18
    _Row(ImageFeatures("kmnist", 8, 8, 3, 2), (2,), classes=(5,)),  # 72
    _Row(ImageFeatures("emnist", 8, 2, 3, 2, "leading"), (1, 3)),  # 18
    _Row(ImageFeatures("emnist", 8, 4, 3, 2, "leading"), (3, 15), classes=(7,)),  # 36
    _Row(ImageFeatures("cifar10", 8, 2, 3, 2, "leading"), (1, 3)),  # 18
    _Row(ImageFeatures("cifar10", 8, 8, 3, 2, "leading"), (3,), classes=(9,)),  # 72
    _Row(ImageFeatures("cifar10", 20, 4, 5, 2, "leading"), (1, 2), classes=(8,)),  # 256
)

INSTANCES: tuple[Instance, ...] = tuple(instance for row in _TABLE for instance in row.instances())
_BY_NAME = {instance.name: instance for instance in INSTANCES}


def find_instance(name: str) -> Instance:
    """The instance of this name, or an error that knows what was meant."""
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
