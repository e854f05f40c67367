"""Samplers side by side: the same problems for each of them, against the proven optimum, and a training with each."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from annealfit._support.errors import BudgetExhaustedError, InvalidInputError, SamplerError, check_number
from annealfit._support.randomness import child_seed, child_seeds
from annealfit._support.threads import blas_threads
from annealfit.models import AnnealedClassifier
from annealfit.problems.problem import Problems
from annealfit.samplers import LatticeSolver
from annealfit.samplers.protocol import Sampler, solve_checked
from annealfit.studies.execute import Prepared, fit_optimum, learned, measure
from annealfit.studies.records import Record
from annealfit.training.method import as_method

CONFIDENCE = 0.99  # with which a time to solution holds at least one success
INTERVAL = 0.95  # of the intervals of estimates
LOGISTIC = "logistic optimum"
_SOLVES = 3  # the path of a study's solves below its seed; a training's own paths are 0 to 2


@dataclass(frozen=True)
class Estimate:
    """A number that was estimated from reads, and the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float


def estimate_share(successes: int, trials: int) -> Estimate:
    """The share of trials that succeed, with Wilson's interval; without a trial it can be anything."""
    if trials == 0:
        return Estimate(0.0, 0.0, 1.0)
    interval = binomtest(successes, trials).proportion_ci(INTERVAL, method="wilson")
    return Estimate(successes / trials, float(interval.low), float(interval.high))


def time_to_solution(seconds: float, share: float) -> float:
    """Time until reads of `seconds` each, a `share` of which succeed, have succeeded at least once with 99 %.

    `seconds · ln(1 − 0.99) / ln(1 − share)`, but never less than one read; infinite where no read succeeds.
    """
    if share >= CONFIDENCE:
        return seconds
    return seconds * math.log1p(-CONFIDENCE) / math.log1p(-share) if share > 0 else math.inf


@dataclass(frozen=True, eq=False)
class Solves:
    """What a sampler's repeated solves of one problem set gave."""

    reads: tuple[NDArray[np.float64], ...]  # P arrays: the energies of all reads of a problem, of all repeats
    seconds: NDArray[np.float64]  # (repeats,): of a solve of the whole set
    access_seconds: float | None = None  # of a QPU: mean of a solve


@dataclass(frozen=True, eq=False)
class ProblemSet:
    """The P problems of one iteration of a training, which a sampler is handed together."""

    name: str
    after: int  # iterations before it
    problems: Problems
    energies: NDArray[np.float64]  # (P,), the lowest known
    proven: NDArray[np.bool_]  # (P,), that there is no lower one
    coordinates: str = "raw"

    @property
    def variant(self) -> tuple[str, int]:
        """Coordinates and bits: what sets of one training have in common."""
        return self.coordinates, self.problems.bits

    def own(self, rows: Iterable[SolveRow]) -> list[SolveRow]:
        """The rows that are about these problems."""
        key = self.name, *self.variant
        return [row for row in rows if (row.problems, row.coordinates, row.bits) == key]

    def knowing(self, solves: Mapping[str, Solves | str]) -> ProblemSet:
        """The set with what samplers found: without a proof, the lowest energy of all is the best known."""
        lowest = self.energies
        for found in solves.values():
            if isinstance(found, Solves):
                best = np.array([energies.min(initial=np.inf) for energies in found.reads])
                lowest = np.where(self.proven, lowest, np.minimum(lowest, best))
        return replace(self, energies=lowest)


@dataclass(frozen=True)
class SolveRow:
    """One sampler on one problem set."""

    sampler: str
    problems: str  # the set's name
    coordinates: str = "raw"
    bits: int = 0
    access_seconds: float | None = None  # of a device
    seconds_per_read: float = math.nan
    reads: tuple[int, ...] = ()  # of each problem
    successes: tuple[int, ...] = ()  # reads of each problem that are the lowest energy there is
    success: Estimate = Estimate(math.nan, math.nan, math.nan)  # share of all reads
    seconds_to_solution: float = math.inf  # median over the problems
    residual: float = math.nan  # (E − E*)/|E*|, mean over reads and problems
    proven: bool = False  # every problem's lowest energy; else success is reaching the best known
    failure: str | None = None


@dataclass(frozen=True, eq=False)
class TrainingRow:
    """The training with one sampler."""

    coordinates: str
    bits: int
    record: Record


@dataclass(frozen=True, eq=False)
class Comparison:
    """Every sampler's rows, in the order in which coordinates, bits and samplers were named."""

    problem_sets: tuple[ProblemSet, ...]
    solving: tuple[SolveRow, ...]
    training: tuple[TrainingRow, ...]  # empty where no training was asked for
    optimum: Record  # of logistic regression
    notes: tuple[str, ...]  # warnings of the samplers
    confidence: float = CONFIDENCE
    interval: float = INTERVAL


