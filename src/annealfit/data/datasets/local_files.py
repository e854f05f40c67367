"""The files of a data set in the data directory: where it is, which are there, whether they are the official ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from annealfit._support.errors import MissingDependencyError, choose, require
from annealfit.data.datasets.catalogue import DATASETS, DataFile
from annealfit.data.datasets.errors import MissingDataError
from annealfit.data.datasets.formats import read_payload
from annealfit.data.datasets.parts import Parts

ENVIRONMENT = "ANNEALFIT_DATA"

# Beside the files of a data set: digests of what came out of a verified archive, for files that have no
# published digest of their own. The format is that of sha256sum.
RECORD = "PAYLOAD_SHA256"


def data_directory(directory: str | os.PathLike[str] | None = None) -> Path:
    """The directory given, else that of the environment variable ANNEALFIT_DATA, else the user's cache."""
    chosen = directory or os.environ.get(ENVIRONMENT)
    if chosen:
        return Path(chosen).expanduser()
    try:
        pooch = require("pooch", extra="data", purpose="the default data directory")
    except MissingDependencyError as error:
        raise MissingDataError(
            f"there is no data directory: set the environment variable {ENVIRONMENT}, "
            f"or install what downloads data: pip install 'annealfit[data]'"
        ) from error
    return Path(pooch.os_cache("annealfit"))


def locate(directory: Path, file: DataFile) -> Path | None:
    """Where the file is, gzipped as upstream has it or already unpacked; None if it is not there."""
    candidates = (directory / file.path, directory / file.path.removesuffix(".gz"))
    return next((path for path in candidates if path.is_file()), None)


def is_available(name: str, directory: str | os.PathLike[str] | None = None) -> bool:
    """Whether a named data set can be loaded without a download.

    >>> is_available("digits")
    True
    """
    files = DATASETS[choose("data set", name, DATASETS)].files
    if not files:
        return True
    try:
        folder = data_directory(directory)
    except MissingDataError:
        return False
    return all(locate(folder, file) for file in files if not file.optional)


@dataclass(frozen=True, eq=False)
class LocalData:
    """What was read, and what a user should know about the files it was read from."""

    parts: Parts
    remarks: tuple[str, ...]


def read_local(name: str, directory: Path) -> LocalData:
    """Read a named data set from its files below `directory`."""
    found = {file: locate(directory, file) for file in DATASETS[name].files}
    missing = [file.path for file, path in found.items() if path is None and not file.optional]
    if missing:
        raise MissingDataError(
            f"{name} is not complete in {directory}: {', '.join(missing)} not found; download with "
            f"`annealfit datasets fetch {name}`, or set {ENVIRONMENT} to the directory that holds {missing[0]}"
        )
    stamps = ((file, path, path.stat()) for file, path in found.items() if path is not None)
    return _read(name, directory, tuple((file, path, stat.st_mtime_ns, stat.st_size) for file, path, stat in stamps))


# Experiments load the same data set for many seeds, so the last two stay in memory (at most 0.2 GB each).
# A file that changes has another time or size, and is read again.
@lru_cache(maxsize=2)
def _read(name: str, directory: Path, stamps: tuple[tuple[DataFile, Path, int, int], ...]) -> LocalData:
    source = DATASETS[name]
    payloads = {file.path: read_payload(path) for file, path, _, _ in stamps}
    record = read_record(directory / name)
    remarks = _remarks({file: payloads[file.path] for file, *_ in stamps}, record)
    absent = [file.path for file in source.files if file.path not in payloads]
    if absent:
        remarks.append(f"there are fewer images without {', '.join(absent)}")
    return LocalData(source.read(payloads), tuple(remarks))


def _remarks(payloads: Mapping[DataFile, bytes], record: Mapping[str, str]) -> list[str]:
    """One remark for each file that is not the official one, and one for all that cannot be compared."""
    remarks, unknown = [], []
    for file, payload in payloads.items():
        official = file.payload_sha256 or record.get(Path(file.path).name)
        if official is None:
            unknown.append(file.path)
        elif (found := hashlib.sha256(payload).hexdigest()) != official:
            remarks.append(f"{file.path} has payload SHA-256 {found[:12]}…, the official is {official[:12]}…")
    if unknown:
        remarks.append(f"no official digest is known for {', '.join(unknown)}")
    return remarks


def read_record(folder: Path) -> dict[str, str]:
    """Digests by file name, as `fetching` left them in the folder of a data set."""
    try:
        lines = (folder / RECORD).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
