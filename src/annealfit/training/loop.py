"""The loop (the paper's Algorithm 1, with its choices as policies).

Each turn asks whether to stop, takes one `step`, keeps its row, and tells the callbacks. It knows neither classes nor
rows nor samplers: an objective answers for points, a plan holds the policies.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import BudgetExhaustedError, SamplerError
from annealfit._support.threads import blas_threads
from annealfit.problems import bounds
from annealfit.problems.problem import Problems
from annealfit.samplers.protocol import Preflight, Sampler
from annealfit.training.checkpoint import Checkpoint
from annealfit.training.history import HistoryRow
from annealfit.training.objectives import ONLY, Objective, Point, Turns, in_turns
from annealfit.training.state import PartState, TrainingState
from annealfit.training.step import Plan, Step


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

    def __init__(
        self,
        objective: Objective | Turns,
        sampler: Sampler,
        plan: Plan,
        validation: Objective | Turns | None = None,
    ) -> None:
        self.turns, self.sampler, self.plan = in_turns(objective), sampler, plan
        self._point: Point | None = None
        self._preparation_seconds = 0.0  # of the first point and its curvature, which can take longer than an iteration
        self._step = Step(self.turns, sampler, plan, None if validation is None else in_turns(validation))

    def start(self, weights: NDArray[np.float64] | Mapping[str, NDArray[np.float64]]) -> TrainingState:
        """The state before the first iteration, from the weights of every part."""
        parts = weights if isinstance(weights, Mapping) else {ONLY: weights}
        state = TrainingState(0, {name: PartState(own) for name, own in parts.items()}, self.turns.turn(0))
        began = time.perf_counter()
        with blas_threads(self.turns.multiplications):
            first = self._step.first(state.part, self._at(state))
        self._preparation_seconds = time.perf_counter() - began
        return replace(state, parts={**state.parts, state.part: first})

    def problems(self, state: TrainingState) -> Problems:
        """The problems that the iteration after `state` hands to the sampler."""
        part = self.turns.turn(state.iteration)
        with blas_threads(self.turns.multiplications):
            point = self.turns.turned(self._at(state), part, state.iteration)
            return self._step.problems(part, self._step.own(state, part, point), point)

    def preflight(self, state: TrainingState) -> Preflight | None:
        """What a step of every part would cost at the most bits; a device that cannot take such problems says so."""
        if not self.sampler.has_preflight:
            return None
        found = []
        for part in dict.fromkeys([self.turns.turn(state.iteration), *self.turns.parts]):
            with blas_threads(self.turns.multiplications):
                point = self.turns.turned(self._at(state), part, state.iteration)
                own = replace(self._step.own(state, part, point), bits=self.plan.of(part).bits)
                cost = self.sampler.preflight(self._step.problems(part, own, point))
            if cost is None:  # a sampler that has nothing to say of one problem has nothing to say of others
                return None
            found.append(cost)
        return Preflight.of_all(found)

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
        with blas_threads(self.turns.multiplications):
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
        point = self._at(state)
        earlier = {
            name: self.turns.earlier(name, own.previous, None)
            for name, own in state.parts.items()
            if own.previous is not None
        }
        saved_iteration = state.iteration
        reason = stopping.before_resuming(state, rows)
        try:
            while reason is None:
                reason = stopping.before_iteration(state.iteration, point, rows)
                if reason is not None:
                    break
                part = self.turns.turn(state.iteration)
                point = self.turns.turned(point, part, state.iteration)
                following, reached, row = self._step(state, part, point, earlier.get(part))
                if reached is not point:
                    earlier[part] = self.turns.earlier(part, following.own.previous, point)
                point = self._point = reached
                row["seconds"] = earlier_seconds + time.perf_counter() - started
                rows.append(row)
                state = following
                if checkpoint is not None and state.iteration % checkpoint.every == 0:
                    saved_iteration = _save(checkpoint, state, rows) or saved_iteration
                answers = [callback(Iteration(state, row)) for callback in callbacks]  # all fire, whatever one says
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
        point = self._at(state)
        return TrainingResult(state, getattr(point, "exact", point), rows, reason)

    def _at(self, state: TrainingState) -> Point:
        """The point of the state's weights; asked twice for the same ones it looks once."""
        if self._point is None or self._point.weights is not state.weights:
            self._point = self.turns.at(state.part, state.all_weights, state.cached_outputs)
        return self._point


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


def is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it: met by compiled code, it ends in a SystemError whose cause it is."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or is_interrupt(error.__cause__))
