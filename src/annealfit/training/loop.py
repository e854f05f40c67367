"""The iteration (the paper's Algorithm 1, with its choices as policies).

Call order of one iteration:

1. `surrogate.gradient` at the current weights, from the softmax residuals;
2. the curvature's matrices and the gradients make the problems (one a class, or one for all);
3. the sampler answers every problem with bits, each from its own seed;
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
from annealfit.errors import InvalidInputError, SamplerError
from annealfit.problem import QuadraticProblem, energies_of_updates
from annealfit.randomness import child_seeds, descend
from annealfit.samplers.base import Sampler, Samples
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
    """Iterate from `state` until a stopping rule, a callback that returns true, or Ctrl-C ends it."""
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
    except KeyboardInterrupt:
        reason = "interrupted"
    finally:
        del rows[state.iteration :]  # an interrupt can fall between the row and the state it belongs to
        if checkpoint is not None and saved_iteration != state.iteration:
            checkpoint.save(state, rows)
    return TrainingResult(state, rows, reason)


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
        bounds = lower_bounds(problems)
        updates = decode_each(
            [problem.encoding for problem in problems], np.stack([answer.best_bits for answer in answers])
        )
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

        outcome = Outcome(energies, decision.accepted)
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
            "lower_bound": float(bounds.sum()),
            "gap": float((energies - bounds).sum()),
            "accepted": int(decision.accepted.sum()),
            "multiple": float(decision.multiple * plan.step) if decision.accepted.any() else 0.0,
            "range": float(state.ranges.sum() / len(state.ranges)),
            "bits": state.bits,
        }
        return following, evaluated, row

    def _sample(self, problems: list[QuadraticProblem], iteration: int) -> list[Samples]:
        # The path is (ANNEALS, iteration, problem): nothing else decides an anneal's seed.
        seeds = descend(descend(self._seed_of_anneals, [iteration]), np.arange(len(problems)))
        try:
            answers = self.sampler.solve(problems, seeds.tolist())
        except SamplerError as error:
            raise SamplerError(f"iteration {iteration + 1}: {error}") from error
        except Exception as error:
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
            if answer.bits.shape[1:] != expected or len(answer.bits) == 0:
                raise SamplerError(
                    f"{source} with bits of shape {answer.bits.shape}; "
                    f"expected (reads, {expected[0]}, {expected[1]}) with at least one read"
                )
