"""Threads and memory: how many threads this process may use, how many a product is worth, how much memory is free.

A product of small matrices on two threads is hardly faster than on one, and many times slower where the second core
is busy: each thread waits for the other. So linear algebra runs on one thread unless a single product is large, and
the threads of a caller (joblib, Dask, a grid search) are never multiplied by ours. See docs/large.md.
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
Result = TypeVar("Result")

# Multiplications from which on a product is faster on several threads, measured on shared cores.
WORTH_THREADS = 2e8
_UNLIMITED = 2**31  # more threads than any machine has


def free_memory() -> int | None:
    """Bytes of physical memory that are available; None where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def processors() -> int:
    """Number of threads that work started here may use.

    At most the processors of this process and OMP_NUM_THREADS, by which joblib and Dask limit their workers. It is 1
    in threads that the caller started, and in worker processes without OMP_NUM_THREADS: their siblings need the rest.
    """
    share = _omp_num_threads()
    unlimited_worker = multiprocessing.parent_process() is not None and share == _UNLIMITED
    if threading.current_thread() is not threading.main_thread() or unlimited_worker:
        return 1
    return min(_cpu_count(os.getpid()), share)


def _omp_num_threads() -> int:
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # a list has one number per level of nesting
    return int(given) if given.isdigit() and int(given) > 0 else _UNLIMITED


@cache
def _cpu_count(process: int) -> int:
    import joblib

    return joblib.cpu_count()  # respects affinity and the quotas of containers


@contextmanager
def blas_threads(multiplications: float) -> Iterator[None]:
    """Limit linear algebra to the number of threads that products of this size are worth.

    The limit never exceeds the one before. An inner limit replaces an outer one. BLAS has one limit per process: of
    several threads inside this context the smallest limit holds.
    """
    limit, thread = processors() if multiplications >= WORTH_THREADS else 1, threading.get_ident()
    with _LOCK:
        if not _LIMITS:
            _BEFORE[:] = [library.num_threads for library in _blas_libraries()]
        _LIMITS.setdefault(thread, []).append(limit)
        _limit_libraries()
    try:
        yield
    finally:
        with _LOCK:
            _LIMITS[thread].pop()
            if not _LIMITS[thread]:
                del _LIMITS[thread]
            _limit_libraries()


def threads_for_large_product(multiplications: float) -> AbstractContextManager[None]:
    """`blas_threads` for a large product; for a small one a context that does and costs nothing."""
    return blas_threads(multiplications) if multiplications >= WORTH_THREADS else nullcontext()


def in_order(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Map a function over items in threads, one per processor, and yield the results in the order of the items.

    Linear algebra has one thread meanwhile, so that results do not depend on the number of processors. At most two
    results per thread are waiting. Only functions that release Python's lock become faster.

    >>> list(in_order(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    count = min(processors(), len(items))
    with blas_threads(0):
        if count <= 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(count) as pool:
            waiting: deque[Future[Result]] = deque()
            try:
                for item in items:
                    waiting.append(pool.submit(function, item))
                    if len(waiting) > 2 * count:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:  # after an error or an interrupt the rest is not needed
                for future in waiting:
                    future.cancel()


# BLAS has one limit per process: the smallest of the threads' innermost limits, and the one before once all have left.
_LOCK = threading.Lock()
_LIMITS: dict[int, list[int]] = {}  # of each thread, the innermost last
_BEFORE: list[int] = []
_NOW = [_UNLIMITED]


def _limit_libraries() -> None:
    limit = min((limits[-1] for limits in _LIMITS.values()), default=_UNLIMITED)
    if limit == _NOW[0]:
        return
    _NOW[0] = limit
    for library, before in zip(_blas_libraries(), _BEFORE, strict=True):
        # threadpoolctl lets only the first thread set the limit, so that threads do not undo each other's. Here they
        # agree on one, and the last to leave restores it.
        set_threads = getattr(library, "_real_set_num_threads", library.set_num_threads)
        set_threads(min(limit, before))


@cache
def _blas_libraries() -> list[Any]:
    """The BLAS libraries of NumPy and SciPy."""
    import scipy.linalg  # noqa: F401 (loads its library)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas").lib_controllers
