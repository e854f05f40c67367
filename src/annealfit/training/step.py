"""One iteration: point → problems → answers → updates → decision → point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from annealfit._support.description import describe
from annealfit._support.errors import BudgetExhaustedError, InvalidInputError, SamplerError, check_number
from annealfit._support.randomness import child_seed, child_seeds
from annealfit.problems.bounds import lower_bounds
from annealfit.problems.coordinates import Coordinates
from annealfit.problems.encoding import MAX_BITS
from annealfit.problems.problem import Problems
from annealfit.samplers.protocol import Sampler, Samples, solve_checked
from annealfit.training.acceptance import Acceptance, Decision, Proposal
from annealfit.training.damping import DampingPolicy
from annealfit.training.history import HistoryRow
from annealfit.training.initialization import ANNEALS
from annealfit.training.objectives import Point, Turns
from annealfit.training.outcome import Outcome
from annealfit.training.precision import PrecisionPolicy
from annealfit.training.ranges import RangePolicy
from annealfit.training.state import Best, Last, PartState, Previous, TrainingState, merit_of
from annealfit.training.stopping import Stopping
from annealfit.training.surrogate import CurvatureFunction, Surrogate

MOST_SWEEPS = 30  # of a certificate


@dataclass(frozen=True)
class Plan:
    """The choices that make a training: every policy resolved, nothing left to guess."""

    curvature: CurvatureFunction
    coordinates: Coordinates
    max_couplings: int | None  # in each problem; None is as many as there are
    acceptance: Acceptance
    range_policy: RangePolicy
    precision_policy: PrecisionPolicy
    stopping: Stopping
    bits: int  # K, the most there may be
    update_range: float | None  # the first δ; None leaves it to the range policy
    step: float  # α: the multiple of an accepted update that is applied
    seed: int
    damping: DampingPolicy = field(default_factory=DampingPolicy)
    special: Mapping[str, Plan] = field(default_factory=dict)  # of parts that differ; stopping and seed are this one's

    def of(self, part: str) -> Plan:
        """The plan of a part."""
        return self.special.get(part, self)


class Step:
    """Carries out iterations of one training."""

    def __init__(self, turns: Turns, sampler: Sampler, plan: Plan, validation: Turns | None) -> None:
        self.turns, self.sampler, self.plan, self.validation = turns, sampler, plan, validation
        self._latest: tuple[Any, Surrogate] | None = None

    def first(self, part: str, point: Point) -> PartState:
        """The state of a part before its first step, from a point that shows it."""
        plan = self.plan.of(part)
        bits = checked_bits(plan.precision_policy.first(plan.bits))
        damping = plan.damping.first()
        own = PartState(point.weights, np.ones(1), bits, damping)
        return replace(own, ranges=first_ranges(self._kept(part, own, point), plan))

    def own(self, state: TrainingState, part: str, point: Point) -> PartState:
        """The state of the part whose turn it is, which the point shows; its first turn begins here."""
        found = state.parts[part]
        return self.first(part, point) if found.ranges is None else found

    def problems(self, part: str, own: PartState, point: Point) -> Problems:
        """The problems that a step from the point hands to the sampler."""
        return with_chosen_ranges(self._kept(part, own, point), self.plan.of(part).range_policy)

    def __call__(
        self, state: TrainingState, part: str, point: Point, previous: Any
    ) -> tuple[TrainingState, Point, HistoryRow]:
        """The state and the point after an iteration from these, and its row of the history.

        The point shows the part whose turn it is, and `previous` is what a span is told of the one before.
        """
        plan, own = self.plan.of(part), self.own(state, part, point)
        surrogate = self._surrogate(part, point)
        anchor = surrogate.follow(point, own.anchor)
        kept = self._kept(part, own, point)
        problems = with_chosen_ranges(kept, plan.range_policy)
        answers = self._solve(problems, state.iteration)
        solved = np.array([answer.failure is None for answer in answers])
        updates, energies = surrogate.updates(problems, answers, solved)
        proposal = Proposal(point, updates, energies, plan.step, previous, solved)
        decision = _checked(plan.acceptance(proposal), len(problems), len(point.gradients))
        reached = proposal.after(decision.accepted, decision.multiple, decision.previous, balanced=decision.balanced)
        accepted = decision.accepted & solved
        change = reached.loss - point.loss
        rating = float(plan.range_policy.rate(problems, change))
        last = (None, None) if own.last is None else (own.last.rating, own.last.ranges)
        outcome = Outcome(energies, accepted, solved, change, rating, *last)
        row: HistoryRow = {
            "iteration": state.iteration + 1,
            **cast(HistoryRow, self.turns.columns(state.iteration)),
            **cast(HistoryRow, reached.figures()),
            "loss_change": change,
            "energy": float(energies.sum()),
            **_certificate(problems, energies, solved, self._sweeps_for(problems)),
            "solved": int(solved.sum()),
            "accepted": int(accepted.sum()),
            "multiple": float(np.mean(decision.multiple) * plan.step) if accepted.any() else 0.0,
            "range": float(problems.ranges.sum() / len(problems)),
            "bits": own.bits,
            **self._damping_column(own),
            "failures": _describe_failures(answers),
        }
        following = PartState(
            weights=reached.weights,
            ranges=_checked_ranges(plan.range_policy.revise(kept.ranges, outcome), "kept", len(problems)),
            bits=checked_bits(plan.precision_policy.following(own.bits, plan.bits, outcome)),
            damping=plan.damping.revise(own.damping, outcome),
            previous=own.previous if reached is point else Previous(point.weights, state.cached_outputs),
            last=Last(rating, kept.ranges),
            anchor=anchor,
        )
        parts = {**state.parts, part: following}
        after = replace(state, iteration=state.iteration + 1, parts=parts, part=part)
        after = replace(after, cached_outputs=reached.cached_outputs())
        after = self._validated(after, row)
        _add_columns(row, self.sampler, answers)
        return after, reached, row

    def _kept(self, part: str, own: PartState, point: Point) -> Problems:
        """The problems of a step, with the ranges that the policy keeps, which it may yet turn into others."""
        assert own.ranges is not None, "its first turn has begun"
        surrogate = self._surrogate(part, point)
        surrogate.follow(point, own.anchor)
        return surrogate.problems(point, own.ranges, own.bits, own.damping)

    def _surrogate(self, part: str, point: Point) -> Surrogate:
        """The surrogate of the part, made anew only where the other parts are not what they were."""
        objective = self.turns.objective(point)
        if self._latest is not None and self._latest[0] is objective:
            return self._latest[1]
        plan = self.plan.of(part)
        thin = None if plan.max_couplings is None else (plan.max_couplings, plan.bits)
        made = Surrogate(objective, plan.curvature, plan.coordinates, thin)
        self._latest = objective, made  # only this one: an objective may hold much data
        return made

    def _damping_column(self, own: PartState) -> HistoryRow:
        """Where any part is damped, every row says how much; None for a part that is not."""
        damped = any(self.plan.of(part).damping.first() is not None for part in self.turns.parts)
        return {"damping": own.damping} if damped else {}

    def _solve(self, problems: Problems, iteration: int) -> list[Samples]:
        # The path is (ANNEALS, iteration, problem): nothing else decides an anneal's seed.
        seeds = child_seeds(child_seed(self.plan.seed, ANNEALS, iteration), np.arange(len(problems)))
        try:
            return solve_checked(self.sampler, problems, seeds.tolist())
        except BudgetExhaustedError:
            raise
        except SamplerError as error:
            raise SamplerError(f"iteration {iteration + 1}: {error}") from error

    def _sweeps_for(self, problems: Problems) -> int:
        """So many that a certificate takes about a tenth of an iteration, which looks at all rows three times.

        A sweep costs D² multiplications per problem. Where there are few rows for many parameters the bound is looser.
        A sampler may have started from a minimum over the box already; a few sweeps from the Newton step are enough.
        """
        if problems.relaxations:
            return int(max(sweeps for sweeps, _ in problems.relaxations))
        affordable = 0.1 * 3 * self.turns.multiplications / (len(problems) * problems.n_parameters**2)
        return int(np.clip(affordable, 1, MOST_SWEEPS))

    def _validated(self, state: TrainingState, row: HistoryRow) -> TrainingState:
        """The state with the best weights so far; the figures on the validation data are written into the row."""
        if self.validation is None:
            return state
        figures = self.validation.at(state.part, state.all_weights).figures()
        row.update(cast(HistoryRow, {f"validation_{name}": value for name, value in figures.items()}))
        if state.best is not None and merit_of(figures) <= state.best.merit:
            return state
        return replace(state, best=Best(state.iteration, merit_of(figures), state.all_weights))


def first_ranges(problems: Problems, plan: Plan) -> NDArray[np.float64]:
    """What the range policy keeps before the first iteration."""
    return _checked_ranges(plan.range_policy.first(problems, plan.update_range), "began with", len(problems))


def with_chosen_ranges(problems: Problems, policy: RangePolicy) -> Problems:
    """The problems with the ranges that the policy chooses for them, which may be anybody's."""
    return problems.with_ranges(_checked_ranges(policy.choose(problems), "chose", len(problems)))


