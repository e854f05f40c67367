"""The trainer: Algorithm 1 of the paper (see `annealfit.paper`) with its choices as a `Method`.

`Trainer.step` is one iteration. It *proposes* updates (point → quadratic problems → sampler → updates), *decides* which
of them to apply (the acceptance rule), and *records* the outcome (the state after the step and a row of the history).
`run` repeats steps until a stopping rule ends the training; it serves networks too (`annealfit.training.network`).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.description import describe
from annealfit._support.errors import BudgetExhaustedError, InvalidInputError, SamplerError, check_number
from annealfit._support.randomness import child_seed, child_seeds
from annealfit._support.threads import blas_threads
from annealfit.problems.bounds import lower_bounds
from annealfit.problems.curvature import Curvature
from annealfit.problems.encoding import MAX_BITS
from annealfit.problems.problem import Problems
from annealfit.samplers.protocol import Preflight, Sampler, Samples, solve_checked
from annealfit.training.acceptance import Decision, Proposal
from annealfit.training.checkpoint import CheckpointFile
from annealfit.training.method import Method
from annealfit.training.objectives import Objective, Point
from annealfit.training.policies import ANNEALS, DampingPolicy, Outcome
from annealfit.training.state import Anchor, Best, HistoryRow, NetworkState, TrainingState, merit_of

REFRESH_FACTOR = 2.0  # a curvature is computed anew when its measure of the point has changed by this factor
MOST_SWEEPS = 30  # of the lower bound of an iteration's problems
# Couplings below this share of √(G_ii G_jj), and gradients below this share of √(G_ii f), are rounding. They are set to
# 0: with classes of equal size the first gradient of the bias is 0, and rounding would choose the sign of its update.
ROUNDING = 2.0**-44
UNSOLVED_ITERATIONS = 5  # without any answer, each with the sampler's own retries: the device is not coming back soon
PLATEAU = 1e-9  # a smaller relative gain in `patience` iterations counts as none
STALL_FRACTION = 0.25  # of the gap: while the loss decreases by more in an iteration, it has not converged
CHECK_GROWTH = 1.2  # the refined certificate is checked at iterations that grow by this factor


def _is_check_iteration(iteration: int) -> bool:
    """Whether an iteration is one of a geometric series, so that all checks are a bounded share of the training.

    >>> [iteration for iteration in range(2, 40) if _is_check_iteration(iteration)]
    [2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 19, 23, 27, 32, 39]
    """
    return iteration > 1 and int(math.log(iteration, CHECK_GROWTH)) > int(math.log(iteration - 1, CHECK_GROWTH))


@dataclass(frozen=True)
class Stopping:
    """Limits of a training; None or 0 switches one off.

    tol: certified distance to the optimum, relative to the loss. patience: iterations without a gain of the loss or,
    with `on_validation`, of the figures on the validation data. time_limit: seconds.
    """

    max_iter: int
    tol: float = 0.0
    patience: int | None = None
    time_limit: float | None = None
    on_validation: bool = False

    def before_iteration(self, iteration: int, point: Point, history: Sequence[HistoryRow]) -> str | None:
        """Return the reason not to begin another iteration, if there is one."""
        is_last = iteration >= self.max_iter
        if iteration > 0 and self.tol > 0 and self._has_converged(point, history, is_last=is_last):
            return "tolerance"
        return "max_iter" if is_last else None

    def _has_converged(self, point: Point, history: Sequence[HistoryRow], *, is_last: bool) -> bool:
        """Whether the tolerance is certified, at some iterations by the refined certificate."""
        gap = self.tol * point.loss
        if point.is_within(gap):
            return True
        refined = getattr(point, "is_refined_within", None)
        if refined is None or -history[-1]["loss_change"] > STALL_FRACTION * gap:
            return False
        return (is_last or _is_check_iteration(len(history))) and bool(refined(gap))

    def after_iteration(self, state: TrainingState | NetworkState, history: Sequence[HistoryRow]) -> str | None:
        """Return the reason to stop after the last row of the history, if there is one."""
        if len(history) >= UNSOLVED_ITERATIONS and not any(row["solved"] for row in history[-UNSOLVED_ITERATIONS:]):
            return "sampler"
        return self.before_resuming(state, history)

    def before_resuming(self, state: TrainingState | NetworkState, history: Sequence[HistoryRow]) -> str | None:
        """Return the reason why a training with this history had ended.

        A sampler without answers is not one: it may be back.
        """
        if not history:
            return None
        if self.time_limit is not None and history[-1]["seconds"] >= self.time_limit:
            return "time_limit"
        if self.patience is None:
            return None
        if self.on_validation and state.best is not None:
            return "validation" if state.iteration - state.best.iteration >= self.patience else None
        return "plateau" if self._is_plateau(history, self.patience) else None

    def _is_plateau(self, history: Sequence[HistoryRow], patience: int) -> bool:
        # Checked once in `patience` iterations: at every one, a long training would mostly scan its history.
        if len(history) <= patience or len(history) % patience:
            return False
        images = history[-1].get("images")  # of a network: losses of fewer images are not comparable
        losses = [row["loss"] for row in history if row["solved"] and row.get("images") == images]
        return len(losses) > patience and min(losses[-patience:]) > min(losses[:-patience]) * (1 - PLATEAU)


class Trainer:
    """Trains one objective with one sampler.

    `method` has its words resolved (`Method.resolved`). `validation` returns figures for weights.
    """

    def __init__(
        self,
        objective: Objective,
        sampler: Sampler,
        method: Method,
        *,
        bits: int,
        seed: int,
        stopping: Stopping,
        damping: DampingPolicy | None = None,
        validation: Callable[[Array], Mapping[str, float]] | None = None,
        point: Point | None = None,
    ) -> None:
        self.objective, self.sampler, self.method, self.validation = objective, sampler, method, validation
        self.bits, self.seed, self.stopping, self.damping = bits, seed, stopping, damping or DampingPolicy()
        self._point = point
        self._coordinates = method.coordinates.adapted(objective)
        self._curvature_at = method.curvature(objective)
        if not callable(self._curvature_at):
            raise InvalidInputError(
                f"the curvature returned {self._curvature_at!r} for the objective; expected a function of the point"
            )
        self._measure: Callable[[Any], float] | None = getattr(self._curvature_at, "measure", None)
        self._given: list[Any] = []
        self._curvatures: dict[Any, Curvature] = {}  # what the curvature function returned → in these coordinates
        self._source: Point | Anchor | None = None  # where it was computed

    @property
    def multiplications(self) -> float:
        """Multiplications of the largest product of an evaluation."""
        return self.objective.multiplications

    def start(self, weights: Array) -> TrainingState:
        """Return the state before the first iteration."""
        bits = _checked_bits(self.method.precision_policy.first(self.bits))
        state = TrainingState(0, weights, np.ones(1), bits, self.damping.first())
        with blas_threads(self.multiplications):
            point = self.point(state)
            state = replace(state, anchor=self._refresh_curvature(point, None))
            problems = self._problems(point, state)
        first = self.method.range_policy.first(problems, self.method.update_range)
        return replace(state, ranges=_checked_ranges(first, "began with", len(problems)))

    def point(self, state: TrainingState) -> Point:
        """Return the point of the state's weights, evaluated once."""
        if self._point is None or self._point.weights is not state.weights:
            self._point = self.objective.at(state.weights)
        return self._point

    def problems(self, state: TrainingState) -> Problems:
        """Return the problems that the next iteration passes to the sampler."""
        with blas_threads(self.multiplications):
            point = self.point(state)
            self._refresh_curvature(point, state.anchor)
            return self._with_chosen_ranges(self._problems(point, state))

    def preflight(self, state: TrainingState) -> Preflight | None:
        """Return what an iteration with the most bits costs on the sampler's device; None without a device."""
        if not self.sampler.has_preflight:
            return None
        return self.sampler.preflight(self.problems(replace(state, bits=self.bits)))

    def step(self, state: TrainingState) -> tuple[TrainingState, HistoryRow]:
        """Return the state after one iteration and its row of the history."""
        point = self.point(state)
        anchor = self._refresh_curvature(point, state.anchor)
        problems, answers, proposal = self._propose(state, point)
        decision, reached = self._decide(proposal)
        return self._record(state, anchor, problems, answers, proposal, decision, reached)

    # Propose: the surrogate at the point as quadratic problems, and the sampler's answers as updates.

    def _refresh_curvature(self, point: Point, anchor: Anchor | None) -> Anchor | None:
        """Compute the curvature for a point where it is due; return the anchor to keep.

        A curvature with a `measure` is kept while the measure of the point stays within a factor of 2. The weights at
        which it was computed are kept as an anchor: a resumed training computes it there again, bit for bit.
        """
        if self._measure is None:
            if self._source is not point:
                self._compute_curvature(point, point)
            return None
        measured = float(self._measure(point))
        if anchor is None or not (
            measured == anchor.measure
            or anchor.measure / REFRESH_FACTOR < measured < anchor.measure * REFRESH_FACTOR  # either may be 0
        ):
            anchor = Anchor(point.weights, measured)
        if self._source is not anchor:
            same = anchor.weights is point.weights
            self._compute_curvature(point if same else self.objective.at(anchor.weights), anchor)
        return anchor

    def _compute_curvature(self, point: Point, source: Point | Anchor) -> None:
        found = self._curvature_at(point)
        if not isinstance(found, Sequence) or not found:
            raise InvalidInputError(f"the curvature gave {found!r} at a point; expected a list of matrices")
        if [*map(id, found)] == [*map(id, self._given)]:  # a constant curvature
            self._source = source
            return
        known, (blocks, size) = self._curvatures, point.gradients.shape
        is_curvature = [isinstance(each, Curvature) or hasattr(each, "in_coordinates") for each in found]
        self._given = [
            each if known_kind else Curvature(each) for each, known_kind in zip(found, is_curvature, strict=True)
        ]
        for given in self._given:
            if given.size not in (size, blocks * size):
                raise InvalidInputError(
                    f"the curvature is for {given.size} parameters, and there are {blocks} blocks of {size} "
                    "(a head's: one per output, of the features and the bias); make it for one block, or for all"
                )
        self._curvatures = {}
        for given in self._given:
            curvature = known.get(given)
            if curvature is None:
                lazy = getattr(given, "in_coordinates", None)
                curvature = lazy(self._coordinates) if lazy else self._coordinates.pull_curvature(given)
                curvature = curvature.without_rounding(ROUNDING)
                if self.method.max_couplings is not None:
                    curvature = curvature.thinned(self.method.max_couplings, self.bits)
            self._curvatures[given] = curvature
        # Of the problems, and the sizes below which their gradients are rounding.
        self._current = tuple(self._curvatures[given] for given in self._given)
        self._smallest = ROUNDING * np.sqrt(np.abs(np.stack([curvature.diagonal for curvature in self._current])))
        self._source = source

    def _problems(self, point: Point, state: TrainingState) -> Problems:
        """Return the problems of a point, with the ranges that the range policy keeps."""
        if not np.isfinite(point.gradients).all():
            raise InvalidInputError(
                "the gradient overflowed: features or weights are too large; "
                "standardise the features (StandardScaler), or lower update_range"
            )
        curvatures = self._current
        gradients = self._coordinates.pull_gradients(point.gradients.reshape(-1, curvatures[0].size))
        if len(curvatures) not in (1, len(gradients)):
            raise InvalidInputError(
                f"the curvature gave {len(curvatures)} matrices for {len(gradients)} problems; give one, or one each"
            )
        gradients = np.where(np.abs(gradients) < math.sqrt(abs(point.loss)) * self._smallest, 0.0, gradients)
        if state.damping is not None:
            curvatures = tuple(curvature.damped(state.damping) for curvature in curvatures)
        assert state.ranges is not None, "the training has been started"
        ranges = np.full(len(gradients), state.ranges[0]) if len(state.ranges) == 1 else state.ranges
        if len(ranges) != len(gradients):
            raise InvalidInputError(f"the state has ranges of {len(ranges)} problems, and there are {len(gradients)}")
        return Problems(curvatures, gradients, ranges, state.bits)

    def _with_chosen_ranges(self, problems: Problems) -> Problems:
        chosen = self.method.range_policy.choose(problems)
        return problems.with_ranges(_checked_ranges(chosen, "chose", len(problems)))

    def _propose(self, state: TrainingState, point: Point) -> tuple[Problems, list[Samples], Proposal]:
        """Solve the problems of the point. The energies are computed here: the guarantee of descent rests on them."""
        problems = self._with_chosen_ranges(self._problems(point, state))
        seeds = child_seeds(child_seed(self.seed, ANNEALS, state.iteration), np.arange(len(problems)))
        try:
            answers = solve_checked(self.sampler, problems, seeds.tolist())
        except BudgetExhaustedError:
            raise
        except SamplerError as error:
            raise SamplerError(f"iteration {state.iteration + 1}: {error}") from error
        solved = np.array([answer.failure is None for answer in answers])
        chosen = np.zeros(problems.gradients.shape)  # no update where the solve failed
        if solved.any():
            bits = np.array([answer.best_bits for answer in answers if answer.failure is None])
            chosen[solved] = (problems if solved.all() else problems.take(np.flatnonzero(solved))).decode(bits)
        energies = problems.energies(chosen)
        updates = self._coordinates.push(chosen)
        return problems, answers, Proposal(point, updates, energies, self.method.step, state.previous, solved)

    # Decide: the acceptance rule.

    def _decide(self, proposal: Proposal) -> tuple[Decision, Point]:
        decision = _checked_decision(
            self.method.acceptance(proposal), len(proposal.energies), len(proposal.point.gradients)
        )
        reached = proposal.after(
            decision.accepted, decision.multiple, decision.previous, remove_class_mean=decision.remove_class_mean
        )
        return decision, reached

    # Record: the state after the step, and a row of the history.

    def _record(
        self,
        state: TrainingState,
        anchor: Anchor | None,
        problems: Problems,
        answers: Sequence[Samples],
        proposal: Proposal,
        decision: Decision,
        reached: Point,
    ) -> tuple[TrainingState, HistoryRow]:
        method, solved, energies = self.method, cast(NDArray[np.bool_], proposal.solved), proposal.energies
        accepted = decision.accepted & solved
        change = reached.loss - proposal.loss
        kept = cast(Array, state.ranges)
        rating = float(method.range_policy.rate(problems, change))
        outcome = Outcome(energies, accepted, solved, change, rating, state.rating, state.last_ranges)
        row: HistoryRow = {
            "iteration": state.iteration + 1,
            **cast(HistoryRow, reached.figures()),
            "loss_change": change,
            "energy": float(energies.sum()),
            **self._certificate(problems, energies, solved),
            "solved": int(solved.sum()),
            "accepted": int(accepted.sum()),
            "multiple": float(np.asarray(decision.multiple).mean() * method.step) if accepted.any() else 0.0,
            "range": float(problems.ranges.sum() / len(problems)),
            "bits": state.bits,
            **({} if state.damping is None else {"damping": state.damping}),
            "failures": _describe_failures(answers),
        }
        following = TrainingState(
            iteration=state.iteration + 1,
            weights=reached.weights,
            ranges=_checked_ranges(method.range_policy.revise(kept, outcome), "kept", len(problems)),
            bits=_checked_bits(method.precision_policy.following(state.bits, self.bits, outcome)),
            damping=self.damping.revise(state.damping, outcome),
            previous=state.previous if reached is proposal.point else proposal.point.weights,
            rating=rating,
            last_ranges=kept,
            anchor=anchor,
            best=state.best,
        )
        self._point = reached
        if self.validation is not None:
            following = with_validation(following, following.weights, self.validation(following.weights), row)
        _add_columns(row, self.sampler, answers)
        return following, row

    def _certificate(self, problems: Problems, energies: Array, solved: NDArray[np.bool_]) -> HistoryRow:
        """Return lower bound and gap of the energies, None where the curvature is not convex.

        The bound takes about a tenth of an iteration, which multiplies all rows with the weights three times: a sweep
        costs D² multiplications per problem. Where the sampler has computed a relaxation, that one is used.
        """
        if problems.relaxations:
            sweeps = int(max(sweeps for sweeps, _ in problems.relaxations))
        else:
            affordable = 0.1 * 3 * self.multiplications / (len(problems) * problems.n_parameters**2)
            sweeps = int(min(max(affordable, 1), MOST_SWEEPS))
        bounds = lower_bounds(problems, max_sweeps=sweeps)
        if not np.isfinite(bounds).all():
            return {"lower_bound": None, "gap": None}
        return {"lower_bound": float(bounds[solved].sum()), "gap": float((energies - bounds)[solved].sum())}


