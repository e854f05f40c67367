"""Locks that a crash does not leave behind: the operating system lets go of them when a process ends, however it ends.

Two uses: a folder in which one program works at a time, and files in the making (`.part`), of which those without an
owner are leftovers of a process that was killed. On systems without such locks nothing is locked and nothing removed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from annealfit.errors import InvalidInputError

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None

PART_SUFFIX = ".part"
LOCK_FILE = ".annealfit.lock"
_LONGEST_NAME = 100  # bytes of the final name in that of a part: a folder takes 255 in all


@contextlib.contextmanager
def part_file(target: Path) -> Iterator[tuple[int, Path]]:
    """A new file beside the target, open for writing and locked; it is gone in the end, unless it was renamed.

    Its permissions are those that any new file of the user's gets.
    """
    short = target.name.encode(errors="surrogateescape")[:_LONGEST_NAME].decode(errors="ignore")
    while True:
        path = target.parent / f".{short}.{secrets.token_hex(4)}{PART_SUFFIX}"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        _lock(handle, wait=True)
        if _is_file(handle, path):  # nobody took it for a leftover before it was locked
            break
        os.close(handle)  # pragma: no cover (a matter of microseconds)
    try:
        yield handle, path
    finally:
        with contextlib.suppress(OSError):
            os.close(handle)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove the files in the making that a process left in a folder when it was killed; those removed."""
    removed = []
    for path in sorted(folder.glob(f".*{PART_SUFFIX}")) if fcntl is not None and folder.is_dir() else ():
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            try:
                if _lock(handle, wait=False) and _is_file(handle, path):
                    os.unlink(path)
                    removed.append(path)
            finally:
                os.close(handle)
    return removed


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Have the folder to oneself; another process that works in it is an error that says so."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK_FILE
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if _lock(handle, wait=False) is False:
            with os.fdopen(handle) as file:
                owner = file.read(20).strip()
            who = f"process {owner}" if owner.isdigit() else "another process"
            raise InvalidInputError(f"{folder} is in use by {who}; wait until it is done, or name another folder")
        if _is_file(handle, path):  # the owner before may have removed it in between
            break
        os.close(handle)
    try:
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        remove_leftovers(folder)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(handle)


def _lock(handle: int, *, wait: bool) -> bool | None:
    """Whether the open file is locked by us now, or by another process; None where there are no locks."""
    if fcntl is None:  # pragma: no cover
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system that knows none
        return None
    return True


def _is_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False
