"""Samplers side by side: the same problems for each of them, and what training with each one reaches."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from annealfit.baselines import solve_logistic
from annealfit.bounds import lower_bounds
from annealfit.classifier import AnnealedClassifier
from annealfit.datasets import Dataset
from annealfit.errors import BudgetExhaustedError, SamplerError, check_number
from annealfit.features import RandomConvFeatures
from annealfit.problem import QuadraticProblem
from annealfit.randomness import child_seed, child_seeds
from annealfit.samplers import Sampler, Samples, SimulatedAnnealer
from annealfit.samplers.preflight import Preflight
from annealfit.surrogate import TrainingSet, evaluate
from annealfit.surrogate.gram import augment

CONFIDENCE = 0.99
OPTIMUM = "logistic optimum"
_SOLVES = 2  # the path of a study's solves below its seed; a training's own paths are 0 and 1


@dataclass(frozen=True, eq=False)
class ProblemSet:
    """The problems of one iteration of a training, which a sampler is handed together."""

    name: str
    after: int  # iterations before it
    problems: tuple[QuadraticProblem, ...]
    bounds: NDArray[np.float64]  # (P,): no energy is below


@dataclass(frozen=True, eq=False)
class Solves:
    """What a sampler's repeated solves of one problem set gave."""

    energies: NDArray[np.float64]  # (repeats, P); without an answer 0, the energy of leaving the weights alone
    seconds: NDArray[np.float64]  # (repeats,): of a solve of the whole set
    unsolved: int = 0  # (problem, repeat) pairs without an answer
    access_seconds: float | None = None  # of a QPU: mean of a solve


@dataclass(frozen=True)
class SolveRow:
    """One sampler on one problem set; energies are sums over its problems and means over repeats."""

    sampler: str
    problems: str  # the set's name
    energy: float = math.nan
    gap: float = math.nan  # above the bound
    gap_share: float = math.nan  # of the bound's absolute value
    least_seconds: float = math.nan  # of a solve of the set
    median_seconds: float = math.nan
    reached: float = 0.0  # share of the (problem, repeat) pairs that reached the target
    problems_reached: int = 0  # in some repeat
    seconds_to_target: float = math.inf  # a problem's, median
    access_seconds: float | None = None
    unsolved: int = 0
    failure: str | None = None


@dataclass(frozen=True)
class TrainingRow:
    """What training with one sampler reached."""

    sampler: str
    loss: float = math.nan
    loss_ratio: float = math.nan  # to the optimum's
    test_accuracy: float = math.nan
    iterations: int = 0
    stop_reason: str = ""
    seconds: float = math.nan
    access_seconds: float | None = None
    losses: tuple[float, ...] = ()  # after every iteration
    failure: str | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """Every sampler's rows, in the order in which the samplers were named."""

    problem_sets: tuple[ProblemSet, ...]
    solving: tuple[SolveRow, ...]
    training: tuple[TrainingRow, ...]
    optimum: TrainingRow
    notes: tuple[str, ...]  # what the samplers warned of


def compare_samplers(
    samplers: Mapping[str, Sampler],
    dataset: Dataset,
    features: RandomConvFeatures,
    classifier: AnnealedClassifier,
    *,
    late: int = 30,
    repeats: int = 10,
    target: float = 0.01,
    seed: int = 42,
    on_solve: Callable[[str], Any] = lambda name: None,
) -> Comparison:
    """Solve the same problems with every sampler, and train `classifier` with each in place of its own.

    The problems are `take_problems`', rated by `rate_solves`. A sampler that fails is a row that says so. `on_solve`
    is called with the sampler's name after every solve of a problem set and after every iteration of a training.
    Linear algebra is kept to one thread: on arrays so small a second one only makes times and last bits uncertain.
    """
    check_number("repeats", repeats, Integral, minimum=1)
    check_number("target", target, minimum=0)
    train = features.fit_transform(dataset.X_train), dataset.y_train
    test = features.transform(dataset.X_test), dataset.y_test
    data = TrainingSet.build(*train, len(dataset.class_names), classifier.regularization)
    training, notes = [], dict[str, None]()  # each note once, in order
    with threadpool_limits(1, user_api="blas"):
        optimum = _solve_optimum(data, test)
        sets = take_problems(classifier, *train, late=late)
        solves: list[dict[str, Solves | str]] = [{} for _ in sets]
        for name, sampler in samplers.items():
            watched = _Watched(sampler, lambda _, name=name: on_solve(name))  # type: ignore[misc]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                for position, taken in enumerate(sets):
                    own_seed = child_seed(seed, _SOLVES, position)
                    solves[position][name] = _solve_or_say_why(watched, taken, repeats, own_seed)
                training.append(_train(name, watched, classifier, train, test, optimum.loss))
            notes |= dict.fromkeys(f"{name}: {warning.message}" for warning in caught)
    solving = (row for taken, found in zip(sets, solves, strict=True) for row in rate_solves(taken, found, target))
    return Comparison(sets, tuple(solving), tuple(training), optimum, tuple(notes))