def compare_samplers(
    samplers: Mapping[str, Sampler],
    prepared: Prepared,
    classifier: AnnealedClassifier,
    *,
    coordinates: Sequence[str] | None = None,
    bits: Sequence[int] | None = None,
    trainers: Mapping[str, Sampler] | None = None,
    late: int = 5,
    repeats: int = 1,
    target: float = 1e-9,
    truth_seconds: float = 10.0,
    seed: int = 42,
    on_solve: Callable[[str], Any] = lambda name: None,
) -> Comparison:
    """Solve the same problems with every sampler, and train `classifier` with each in place of its own.

    The problems are those of `take_problems`, for every combination of `coordinates` and `bits` (by default the
    classifier's). `trainers` are the samplers of the trainings where they differ from those of the problems; an empty
    mapping means no training. `on_solve` is called with the sampler's name after every solve and iteration.
    """
    check_number("repeats", repeats, Integral, minimum=1)
    check_number("target", target, minimum=0)
    check_number("truth_seconds", truth_seconds, above=0)
    chosen = product(coordinates or (as_method(classifier.method).coordinates,), bits or (classifier.bits,))
    variants = [_copy(classifier, method__coordinates=basis, bits=number) for basis, number in chosen]
    X, y = prepared.X_train, prepared.y_train
    training: list[list[TrainingRow]] = [[] for _ in variants]
    notes = dict[str, None]()  # each note once, in order
    with blas_threads(0):
        fit_optimum(prepared, classifier.regularization)  # not timed, as with the samplers
        optimum = measure(prepared, LOGISTIC, fit_optimum(prepared, classifier.regularization))
        sets = [taken for v in variants for taken in take_problems(v, X, y, late=late, truth_seconds=truth_seconds)]
        solves: list[dict[str, Solves | str]] = [{} for _ in sets]
        for name, sampler in samplers.items():
            trainer, report = sampler if trainers is None else trainers.get(name), partial(on_solve, name)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                for number, taken in enumerate(sets):
                    own_seed = child_seed(seed, _SOLVES, number)
                    try:
                        solves[number][name] = solve_repeatedly(sampler, taken, repeats, own_seed, report)
                    except (SamplerError, OSError) as error:
                        solves[number][name] = str(error)
                for own, variant in zip(training, variants if trainer is not None else (), strict=False):
                    own.append(_train(name, _copy(variant, sampler=trainer), prepared, report))
            notes |= dict.fromkeys(f"{name}: {warning.message}" for warning in caught)
    sets = [taken.knowing(found) for taken, found in zip(sets, solves, strict=True)]
    solving = (row for taken, found in zip(sets, solves, strict=True) for row in rate_solves(taken, found, target))
    return Comparison(tuple(sets), tuple(solving), tuple(chain.from_iterable(training)), optimum, tuple(notes))


def take_problems(
    classifier: AnnealedClassifier, X: Any, y: Any, *, late: int, truth_seconds: float = 10.0
) -> tuple[ProblemSet, ...]:
    """The problems of the first iteration and, unless `late` is 0, those after `late` iterations by its own sampler."""
    check_number("late", late, Integral, minimum=0)
    endless = _copy(classifier, max_iter=late + 1, tol=0.0, patience=None, time_limit=None)
    taken = []
    for name, after in (("first", 0), ("late", late))[: 2 if late else 1]:
        problems = endless.problems(X, y, after=after)
        energies, proven = find_truth(problems, truth_seconds)
        taken.append(ProblemSet(name, after, problems, energies, proven, _coordinates_of(classifier)))
    return tuple(taken)