def with_validation(state: Any, weights: Any, figures: Mapping[str, float], row: HistoryRow) -> Any:
    """Write figures on the validation data into the row; return the state with the best weights so far."""
    row.update(cast(HistoryRow, {f"validation_{name}": value for name, value in figures.items()}))
    if state.best is not None and merit_of(figures) <= state.best.merit:
        return state
    return replace(state, best=Best(state.iteration, merit_of(figures), weights))


class Steps(Protocol):
    """What `run` needs: `Trainer`, or `NetworkTrainer`, which alternates trainers of the layers."""

    sampler: Sampler
    stopping: Stopping

    @property
    def multiplications(self) -> float:
        """Multiplications of the largest product of an evaluation."""

    def point(self, state: Any) -> Point:
        """Return the point of a state."""

    def step(self, state: Any) -> tuple[Any, HistoryRow]:
        """Return the state after one iteration and its row of the history."""


@dataclass(frozen=True, eq=False)
class Iteration:
    """What a callback sees: the state after the iteration and its row of the history."""

    state: TrainingState | NetworkState
    row: HistoryRow


Callback = Callable[[Iteration], Any]


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """The last complete state and its point, the rows of all iterations, and why training ended."""

    state: Any
    point: Point
    history: list[HistoryRow]
    stop_reason: str


