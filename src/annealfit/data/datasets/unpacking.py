"""Reading single members of a downloaded archive, without ever writing where the archive says.

An archive with a member that would escape its folder, that is a link, or that is larger than any data set
here, is refused as a whole, even if that member is not one we want: no honest upstream has such a member.
"""

from __future__ import annotations

import gzip
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from annealfit.data.datasets.errors import CorruptFileError, TruncatedFileError, UnsafeArchiveError
from annealfit.data.datasets.formats import MAX_PAYLOAD_BYTES, is_gzip

# EMNIST's archive holds 0.56 GB of already compressed files; CIFAR-10's 0.18 GB. The sum of all members is
# limited too, so that many members cannot do what one may not.
MAX_ARCHIVE_BYTES = 2**31
_CHUNK_BYTES = 2**20

ReadMember = Callable[[str], bytes]


def unpack(path: Path, packing: str, name: str) -> AbstractContextManager[ReadMember]:
    """A function that reads a member of the archive at `path`; `name` is what errors call the archive."""
    return PACKINGS[packing](path, name)


@contextmanager
def _plain(path: Path, name: str) -> Iterator[ReadMember]:
    def read(member: str) -> bytes:
        if path.stat().st_size > MAX_PAYLOAD_BYTES:
            raise UnsafeArchiveError(f"{name} is larger than {MAX_PAYLOAD_BYTES} bytes, which no file here is")
        return path.read_bytes()

    yield read


@contextmanager
def _zip(path: Path, name: str) -> Iterator[ReadMember]:
    if not zipfile.is_zipfile(path):
        # A zip ends with its directory, so one that starts well and has none was cut short.
        with path.open("rb") as file:
            starts_well = file.read(4) == b"PK\x03\x04"
        if starts_well:
            raise TruncatedFileError(f"{name} was cut short: the directory at its end is missing; get it again")
        raise CorruptFileError(f"{name} is not a zip archive; get it again")
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(
                name,
                (
                    (info.filename, info.file_size, "a link" if stat.S_ISLNK(info.external_attr >> 16) else "")
                    for info in archive.infolist()
                ),
            )
            yield lambda member: _read_exactly(archive.open(member), archive.getinfo(member).file_size, member, name)
    except KeyError as error:
        raise CorruptFileError(f"{name} lacks a member: {error.args[0]}") from error
    except EOFError as error:
        raise TruncatedFileError(f"{name} was cut short; get it again") from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise CorruptFileError(f"{name} is corrupt: {error}; get it again") from error


@contextmanager
def _tar(path: Path, name: str) -> Iterator[ReadMember]:
    def read(member: str) -> bytes:
        info = archive.getmember(member)
        stream = archive.extractfile(info) if info.isfile() else None
        if stream is None:
            raise CorruptFileError(f"{name}: its member {member} is not a file")
        return _read_exactly(stream, info.size, member, name)

    try:
        # A server may have undone the gzip on the way; nothing but these two is tried.
        with tarfile.open(path, "r:gz" if is_gzip(path) else "r:") as archive:
            _check_members(name, ((info.name, info.size, _tar_kind(info)) for info in archive))
            _read_to_the_end(archive, name)
            yield read
    except KeyError as error:
        raise CorruptFileError(f"{name} lacks a member: {error.args[0]}") from error
    except EOFError as error:
        raise TruncatedFileError(f"{name} was cut short: its compressed stream does not end; get it again") from error
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error) as error:
        kind = TruncatedFileError if "unexpected end of data" in str(error) else CorruptFileError
        raise kind(f"{name} is not a whole tar archive: {error}; get it again") from error


def _read_to_the_end(archive: tarfile.TarFile, name: str) -> None:
    """Read past the last member to the end of the file, where gzip has its check sum: tarfile itself does not."""
    left = MAX_ARCHIVE_BYTES
    while archive.fileobj is not None and (chunk := archive.fileobj.read(_CHUNK_BYTES)):
        left -= len(chunk)
        if left < 0:
            raise UnsafeArchiveError(f"{name} is refused: it goes on for more than {MAX_ARCHIVE_BYTES} bytes")


def _tar_kind(info: tarfile.TarInfo) -> str:
    if info.issym() or info.islnk():
        return "a link"
    return "" if info.isfile() or info.isdir() else "neither a file nor a folder"


def _check_members(name: str, members: Iterable[tuple[str, int, str]]) -> None:
    """Raise on the first member (name, bytes, what else than a file it is) that no honest archive has."""
    total = 0
    for member, size, kind in members:
        if _escapes(member):
            raise UnsafeArchiveError(
                f"{name} is refused: its member {member!r} would be written outside its folder; "
                f"get the archive from its official source"
            )
        if kind:
            raise UnsafeArchiveError(
                f"{name} is refused: its member {member!r} is {kind}; get the archive from its official source"
            )
        total += size
        if size > MAX_PAYLOAD_BYTES or total > MAX_ARCHIVE_BYTES:
            raise UnsafeArchiveError(
                f"{name} is refused: with its member {member!r} of {size} bytes it holds more than any data set here "
                f"(at most {MAX_PAYLOAD_BYTES} bytes a member, {MAX_ARCHIVE_BYTES} in all)"
            )


def _escapes(member: str) -> bool:
    r"""Whether a name leads out of its folder, by the rules of either kind of system.

    >>> [_escapes(name) for name in ("gzip/a.gz", "../a", "/a", r"C:\a", "a/../../b")]
    [False, True, True, True, True]
    """
    windows = PureWindowsPath(member)
    return ".." in windows.parts or bool(windows.drive or windows.root) or PurePosixPath(member).is_absolute()


def _read_exactly(stream: IO[bytes], size: int, member: str, name: str) -> bytes:
    """All of a member, which must be as long as the archive's directory says and no longer."""
    with stream:
        content = stream.read(size + 1)
    if len(content) < size:
        raise TruncatedFileError(f"{name}: its member {member} was cut short; get the archive again")
    if len(content) > size:
        raise UnsafeArchiveError(f"{name} is refused: its member {member} is longer than the archive says")
    return content


PACKINGS: dict[str, Callable[[Path, str], AbstractContextManager[ReadMember]]] = {
    "none": _plain,
    "zip": _zip,
    "tar": _tar,
}
