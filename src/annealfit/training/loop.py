"""The iteration (the paper's Algorithm 1, with its choices as policies).

Call order of one iteration:

1. `surrogate.gradient` at the current weights, from the softmax residuals;
2. the curvature's matrices and the gradients make the problems (one a class, or one for all);
3. the sampler answers every problem with bits, each from its own seed, or says that it failed;
4. bits are decoded to proposed updates, and `bounds` certifies how good they can be;
5. the acceptance rule decides what is applied; the weights change;
6. `surrogate.evaluate` at the new weights;
7. the range and precision policies set the next ranges and bits; a history row is made;
8. checkpoint, callbacks, stopping.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.bounds import lower_bounds
from annealfit.encoding import Encoding, decode_each
from annealfit.errors import BudgetExhaustedError, InvalidInputError, SamplerError
from annealfit.problem import QuadraticProblem, energies_of_updates
from annealfit.randomness import child_seeds, descend
from annealfit.samplers.base import Sampler, Samples
from annealfit.samplers.faults import is_passing
from annealfit.surrogate import Evaluation, TrainingSet, evaluate, gradient, newton_multiple
from annealfit.surrogate.curvature import Curvature, Matrices
from annealfit.training.acceptance import Acceptance, Proposal
from annealfit.training.checkpoint import Checkpoint, Row
from annealfit.training.outcome import Outcome
from annealfit.training.precision import PrecisionPolicy
from annealfit.training.ranges import RangePolicy
from annealfit.training.state import ANNEALS, TrainingState
from annealfit.training.stopping import Stopping


@dataclass(frozen=True)
class Plan:
    """The choices that make a training: every policy resolved, nothing left to guess."""

    curvature: Curvature
    acceptance: Acceptance
    range_policy: RangePolicy
    precision_policy: PrecisionPolicy
    stopping: Stopping
    bits: int  # K, the most there may be
    update_range: float  # the first δ
    step: float  # α: the multiple of an accepted update that is applied
    seed: int


@dataclass(frozen=True, eq=False)
class Iteration:
    """What a callback sees: the state after the iteration and its history row."""

    state: TrainingState
    row: Row


Callback = Callable[[Iteration], Any]


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """The last complete state, the rows of all iterations, and why training ended."""

    state: TrainingState
    history: list[Row]
    stop_reason: str


def initial_state(data: TrainingSet, plan: Plan, weights: NDArray[np.float64]) -> TrainingState:
    """The state before the first iteration: the same δ for every problem the curvature makes."""
    indifferent = np.full((data.n_classes, len(data.features)), 1 / data.n_classes)
    n_problems = len(plan.curvature(data)(indifferent))
    return TrainingState(
        0, weights, np.full(n_problems, float(plan.update_range)), plan.precision_policy.first(plan.bits)
    )


def train(
    data: TrainingSet,
    sampler: Sampler,
    plan: Plan,
    state: TrainingState,
    *,
    history: Sequence[Row] = (),
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None,
) -> TrainingResult:
    """Iterate from `state` until a stopping rule, a callback that returns true, Ctrl-C or a spent budget ends it.

    A problem whose solve failed keeps its weights for that iteration. A sampler that never solved anything, or that
    raises, ends the training with its error; what was reached is in the checkpoint.
    """
    rows = list(history)
    earlier_seconds = rows[-1]["seconds"] if rows else 0.0
    started = time.perf_counter()
    step = _Step(data, sampler, plan)
    evaluation = evaluate(data, state.weights)
    saved_iteration = state.iteration
    reason = None
    try:
        while reason is None:
            gradients = gradient(data, state.weights, evaluation.probabilities)
            reason = plan.stopping.before_iteration(state.iteration, data, state.weights, evaluation, gradients)
            if reason is not None:
                break
            following, evaluation, row = step(state, evaluation, gradients)
            row["seconds"] = earlier_seconds + time.perf_counter() - started
            rows.append(row)
            state = following
            if checkpoint is not None and state.iteration % checkpoint.every == 0:
                checkpoint.save(state, rows)
                saved_iteration = state.iteration
            answers = [callback(Iteration(state, row)) for callback in callbacks]  # all fire, whatever one says
            reason = "callback" if any(answers) else plan.stopping.after_iteration(rows)
    except BaseException as error:
        if _is_interrupt(error):
            reason = "interrupted"
        elif isinstance(error, BudgetExhaustedError) and state.iteration > 0:
            reason = "budget"
        else:
            raise
    finally:
        del rows[state.iteration :]  # an interrupt can fall between the row and the state it belongs to
        if checkpoint is not None and saved_iteration != state.iteration:
            checkpoint.save(state, rows)
    if reason == "sampler" and not any(row["solved"] for row in rows):
        raise SamplerError(f"no problem was solved in {len(rows)} iterations; {rows[-1]['failures']}")
    return TrainingResult(state, rows, reason)


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it: met by compiled code, it ends in a SystemError whose cause it is."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_interrupt(error.__cause__))


def problems_at(data: TrainingSet, plan: Plan, state: TrainingState) -> list[QuadraticProblem]:
    """The problems that the iteration after `state` hands to its sampler."""
    evaluation = evaluate(data, state.weights)
    return _Problems(data, plan)(state, evaluation, gradient(data, state.weights, evaluation.probabilities))


class _Problems:
    """Makes the problems of an iteration; the curvature is checked only when it changes."""

    def __init__(self, data: TrainingSet, plan: Plan) -> None:
        self.data = data
        self._curvature_at = plan.curvature(data)
        self._matrices: Matrices | None = None
        self._templates: list[QuadraticProblem] = []
        self._encoding = Encoding(plan.bits, 1.0)

    def __call__(
        self, state: TrainingState, evaluation: Evaluation, gradients: NDArray[np.float64]
    ) -> list[QuadraticProblem]:
        matrices = self._curvature_at(evaluation.probabilities)
        if matrices is not self._matrices:
            checked = {
                id(matrix): QuadraticProblem(matrix, np.zeros(len(matrix)), self._encoding) for matrix in matrices
            }
            self._templates = [checked[id(matrix)] for matrix in matrices]
            self._matrices = matrices
        if not np.isfinite(gradients).all():
            raise InvalidInputError(
                f"the gradient overflowed at iteration {state.iteration + 1}: features or weights are too large; "
                "standardise the features (StandardScaler), or lower update_range"
            )
        if state.bits != self._encoding.bits:
            self._encoding = Encoding(state.bits, 1.0)
        return [
            template.with_gradient(block, self._encoding.with_range(width))
            for template, block, width in zip(
                self._templates, gradients.reshape(len(matrices), -1), state.ranges.tolist(), strict=True
            )
        ]


def _decode(
    problems: Sequence[QuadraticProblem], answers: Sequence[Samples], solved: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The proposed updates (B, D): each problem's best bits decoded, and nothing where its solve failed."""
    updates = np.zeros((len(problems), problems[0].n_parameters))
    if solved.any():
        updates[solved] = decode_each(
            [problem.encoding for problem, ok in zip(problems, solved, strict=True) if ok],
            np.stack([answer.best_bits for answer in answers if answer.failure is None]),
        )
    return updates