def take_problems(classifier: AnnealedClassifier, X: Any, y: Any, *, late: int) -> tuple[ProblemSet, ...]:
    """The problems of the first iteration and, unless `late` is 0, those after `late` iterations by its own sampler.

    >>> from sklearn.datasets import load_iris
    >>> taken = take_problems(AnnealedClassifier(bits=2, random_state=0), *load_iris(return_X_y=True), late=5)
    >>> [(problems.name, problems.after, len(problems.problems)) for problems in taken]
    [('first', 0, 3), ('late', 5, 3)]
    """
    check_number("late", late, Integral, minimum=0)
    handed: list[Sequence[QuadraticProblem]] = []
    watched = _Watched(classifier.sampler or SimulatedAnnealer(), handed.append)
    _fit(classifier, X, y, sampler=watched, max_iter=late + 1, tol=0.0, patience=None, time_limit=None)
    return tuple(
        ProblemSet(name, after, tuple(handed[after]), lower_bounds(handed[after], tight=True))
        for name, after in (("first", 0), ("late", late))[: 2 if late else 1]
    )


def solve_repeatedly(sampler: Sampler, taken: ProblemSet, repeats: int, seed: int) -> Solves:
    """Solve the set `repeats` times with different seeds, after one solve that is not timed.

    That one pays for what is paid once: compiling, connecting, embedding.
    """
    numbers = np.arange(len(taken.problems))
    energies, seconds = np.zeros((repeats, len(numbers))), np.zeros(repeats)
    unsolved, access = 0, 0.0
    if sampler.preflight(taken.problems) is None:  # a device is paid for each solve, and its preflight embeds
        sampler.solve(taken.problems, child_seeds(seed, repeats, numbers).tolist())
    for repeat in range(repeats):
        seeds = child_seeds(seed, repeat, numbers).tolist()
        started = time.perf_counter()
        try:
            answers = sampler.solve(taken.problems, seeds)
        except BudgetExhaustedError:
            if repeat == 0:
                raise
            energies, seconds, repeats = energies[:repeat], seconds[:repeat], repeat  # what was paid for counts
            break
        seconds[repeat] = time.perf_counter() - started
        for number, (problem, answer) in enumerate(zip(taken.problems, answers, strict=True)):
            if answer.failure is None:
                energies[repeat, number] = problem.energy(answer.bits).min()  # ours: never taken on trust
            else:
                unsolved += 1
        access += float(sampler.summarise(answers).get("access_seconds", math.nan))
    if unsolved == energies.size:
        raise SamplerError(f"no problem was solved in {repeats} solves; {answers[0].failure}")
    return Solves(energies, seconds, unsolved, None if math.isnan(access) else access / repeats)


def time_to_target(seconds: float, share: float, confidence: float = CONFIDENCE) -> float:
    """Time in which runs of `seconds` each, a `share` of which succeed, have succeeded at least once with `confidence`.

    `seconds · ln(1 − confidence) / ln(1 − share)`, but never less than one run; infinite where no run succeeds.

    >>> round(time_to_target(2.0, 0.9), 9), time_to_target(2.0, 1.0), time_to_target(2.0, 0.0)
    (4.0, 2.0, inf)
    """
    check_number("share", share, minimum=0, maximum=1)
    if share >= confidence:
        return seconds
    return seconds * math.log1p(-confidence) / math.log1p(-share) if share > 0 else math.inf


def rate_solves(taken: ProblemSet, solves: Mapping[str, Solves | str], target: float) -> list[SolveRow]:
    """A row a sampler, from its solves or from the reason why there are none.

    A repeat reaches a problem's target if its energy is within `target · |bound|` of the best that any of the samplers
    found for the problem in any repeat. With p the share of such repeats and t the median time of a solve divided by
    the number of problems, the problem takes `time_to_target(t, p)`; the row has the median over problems: in that
    time half of them are reached, with 99 % confidence each. (A share pooled over problems would not do: a sampler that
    always finds one half and never the other is not helped by repeating.)
    """
    done = [found.energies.min(axis=0) for found in solves.values() if isinstance(found, Solves)]
    enough = np.min(done, axis=0) + target * np.abs(taken.bounds) if done else taken.bounds
    return [
        SolveRow(name, taken.name, failure=found) if isinstance(found, str) else _rate(name, taken, found, enough)
        for name, found in solves.items()
    ]


