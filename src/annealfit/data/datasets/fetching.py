"""The files of the named data sets: where they are, whether they are the official ones, and how they are downloaded.

A download goes to a temporary file, is unpacked in memory, and the payload of every file is compared with its digest.
Only then do files appear under their names, each by an atomic rename. So an interrupted, truncated or forged download
leaves the data directory as it was.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from annealfit._support.errors import AnnealfitError, FileFormatError, MissingDependencyError, choose, require
from annealfit._support.files import StrPath, part_file, remove_leftovers, replacing
from annealfit.data.datasets.catalogue import DATASETS, DataFile
from annealfit.data.datasets.formats import (
    MAX_ARCHIVE_BYTES,
    MAX_PAYLOAD_BYTES,
    DigestError,
    DownloadError,
    MissingDataError,
    StorageError,
    UnsafeArchiveError,
    decompress,
    read_members,
    read_payload,
)
from annealfit.data.datasets.images import Parts

ENVIRONMENT = "ANNEALFIT_DATA"

# Beside the files of a data set, as sha256sum writes it: digests of files that have no published one, but came from a
# verified archive.
RECORD = "PAYLOAD_SHA256"

_TIMEOUT_SECONDS = 30  # without any byte

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, all bytes if the server says how many


def data_directory(directory: StrPath | None = None) -> Path:
    """Return the directory given, else that of the environment variable ANNEALFIT_DATA, else the user's cache."""
    if chosen := directory or os.environ.get(ENVIRONMENT):
        return Path(chosen).expanduser()
    purpose = f"a data directory, unless you set the environment variable {ENVIRONMENT},"
    return Path(require("pooch", extra="data", purpose=purpose).os_cache("annealfit"))


def is_available(name: str, directory: StrPath | None = None) -> bool:
    """Whether a named data set can be loaded without a download.

    >>> is_available("digits")
    True
    """
    files = [file for file in DATASETS[choose("data set", name, DATASETS)].files if not file.optional]
    try:
        return not files or None not in _locate(data_directory(directory), files).values()
    except MissingDependencyError:  # there is no data directory
        return False


def _locate(directory: Path, files: list[DataFile]) -> dict[DataFile, Path | None]:
    """Find files, gzipped as upstream has them or unpacked; None is not there."""
    pairs = {file: (directory / file.path, directory / file.path.removesuffix(".gz")) for file in files}
    return {file: next((path for path in pair if path.is_file()), None) for file, pair in pairs.items()}


def read_local(name: str, directory: StrPath | None = None) -> Parts:
    """Read a named data set from its files in the data directory."""
    source = DATASETS[name]
    if not source.files:
        return source.read({})
    folder = data_directory(directory)
    found = _locate(folder, list(source.files))
    missing = [file.path for file, path in found.items() if path is None and not file.optional]
    if missing:
        raise MissingDataError(
            f"{name} is not complete in {folder}: {', '.join(missing)} not found; download with "
            f"`annealfit datasets fetch {name}`, or set {ENVIRONMENT} to the directory that holds {missing[0]}"
        )
    stamps = ((file, path, path.stat()) for file, path in found.items() if path is not None)
    return _read(name, folder, tuple((file, path, stat.st_mtime_ns, stat.st_size) for file, path, stat in stamps))


# Experiments load the same data set for many seeds, so the last two stay in memory (at most 0.2 GB each). A file that
# changed has another time or size, and is read again.
@lru_cache(maxsize=2)
def _read(name: str, folder: Path, stamps: tuple[tuple[DataFile, Path, int, int], ...]) -> Parts:
    source, recorded = DATASETS[name], _read_record(folder / name)
    payloads, remarks, unknown = {}, [], []
    for file, path, _, _ in stamps:
        payloads[file.path] = read_payload(path)
        official = file.payload_sha256 or recorded.get(Path(file.path).name)
        if official is None:
            unknown.append(file.path)
        elif (found := hashlib.sha256(payloads[file.path]).hexdigest()) != official:
            remarks.append(f"{file.path} has payload SHA-256 {found[:12]}…, the official is {official[:12]}…")
    if unknown:
        remarks.append(f"no official digest is known for {', '.join(unknown)}")
    if absent := [file.path for file in source.files if file.path not in payloads]:
        remarks.append(f"there are fewer images without {', '.join(absent)}")
    return replace(source.read(payloads), remarks=tuple(remarks))