def run(
    trainer: Steps,
    state: Any,
    *,
    history: Sequence[HistoryRow] = (),
    callbacks: Sequence[Callback] = (),
    checkpoint: CheckpointFile | None = None,
    seconds_before: float = 0.0,
) -> TrainingResult:
    """Iterate from `state` until a stopping rule, a callback that returns true, Ctrl-C or a spent budget ends it.

    A problem whose solve failed keeps its weights for that iteration. A sampler that raises, or never solved anything,
    ends the training with its error; the state that was reached is in the checkpoint.
    """
    rows, stopping = list(history), trainer.stopping
    trainer.sampler.prepare()
    began = time.perf_counter() - (rows[-1]["seconds"] if rows else seconds_before)
    saved_iteration, reason = state.iteration, stopping.before_resuming(state, rows)
    with blas_threads(trainer.multiplications):
        try:
            while reason is None:
                reason = stopping.before_iteration(state.iteration, trainer.point(state), rows)
                if reason is not None:
                    break
                following, row = trainer.step(state)
                row["seconds"] = time.perf_counter() - began
                rows.append(row)
                state = following
                if checkpoint is not None and state.iteration % checkpoint.every == 0:
                    saved_iteration = _save(checkpoint, state, rows) or saved_iteration
                answers = [callback(Iteration(state, row)) for callback in callbacks]  # all are called
                reason = "callback" if any(answers) else stopping.after_iteration(state, rows)
        except BaseException as error:
            if is_interrupt(error):
                reason = "interrupted"
            elif isinstance(error, BudgetExhaustedError) and state.iteration > 0:
                reason = "budget"
            else:
                raise
        finally:
            del rows[state.iteration :]  # an interrupt can fall between the row and the state it belongs to
            if checkpoint is not None and saved_iteration != state.iteration:
                _save(checkpoint, state, rows)
        if reason == "sampler" and not any(row["solved"] for row in rows):
            raise SamplerError(f"no problem was solved in {len(rows)} iterations; {rows[-1]['failures']}")
        return TrainingResult(state, trainer.point(state), rows, reason)


