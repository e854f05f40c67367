"""Files that are whole or absent: atomic writing, and tensors with a JSON manifest in one safetensors file.

A model, checkpoint or record is one safetensors file, readable by any safetensors reader. Its manifest (JSON, in the
file's metadata) names the kind of file, the format version, and the SHA-256 of the whole file, taken with zeros in the
digest's own place: no bit can change unnoticed. Nothing is ever pickled or unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from annealfit.errors import FileFormatError, InvalidInputError
from annealfit.locks import part_file
from annealfit.schema import Field, TensorFields, check_depth

FORMAT_VERSION = 3
READABLE_VERSIONS = (1, 2, 3)  # 1 is 0.1.0's; 1 and 2 have a digest of the tensors alone
StrPath = str | os.PathLike[str]


@contextlib.contextmanager
def replacing(path: StrPath) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes the place of `path` only once it is complete and on disk.

    A link is followed. What is not a file, a device or a pipe, is not replaced but written to, once all is there.
    """
    target = Path(path)
    if target.is_dir():
        raise InvalidInputError(f"{target} is a folder; name a file in it")
    if target.exists() and not target.is_file():
        memory = io.BytesIO()
        yield memory
        _write_to_device(target, memory.getvalue())
        return
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    with part_file(target) as (handle, part):
        with open(handle, "wb", closefd=False) as file:
            yield file
            file.flush()
            os.fsync(handle)
        with contextlib.suppress(FileNotFoundError):  # who may read the file before may read it after
            os.chmod(part, stat.S_IMODE(target.stat().st_mode))
        os.replace(part, target)


def _write_to_device(target: Path, content: bytes) -> None:
    """Write without making anything, and without waiting for a reader that may never come."""
    try:
        handle = os.open(target, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise InvalidInputError(f"{target} is a pipe that nobody reads from; name a file") from error
        raise
    os.set_blocking(handle, True)
    with open(handle, "wb") as device:
        device.write(content)


def check_regular(path: StrPath) -> None:
    """Raise unless `path` is a file: a pipe would be waited for, and a device may never end."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no file but a pipe or a device"
        raise FileFormatError(f"{os.fspath(path)} is {what}; name a file")


class FrugalReader(io.BufferedReader):
    """A file that is never asked for more bytes than it has: archives and images may state gigabytes of any part."""

    def __init__(self, path: StrPath) -> None:
        super().__init__(io.FileIO(path))
        self.size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """So many bytes, where there are as many; all that is left without a number."""
        return super().read(-1 if size is None else min(size, self.size))


# Who reads a file that was handed to the wrong reader.
_READERS = {
    "classifier": "AnnealedClassifier.load",
    "convolution network": "AnnealedConvNet.load",
    "image classifier": "annealfit.image_classifier.ImageClassifier.load, or annealfit predict,",
    "training checkpoint": "AnnealedClassifier(checkpoint=…, resume=True)",
}
_BLANK = b"0" * 64
_DIGEST = re.compile(rb'\\"sha256\\": \\"([0-9a-f]{64})\\"')  # as it stands in the metadata of the file
_LENGTH_BYTES = 8  # of a safetensors file: how long its header is
_MOST_HEADER_BYTES = 100_000_000  # safetensors' own limit
_TYPES = frozenset({"F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"})  # NumPy's


def write_tensors(path: StrPath, kind: str, tensors: Mapping[str, NDArray[Any]], manifest: Mapping[str, Any]) -> None:
    """Write one safetensors file of the given kind."""
    stored = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    header = {
        "format": "annealfit",
        "version": FORMAT_VERSION,
        "kind": kind,
        "sha256": _BLANK.decode(),  # before the content, in which there may be digests too
        "content": manifest,
    }
    payload = bytearray(safetensors.numpy.save(stored, metadata={"annealfit": json.dumps(header)}))
    place = _place_of_digest(payload)
    assert place is not None, "it was put there"
    payload[place] = hashlib.sha256(payload).hexdigest().encode()
    with replacing(path) as file:
        file.write(payload)


def read_tensors(path: StrPath, kind: str) -> tuple[TensorFields, Field]:
    """The tensors and the manifest of a file that `write_tensors` wrote with the same kind."""
    name = os.fspath(path)
    check_regular(path)
    payload = Path(path).read_bytes()
    tensors, header = _parsed(payload, name)
    version = header["version"].value
    if version not in READABLE_VERSIONS or isinstance(version, bool | float):
        raise FileFormatError(
            f"{name} has format version {version!r}; this annealfit reads {READABLE_VERSIONS}: update annealfit"
        )
    digest = header["sha256"].value
    if not (_is_whole(payload, digest) if version >= 3 else digest == digest_of_arrays(tensors)):
        raise FileFormatError(f"{name} is corrupt: it does not match its digest; take a copy of it, or make it again")
    found_kind = header["kind"].text()
    if found_kind != kind:
        reader = _READERS.get(found_kind)
        hint = f"; {reader} reads it" if reader else ""
        raise FileFormatError(f"{name} holds a file of the kind {found_kind!r}, not {kind!r}{hint}")
    return TensorFields(tensors, name), Field(header["content"].value, source=name)


def _parsed(payload: bytes, name: str) -> tuple[dict[str, NDArray[Any]], Field]:
    """The tensors and our part of the metadata: whether they are what was written is not known yet."""
    try:
        length = int.from_bytes(payload[:_LENGTH_BYTES], "little")
        if len(payload) < _LENGTH_BYTES or length > min(_MOST_HEADER_BYTES, len(payload) - _LENGTH_BYTES):
            raise ValueError("its header is longer than the file")
        header = json.loads(payload[_LENGTH_BYTES : _LENGTH_BYTES + length])
        described = {key: value["dtype"] for key, value in header.items() if key != "__metadata__"}
        if not all(isinstance(dtype, str) and dtype in _TYPES for dtype in described.values()):
            raise ValueError("it has tensors of an unknown type")
        tensors = safetensors.numpy.load(payload)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"{name} is not a whole safetensors file ({error}); it is corrupt or was cut short: "
            "take a copy of it, or make it again"
        ) from error
    try:
        ours = json.loads(header["__metadata__"]["annealfit"])
        found = [ours[key] for key in ("kind", "version", "sha256", "content")]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{name} is a safetensors file, but not one written by annealfit") from error
    check_depth(found, name)
    return tensors, Field(ours, source=name)


def write_json(path: StrPath, value: Any) -> None:
    """Write JSON text atomically; what is not a finite number is null, which every reader of JSON knows."""
    text = json.dumps(_without_nan(value), indent=2, ensure_ascii=False, allow_nan=False)
    with replacing(path) as file:
        file.write(f"{text}\n".encode(errors="replace"))  # file names need not be Unicode


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _place_of_digest(payload: bytes | bytearray) -> slice | None:
    """Where the digest of a file stands in it: the first one in the header is the file's own."""
    length = int.from_bytes(payload[:_LENGTH_BYTES], "little")
    found = _DIGEST.search(payload, _LENGTH_BYTES, _LENGTH_BYTES + length)
    return None if found is None else slice(*found.span(1))


def _is_whole(payload: bytes, digest: Any) -> bool:
    place = _place_of_digest(payload)
    if place is None or payload[place] != str(digest).encode():
        return False
    computed = hashlib.sha256(payload[: place.start])
    computed.update(_BLANK)
    computed.update(memoryview(payload)[place.stop :])
    return computed.hexdigest() == digest


def digest_of_arrays(tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of arrays with their names, types and shapes: what the format versions 1 and 2 knew of a file."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype.str} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()
