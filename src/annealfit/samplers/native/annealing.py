"""What the annealers share: temperature schedules, seeds, threads over lanes, and limits of time."""

from __future__ import annotations

import math
import operator
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, check_number, choose
from annealfit._support.randomness import descend
from annealfit._support.threads import blas_threads, processors
from annealfit.problems.problem import Problems, QuadraticProblem, group_by_curvature
from annealfit.samplers.protocol import Sampler, Samples, SolveInfo

SCHEDULE_TYPES = ("geometric", "linear", "custom")

BetaRange = tuple[float, float]
Stop = Callable[[], bool]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Schedule:
    """How the inverse temperature β runs from hot to cold: the forms that dwave-samplers has.

    `beta_schedule_type` "geometric" or "linear" interpolates between the ends of `beta_range` (None: ends
    that suit the problem) over `num_sweeps`, staying `num_sweeps_per_beta` sweeps at each value; "custom"
    takes the values of `beta_schedule` one by one.
    """

    num_sweeps: int
    beta_range: BetaRange | None = None
    beta_schedule_type: str = "geometric"
    num_sweeps_per_beta: int = 1
    beta_schedule: Sequence[float] | None = None

    def __post_init__(self) -> None:
        choose("beta_schedule_type", self.beta_schedule_type, SCHEDULE_TYPES)
        check_number("num_sweeps", self.num_sweeps, Integral, minimum=0)
        check_number("num_sweeps_per_beta", self.num_sweeps_per_beta, Integral, minimum=1)
        if self.num_sweeps % self.num_sweeps_per_beta:
            raise InvalidInputError(
                f"num_sweeps is {self.num_sweeps}; it must be a multiple of num_sweeps_per_beta, "
                f"{self.num_sweeps_per_beta}"
            )
        if (self.beta_schedule is None) == (self.beta_schedule_type == "custom"):
            raise InvalidInputError("beta_schedule goes with beta_schedule_type='custom', and only with it")
        if self.beta_schedule is not None:
            if self.beta_range is not None:
                raise InvalidInputError("a custom beta_schedule has its own ends; leave beta_range out")
            betas = np.asarray(self.beta_schedule, dtype=float)
            if betas.ndim != 1 or not np.isfinite(betas).all() or (betas < 0).any():
                raise InvalidInputError("beta_schedule must be a sequence of finite numbers, none below 0")
            if len(betas) * self.num_sweeps_per_beta != self.num_sweeps:
                raise InvalidInputError(
                    f"beta_schedule has {len(betas)} values of {self.num_sweeps_per_beta} sweeps each; "
                    f"num_sweeps must be {len(betas) * self.num_sweeps_per_beta}, not {self.num_sweeps}"
                )
        if self.beta_range is not None:
            if np.shape(self.beta_range) != (2,):
                raise InvalidInputError(f"beta_range is {self.beta_range!r}; it must be a pair (hot, cold)")
            above = 0 if self.is_geometric else None  # no ratio leads up from 0
            for beta in self.beta_range:
                check_number("an end of beta_range", beta, minimum=None if self.is_geometric else 0, above=above)

    @property
    def is_geometric(self) -> bool:
        """Whether β is the exponential of the line."""
        return self.beta_schedule_type == "geometric"

    def shares(self, first: int, last: int) -> Array:
        """How far the sweeps `first` to `last − 1` are between the ends, 0 to 1; of a custom schedule, their β."""
        index = np.arange(first, last) // self.num_sweeps_per_beta
        if self.beta_schedule is not None:
            return np.asarray(self.beta_schedule, dtype=float)[index]
        n_betas = self.num_sweeps // self.num_sweeps_per_beta
        # A single temperature is the cold one, as in dwave-samplers.
        return index / (n_betas - 1) if n_betas > 1 else np.ones(len(index))

    def line(self, hot: Array, cold: Array) -> tuple[Array, Array]:
        """`(intercept, slope)` such that a sweep's β is `intercept + share·slope`, geometric: the exponential of it.

        `hot` and `cold` are the ends of several chains; to a custom schedule `cold` is a factor.
        """
        if self.beta_schedule is not None:
            return np.zeros_like(cold), cold
        if not self.is_geometric:
            return hot, cold - hot
        return np.log(hot), np.log(cold / hot)


