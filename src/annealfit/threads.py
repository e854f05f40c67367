"""Threads that do not fight: how many this process may use, and how many a piece of work is worth.

A product of small matrices on two threads is hardly faster than on one, and where the second core is busy with
something else it is many times slower: each thread waits for the other to be given its turn. So linear algebra runs
on one thread unless a single product takes long enough to be worth the risk; and whoever is parallel above us
(joblib, Dask, a grid search) is never multiplied by us.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")

# Multiplications of a product from which on more threads help, also where the cores are shared: see docs/threads.md.
WORTH_THREADS = 2e8
_NONE = 2**31  # more than any machine has: no limit


def processors() -> int:
    """Threads that work started here may use.

    Not more than the processors this process may run on, nor than OMP_NUM_THREADS, by which joblib's and Dask's
    workers are told their share. In a thread that someone else started, or in a worker process that was told nothing,
    one: there are others beside it.
    """
    untold_worker = multiprocessing.parent_process() is not None and _share() == _NONE
    if threading.current_thread() is not threading.main_thread() or untold_worker:
        return 1
    return min(_processors_of_process(os.getpid()), _share())


def _share() -> int:
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # a list is one number per level of nesting
    return int(given) if given.isdigit() and int(given) > 0 else _NONE


@cache
def _processors_of_process(process: int) -> int:
    import joblib

    return joblib.cpu_count()  # knows of affinity and of containers' quotas


@contextmanager
def blas_threads(multiplications: float) -> Iterator[None]:
    """Let linear algebra use as many threads as help for products of so many multiplications.

    Never more than it was allowed before. A large product inside a piece of work on small ones has its own wish. The
    limit belongs to the whole process, though: where several threads are at work, the smallest of their wishes holds.
    """
    _LIMIT.enter(processors() if multiplications >= WORTH_THREADS else 1)
    try:
        yield
    finally:
        _LIMIT.leave()


def in_order(function: Callable[[Item], Found], items: Sequence[Item]) -> Iterator[Found]:
    """What the function makes of each item, in the items' order, worked out in as many threads as there are processors.

    Meanwhile linear algebra has one thread, so that results do not depend on how many processors there are; and only
    a few results wait to be taken. The function has to spend its time where Python's lock is released.

    >>> list(in_order(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    count = min(processors(), len(items))
    with blas_threads(0):
        if count <= 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(count) as pool:
            waiting: deque[Future[Found]] = deque()
            try:
                for item in items:
                    waiting.append(pool.submit(function, item))
                    if len(waiting) > 2 * count:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:  # after an error, or Ctrl-C, there is no need for the rest
                for future in waiting:
                    future.cancel()


def threads_for_large_product(multiplications: float) -> AbstractContextManager[None]:
    """As `blas_threads` where the product is large; else nothing is changed, which costs nothing."""
    return blas_threads(multiplications) if multiplications >= WORTH_THREADS else nullcontext()


class _SharedLimit:
    """The process's limit of BLAS threads, and what each thread that is at work wishes: its innermost wish counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wishes: dict[int, list[int]] = {}
        self._before: list[int] = []
        self._limit = _NONE

    def enter(self, wish: int) -> None:
        with self._lock:
            if not self._wishes:
                self._before = [library.num_threads for library in _libraries()]
            self._wishes.setdefault(threading.get_ident(), []).append(wish)
            self._set()

    def leave(self) -> None:
        with self._lock:
            own = self._wishes[threading.get_ident()]
            own.pop()
            if not own:
                del self._wishes[threading.get_ident()]
            self._set()

    def _set(self) -> None:
        limit = min((wishes[-1] for wishes in self._wishes.values()), default=_NONE)
        if limit == self._limit:
            return
        self._limit = limit
        for library, before in zip(_libraries(), self._before, strict=True):
            # threadpoolctl lets only the first thread that asks set the limit, so that threads do not undo each
            # other's. Here they agree on one, and the last one out has to restore it.
            set_threads = getattr(library, "_real_set_num_threads", library.set_num_threads)
            set_threads(min(limit, before))


_LIMIT = _SharedLimit()


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of this process: NumPy's and SciPy's, which are loaded here if they were not yet."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas").lib_controllers
