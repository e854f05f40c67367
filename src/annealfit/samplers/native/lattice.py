"""LatticeSolver: the lowest energy there is, proven, by a search that leaves out what cannot contain it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from numbers import Integral
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from annealfit._support.errors import InvalidInputError, check_number
from annealfit._support.threads import processors
from annealfit.problems.encoding import Encoding
from annealfit.problems.problem import Problems, QuadraticProblem, group_by_curvature
from annealfit.samplers.native.chains import Stop
from annealfit.samplers.protocol import Sampler, Samples, SolveInfo

if TYPE_CHECKING:
    from annealfit.samplers.native.branching import Branching, Search

_WORK_PER_CHUNK = 2e7  # multiplications before the compiled code is left to look at the clock: about 50 ms
_SECONDS_PER_REPORT = 0.1


@dataclass(frozen=True)
class LatticeProgress:
    """How far the search of one problem is."""

    position: int  # of the problem among those that are solved
    nodes: int
    best_energy: float
    lower_bound: float
    seconds: float


@dataclass(frozen=True)
class LatticeSolver(Sampler):
    """The proven optimum of convex problems, by branch and bound over the levels of the parameters.

    One read per problem: the best bits found. `info["proven"]` says whether they are the optimum, `info["gap"]` by how
    much they can be above it at most (0 if proven), `info["lower_bound"]` and `info["nodes"]` what the search knows
    and what it took. Nothing is random; how far a search gets in a time limit depends on the machine.

    Parameters
    ----------
    time_limit : float or None
        Seconds per problem after which its search ends early, with the best bits so far.
    max_nodes : int or None
        The same by the number of nodes, so that answers do not depend on the machine.
    num_threads : int or None
        Problems that are searched side by side; None is as many as this process may use
        (`annealfit._support.threads.processors`).
    interrupt_function : callable or None
        Called about twenty times per second; a true answer ends all searches early in the same way.
    progress_function : callable or None
        Called with a `LatticeProgress` ten times per second at most.

    Examples
    --------
    >>> problem = QuadraticProblem([[2.0, 0.5], [0.5, 1.0]], [1.0, -1.0], Encoding(bits=3, range=1.0))
    >>> samples = LatticeSolver().sample(problem)
    >>> round(samples.best_energy, 3), samples.info["proven"], samples.info["gap"]
    (-2.122, True, 0.0)

    """

    time_limit: float | None = 10.0
    max_nodes: int | None = None
    num_threads: int | None = None
    interrupt_function: Stop | None = field(default=None, repr=False)
    progress_function: Callable[[LatticeProgress], object] | None = field(default=None, repr=False)

    neutral_settings: ClassVar[frozenset[str]] = frozenset({"num_threads", "interrupt_function", "progress_function"})

    def __post_init__(self) -> None:
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit, above=0)
        for name in ("max_nodes", "num_threads"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), Integral, minimum=1)
        for name in ("interrupt_function", "progress_function"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise InvalidInputError(f"{name} is {function!r}; it must be callable")

    def prepare(self) -> None:
        """Compile the search."""
        _compile_search()

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """Search every problem; the seeds are not used."""
        from annealfit.samplers.native.branching import Branching  # compiled code: when it is needed

        began = time.perf_counter()
        tasks: list[tuple[int, Branching, Problems]] = []
        for positions, group in group_by_curvature(problems):
            branching = Branching.of(group.metric)
            tasks += [(position, branching, group[k : k + 1]) for k, position in enumerate(positions.tolist())]
        watch = _Watch(self.interrupt_function, self.progress_function)
        prepared = time.perf_counter()
        searches = self._search_all(tasks, watch)
        seconds: SolveInfo = {
            "preprocessing_seconds": prepared - began,
            "sampling_seconds": time.perf_counter() - prepared,
            "postprocessing_seconds": 0.0,
        }
        return [_answer(problem, searches[position], seconds) for position, problem in enumerate(problems)]

    def _search_all(self, tasks: list[tuple[int, Branching, Problems]], watch: _Watch) -> dict[int, Search]:
        """The searches by the problems' positions, each as far as it got."""
        count = min(self.num_threads or processors(), len(tasks))
        if count <= 1:
            return {task[0]: self._search(*task, watch) for task in tasks}
        with ThreadPoolExecutor(count) as pool:
            try:
                futures = {task[0]: pool.submit(self._search, *task, watch) for task in tasks}
                return {position: future.result() for position, future in futures.items()}
            finally:
                watch.stopped = True  # after Ctrl-C or an error, lets the other threads end with their chunk

    def _search(self, position: int, branching: Branching, problem: Problems, watch: _Watch) -> Search:
        """Search one problem, in chunks, until it is finished or a limit is reached."""
        from annealfit.samplers.native.branching import Search

        began = time.perf_counter()
        search = Search(branching, problem)
        chunk = max(1, int(_WORK_PER_CHUNK / (problem.n_parameters**2 + 50)))
        while not search.is_finished and not watch.asks_to_stop():
            seconds = time.perf_counter() - began
            if self.time_limit is not None and seconds >= self.time_limit:
                break
            left = chunk if self.max_nodes is None else min(chunk, self.max_nodes - search.nodes)
            if left == 0:
                break
            search.advance(left)
            watch.report(position, search, began)
        return search


class _Watch:
    """What the threads of one solve have in common: the user's functions, called by one thread at a time."""

    def __init__(self, interrupt: Stop | None, progress: Callable[[LatticeProgress], object] | None) -> None:
        self.stopped = False
        self._interrupt, self._progress = interrupt, progress
        self._lock = threading.Lock()
        self._last_report = -np.inf

    def asks_to_stop(self) -> bool:
        if self._interrupt is not None and not self.stopped:
            with self._lock:
                self.stopped = self.stopped or bool(self._interrupt())
        return self.stopped

    def report(self, position: int, search: Search, began: float) -> None:
        if self._progress is None:
            return
        with self._lock:
            now = time.perf_counter()
            if now - self._last_report >= _SECONDS_PER_REPORT:
                self._last_report = now
                self._progress(
                    LatticeProgress(position, search.nodes, search.energy, search.lower_bound(), now - began)
                )


def _answer(problem: QuadraticProblem, search: Search, seconds: SolveInfo) -> Samples:
    bits = search.best_bits()[None]
    energies = problem.energy(bits)
    energy, proven = float(energies[0]), search.is_finished
    lower_bound = energy if proven else min(search.lower_bound(), energy)
    info: SolveInfo = {
        **seconds,
        "proven": proven,
        "gap": energy - lower_bound,
        "lower_bound": lower_bound,
        "nodes": search.nodes,
    }
    return Samples(bits, energies, info)


@cache
def _compile_search() -> None:
    from annealfit.samplers.native.branching import Branching, Search

    ((_, group),) = group_by_curvature([QuadraticProblem(np.eye(2), np.array([0.3, 0.4]), Encoding(bits=2, range=1.0))])
    search = Search(Branching.of(group.metric), group)
    search.is_finished = False  # its first bound is tight, and there would be nothing to search
    search.lower_bound()
    search.advance(1)