def _save(checkpoint: CheckpointFile, state: Any, rows: Sequence[HistoryRow]) -> int | None:
    """Save the state and return its iteration. A full disk costs the checkpoint, not the training."""
    try:
        checkpoint.save(state, rows)
    except OSError as error:
        warnings.warn(
            f"the checkpoint {checkpoint.path} could not be written after iteration {state.iteration} ({error}); "
            "training goes on, and tries again",
            stacklevel=5,
        )
        return None
    return state.iteration


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is Ctrl-C; inside compiled code it ends in a SystemError with that cause."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or is_interrupt(error.__cause__))


def _checked_ranges(given: Any, verb: str, count: int) -> Array:
    ranges = np.asarray(given)
    if ranges.shape != (count,) or ranges.dtype.kind not in "fiu" or not (np.isfinite(ranges) & (ranges > 0)).all():
        raise InvalidInputError(
            f"the range policy {verb} {given!r}; expected a finite number above 0 for each of {count} problems"
        )
    return ranges.astype(float, copy=False)


def _checked_bits(bits: Any) -> int:
    if type(bits) is int and 1 <= bits <= MAX_BITS:  # the usual case
        return bits
    check_number("the bits that the precision policy chose", bits, Integral, minimum=1, maximum=MAX_BITS)
    return int(bits)