def find_truth(problems: Problems, time_limit: float = 10.0) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The lowest energy of every problem found within `time_limit` seconds, and whether it is proven to be the lowest.

    A problem that is not convex is not searched: its lowest known energy is the lowest that samplers find.
    """
    try:
        answers = LatticeSolver(time_limit=time_limit).solve(problems, [0] * len(problems))
    except InvalidInputError:
        return np.full(len(problems), np.inf), np.zeros(len(problems), dtype=bool)
    energies = np.array([answer.best_energy for answer in answers])
    return energies, np.array([answer.info["proven"] for answer in answers])


def with_reads(sampler: Sampler, reads: int) -> Sampler:
    """The sampler with this many reads, or itself if it takes no `num_reads`."""
    try:
        return sampler.set_params(num_reads=reads)
    except InvalidInputError:
        return sampler


def solve_repeatedly(
    sampler: Sampler, taken: ProblemSet, repeats: int, seed: int, on_solve: Callable[[], Any] = lambda: None
) -> Solves:
    """Solve the set `repeats` times with different seeds, after one solve of its first problem that is not timed.

    That solve pays for what is paid once: compiling, connecting, embedding.
    """
    numbers = np.arange(len(taken.problems))
    seconds, failures, access = [], [], 0.0
    reads: list[list[NDArray[np.float64]]] = [[np.empty(0)] for _ in numbers]
    if sampler.preflight(taken.problems) is None:  # a device is paid for each solve, and its preflight embeds
        solve_checked(sampler, taken.problems[:1], child_seeds(seed, repeats, numbers[:1]).tolist())
        on_solve()
    for repeat in range(repeats):
        seeds = child_seeds(seed, repeat, numbers).tolist()
        started = time.perf_counter()
        try:
            answers = solve_checked(sampler, taken.problems, seeds)
        except BudgetExhaustedError:
            if repeat == 0:
                raise
            break  # what was paid for counts
        seconds.append(time.perf_counter() - started)
        on_solve()
        for own, problem, answer in zip(reads, taken.problems, answers, strict=True):
            if answer.failure is None:
                own.append(problem.energy(answer.bits))  # recomputed: a sampler may report any energy
            else:
                failures.append(answer.failure)
        access += float(sampler.summarise(answers).get("access_seconds", math.nan))
    if len(failures) == len(seconds) * len(numbers):
        raise SamplerError(f"no problem was solved in {len(seconds)} solves; {failures[0]}")
    mean_access = None if math.isnan(access) else access / len(seconds)
    return Solves(tuple(map(np.concatenate, reads)), np.array(seconds), mean_access)


def rate_solves(taken: ProblemSet, solves: Mapping[str, Solves | str], target: float) -> list[SolveRow]:
    """A row per sampler, from its solves or from the reason why there are none.

    A read succeeds if its energy is within a relative `target` of the lowest that is known of the problem. The time to
    solution is the median over the problems: that of a pooled share would hide that a sampler never finds some.
    """
    rows, limits = [], taken.energies + target * np.abs(taken.energies)
    for name, found in solves.items():
        rows.append(row := SolveRow(name, taken.name, *taken.variant, proven=bool(taken.proven.all())))
        if isinstance(found, str):
            rows[-1] = replace(row, failure=found)
            continue
        reads = tuple(map(len, found.reads))
        successes = tuple(int((own <= limit).sum()) for own, limit in zip(found.reads, limits, strict=True))
        # The time of a device is its access time, which is paid for; around a simulated one the clock says nothing.
        spent = float(np.median(found.seconds)) if found.access_seconds is None else found.access_seconds
        per_read = spent * len(found.seconds) / sum(reads)
        times = [time_to_solution(per_read, hits / max(count, 1)) for hits, count in zip(successes, reads, strict=True)]
        # Nothing is below a proven optimum but by rounding.
        residuals = [
            np.maximum(own - best, 0.0).mean() / abs(best)
            for own, best in zip(found.reads, taken.energies.tolist(), strict=True)
            if len(own) and best
        ]
        rows[-1] = replace(
            row,
            access_seconds=found.access_seconds,
            seconds_per_read=per_read,
            reads=reads,
            successes=successes,
            success=estimate_share(sum(successes), sum(reads)),
            seconds_to_solution=float(np.median(times)),
            residual=float(np.mean(residuals)) if residuals else math.nan,
        )
    return rows


def _train(name: str, classifier: AnnealedClassifier, prepared: Prepared, report: Callable[[], Any]) -> TrainingRow:
    def progress(_: Any) -> None:  # a callback's answer would end the training
        report()

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the loss beside the optimum says how far it came
            classifier.set_params(callbacks=[progress]).fit(prepared.X_train, prepared.y_train)
        record = measure(prepared, name, learned(classifier))
    except SamplerError as error:
        record = Record(name, error=str(error))
    return TrainingRow(_coordinates_of(classifier), classifier.bits, record)


def _coordinates_of(classifier: AnnealedClassifier) -> str:
    """The word of the classifier's coordinates, or the type's name where they are an object."""
    given = as_method(classifier.method).coordinates
    return given if isinstance(given, str) else type(given).__name__


def _copy(classifier: AnnealedClassifier, **changes: Any) -> AnnealedClassifier:
    """A copy of the classifier with these changes, without its callbacks and checkpoint."""
    return clone(classifier).set_params(callbacks=None, checkpoint=None, **changes)
