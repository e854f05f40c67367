"""What annealers of our own share: schedule, seeds, threads, and reasons to end early."""

from __future__ import annotations

import operator
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, check_number
from annealfit._support.threads import processors
from annealfit.problems.problem import Problems, QuadraticProblem, group_by_curvature
from annealfit.samplers.native.schedule import BetaRange, Schedule
from annealfit.samplers.protocol import Sampler, Samples, SolveInfo

Stop = Callable[[], bool]

# Levels. What is halfway between two, as symmetric problems have it, is the lower one's, whatever its last bits are.
TIE = 1e-9
LANES_PER_BLOCK = 16  # of chains over levels: the unit of work of a thread


class Annealer(Sampler):
    """What annealers have in common: a schedule, lanes that share a curvature, one deadline, threads.

    An annealer is a frozen dataclass with these settings among its own, and has one method to write: `_anneal`.
    """

    num_sweeps: int
    num_reads: int
    beta_range: BetaRange | None
    beta_schedule_type: str
    num_sweeps_per_beta: int
    beta_schedule: Sequence[float] | None
    num_threads: int | None
    time_limit: float | None
    interrupt_function: Stop | None

    neutral_settings: ClassVar[frozenset[str]] = frozenset({"num_threads", "interrupt_function"})

    @abstractmethod
    def _anneal(self, problems: Problems, seeds: NDArray[np.uint64], should_stop: Stop | None) -> list[Samples]:
        """Anneal all reads of problems with a common metric; there is a seed for each problem."""

    def __post_init__(self) -> None:
        check_number("num_reads", self.num_reads, Integral, minimum=1)
        _ = self._should_stop, self._schedule  # they check what they are made of

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """Anneal all reads of all problems; those that share a curvature share the work."""
        if len(seeds) != len(problems):
            raise InvalidInputError(f"there are {len(problems)} problems and {len(seeds)} seeds; give one seed each")
        words, should_stop = as_words(seeds), self._should_stop  # one deadline for all
        answers: dict[int, Samples] = {}
        for positions, group in group_by_curvature(problems):
            answers.update(zip(positions.tolist(), self._anneal(group, words[positions], should_stop), strict=True))
        return [answers[position] for position in range(len(problems))]

    @cached_property
    def _schedule(self) -> Schedule:
        return Schedule(
            self.num_sweeps,
            self.beta_range,
            self.beta_schedule_type,
            self.num_sweeps_per_beta,
            self.beta_schedule,
        )

    @property
    def _should_stop(self) -> Stop | None:
        return stop_function(self.time_limit, self.interrupt_function)

    def _answers(
        self,
        bits: NDArray[np.uint8],
        energies: NDArray[np.float64],
        ends: tuple[NDArray[np.float64], NDArray[np.float64]],
        sweeps: int,
        clock: Stopwatch,
    ) -> list[Samples]:
        """The reads of each problem: bits (P, reads, D, K) and energies (P, reads), with the hot and cold ends (P,)."""
        info: SolveInfo = {
            "num_sweeps": sweeps,
            "beta_schedule_type": self.beta_schedule_type,
            "preprocessing_seconds": clock.laps[0],
            "sampling_seconds": clock.laps[1],
            "postprocessing_seconds": clock.running(),
        }
        return [
            Samples(own_bits, own_energies, {**info, "beta_range": (hot, cold)})
            for own_bits, own_energies, hot, cold in zip(bits, energies, *(end.tolist() for end in ends), strict=True)
        ]


class Stopwatch:
    """Seconds of one piece of work after another."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.laps: list[float] = []

    def running(self) -> float:
        """Seconds since the last lap."""
        return time.perf_counter() - self._last

    def lap(self) -> None:
        """One piece is done."""
        self.laps.append(self.running())
        self._last = time.perf_counter()


def as_words(seeds: Sequence[int]) -> NDArray[np.uint64]:
    """Seeds of any size as 64-bit words."""
    try:
        return np.array([operator.index(seed) % 2**64 for seed in seeds], dtype=np.uint64)
    except TypeError as error:
        raise InvalidInputError(f"seeds are {list(seeds)!r}; they must be whole numbers") from error


def for_each_read(values: NDArray[np.float64], reads: int) -> NDArray[np.float64]:
    """The values of each problem (…, P), repeated for its reads (…, P·reads)."""
    return values if reads == 1 else np.repeat(values, reads, axis=-1)


def blocks_of_lanes(count: int) -> list[slice]:
    """So many lanes, in blocks that threads share.

    >>> blocks_of_lanes(20)
    [slice(0, 16, None), slice(16, 20, None)]
    """
    return [slice(first, min(first + LANES_PER_BLOCK, count)) for first in range(0, count, LANES_PER_BLOCK)]


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
        count = min(num_threads or processors(), n_blocks) if n_blocks > 1 else 1
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