def _checked_decision(decision: Any, count: int, blocks: int) -> Decision:
    accepted: Any = np.asarray(decision.accepted) if isinstance(decision, Decision) else np.empty(0)
    if accepted.shape != (count,) or accepted.dtype != np.bool_:
        raise InvalidInputError(
            f"the acceptance rule returned {decision!r}; expected a Decision with a truth value for each of "
            f"{count} problems"
        )
    for given in (decision.multiple, decision.previous):
        values = np.asarray(given)
        if values.shape not in ((), (blocks,)) or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise InvalidInputError(
                f"the acceptance rule chose the multiple {given!r}; expected a finite number, or one for each of "
                f"{blocks} blocks"
            )
    return decision if accepted is decision.accepted else replace(decision, accepted=accepted)


def _describe_failures(answers: Sequence[Samples]) -> str:
    """Return each reason once, with the problems it affected; usually empty."""
    problems_of: dict[str, list[int]] = {}
    for position, answer in enumerate(answers):
        if answer.failure is not None:
            problems_of.setdefault(answer.failure, []).append(position)
    return "; ".join(f"problem {', '.join(map(str, positions))}: {reason}" for reason, positions in problems_of.items())


def _add_columns(row: HistoryRow, sampler: Sampler, answers: Sequence[Samples]) -> None:
    given = sampler.summarise(answers)
    if not given:
        return
    if not isinstance(given, Mapping):
        raise SamplerError(
            f"{type(sampler).__name__}.summarise gave {given!r}; expected a mapping from names to values"
        )
    columns = describe(given)  # NumPy's numbers become Python's, which files can hold
    taken = sorted(columns.keys() & {*row, "seconds"})
    if taken:
        raise SamplerError(f"{type(sampler).__name__}.summarise gave columns that the history has: {', '.join(taken)}")
    row.update(cast(HistoryRow, columns))