def _describe_failures(answers: Sequence[Samples]) -> str:
    """Each reason once, with the problems it befell; empty in the usual case."""
    problems_of: dict[str, list[int]] = {}
    for position, answer in enumerate(answers):
        if answer.failure is not None:
            problems_of.setdefault(answer.failure, []).append(position)
    return "; ".join(f"problem {', '.join(map(str, positions))}: {reason}" for reason, positions in problems_of.items())


class _Step:
    """One iteration."""

    def __init__(self, data: TrainingSet, sampler: Sampler, plan: Plan) -> None:
        self.data, self.sampler, self.plan = data, sampler, plan
        self.problems = _Problems(data, plan)
        self._seed_of_anneals = child_seeds(plan.seed, [ANNEALS])

    def __call__(
        self, state: TrainingState, evaluation: Evaluation, gradients: NDArray[np.float64]
    ) -> tuple[TrainingState, Evaluation, Row]:
        data, plan = self.data, self.plan
        problems = self.problems(state, evaluation, gradients)
        answers = self._sample(problems, state.iteration)
        solved = np.array([answer.failure is None for answer in answers])
        bounds = lower_bounds(problems)
        updates = _decode(problems, answers, solved)
        energies = energies_of_updates(problems, updates)  # ours, not the sampler's: the guarantee rests on them

        tried: dict[tuple[bytes, float], tuple[NDArray[np.float64], Evaluation]] = {}

        def direction(accepted: NDArray[np.bool_]) -> NDArray[np.float64]:
            return (updates * accepted[:, None]).reshape(data.n_classes, -1).T

        def after(accepted: NDArray[np.bool_], multiple: float) -> tuple[NDArray[np.float64], Evaluation]:
            key = (accepted.tobytes(), multiple)
            if key not in tried:
                weights = state.weights + (multiple * plan.step) * direction(accepted)
                tried[key] = weights, evaluate(data, weights)
            return tried[key]

        decision = plan.acceptance(
            Proposal(
                energies,
                evaluation.loss,
                loss_along=lambda accepted, multiple: after(accepted, multiple)[1].loss,
                newton_multiple=lambda accepted: newton_multiple(
                    data, gradients, evaluation.probabilities, state.weights, direction(accepted)
                ),
            )
        )
        weights, evaluated = after(decision.accepted, decision.multiple)
        accepted = decision.accepted & solved
        outcome = Outcome(energies, accepted, solved)
        following = TrainingState(
            iteration=state.iteration + 1,
            weights=weights,
            ranges=plan.range_policy(state.ranges, outcome),
            bits=plan.precision_policy.following(state.bits, plan.bits, outcome),
        )
        row = {
            "iteration": following.iteration,
            "loss": evaluated.loss,
            "cross_entropy": evaluated.cross_entropy,
            "accuracy": evaluated.accuracy,
            "loss_change": evaluated.loss - evaluation.loss,
            "energy": float(energies.sum()),
            "lower_bound": float(bounds[solved].sum()),
            "gap": float((energies - bounds)[solved].sum()),
            "solved": int(solved.sum()),
            "accepted": int(accepted.sum()),
            "multiple": float(decision.multiple * plan.step) if accepted.any() else 0.0,
            "range": float(state.ranges.sum() / len(state.ranges)),
            "bits": state.bits,
            "failures": _describe_failures(answers),
            **self.sampler.summarise(answers),
        }
        return following, evaluated, row

    def _sample(self, problems: list[QuadraticProblem], iteration: int) -> list[Samples]:
        # The path is (ANNEALS, iteration, problem): nothing else decides an anneal's seed.
        seeds = descend(descend(self._seed_of_anneals, [iteration]), np.arange(len(problems)))
        try:
            answers = self.sampler.solve(problems, seeds.tolist())
        except BudgetExhaustedError:
            raise
        except SamplerError as error:
            raise SamplerError(f"iteration {iteration + 1}: {error}") from error
        except Exception as error:
            if is_passing(error):  # the next iteration may fare better
                return [Samples.failed(problem, f"{type(error).__name__}: {error}") for problem in problems]
            raise SamplerError(
                f"iteration {iteration + 1}: {type(self.sampler).__name__} raised {type(error).__name__}: {error}"
            ) from error
        self._check_answers(problems, answers, iteration)
        return answers

    def _check_answers(self, problems: list[QuadraticProblem], answers: Any, iteration: int) -> None:
        source = f"iteration {iteration + 1}: {type(self.sampler).__name__} answered"
        if not isinstance(answers, Sequence) or not all(isinstance(answer, Samples) for answer in answers):
            raise SamplerError(f"{source} with {answers!r}; expected a list of Samples, one for each problem")
        if len(answers) != len(problems):
            raise SamplerError(f"{source} {len(answers)} of {len(problems)} problems")
        for problem, answer in zip(problems, answers, strict=True):
            expected = (problem.n_parameters, problem.encoding.bits)
            if answer.bits.shape[1:] != expected or (len(answer.bits) == 0 and answer.failure is None):
                raise SamplerError(
                    f"{source} with bits of shape {answer.bits.shape}; "
                    f"expected (reads, {expected[0]}, {expected[1]}) with at least one read"
                )
