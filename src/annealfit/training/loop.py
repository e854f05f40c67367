"""The iteration (the paper's Algorithm 1, with its choices as policies).

Call order of one iteration:

1. `surrogate.gradient` at the current weights, from the softmax residuals;
2. the curvature's matrices and the gradients make the problems (one a class, or one for all);
3. the sampler answers every problem with bits, each from its own seed;
4. bits are decoded to proposed updates, and `bounds` certifies how good they can be;
5. the acceptance rule decides what is applied; the weights change;
6. `surrogate.evaluate` at the new weights;
7. the range policy sets the next ranges; a history row is made;
8. checkpoint, callbacks, stopping.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.bounds import lower_bounds
from annealfit.encoding import Encoding, decode_each
from annealfit.errors import InvalidInputError, SamplerError
from annealfit.problem import QuadraticProblem
from annealfit.randomness import child_seeds
from annealfit.samplers.base import Sampler, Samples
from annealfit.surrogate import Evaluation, TrainingSet, evaluate, gradient
from annealfit.surrogate.curvature import CurvatureAt, Matrices
from annealfit.training.acceptance import Acceptance, Proposal
from annealfit.training.checkpoint import Checkpoint, Row
from annealfit.training.ranges import Outcome, RangePolicy
from annealfit.training.state import ANNEALS, TrainingState


@dataclass(frozen=True)
class Plan:
    """The choices that make a training: every policy resolved, nothing left to guess."""

    curvature: Callable[[TrainingSet], CurvatureAt]
    acceptance: Acceptance
    range_policy: RangePolicy
    bits: int  # K
    update_range: float  # the first δ
    max_iter: int
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
    indifferent = np.full((len(data.features), data.n_classes), 1 / data.n_classes)
    n_problems = len(plan.curvature(data)(indifferent))
    return TrainingState(0, weights, np.full(n_problems, float(plan.update_range)), plan.bits)


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
    stop_reason = "max_iter"
    try:
        while state.iteration < plan.max_iter:
            following, evaluation, row = step(state, evaluation)
            row["seconds"] = earlier_seconds + time.perf_counter() - started
            rows.append(row)
            state = following
            if checkpoint is not None and state.iteration % checkpoint.every == 0:
                checkpoint.save(state, rows)
                saved_iteration = state.iteration
            answers = [callback(Iteration(state, row)) for callback in callbacks]  # all fire, whatever one says
            if any(answers):
                stop_reason = "callback"
                break
    except KeyboardInterrupt:
        stop_reason = "interrupted"
    finally:
        del rows[state.iteration :]  # an interrupt can fall between the row and the state it belongs to
        if checkpoint is not None and saved_iteration != state.iteration:
            checkpoint.save(state, rows)
    return TrainingResult(state, rows, stop_reason)


def problems_at(data: TrainingSet, plan: Plan, state: TrainingState) -> list[QuadraticProblem]:
    """The problems that the iteration after `state` hands to its sampler."""
    return _Problems(data, plan)(state, evaluate(data, state.weights))


_encoding = functools.lru_cache(maxsize=4096)(Encoding)  # an encoding knows its weights; make them once


class _Problems:
    """Makes the problems of an iteration; the curvature is checked only when it changes."""

    def __init__(self, data: TrainingSet, plan: Plan) -> None:
        self.data = data
        self._curvature_at = plan.curvature(data)
        self._matrices: Matrices | None = None
        self._templates: list[QuadraticProblem] = []

    def __call__(self, state: TrainingState, evaluation: Evaluation) -> list[QuadraticProblem]:
        matrices = self._curvature_at(evaluation.probabilities)
        if matrices is not self._matrices:
            unit = Encoding(state.bits, 1.0)
            checked = {id(matrix): QuadraticProblem(matrix, np.zeros(len(matrix)), unit) for matrix in matrices}
            self._templates = [checked[id(matrix)] for matrix in matrices]
            self._matrices = matrices
        gradients = gradient(self.data, state.weights, evaluation.probabilities)
        if not np.isfinite(gradients).all():
            raise InvalidInputError(
                f"the gradient overflowed at iteration {state.iteration + 1}: features or weights are too large; "
                "standardise the features (StandardScaler), or lower update_range"
            )
        return [
            template.with_gradient(block, _encoding(state.bits, float(width)))
            for template, block, width in zip(
                self._templates, gradients.reshape(len(matrices), -1), state.ranges, strict=True
            )
        ]


class _Step:
    """One iteration."""

    def __init__(self, data: TrainingSet, sampler: Sampler, plan: Plan) -> None:
        self.data, self.sampler, self.plan = data, sampler, plan
        self.problems = _Problems(data, plan)

    def __call__(self, state: TrainingState, evaluation: Evaluation) -> tuple[TrainingState, Evaluation, Row]:
        data, plan = self.data, self.plan
        problems = self.problems(state, evaluation)
        answers = self._sample(problems, state.iteration)
        bounds = lower_bounds(problems)
        energies = np.array([answer.best_energy for answer in answers])
        updates = decode_each(
            [problem.encoding for problem in problems], np.stack([answer.best_bits for answer in answers])
        )

        decision = plan.acceptance(Proposal(energies))
        applied = updates * (decision.accepted * (decision.multiple * plan.step))[:, None]
        weights = state.weights + applied.reshape(data.n_classes, -1).T
        after = evaluate(data, weights)

        following = TrainingState(
            iteration=state.iteration + 1,
            weights=weights,
            ranges=plan.range_policy(state.ranges, Outcome(energies, decision.accepted)),
            bits=state.bits,
        )
        row = {
            "iteration": following.iteration,
            "loss": after.loss,
            "cross_entropy": after.cross_entropy,
            "accuracy": after.accuracy,
            "loss_change": after.loss - evaluation.loss,
            "energy": float(energies.sum()),
            "lower_bound": float(bounds.sum()),
            "accepted": int(decision.accepted.sum()),
            "range": float(state.ranges.mean()),
            "bits": state.bits,
        }
        return following, after, row

    def _sample(self, problems: list[QuadraticProblem], iteration: int) -> list[Samples]:
        seeds = child_seeds(self.plan.seed, ANNEALS, iteration, np.arange(len(problems)))
        try:
            answers = self.sampler.solve(problems, seeds.tolist())
        except SamplerError as error:
            raise SamplerError(f"iteration {iteration + 1}: {error}") from error
        except Exception as error:
            raise SamplerError(
                f"iteration {iteration + 1}: {type(self.sampler).__name__} raised {type(error).__name__}: {error}"
            ) from error
        if len(answers) != len(problems):
            raise SamplerError(
                f"iteration {iteration + 1}: {type(self.sampler).__name__} answered {len(answers)} "
                f"of {len(problems)} problems"
            )
        return answers
