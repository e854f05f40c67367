"""Files: atomic writing, locks, safetensors files with a JSON manifest, and npz archives.

A model, checkpoint or record is one safetensors file, readable by any safetensors reader. Its manifest (JSON, in the
file's metadata) names the kind of file, the format version and the SHA-256 of the whole file, computed with zeros in
place of the digest itself. Nothing is ever pickled or unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import io
import json
import math
import os
import re
import secrets
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from annealfit._support.errors import FileFormatError, InvalidInputError
from annealfit._support.schema import Field, TensorFields, check_depth
from annealfit._support.threads import free_memory

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None  # without it nothing is locked

FORMAT_VERSION = 4
READABLE_VERSIONS = (1, 2, 3, 4)  # 1 is written by 0.1.0; the digest of 1 and 2 covers the tensors only
StrPath = str | os.PathLike[str]

_PART_SUFFIX = ".part"
_LOCK_FILE = ".annealfit.lock"
_LONGEST_NAME = 100  # bytes of the target's name in that of a part file: most file systems allow 255 in all


@contextlib.contextmanager
def replacing(path: StrPath) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` only once it is complete and on disk.

    Links are followed. A device or pipe is not replaced: the complete content is written to it.
    """
    target = Path(path)
    if target.is_dir():
        raise InvalidInputError(f"{target} is a folder; name a file in it")
    if target.exists() and not target.is_file():
        memory = io.BytesIO()
        yield memory
        try:
            # O_NONBLOCK: opening a pipe that has no reader fails instead of waiting.
            handle = os.open(target, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise InvalidInputError(f"{target} is a pipe without a reader; name a file") from error
            raise
        os.set_blocking(handle, True)
        with open(handle, "wb") as device:
            device.write(memory.getvalue())
        return
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with part_file(target) as (handle, part):
            with open(handle, "wb", closefd=False) as file:
                yield file
                file.flush()
                os.fsync(handle)
            with contextlib.suppress(FileNotFoundError):  # keep the permissions of the file that is replaced
                os.chmod(part, stat.S_IMODE(target.stat().st_mode))
            os.replace(part, target)
    except OSError as error:  # a full disk names no file, and a folder that cannot be written the unfinished one
        if error.filename is None or str(error.filename).endswith(_PART_SUFFIX):
            error.filename = os.fspath(target)
        raise


@contextlib.contextmanager
def part_file(target: Path) -> Iterator[tuple[int, Path]]:
    """Create a locked temporary file (`.part`) beside the target; it is removed at the end unless it was renamed.

    It has the default permissions of a new file. The lock ends with the process, so an unlocked part file is a
    leftover that `remove_leftovers` may delete.
    """
    short = target.name.encode(errors="surrogateescape")[:_LONGEST_NAME].decode(errors="ignore")
    path = target.parent / f".{short}.{secrets.token_hex(4)}{_PART_SUFFIX}"
    handle, _ = _open_locked(path, os.O_EXCL | getattr(os, "O_BINARY", 0), wait=True)
    try:
        yield handle, path
    finally:
        with contextlib.suppress(OSError):
            os.close(handle)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove the part files that killed processes left in a folder, and return their paths."""
    removed = []
    for path in sorted(folder.glob(f".*{_PART_SUFFIX}")) if fcntl is not None and folder.is_dir() else ():
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            try:
                if _lock(handle, wait=False) and _is_open_file(handle, path):
                    os.unlink(path)
                    removed.append(path)
            finally:
                os.close(handle)
    return removed


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; raise if another process has locked it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _LOCK_FILE
    handle, is_ours = _open_locked(path, 0, wait=False)
    if not is_ours:
        with os.fdopen(handle) as file:
            owner = file.read(20).strip()
        who = f"process {owner}" if owner.isdigit() else "another process"
        raise InvalidInputError(f"{folder} is in use by {who}; wait until it is done, or name another folder")
    try:
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        remove_leftovers(folder)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(handle)


def _open_locked(path: Path, flags: int, *, wait: bool) -> tuple[int, bool]:
    """Create and open a file and lock it; the second value is False if another process holds the lock."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
        if _lock(handle, wait=wait) is False:
            return handle, False
        if _is_open_file(handle, path):  # nobody has removed it before it was locked
            return handle, True
        os.close(handle)  # pragma: no cover (a race of microseconds)


def _lock(handle: int, *, wait: bool) -> bool | None:
    """Lock an open file: False if another process holds the lock, None where the system has no locks."""
    if fcntl is None:  # pragma: no cover
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def _is_open_file(handle: int, path: Path) -> bool:
    """Whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def check_regular(path: StrPath) -> None:
    """Raise unless `path` is a regular file: reading a pipe may block, and a device may never end."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no file but a pipe or a device"
        raise FileFormatError(f"{os.fspath(path)} is {what}; name a file")


class BoundedReader(io.BufferedReader):
    """A file that never allocates more than its own size, however many bytes an archive or image header states."""

    def __init__(self, path: StrPath) -> None:
        super().__init__(io.FileIO(path))
        self.size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most `size` bytes, or the rest of the file."""
        return super().read(-1 if size is None else min(size, self.size))


def write_json(path: StrPath, value: Any) -> None:
    """Write JSON text atomically; NaN and the infinities become null."""
    text = json.dumps(without_nan(value), indent=2, ensure_ascii=False, allow_nan=False)
    with replacing(path) as file:
        file.write(f"{text}\n".encode(errors="replace"))  # file names need not be Unicode


def read_json(path: StrPath, what: str, most_bytes: int = 100_000_000) -> Field:
    """Read a JSON document from a regular file; a file that is too large, no JSON or nested too deeply is refused."""
    check_regular(path)
    name, size = os.fspath(path), os.path.getsize(path)
    if size > most_bytes:
        raise FileFormatError(f"{name} has {size:,} bytes; {what} has at most {most_bytes:,}")
    try:
        document = parse_json(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{name} is not {what}: {error}") from error
    check_depth(document, name)
    return Field(document, source=name)


def parse_json(content: str | bytes) -> Any:
    """Return what a JSON text says; an object with a key twice is refused: one of its values would be lost.

    >>> parse_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    """
    return json.loads(content, object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return found


def without_nan(value: Any) -> Any:
    """Return JSON data with None in place of NaN and infinity, which JSON does not have."""
    return json.loads(json.dumps(value), parse_constant=lambda name: None)


# The reader of each kind of file, for the error of a wrong one.
_READERS = {
    "classifier": "AnnealedClassifier.load",
    "convolution network": "AnnealedConvNet.load",
    "image classifier": "annealfit.models.image_classifier.ImageClassifier.load, or annealfit predict,",
    "pipeline": "annealfit.load_model",
    "training checkpoint": "AnnealedClassifier(checkpoint=…, resume=True)",
}
_BLANK = b"0" * 64
_DIGEST = re.compile(rb'\\"sha256\\": \\"([0-9a-f]{64})\\"')  # as the file's metadata spell it
_TYPES = frozenset({"F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"})  # NumPy's


def write_tensors(path: StrPath, kind: str, tensors: Mapping[str, NDArray[Any]], manifest: Mapping[str, Any]) -> None:
    """Write one safetensors file of the given kind."""
    stored = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    header = {
        "format": "annealfit",
        "version": FORMAT_VERSION,
        "kind": kind,
        "sha256": _BLANK.decode(),  # before the content, which may hold digests too
        "content": manifest,
    }
    payload = bytearray(safetensors.numpy.save(stored, metadata={"annealfit": json.dumps(header)}))
    place = _digest_place(payload)
    assert place is not None
    payload[place] = hashlib.sha256(payload).hexdigest().encode()
    with replacing(path) as file:
        file.write(payload)


def kind_of_file(path: StrPath) -> str:
    """Return the kind of a file that `write_tensors` wrote, before its digest is checked."""
    check_regular(path)
    return _parse(Path(path).read_bytes(), os.fspath(path))[1]["kind"].text()


def read_tensors(path: StrPath, kind: str) -> tuple[TensorFields, Field]:
    """Read the tensors and the manifest of a file that `write_tensors` wrote with the same kind."""
    name = os.fspath(path)
    check_regular(path)
    payload = Path(path).read_bytes()
    tensors, header = _parse(payload, name)
    version = header["version"].value
    if version not in READABLE_VERSIONS or isinstance(version, bool | float):
        raise FileFormatError(
            f"{name} has format version {version!r}; this annealfit reads {READABLE_VERSIONS}: update annealfit"
        )
    digest = header["sha256"].value
    if not (_matches_digest(payload, digest) if version >= 3 else digest == digest_of_arrays(tensors)):
        raise FileFormatError(f"{name} is corrupt: it does not match its digest; take a copy of it, or make it again")
    found_kind = header["kind"].text()
    if found_kind != kind:
        reader = _READERS.get(found_kind)
        hint = f"; {reader} reads it" if reader else ""
        raise FileFormatError(f"{name} holds a file of the kind {found_kind!r}, not {kind!r}{hint}")
    return TensorFields(tensors, name), Field(header["content"].value, source=name)


def _parse(payload: bytes, name: str) -> tuple[dict[str, NDArray[Any]], Field]:
    """The tensors and annealfit's part of the metadata, before the digest is checked."""
    try:
        header = parse_json(payload[_header(payload)])
        if not {value["dtype"] for key, value in header.items() if key != "__metadata__"} <= _TYPES:
            raise ValueError("it has tensors of an unknown type")
        tensors = safetensors.numpy.load(payload)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"{name} is not a whole safetensors file ({error}); it is corrupt or was cut short: "
            "take a copy of it, or make it again"
        ) from error
    try:
        ours = parse_json(header["__metadata__"]["annealfit"])
        found = [ours[key] for key in ("kind", "version", "sha256", "content")]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{name} is a safetensors file, but not one written by annealfit") from error
    check_depth(found, name)
    return tensors, Field(ours, source=name)


