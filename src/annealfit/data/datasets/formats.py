"""Readers of the formats the data sets come in: IDX, plain or gzipped, and the binary version of CIFAR-10.

Every reader checks that the bytes are exactly as many as the header promises. Nothing is ever unpickled.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from annealfit.data.datasets.errors import CorruptFileError, TruncatedFileError

# Far above the largest payload of the catalogue (98 MB), far below what a decompression bomb wants.
MAX_PAYLOAD_BYTES = 2**29
_CHUNK_BYTES = 2**20
_GZIP_MAGIC = b"\x1f\x8b"

# The third byte of an IDX file names its type; numbers are stored big-endian.
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

CIFAR10_SHAPE = (3, 32, 32)  # stored plane by plane: all red, all green, all blue
CIFAR10_RECORD_BYTES = 1 + math.prod(CIFAR10_SHAPE)
CIFAR10_CLASSES = 10


def read_payload(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file after decompression; gzip is known by its first bytes, not by the file's name."""
    with open(path, "rb") as file:
        return decompress(file, os.fspath(path))


def is_gzip(path: str | os.PathLike[str]) -> bool:
    """Whether the file starts as gzip does."""
    with open(path, "rb") as file:
        return file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC


def decompress(file: IO[bytes], name: str) -> bytes:
    """The payload of an open file, decompressed if it is gzip; `name` is what errors call it.

    >>> import io
    >>> decompress(io.BytesIO(gzip.compress(b"payload")), "example.gz")
    b'payload'
    """
    compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    file.seek(0)
    stream: IO[bytes] = gzip.GzipFile(fileobj=file) if compressed else file  # type: ignore[assignment]
    chunks: list[bytes] = []
    size = 0
    try:
        while chunk := stream.read(_CHUNK_BYTES):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_PAYLOAD_BYTES:
                raise CorruptFileError(
                    f"{name} unpacks to more than {MAX_PAYLOAD_BYTES} bytes, which no data set here does; "
                    f"get the file from its official source"
                )
    except EOFError as error:
        raise TruncatedFileError(f"{name} was cut short: its gzip stream does not end; get it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise CorruptFileError(f"{name} is corrupt: {error}; get it again") from error
    return b"".join(chunks)


def parse_idx(payload: bytes, name: str, n_dimensions: int) -> NDArray[Any]:
    """The array in an IDX payload, a read-only view of it.

    Two zero bytes, a type byte, the number of dimensions, each dimension as a big-endian 32-bit word, then
    the numbers in row-major order.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), "labels", 1).tolist()
    [7, 8, 9]
    """
    header_bytes = 4 + 4 * n_dimensions
    if len(payload) < header_bytes:
        raise TruncatedFileError(
            f"{name} was cut short: it has {len(payload)} bytes, its header alone needs {header_bytes}; get it again"
        )
    if payload[:2] != b"\0\0" or payload[2] not in _IDX_TYPES:
        raise CorruptFileError(f"{name} is not an IDX file: it starts with {payload[:4].hex(' ')}, not with 00 00 08")
    if payload[3] != n_dimensions:
        raise CorruptFileError(
            f"{name} has {payload[3]} dimensions, {n_dimensions} are needed; were images and labels exchanged?"
        )
    dtype = np.dtype(_IDX_TYPES[payload[2]])
    shape = tuple(int(n) for n in np.frombuffer(payload, ">u4", n_dimensions, offset=4))
    needed = header_bytes + math.prod(shape) * dtype.itemsize
    _check_length(payload, needed, name, f"{' × '.join(map(str, shape))} values")
    return np.frombuffer(payload, dtype, offset=header_bytes).reshape(shape)


def parse_cifar10(payload: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (N, 32, 32, 3) and labels (N,) of one batch: a label byte, then the red, green and blue plane.

    >>> images, labels = parse_cifar10(bytes([7]) + bytes(3072), "batch")
    >>> images.shape, labels.tolist()
    ((1, 32, 32, 3), [7])
    """
    whole = max(1, -(-len(payload) // CIFAR10_RECORD_BYTES))
    _check_length(payload, whole * CIFAR10_RECORD_BYTES, name, f"records of {CIFAR10_RECORD_BYTES} bytes")
    records = np.frombuffer(payload, np.uint8).reshape(-1, CIFAR10_RECORD_BYTES)
    labels = records[:, 0]
    if labels.max() >= CIFAR10_CLASSES:
        raise CorruptFileError(
            f"{name} has the label {labels.max()}, CIFAR-10 has 0 to {CIFAR10_CLASSES - 1}; "
            f"is it the binary version of CIFAR-10?"
        )
    images = records[:, 1:].reshape(-1, *CIFAR10_SHAPE)
    return images.transpose(0, 2, 3, 1), labels


def _check_length(payload: bytes, needed: int, name: str, contents: str) -> None:
    if len(payload) < needed:
        raise TruncatedFileError(
            f"{name} was cut short: it has {len(payload)} bytes, {contents} need {needed}; get it again"
        )
    if len(payload) > needed:
        raise CorruptFileError(
            f"{name} has {len(payload) - needed} bytes too many: {contents} need {needed}, it has {len(payload)}; "
            f"get it again"
        )
