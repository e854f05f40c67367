"""A piece of work in a process of its own, so that its memory can be told."""

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# Else a process that is not the main one would take itself for one of many, and use one thread.
os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))


class Memory:
    """The most memory while it watches, in bytes: resident (`peak`), and without the pages of files (`anonymous`)."""

    def __enter__(self):
        self.peak = self.anonymous = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        self._thread.join()

    def _watch(self):
        while not self._ended.wait(0.02):
            told = dict(
                line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines()
            )
            self.peak = max(self.peak, 1024 * int(told["VmRSS"].split()[0]))
            self.anonymous = max(self.anonymous, 1024 * int(told["RssAnon"].split()[0]))


def alone(function, *arguments):
    """What a function of a module returns, called in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