def _header(payload: bytes | bytearray) -> slice:
    """The position of the header of a safetensors file, whose length stands before it."""
    return slice(8, 8 + int.from_bytes(payload[:8], "little"))


def _digest_place(payload: bytes | bytearray) -> slice | None:
    """The position of the file's digest: the first one in the header."""
    header = _header(payload)
    found = _DIGEST.search(payload, header.start, header.stop)
    return None if found is None else slice(*found.span(1))


def _matches_digest(payload: bytes, digest: Any) -> bool:
    place = _digest_place(payload)
    if place is None or payload[place] != str(digest).encode():
        return False
    computed = hashlib.sha256(payload[: place.start])
    computed.update(_BLANK)
    computed.update(memoryview(payload)[place.stop :])
    return computed.hexdigest() == digest


def digest_of_arrays(tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of arrays with their names, types and shapes: the digest of the format versions 1 and 2."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype.str} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()


_UNSUSPICIOUS_BYTES = 2**24
_MOST_UNPACKED = 100  # times the file's size: real data seldom compress to a tenth
_MOST_MEMBERS = 10_000
_UNREADABLE = (  # what NumPy and the modules for archives raise
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, TypeError, SyntaxError),
    *(LookupError, OverflowError),
)


def read_arrays(path: StrPath) -> dict[str, NDArray[Any]]:
    """Read the arrays of an npz file; refuse pickled objects, decompression bombs and false headers."""
    name = os.fspath(path)
    check_regular(path)
    try:
        with BoundedReader(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            unpacked, available = sum(member.file_size for member in members), free_memory()
            if len(members) > _MOST_MEMBERS or (available is not None and unpacked > available / 2):
                raise FileFormatError(
                    f"{name} unpacks to {unpacked:,} bytes in {len(members):,} arrays, and there are "
                    f"{available or 0:,} bytes of memory; save fewer or smaller arrays"
                )
            if unpacked > max(_UNSUSPICIOUS_BYTES, _MOST_UNPACKED * file.size):
                raise FileFormatError(
                    f"{name} unpacks from {file.size:,} to {unpacked:,} bytes, which real data do not; "
                    "save it uncompressed with numpy.savez if it is meant to"
                )
            return {member.filename.removesuffix(".npy"): _read_member(archive, member) for member in members}
    except (PermissionError, FileFormatError):
        raise
    except _UNREADABLE as error:
        raise FileFormatError(
            f"{name} is not a whole npz file, or holds Python objects, which are never unpickled ({error}); export it "
            "again, or save arrays of numbers or texts with numpy.savez"
        ) from error


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """One array; its header is compared with the number of its bytes before memory is allocated."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # NumPy writes no others
        raise ValueError(f"{member.filename} has an unknown compression")
    with archive.open(member) as file:
        content = file.read(member.file_size)  # never more than the directory states
    stream = io.BytesIO(content)
    shape, by_columns, dtype = read_array_header(stream)
    if dtype.hasobject:
        raise ValueError("an array of objects")
    values = content[stream.tell() :]
    if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize != len(values):
        raise ValueError(f"an array of shape {shape} and type {dtype} in {len(values)} bytes")
    if dtype.itemsize == 0 and 0 not in shape:  # NumPy would allocate a byte for each
        raise ValueError(f"an array of shape {shape} whose elements have no bytes")
    return np.frombuffer(bytearray(values), dtype).reshape(shape, order="F" if by_columns else "C")


def read_array_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the shape, whether columns are contiguous, and the type of an array in the .npy format."""
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"format version {version} of an array")
    return readers[version](stream)
