"""`fetch`: download a data set, check it, and only then put it in place.

A download lands in a temporary file, is unpacked in memory, and every file's payload is compared with its
digest. Files appear under their names only once all of that has succeeded, each by an atomic rename. So an
interrupted, truncated or forged download leaves the data directory as it was.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from annealfit._support.errors import AnnealfitError, FileFormatError, choose, require
from annealfit._support.files import part_file, remove_leftovers, replacing
from annealfit.data.datasets.catalogue import DATASETS, DataFile, Download
from annealfit.data.datasets.errors import DigestError, DownloadError, MissingDataError, StorageError
from annealfit.data.datasets.formats import decompress
from annealfit.data.datasets.local_files import ENVIRONMENT, RECORD, data_directory, locate, read_record
from annealfit.data.datasets.unpacking import MAX_ARCHIVE_BYTES, unpack

_TIMEOUT_SECONDS = 30  # without any byte
_CHUNK_BYTES = 2**16

# Called with the file's name, the bytes so far, and all its bytes if the server says how many.
Progress = Callable[[str, int, int | None], None]


def fetch(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Download what is missing of a named data set into the data directory, and return where its files are.

    Files that are there are left alone, whatever their digest; `force` replaces them by the official ones.
    `offline` never uses the network and raises if a file is missing.

    >>> fetch("digits")
    ()
    """
    source = DATASETS[choose("data set", name, DATASETS)]
    if not source.files:
        return ()
    directory = data_directory(data_dir)
    missing = [file.path for file in source.files if locate(directory, file) is None]
    if offline and (missing or force):
        raise MissingDataError(
            f"offline, and {name} is not complete in {directory}: {', '.join(missing) or 'force asks for new files'}. "
            f"Run `annealfit datasets fetch {name}` with a connection, or copy the files there from another machine, "
            f"or set {ENVIRONMENT} to the directory that holds them"
        )
    with _storing_in(directory):
        for download in source.downloads:
            wanted = [file for file in download.files if force or file.path in missing]
            if wanted:
                directory.mkdir(parents=True, exist_ok=True)
                remove_leftovers(directory)
                contents = _from_first_address(download, wanted, directory, progress)
                _store(name, directory, download, contents)
    return tuple(path for file in source.files if (path := locate(directory, file)))


def _from_first_address(
    download: Download, wanted: list[DataFile], directory: Path, progress: Progress | None
) -> dict[DataFile, bytes]:
    """The checked contents of the wanted files, from the first address that has them."""
    failures: list[AnnealfitError] = []
    for address in download.addresses:
        try:
            with part_file(directory / "download") as (_, path):
                _download(address, path, progress)
                return _checked_contents(path, address, download, wanted)
        except (DownloadError, FileFormatError) as error:
            failures.append(error)
    # What a server did send is more worth knowing than that another one did not answer.
    kind = next((type(error) for error in failures if isinstance(error, FileFormatError)), DownloadError)
    told = "; ".join(str(error) for error in failures)
    raise kind(
        f"{told}. Nothing incomplete is left in {directory}; try again later or set {ENVIRONMENT} to local files"
    )


@contextmanager
def _storing_in(directory: Path) -> Iterator[None]:
    """Turn what the operating system says of the data directory into an error with a remedy."""
    try:
        yield
    except AnnealfitError:
        raise
    except OSError as error:
        raise StorageError(
            f"the data directory {directory} cannot be written to: {error.strerror or error}; "
            f"make room there, or set {ENVIRONMENT} to another directory"
        ) from error


def _download(address: str, path: Path, progress: Progress | None) -> None:
    purpose = "downloading data"
    pooch = require("pooch", extra="data", purpose=purpose)
    requests = require("requests", extra="data", purpose=purpose)
    bar = _Bar(address, progress or (lambda name, done, total: None))
    downloader = pooch.HTTPDownloader(
        progressbar=bar,
        chunk_size=_CHUNK_BYTES,
        timeout=_TIMEOUT_SECONDS,
        headers={"Accept-Encoding": "identity"},  # a .gz is to arrive as it is, not unpacked on the way
    )
    try:
        downloader(address, str(path), None)
    except requests.exceptions.RequestException as error:
        raise DownloadError(f"{address} could not be downloaded: {error}") from error


class _Bar:
    """What pooch expects of a progress bar, passed on to a function; a download that is too large ends here."""

    def __init__(self, address: str, progress: Progress) -> None:
        self.address, self.name = address, address.rpartition("/")[2]
        self.progress = progress
        self.total = 0
        self.done = 0

    def update(self, n: int) -> None:
        """Count `n` more bytes; pooch counts whole chunks, so the last may pass the total."""
        counted = self.done + n
        if max(self.total, counted - n) > MAX_ARCHIVE_BYTES:
            raise DownloadError(
                f"{self.address} was stopped: it sends more than the {MAX_ARCHIVE_BYTES:,} bytes of any data set"
            )
        self.done = min(counted, self.total) if self.total else counted
        self.progress(self.name, self.done, self.total or None)

    def reset(self) -> None:
        """Start over, as pooch does before it reports the total."""
        self.done = 0 if self.total else self.done

    def close(self) -> None:
        """Nothing is left to do."""


def _checked_contents(path: Path, address: str, download: Download, wanted: list[DataFile]) -> dict[DataFile, bytes]:
    with unpack(path, download.packing, address) as read:  # raises on what is truncated, corrupt or unsafe
        contents = {file: read(file.member) for file in wanted}
    found = _sha256_of(path)
    if download.sha256 not in (None, found) and not all(file.payload_sha256 for file in wanted):
        raise DigestError(f"{address} is not the official archive: its SHA-256 is {found}, not {download.sha256}")
    for file, content in contents.items():
        found = payload_sha256(content, f"{file.path} from {address}")
        if file.payload_sha256 not in (None, found):
            raise DigestError(
                f"{file.path} from {address} is not the official file: the SHA-256 of its payload is {found}, "
                f"not {file.payload_sha256}"
            )
    return contents


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def payload_sha256(content: bytes, name: str) -> str:
    """SHA-256 of a file's bytes after decompression, the same however a mirror compressed them.

    >>> import gzip
    >>> payload_sha256(gzip.compress(b"a"), "a.gz") == payload_sha256(b"a", "a")
    True
    """
    return hashlib.sha256(decompress(io.BytesIO(content), name)).hexdigest()


def _store(name: str, directory: Path, download: Download, contents: Mapping[DataFile, bytes]) -> None:
    for file, content in contents.items():
        with replacing(directory / file.path) as out:
            out.write(content)
    unpublished = {file: content for file, content in contents.items() if file.payload_sha256 is None}
    if download.sha256 and unpublished:
        folder = directory / name
        digests = read_record(folder) | {
            Path(file.path).name: payload_sha256(content, file.path) for file, content in unpublished.items()
        }
        with replacing(folder / RECORD) as out:
            out.writelines(f"{digest}  {file_name}\n".encode() for file_name, digest in sorted(digests.items()))
