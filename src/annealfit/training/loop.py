"""The loop (the paper's Algorithm 1, with its choices as policies).

Each turn asks whether to stop, takes one `step`, keeps its row, and tells the callbacks. It knows neither classes nor
rows nor samplers: an objective answers for points, a plan holds the policies.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit import bounds
from annealfit.errors import BudgetExhaustedError, SamplerError
from annealfit.objectives import Objective, Point
from annealfit.problems import Problems
from annealfit.samplers.protocol import Preflight, Sampler
from annealfit.threads import blas_threads
from annealfit.training.checkpoint import Checkpoint
from annealfit.training.history import HistoryRow
from annealfit.training.state import TrainingState
from annealfit.training.step import Plan, Step, checked_bits, first_ranges, with_chosen_ranges


@dataclass(frozen=True, eq=False)
class Iteration:
    """What a callback sees: the state after the iteration and its history row."""

    state: TrainingState
    row: HistoryRow


Callback = Callable[[Iteration], Any]


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """The last complete state, the point it stands for, the rows of all iterations, and why training ended."""

    state: TrainingState
    point: Point
    history: list[HistoryRow]
    stop_reason: str


class Trainer:
    """A training of one objective with one sampler: what is worked out once for it is worked out here."""

    def __init__(self, objective: Objective, sampler: Sampler, plan: Plan, validation: Objective | None = None) -> None:
        self.objective, self.sampler, self.plan = objective, sampler, plan
        self._point: Point | None = None
        began = time.perf_counter()
        with blas_threads(objective.multiplications):
            self._step = Step(objective, sampler, plan, validation)
        self._preparation_seconds = time.perf_counter() - began  # the Gram matrix: part of the training's time

    def start(self, weights: NDArray[np.float64]) -> TrainingState:
        """The state before the first iteration."""
        bits = checked_bits(self.plan.precision_policy.first(self.plan.bits))
        with blas_threads(self.objective.multiplications):
            problems = self._step.surrogate.problems(self._at(weights), np.ones(1), bits)
            return TrainingState(0, weights, first_ranges(problems, self.plan), bits)

    def problems(self, state: TrainingState) -> Problems:
        """The problems that the iteration after `state` hands to the sampler."""
        with blas_threads(self.objective.multiplications):
            kept = self._step.surrogate.problems(self._at(state.weights, state.remembered), state.ranges, state.bits)
            return with_chosen_ranges(kept, self.plan.range_policy)

    def preflight(self, state: TrainingState) -> Preflight | None:
        """What an iteration would cost at the most bits; a device that cannot take such problems says so here."""
        return self.sampler.preflight(self.problems(replace(state, bits=self.plan.bits)))

    def run(
        self,
        state: TrainingState,
        *,
        history: Sequence[HistoryRow] = (),
        callbacks: Sequence[Callback] = (),
        checkpoint: Checkpoint | None = None,
    ) -> TrainingResult:
        """Iterate from `state` until a stopping rule, a callback that returns true, Ctrl-C or a spent budget ends it.

        A problem whose solve failed keeps its weights for that iteration. A sampler that never solved anything, or
        that raises, ends the training with its error; what was reached is in the checkpoint.
        """
        bounds.compile_kernel()  # once per process, and not on the training's clock
        self.sampler.prepare()
        with blas_threads(self.objective.multiplications):
            return self._run(state, list(history), callbacks, checkpoint)

    def _run(
        self,
        state: TrainingState,
        rows: list[HistoryRow],
        callbacks: Sequence[Callback],
        checkpoint: Checkpoint | None,
    ) -> TrainingResult:
        stopping = self.plan.stopping
        earlier_seconds = rows[-1]["seconds"] if rows else self._preparation_seconds
        started = time.perf_counter()
        point, previous = self._at(state.weights, state.remembered), None
        if state.previous is not None:
            previous = self._look(state.previous.weights, state.previous.remembered)
        saved_iteration = state.iteration
        reason = stopping.before_resuming(state, rows)
        try:
            while reason is None:
                reason = stopping.before_iteration(state.iteration, point)
                if reason is not None:
                    break
                following, reached, row = self._step(state, point, previous)
                if reached is not point:
                    previous, point = point, reached
                    self._point = point
                row["seconds"] = earlier_seconds + time.perf_counter() - started
                rows.append(row)
                state = following
                if checkpoint is not None and state.iteration % checkpoint.every == 0:
                    saved_iteration = _save(checkpoint, state, rows) or saved_iteration
                answers = [callback(Iteration(state, row)) for callback in callbacks]  # all fire, whatever one says
                reason = "callback" if any(answers) else stopping.after_iteration(state, rows)
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
                _save(checkpoint, state, rows)
        if reason == "sampler" and not any(row["solved"] for row in rows):
            raise SamplerError(f"no problem was solved in {len(rows)} iterations; {rows[-1]['failures']}")
        return TrainingResult(state, self._at(state.weights, state.remembered), rows, reason)

    def _at(self, weights: NDArray[np.float64], remembered: NDArray[np.float64] | None = None) -> Point:
        """The objective at these weights; asked twice for the same ones it looks once."""
        if self._point is None or self._point.weights is not weights:
            self._point = self._look(weights, remembered)
        return self._point

    def _look(self, weights: NDArray[np.float64], remembered: NDArray[np.float64] | None) -> Point:
        at: Any = self.objective.at
        return at(weights) if remembered is None else at(weights, remembered)


def _save(checkpoint: Checkpoint, state: TrainingState, rows: Sequence[HistoryRow]) -> int | None:
    """The iteration that was saved. A full disk costs the checkpoint, not what was learnt: training goes on."""
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


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it: met by compiled code, it ends in a SystemError whose cause it is."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_interrupt(error.__cause__))
