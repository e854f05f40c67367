"""Worker processes that end with the process that started them, however that one ended."""

from __future__ import annotations

import os
import threading
import time

_LOOK_EVERY_SECONDS = 0.5


def end_with(parent: int) -> None:
    """Watch the parent from a thread, and end this process once the parent is gone.

    A killed parent cannot tell its workers to end, and they would wait for work for minutes. The system gives an
    orphan another parent, which is what the thread looks for.
    """
    if os.name == "posix" and os.getpid() != parent:
        threading.Thread(target=_watch, args=(parent,), name="annealfit-parent-watch", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_SECONDS)
    os._exit(1)  # at once: there is nobody to answer to
