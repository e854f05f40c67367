"""Readers of data files: gzip, members of zip and tar archives, IDX, and the binary version of CIFAR-10.

Files are not trusted. Every reader checks that the bytes are exactly as many as the header promises, limits what is
decompressed, never writes where an archive says, and never unpickles.
"""

from __future__ import annotations

import gzip
import lzma
import math
import os
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import AnnealfitError, FileFormatError


class MissingDataError(AnnealfitError, FileNotFoundError):
    """Files of a data set are not in the data directory."""


class DownloadError(AnnealfitError, OSError):
    """No address gave the file that was asked for."""


class StorageError(AnnealfitError, OSError):
    """The data directory cannot be written to, or is full."""


class TruncatedFileError(FileFormatError):
    """A file ends before its contents do."""


class CorruptFileError(FileFormatError):
    """The bytes of a file contradict the file's own format or check sum."""


class DigestError(FileFormatError):
    """A file is whole, but it is not the official one."""


class UnsafeArchiveError(FileFormatError):
    """A file or an archive holds more than any data set does."""


class DataWarning(UserWarning):
    """Local files were used although they could not be confirmed as the official ones."""


# Far above the largest payload of the catalogue (98 MB), far below a decompression bomb.
MAX_PAYLOAD_BYTES = 2**29
# EMNIST's archive has 0.56 GB, CIFAR-10's 0.18 GB.
MAX_ARCHIVE_BYTES = 2**31
_CHUNK_BYTES = 2**20
_GZIP_MAGIC = b"\x1f\x8b"


def read_payload(path: str | os.PathLike[str]) -> bytes:
    """Read a file and decompress it; gzip is recognised by its first bytes, not by the file's name."""
    with open(path, "rb") as file:
        return decompress(file, os.fspath(path))


def decompress(file: IO[bytes], name: str) -> bytes:
    """Read the payload of an open file, which may be gzip; errors call the file `name`."""
    compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    file.seek(0)
    stream: IO[bytes] = gzip.GzipFile(fileobj=file) if compressed else file  # type: ignore[assignment]
    payload = bytearray()
    try:
        while chunk := stream.read(_CHUNK_BYTES):
            payload += chunk
            if len(payload) > MAX_PAYLOAD_BYTES:
                raise CorruptFileError(
                    f"{name} unpacks to more than {MAX_PAYLOAD_BYTES} bytes, which no data set here does; "
                    f"get the file from its official source"
                )
    except EOFError as error:
        raise TruncatedFileError(f"{name} was cut short: its gzip stream does not end; get it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise CorruptFileError(f"{name} is corrupt: {error}; get it again") from error
    return bytes(payload)


_DAMAGE = (  # what the modules for archives raise
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
    *(RuntimeError, OSError, UnicodeError),
)


def read_members(path: Path, members: Sequence[str], name: str) -> dict[str, bytes]:
    """Read members of a zip or tar archive into memory; errors call the archive `name`.

    Nothing is unpacked to disk, so paths and links in an archive lead nowhere.
    """
    is_zip = zipfile.is_zipfile(path)
    contents = {}
    try:
        with zipfile.ZipFile(path) if is_zip else tarfile.open(path) as archive:
            for member in members:
                stream = archive.extractfile(member) if isinstance(archive, tarfile.TarFile) else archive.open(member)
                if stream is None:
                    raise CorruptFileError(f"{name}: its member {member} is not a file")
                with stream:
                    contents[member] = stream.read(MAX_PAYLOAD_BYTES + 1)
                if len(contents[member]) > MAX_PAYLOAD_BYTES:
                    raise UnsafeArchiveError(
                        f"{name} is refused: its member {member!r} has more than {MAX_PAYLOAD_BYTES} bytes, which no "
                        "data set here has; get the archive from its official source"
                    )
    except KeyError as error:
        raise CorruptFileError(f"{name} lacks a member: {error.args[0]}") from error
    except EOFError as error:
        raise TruncatedFileError(f"{name} was cut short; get it again") from error
    except _DAMAGE as error:
        kind = TruncatedFileError if "unexpected end of data" in str(error) else CorruptFileError
        reason = str(error).partition("\n")[0].rstrip(":")
        raise kind(f"{name} is not a whole zip or tar archive: {reason}; get it again") from error
    return contents


def parse_idx(payload: bytes, name: str, n_dimensions: int) -> NDArray[np.uint8]:
    """Return the array of bytes in an IDX payload: 0 0 8, the number of dimensions, each as `>u4`, then the values.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), "labels", 1).tolist()
    [7, 8, 9]
    """
    start = 4 + 4 * n_dimensions
    _check_length(payload[:start], start, name, "header and sizes")
    if payload[:4] != bytes([0, 0, 8, n_dimensions]):
        raise CorruptFileError(
            f"{name} is not an IDX file of {n_dimensions} dimensions: it starts with {payload[:4].hex(' ')}, not with "
            f"00 00 08 {n_dimensions:02}; were images and labels exchanged?"
        )
    shape = tuple(int(n) for n in np.frombuffer(payload, ">u4", n_dimensions, offset=4))
    _check_length(payload, start + math.prod(shape), name, f"{' × '.join(map(str, shape))} values")
    return np.frombuffer(payload, np.uint8, offset=start).reshape(shape)


def parse_cifar10(payload: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images (N, 32, 32, 3) and labels (N,) of one batch: a label byte, then the red, green and blue plane."""
    record = 1 + 3 * 32 * 32
    count = max(1, math.ceil(len(payload) / record))
    _check_length(payload, count * record, name, f"records of {record} bytes")
    records = np.frombuffer(payload, np.uint8).reshape(count, record)
    labels = records[:, 0]
    if labels.max() > 9:
        raise CorruptFileError(
            f"{name} has the label {labels.max()}, CIFAR-10 has 0 to 9; is it the binary version of CIFAR-10?"
        )
    return records[:, 1:].reshape(count, 3, 32, 32).transpose(0, 2, 3, 1), labels


def _check_length(payload: bytes, needed: int, name: str, contents: str) -> None:
    found = f"it has {len(payload)} bytes, {contents} need {needed}; get it again"
    if len(payload) < needed:
        raise TruncatedFileError(f"{name} was cut short: {found}")
    if len(payload) > needed:
        raise CorruptFileError(f"{name} has {len(payload) - needed} bytes too many: {found}")