def _read_record(folder: Path) -> dict[str, str]:
    if not (folder / RECORD).is_file():
        return {}
    lines = (folder / RECORD).read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def fetch(
    name: str,
    *,
    data_dir: StrPath | None = None,
    offline: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Download what is missing of a named data set into the data directory, and return the paths of its files.

    Files that are there are left alone, whatever their digest; `force` replaces them by the official ones. `offline`
    never uses the network and raises if a file is missing.

    >>> fetch("digits")
    ()
    """
    files = list(DATASETS[choose("data set", name, DATASETS)].files)
    if not files:
        return ()
    directory = data_directory(data_dir)
    missing = [file for file, path in _locate(directory, files).items() if path is None]
    if offline and (missing or force):
        names = ", ".join(file.path for file in missing) or "force asks for new files"
        raise MissingDataError(
            f"offline, and {name} is not complete in {directory}: {names}. "
            f"Run `annealfit datasets fetch {name}` with a connection, or copy the files there from another machine, "
            f"or set {ENVIRONMENT} to the directory that holds them"
        )
    try:
        for addresses, group in groupby(files if force else missing, key=attrgetter("addresses")):
            directory.mkdir(parents=True, exist_ok=True)
            remove_leftovers(directory)
            _store(directory, directory / name, _from_first_address(addresses, list(group), directory, progress))
    except AnnealfitError:
        raise
    except OSError as error:
        raise StorageError(
            f"the data directory {directory} cannot be written to: {error.strerror or error}; "
            f"free space there, or set {ENVIRONMENT} to another directory"
        ) from error
    return tuple(path for path in _locate(directory, files).values() if path)


def _from_first_address(
    addresses: tuple[str, ...], files: list[DataFile], directory: Path, progress: Progress | None
) -> dict[DataFile, tuple[bytes, str]]:
    """Return the contents and digests of files that come together, from the first address that has the official."""
    failures: list[AnnealfitError] = []
    for address in addresses:
        try:
            with part_file(directory / "download") as (_, path):
                _download(address, path, MAX_ARCHIVE_BYTES if files[0].member else MAX_PAYLOAD_BYTES, progress)
                return _checked_contents(path, address, files)
        except (DownloadError, FileFormatError) as error:
            failures.append(error)
    # A bad file is more worth knowing than a server that did not answer.
    kind = next((type(error) for error in failures if isinstance(error, FileFormatError)), DownloadError)
    raise kind(
        f"{'; '.join(map(str, failures))}. Nothing incomplete is left in {directory}; "
        f"try again later or set {ENVIRONMENT} to local files"
    )


def _download(address: str, path: Path, most_bytes: int, progress: Progress | None) -> None:
    requests = require("requests", extra="data", purpose="downloading data")
    settings = {"stream": True, "timeout": _TIMEOUT_SECONDS, "headers": {"Accept-Encoding": "identity"}}  # .gz as it is
    try:
        with requests.get(address, **settings) as response, path.open("wb") as file:
            response.raise_for_status()
            stated = response.headers.get("Content-Length", "")
            total = int(stated) if stated.isdecimal() and len(stated) < 20 else None  # Python reads no 5,000 digits
            for chunk in response.iter_content(2**16):
                if max(file.tell(), total or 0) > most_bytes:
                    raise UnsafeArchiveError(
                        f"{address} was stopped: it sends more than the {most_bytes:,} bytes of any data set"
                    )
                file.write(chunk)
                if progress is not None:
                    progress(address.rpartition("/")[2], file.tell(), total)
    except requests.exceptions.RequestException as error:
        raise DownloadError(f"{address} could not be downloaded: {error}") from error


def _checked_contents(path: Path, address: str, files: list[DataFile]) -> dict[DataFile, tuple[bytes, str]]:
    """Return content and digest of the file that was downloaded, or of files in the archive, if they are official."""
    members = [file.member for file in files]
    contents = read_members(path, members, address) if files[0].member else {"": path.read_bytes()}
    with path.open("rb") as archive:
        archive_sha256 = hashlib.file_digest(archive, "sha256").hexdigest()
    checked = {}
    for file in files:
        content = contents[file.member]
        digest = hashlib.sha256(decompress(io.BytesIO(content), f"{file.path} from {address}")).hexdigest()
        what, found, official = f"{file.path} from {address}", digest, file.payload_sha256
        if not official:
            what, found, official = f"the archive {address}", archive_sha256, file.archive_sha256
        if found != official:
            raise DigestError(f"{what} is not the official file: the SHA-256 of its payload is {found}, not {official}")
        checked[file] = content, digest
    return checked


def _store(directory: Path, folder: Path, contents: dict[DataFile, tuple[bytes, str]]) -> None:
    """Write files, and record the digests of those that have no published one; their archive was verified."""
    digests = {Path(file.path).name: digest for file, (_, digest) in contents.items() if not file.payload_sha256}
    for file, (content, _) in contents.items():
        with replacing(directory / file.path) as out:
            out.write(content)
    if digests:
        with replacing(folder / RECORD) as out:
            recorded = sorted((_read_record(folder) | digests).items())
            out.writelines(f"{digest}  {file_name}\n".encode() for file_name, digest in recorded)
