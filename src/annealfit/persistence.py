"""Files that are whole or absent: atomic writing, and tensors with a JSON manifest in one safetensors file.

A model or checkpoint is one safetensors file, readable by any safetensors reader. Its manifest (JSON, in
the file's metadata) names the kind of file, the format version, and the SHA-256 of the tensors. Nothing
is ever pickled or unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from annealfit.errors import FileFormatError, InvalidInputError

FORMAT_VERSION = 2
READABLE_VERSIONS = (1, 2)  # 1 is 0.1.0's
StrPath = str | os.PathLike[str]


@contextlib.contextmanager
def replacing(path: StrPath) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes the place of `path` only once it is complete and on disk."""
    target = Path(path)
    if target.is_dir():
        raise InvalidInputError(f"{target} is a folder; name a file in it")
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())  # mkstemp makes it private; a result is an ordinary file
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# Who reads a file that was handed to the wrong reader.
_READERS = {
    "classifier": "AnnealedClassifier.load",
    "convolution network": "AnnealedConvNet.load",
    "image classifier": "annealfit.image_classifier.ImageClassifier.load, or annealfit predict,",
    "training checkpoint": "AnnealedClassifier(checkpoint=…, resume=True)",
}


def write_tensors(path: StrPath, kind: str, tensors: Mapping[str, NDArray[Any]], manifest: Mapping[str, Any]) -> None:
    """Write one safetensors file of the given kind."""
    stored = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    header = {
        "format": "annealfit",
        "version": FORMAT_VERSION,
        "kind": kind,
        "sha256": _digest(stored),
        "content": manifest,
    }
    payload = safetensors.numpy.save(stored, metadata={"annealfit": json.dumps(header)})
    with replacing(path) as file:
        file.write(payload)


def read_tensors(path: StrPath, kind: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The tensors and the manifest of a file that `write_tensors` wrote with the same kind."""
    name = os.fspath(path)
    if Path(path).is_dir():
        raise FileFormatError(f"{name} is a folder; name a file in it")
    try:
        with safetensors.safe_open(name, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
    except FileNotFoundError:
        raise
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise FileFormatError(
            f"{name} is not a whole safetensors file ({error}); it is corrupt or was cut short: "
            "take a copy of it, or make it again"
        ) from error
    try:
        header = json.loads(metadata["annealfit"])
        found_kind, version, digest, content = (header[key] for key in ("kind", "version", "sha256", "content"))
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{name} is a safetensors file, but not one written by annealfit") from error
    if version not in READABLE_VERSIONS:
        raise FileFormatError(
            f"{name} has format version {version!r}; this annealfit reads {READABLE_VERSIONS}: update annealfit"
        )
    if found_kind != kind:
        reader = _READERS.get(found_kind)
        hint = f"; {reader} reads it" if reader else ""
        raise FileFormatError(f"{name} holds a file of the kind {found_kind!r}, not {kind!r}{hint}")
    if digest != _digest(tensors):
        raise FileFormatError(f"{name} is corrupt: its tensors do not match their digest")
    return tensors, content


def write_json(path: StrPath, value: Any) -> None:
    """Write JSON text atomically."""
    with replacing(path) as file:
        file.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def _digest(tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype.str} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()
