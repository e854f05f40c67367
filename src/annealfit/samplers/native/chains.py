"""What annealers of our own share: seeds, threads, and reasons to end early."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.errors import InvalidInputError, check_number
from annealfit.problem import QuadraticProblem
from annealfit.problems import Problems, alike
from annealfit.samplers.protocol import Samples
from annealfit.threads import processors

Stop = Callable[[], bool]

# Levels. What is halfway between two, as symmetric problems have it, is the lower one's, whatever its last bits are.
TIE = 1e-9


def solve_alike(
    problems: Sequence[QuadraticProblem],
    seeds: Sequence[int],
    anneal: Callable[[Problems, NDArray[np.uint64]], list[Samples]],
) -> list[Samples]:
    """The answers to all problems, in order; those that share a curvature are annealed together."""
    if len(seeds) != len(problems):
        raise InvalidInputError(f"there are {len(problems)} problems and {len(seeds)} seeds; give one seed each")
    words = as_words(seeds)
    answers: dict[int, Samples] = {}
    for positions, group in alike(problems):
        answers.update(zip(positions.tolist(), anneal(group, words[positions]), strict=True))
    return [answers[position] for position in range(len(problems))]


def as_words(seeds: Sequence[int]) -> NDArray[np.uint64]:
    """Seeds of any size as 64-bit words."""
    try:
        return np.array([operator.index(seed) % 2**64 for seed in seeds], dtype=np.uint64)
    except TypeError as error:
        raise InvalidInputError(f"seeds are {list(seeds)!r}; they must be whole numbers") from error


def for_each_read(values: NDArray[np.float64], reads: int) -> NDArray[np.float64]:
    """The values of each problem (…, P), repeated for its reads (…, P·reads)."""
    return values if reads == 1 else np.repeat(values, reads, axis=-1)


def stop_function(time_limit: float | None, interrupt_function: Stop | None) -> Stop | None:
    """One question for both reasons to end early, or None if there is no such reason."""
    if time_limit is not None:
        check_number("time_limit", time_limit, above=0)
    if interrupt_function is not None and not callable(interrupt_function):
        raise InvalidInputError(f"interrupt_function is {interrupt_function!r}; it must be callable")
    if time_limit is None:
        return interrupt_function
    deadline = time.monotonic() + time_limit
    return lambda: time.monotonic() >= deadline or (interrupt_function is not None and bool(interrupt_function()))


class Workers:
    """`map` over blocks, in threads if there is more than one block and more than one processor."""

    def __init__(self, num_threads: int | None, n_blocks: int) -> None:
        if num_threads is not None:
            check_number("num_threads", num_threads, Integral, minimum=1)
        count = min(num_threads or processors(), n_blocks)
        self._pool = ThreadPoolExecutor(count) if count > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Any], None], blocks: Sequence[Any]) -> None:
        """Call the function on every block and wait; an error in one is raised here."""
        if self._pool is None:
            for block in blocks:
                function(block)
            return
        for future in [self._pool.submit(function, block) for block in blocks]:
            future.result()
