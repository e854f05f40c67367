"""Samplers side by side: the same problems for each of them, and what training with each one reaches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from annealfit._support.errors import SamplerError, check_number
from annealfit._support.randomness import child_seed
from annealfit._support.threads import blas_threads
from annealfit.models import AnnealedClassifier
from annealfit.problems.bounds import lower_bounds
from annealfit.problems.problem import Problems, QuadraticProblem
from annealfit.samplers.catalogue import resolve_sampler
from annealfit.samplers.protocol import Preflight, Sampler, Samples
from annealfit.studies.records import Record
from annealfit.studies.solving import ProblemSet, SolveRow, Solves, rate_solves, solve_repeatedly
from annealfit.studies.training_run import Prepared, fit_annealed, fit_optimum, measure
from annealfit.studies.truth import TRUTH_SECONDS, find_truth

LOGISTIC = "logistic optimum"
_SOLVES = 3  # the path of a study's solves below its seed; a training's own paths are 0 to 2


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
    training: tuple[TrainingRow, ...]  # none where there was to be no training
    optimum: Record  # of logistic regression
    notes: tuple[str, ...]  # what the samplers warned of

    def trained(self, coordinates: str, bits: int) -> list[Record]:
        """The trainings in these coordinates and with these bits."""
        return [row.record for row in self.training if (row.coordinates, row.bits) == (coordinates, bits)]


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
    truth_seconds: float = TRUTH_SECONDS,
    seed: int = 42,
    on_solve: Callable[[str], Any] = lambda name: None,
) -> Comparison:
    """Solve the same problems with every sampler, and train `classifier` with each in place of its own.

    The problems are `take_problems`', for every combination of `coordinates` and `bits` (those of the classifier, if
    they are not given), rated by `rate_solves`. `trainers` are the samplers of the trainings where they are not those
    of the problems; none of them, no training. A sampler that fails is a row that says so. `on_solve` is called with
    the sampler's name after every solve of a problem set and after every iteration of a training. Linear algebra is
    kept to one thread: on arrays so small a second one only makes times and last bits uncertain.
    """
    check_number("repeats", repeats, Integral, minimum=1)
    check_number("target", target, minimum=0)
    check_number("truth_seconds", truth_seconds, above=0)
    variants = [
        _copy(classifier, coordinates=basis, bits=number)
        for basis in coordinates or (classifier.coordinates,)
        for number in bits or (classifier.bits,)
    ]
    rows: dict[tuple[int, str], TrainingRow] = {}
    notes = dict[str, None]()  # each note once, in order
    with blas_threads(0):
        fit_optimum(prepared, classifier.regularization)  # not timed, as with the samplers
        optimum = measure(prepared, LOGISTIC, fit_optimum(prepared, classifier.regularization))
        sets = [
            taken
            for variant in variants
            for taken in take_problems(
                variant, prepared.X_train, prepared.dataset.y_train, late=late, truth_seconds=truth_seconds
            )
        ]
        solves: list[dict[str, Solves | str]] = [{} for _ in sets]
        for name, sampler in samplers.items():
            trainer = sampler if trainers is None else trainers.get(name)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                watched = _Watched(sampler, lambda _, name=name: on_solve(name))  # type: ignore[misc]
                for position, taken in enumerate(sets):
                    own_seed = child_seed(seed, _SOLVES, position)
                    solves[position][name] = _solve_or_say_why(watched, taken, repeats, own_seed)
                if trainer is not None:
                    watched = _Watched(trainer, watched.watch)
                    rows |= {(n, name): _train(name, watched, variant, prepared) for n, variant in enumerate(variants)}
            notes |= dict.fromkeys(f"{name}: {warning.message}" for warning in caught)
    sets = [taken.knowing(found) for taken, found in zip(sets, solves, strict=True)]
    solving = (row for taken, found in zip(sets, solves, strict=True) for row in rate_solves(taken, found, target))
    training = (rows[key] for key in sorted(rows, key=lambda key: key[0]))  # stable: samplers as they were named
    return Comparison(tuple(sets), tuple(solving), tuple(training), optimum, tuple(notes))


def take_problems(
    classifier: AnnealedClassifier, X: Any, y: Any, *, late: int, truth_seconds: float = TRUTH_SECONDS
) -> tuple[ProblemSet, ...]:
    """The problems of the first iteration and, unless `late` is 0, those after `late` iterations by its own sampler.

    Their proven optima are searched for, `truth_seconds` each at most.

    >>> from sklearn.datasets import load_iris
    >>> taken = take_problems(AnnealedClassifier(bits=2, random_state=0), *load_iris(return_X_y=True), late=5)
    >>> [(problems.name, problems.after, len(problems.problems)) for problems in taken]
    [('first', 0, 3), ('late', 5, 3)]
    """
    check_number("late", late, Integral, minimum=0)
    handed: list[Problems] = []
    watched = _Watched(resolve_sampler(classifier.sampler), handed.append)
    copy = _copy(classifier, sampler=watched, max_iter=late + 1, tol=0.0, patience=None, time_limit=None)
    with _without_convergence_warning():
        copy.fit(X, y)
    return tuple(
        ProblemSet(
            name,
            after,
            handed[after],
            lower_bounds(handed[after], tight=True),
            find_truth(handed[after], truth_seconds),
            name_of_coordinates(classifier),
        )
        for name, after in (("first", 0), ("late", late))[: 2 if late else 1]
    )


def name_of_coordinates(classifier: AnnealedClassifier) -> str:
    """The word that was given, or the name of the type of an object of one's own."""
    given = classifier.coordinates
    return given if isinstance(given, str) else type(given).__name__


def _solve_or_say_why(sampler: Sampler, taken: ProblemSet, repeats: int, seed: int) -> Solves | str:
    try:
        return solve_repeatedly(sampler, taken, repeats, seed)
    except (SamplerError, OSError) as error:
        return str(error)


def _train(name: str, sampler: Sampler, classifier: AnnealedClassifier, prepared: Prepared) -> TrainingRow:
    try:
        with _without_convergence_warning():
            record = measure(prepared, name, fit_annealed(prepared, _copy(classifier, sampler=sampler)))
    except SamplerError as error:
        record = Record(name, error=str(error))
    return TrainingRow(name_of_coordinates(classifier), classifier.bits, record)


def _copy(classifier: AnnealedClassifier, **changes: Any) -> AnnealedClassifier:
    """A copy of the classifier with these changes; the way it is watched and saved is not copied."""
    return clone(classifier).set_params(callbacks=None, checkpoint=None, resume=False, **changes)


def _without_convergence_warning() -> warnings.catch_warnings[None]:
    """The loss beside the optimum's says how far a training is from it."""
    return warnings.catch_warnings(action="ignore", category=ConvergenceWarning)


class _Watched(Sampler):
    """Another sampler, with an eye on what it is handed; whatever it raises is a SamplerError, as it is in training."""

    def __init__(self, child: Sampler, watch: Callable[[Any], Any]) -> None:
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

    def prepare(self) -> None:
        self.child.prepare()

    def summarise(self, answers: Sequence[Samples]) -> dict[str, float | str]:
        return self.child.summarise(answers)

    @property
    def has_preflight(self) -> bool:
        return self.child.has_preflight

    def preflight(self, problems: Sequence[QuadraticProblem]) -> Preflight | None:
        return self.child.preflight(problems)
