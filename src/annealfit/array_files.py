"""NumPy's npz archives, read with care: no pickles, no bombs, nothing that its header says and its bytes do not."""

from __future__ import annotations

import io
import math
import os
import zipfile
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.errors import FileFormatError
from annealfit.memory import free_memory
from annealfit.persistence import FrugalReader, StrPath, check_regular

_UNSUSPICIOUS_BYTES = 2**26
_MOST_UNPACKED = 100  # times the file's size: real data seldom shrink to a tenth
_MOST_MEMBERS = 10_000


def read_arrays(path: StrPath) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file by name, or a `FileFormatError` that says what is wrong with it."""
    name = os.fspath(path)
    check_regular(path)
    try:
        with FrugalReader(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _check_size(name, sum(member.file_size for member in members), len(members), file.size)
            return {member.filename.removesuffix(".npy"): _array(_unpacked(archive, member)) for member in members}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise FileFormatError(
            f"{name} is not a whole npz file: {error}; export it again, or save it again with numpy.savez"
        ) from error
    except FileFormatError:
        raise
    except (ValueError, TypeError, SyntaxError, KeyError, IndexError, OverflowError) as error:
        raise FileFormatError(
            f"{name} holds Python objects or is damaged ({error}); objects are never unpickled: "
            f"save arrays of numbers or strings with numpy.savez"
        ) from error


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The bytes of a member, no more than it states, whatever there are in truth."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # NumPy has no others
        raise ValueError(f"{member.filename} is packed in an unusual way")
    with archive.open(member) as file:
        return file.read(member.file_size)


def _check_size(name: str, unpacked: int, members: int, packed: int) -> None:
    """Refuse what unpacks to more than there is room for, or to so many times its size that it was made to."""
    room = free_memory()
    if members > _MOST_MEMBERS or (room is not None and unpacked > room / 2):
        raise FileFormatError(
            f"{name} unpacks to {unpacked:,} bytes in {members:,} arrays, and there are {room or 0:,} bytes of memory; "
            "save fewer or smaller arrays"
        )
    if unpacked > max(_UNSUSPICIOUS_BYTES, _MOST_UNPACKED * packed):
        raise FileFormatError(
            f"{name} unpacks from {packed:,} to {unpacked:,} bytes, which real data do not; "
            "save it uncompressed with numpy.savez if it is meant to"
        )


def _array(content: bytes) -> NDArray[Any]:
    """The array of one member; its header is held against its bytes before anything is made of it."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"format version {version} of an array")
    shape, by_columns, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError("an array of objects")
    values = content[stream.tell() :]
    if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize != len(values):
        raise ValueError(f"an array of shape {shape} and type {dtype} in {len(values)} bytes")
    if dtype.itemsize == 0:
        return np.zeros(shape, dtype)
    return np.frombuffer(bytearray(values), dtype).reshape(shape, order="F" if by_columns else "C")