def _solve_or_say_why(sampler: Sampler, taken: ProblemSet, repeats: int, seed: int) -> Solves | str:
    try:
        return solve_repeatedly(sampler, taken, repeats, seed)
    except (SamplerError, OSError) as error:
        return str(error)


def _rate(name: str, taken: ProblemSet, found: Solves, enough: NDArray[np.float64]) -> SolveRow:
    shares = (found.energies <= enough).mean(axis=0)
    seconds = float(np.median(found.seconds))
    energy, bound = float(found.energies.sum(axis=1).mean()), float(taken.bounds.sum())
    return SolveRow(
        name,
        taken.name,
        energy=energy,
        gap=energy - bound,
        gap_share=(energy - bound) / abs(bound) if bound else math.nan,
        least_seconds=float(found.seconds.min()),
        median_seconds=seconds,
        reached=float(shares.mean()),
        problems_reached=int((shares > 0).sum()),
        seconds_to_target=float(np.median([time_to_target(seconds / len(shares), float(p)) for p in shares])),
        access_seconds=found.access_seconds,
        unsolved=found.unsolved,
    )


def _train(
    name: str, sampler: Sampler, classifier: AnnealedClassifier, train: Any, test: Any, optimum_loss: float
) -> TrainingRow:
    try:
        trained = _fit(classifier, *train, sampler=sampler)
    except SamplerError as error:
        return TrainingRow(name, failure=str(error))
    history = trained.history_
    access = [row["access_seconds"] for row in history if "access_seconds" in row]
    return TrainingRow(
        name,
        loss=history[-1]["loss"],
        loss_ratio=history[-1]["loss"] / optimum_loss,
        test_accuracy=float(trained.score(*test)),
        iterations=trained.n_iter_,
        stop_reason=trained.stop_reason_,
        seconds=history[-1]["seconds"],
        access_seconds=float(sum(access)) if access else None,
        losses=tuple(row["loss"] for row in history),
    )


def _solve_optimum(data: TrainingSet, test: tuple[NDArray[np.float64], NDArray[np.intp]]) -> TrainingRow:
    solve_logistic(data)  # not timed, as with the samplers
    found = solve_logistic(data)
    accuracy = float(((augment(test[0]) @ found.weights).argmax(axis=1) == test[1]).mean())
    loss = evaluate(data, found.weights).loss
    return TrainingRow(OPTIMUM, loss=loss, loss_ratio=1.0, test_accuracy=accuracy, seconds=found.seconds)


class _Watched(Sampler):
    """Another sampler, with an eye on what it is handed; whatever it raises is a SamplerError, as it is in training."""

    def __init__(self, child: Sampler, watch: Callable[[Sequence[QuadraticProblem]], Any]) -> None:
        self.child, self.watch = child, watch

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        try:
            answers = self.child.solve(problems, seeds)
        except (SamplerError, OSError):  # the latter is the network's doing, and training goes on after it
            raise
        except Exception as error:
            raise SamplerError(f"{type(self.child).__name__} raised {type(error).__name__}: {error}") from error
        if len(answers) != len(problems):
            raise SamplerError(f"{type(self.child).__name__} answered {len(answers)} of {len(problems)} problems")
        self.watch(problems)
        return answers

    def summarise(self, answers: Sequence[Samples]) -> dict[str, float | str]:
        return self.child.summarise(answers)

    def preflight(self, problems: Sequence[QuadraticProblem]) -> Preflight | None:
        return self.child.preflight(problems)


def _fit(classifier: AnnealedClassifier, X: Any, y: Any, **changes: Any) -> AnnealedClassifier:
    """A copy of the classifier with these changes, trained; the way it is watched and saved is not copied."""
    copy = clone(classifier).set_params(callbacks=None, checkpoint=None, resume=False, **changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the loss beside the optimum's says how far it is
        copy.fit(X, y)
    if copy.stop_reason_ == "interrupted":
        raise KeyboardInterrupt  # Ctrl-C ends a training with what it has learnt; here it means the whole comparison
    return copy
