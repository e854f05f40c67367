"""The named data sets, described in `catalogue.toml`, and how their files are read."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from annealfit.data.datasets.formats import CorruptFileError, parse_cifar10, parse_idx
from annealfit.data.datasets.images import Part, Parts

Payloads = Mapping[str, bytes]  # by path


@dataclass(frozen=True)
class DataFile:
    """A file below the data directory, downloaded from the first address that has it, by itself or in an archive."""

    path: str
    addresses: tuple[str, ...]
    payload_sha256: str = ""  # "": none is published, and `archive_sha256` is checked instead
    member: str = ""  # its name in the archive; "" where it is downloaded by itself
    archive_sha256: str = ""
    optional: bool = False  # the data set can be read, smaller, without it


@dataclass(frozen=True)
class Source:
    """A whole data set: where it comes from and how to read it."""

    description: str
    citation: str
    class_names: tuple[str, ...]
    files: tuple[DataFile, ...] = ()  # none where it comes with an installed package
    format: str = "idx"
    labels_stored: tuple[int, int] = (0, 9)  # the first and the last; those that have no name are left out
    transposed: bool = False  # as images are stored
    n_train: int = 1000  # subset sizes of the paper
    n_test: int = 500

    def read(self, payloads: Payloads) -> Parts:
        """Read the data set from the payloads of its files."""
        return Parts(*_READERS[self.format](self, payloads), self.class_names)

    @classmethod
    def of(cls, name: str, table: dict[str, Any]) -> Source:
        """Return the data set that a table of the catalogue describes."""
        addresses, archive = table.pop("addresses", []), table.pop("archive", None)
        archive_sha256, optional = table.pop("archive_sha256", ""), table.pop("optional", [])
        files = []
        for file, digest in table.pop("files", {}).items():
            own = tuple(addresses) if archive is not None else tuple(address + file for address in addresses)
            member = "" if archive is None else archive + file
            is_optional = Path(file).name in optional
            files.append(DataFile(f"{name}/{file}", own, digest, member, archive_sha256, is_optional))
        settings: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
        }
        return cls(**settings, files=tuple(files))


def _read_digits(source: Source, payloads: Payloads) -> tuple[Part, None]:
    from sklearn.datasets import load_digits  # slow to import, and not needed to list the data sets

    digits = load_digits()
    return Part(digits.target.astype(np.intp), digits.images, white=16.0), None


def _read_idx(source: Source, payloads: Payloads) -> tuple[Part, Part]:
    """Read four IDX files: images and labels of the training part, then of the test part."""

    def read_part(images_path: str, labels_path: str) -> Part:
        images = parse_idx(payloads[images_path], images_path, 3)
        labels = parse_idx(payloads[labels_path], labels_path, 1)
        if len(images) != len(labels):
            raise CorruptFileError(
                f"{images_path} has {len(images)} images, {labels_path} has {len(labels)} labels; "
                f"they must be of the same part: get both again"
            )
        first, last = source.labels_stored
        unknown = labels[(labels < first) | (labels > last)]
        if len(unknown):
            raise CorruptFileError(
                f"{labels_path} has the label {unknown[0]}; its labels go from {first} to {last}: get it again"
            )
        wanted = labels < first + len(source.class_names)
        if not wanted.all():
            images, labels = images[wanted], labels[wanted]
        return Part(labels.astype(np.intp) - first, images.transpose(0, 2, 1) if source.transposed else images, 255.0)

    paths = [file.path for file in source.files]
    return read_part(*paths[:2]), read_part(*paths[2:])


def _read_cifar10(source: Source, payloads: Payloads) -> tuple[Part, Part]:
    """Read the batches that are there."""

    def read_part(kind: str) -> Part:
        batches = [parse_cifar10(payload, path) for path, payload in sorted(payloads.items()) if kind in path]
        images, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        return Part(labels.astype(np.intp), images, white=255.0)

    return read_part("data_batch"), read_part("test_batch")


_READERS: dict[str, Callable[[Source, Payloads], tuple[Part, Part | None]]] = {
    "cifar10": _read_cifar10,
    "digits": _read_digits,
    "idx": _read_idx,
}
DATASETS = {
    name: Source.of(name, table)
    for name, table in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}