@dataclass(frozen=True)
class Limit:
    """When an anneal has to end early: at a time of `time.monotonic`, or when a function of the user says so."""

    deadline: float
    interrupt_function: Stop | None

    @classmethod
    def of(cls, time_limit: float | None, interrupt_function: Stop | None) -> Limit | None:
        """The limit of an anneal that starts now; None if nothing can end it early."""
        if time_limit is not None:
            check_number("time_limit", time_limit, above=0)
        if interrupt_function is not None and not callable(interrupt_function):
            raise InvalidInputError(f"interrupt_function is {interrupt_function!r}; it must be callable")
        if time_limit is None and interrupt_function is None:
            return None
        return cls(math.inf if time_limit is None else time.monotonic() + time_limit, interrupt_function)

    @property
    def seconds_left(self) -> float:
        """Infinite without a time limit."""
        return self.deadline - time.monotonic()

    def is_reached(self) -> bool:
        """Whether to end now; asks the user's function."""
        return self.seconds_left <= 0 or (self.interrupt_function is not None and bool(self.interrupt_function()))

    def part(self, share: float) -> Limit:
        """The limit of a part of the work that may take this share of the time left."""
        return self if share == 1 else replace(self, deadline=time.monotonic() + share * self.seconds_left)

    def earlier(self, seconds: float) -> Limit:
        """The limit of work that something follows which takes so many seconds."""
        return replace(self, deadline=self.deadline - seconds)


class Annealer(Sampler):
    """Base of annealers: a schedule, lanes that share a curvature, one time limit, threads.

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
    def _anneal(self, problems: Problems, seeds: NDArray[np.uint64], limit: Limit | None) -> list[Samples]:
        """Anneal all reads of problems with a common curvature; there is a seed for each read of each problem."""

    def __post_init__(self) -> None:
        check_number("num_reads", self.num_reads, Integral, minimum=1)
        Limit.of(self.time_limit, self.interrupt_function)  # for its checks, as the schedule's
        _ = self._schedule

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """Anneal all reads of all problems. Those that share a curvature share the work, and all share the time."""
        if len(seeds) != len(problems):
            raise InvalidInputError(f"there are {len(problems)} problems and {len(seeds)} seeds; give one seed each")
        self.prepare()  # so that no time limit is spent on compiling
        with blas_threads(0):  # lanes have threads; those of linear algebra would wait for busy processors
            limit, own_seeds = Limit.of(self.time_limit, self.interrupt_function), self._read_seeds(seeds)
            answers: dict[int, Samples] = {}
            for positions, group in group_by_curvature(problems):
                part = limit and limit.part(len(positions) / (len(problems) - len(answers)))
                found = self._anneal(group, own_seeds[positions].ravel(), part)
                answers.update(zip(positions.tolist(), found, strict=True))
        return [answers[position] for position in range(len(problems))]

    def _read_seeds(self, seeds: Sequence[int]) -> NDArray[np.uint64]:
        """The seeds (P, reads) of all reads of problems with these seeds, whole numbers of any size."""
        try:
            words = np.array([operator.index(seed) % 2**64 for seed in seeds], dtype=np.uint64)
        except TypeError as error:
            raise InvalidInputError(f"seeds are {list(seeds)!r}; they must be whole numbers") from error
        return descend(words[:, None], np.arange(self.num_reads))

    @cached_property
    def _schedule(self) -> Schedule:
        own = self.beta_range, self.beta_schedule_type, self.num_sweeps_per_beta, self.beta_schedule
        return Schedule(self.num_sweeps, *own)

    def _answers(
        self, bits: NDArray[np.uint8], energies: Array, ends: tuple[Array, Array], sweeps: int, times: Sequence[float]
    ) -> list[Samples]:
        """The reads of each problem: bits (P, reads, D, K) and energies (P, reads), with the hot and cold ends (P,).

        `times` are those of `time.perf_counter` when the solve began, when annealing began, and when it ended.
        """
        began, prepared, sampled = times
        seconds: SolveInfo = {"preprocessing_seconds": prepared - began, "sampling_seconds": sampled - prepared}
        return [
            Samples(own_bits, own_energies, {**seconds, "num_sweeps": sweeps, "beta_range": (hot, cold)})
            for own_bits, own_energies, hot, cold in zip(bits, energies, *(end.tolist() for end in ends), strict=True)
        ]


def new_flag() -> NDArray[np.uint8]:
    """A flag by which one thread asks the compiled code of others to stop."""
    return np.zeros(1, dtype=np.uint8)


@contextmanager
def flag_after(seconds: float) -> Iterator[NDArray[np.uint8]]:
    """A flag that is set after so many seconds by a timer: compiled code reads a flag, and not the clock."""
    flag = new_flag()
    timer = threading.Timer(seconds, flag.fill, (1,))
    timer.daemon = True
    if seconds <= 0:
        flag[0] = 1
    elif seconds < threading.TIMEOUT_MAX:
        timer.start()
    try:
        yield flag
    finally:
        timer.cancel()


def in_threads(
    function: Callable[[Item], Any], items: Sequence[Item], num_threads: int | None, stop: NDArray[np.uint8]
) -> list[Any]:
    """The function's results for all items, in threads if there are several items and processors.

    After an error, or Ctrl-C, `stop` is set, which lets the other threads end soon.
    """
    if num_threads is not None:
        check_number("num_threads", num_threads, Integral, minimum=1)
    count = min(num_threads or processors(), len(items)) if len(items) > 1 else 1
    if count == 1:
        return list(map(function, items))
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stop[0] = 1
            pool.shutdown(wait=False, cancel_futures=True)
            raise