def _checked_ranges(given: Any, verb: str, count: int) -> NDArray[np.float64]:
    ranges = np.asarray(given)
    if ranges.shape != (count,) or ranges.dtype.kind not in "fiu" or not (np.isfinite(ranges) & (ranges > 0)).all():
        raise InvalidInputError(
            f"the range policy {verb} {given!r}; expected a finite number above 0 for each of {count} problems"
        )
    return ranges.astype(float, copy=False)


def _checked(decision: Any, count: int, blocks: int) -> Decision:
    accepted: Any = np.asarray(decision.accepted) if isinstance(decision, Decision) else np.empty(0)
    if accepted.shape != (count,) or accepted.dtype != np.bool_:
        raise InvalidInputError(
            f"the acceptance rule returned {decision!r}; expected a Decision with a truth value for each of "
            f"{count} problems"
        )
    multiple, previous = (_checked_multiple(value, blocks) for value in (decision.multiple, decision.previous))
    return Decision(accepted, multiple, previous, balanced=bool(decision.balanced))


def _checked_multiple(given: Any, blocks: int) -> Any:
    values = np.asarray(given)
    if values.shape not in ((), (blocks,)) or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
        raise InvalidInputError(
            f"the acceptance rule chose the multiple {given!r}; expected a finite number, or one for each of "
            f"{blocks} blocks"
        )
    return values if values.ndim else float(values)


def checked_bits(bits: Any) -> int:
    """The bits that a precision policy chose, which may be anybody's."""
    check_number("the bits that the precision policy chose", bits, Integral, minimum=1, maximum=MAX_BITS)
    return int(bits)


def _certificate(
    problems: Problems, energies: NDArray[np.float64], solved: NDArray[np.bool_], sweeps: int
) -> HistoryRow:
    bounds = lower_bounds(problems, max_sweeps=sweeps)
    if not np.isfinite(bounds).all():
        return {"lower_bound": None, "gap": None}
    return {"lower_bound": float(bounds[solved].sum()), "gap": float((energies - bounds)[solved].sum())}


def _describe_failures(answers: Sequence[Samples]) -> str:
    """Each reason once, with the problems it befell; empty in the usual case."""
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
