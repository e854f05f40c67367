"""Calls of a device that is paid for by use: all in flight together, retried, and never beyond the budget."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from annealfit._support.errors import BudgetExhaustedError, SamplerError
from annealfit.hardware.limits import MICROSECOND
from annealfit.samplers.protocol import is_refusal, is_transient

_POLL_SECONDS = 0.02


@dataclass
class Ledger:
    """QPU access time used so far, with the estimates of calls in flight; copies of a sampler share one."""

    seconds: float = 0.0


@dataclass(eq=False)
class Receipt:
    """Calls, cost and faults of a solve; filled while it runs."""

    calls: int = 0
    access_seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    breaks: list[tuple[float, int]] = field(default_factory=list)  # of each call: share of broken chains, reads


class CallFailedError(Exception):
    """A call failed in spite of its retries."""


@dataclass(eq=False)
class Call:
    """A call of the device; in the end it has an answer or a failure."""

    submit: Callable[[], Any]  # returns a sample set, resolved or pending
    reads: int
    estimate: float  # seconds of access time
    answer: Any = None
    failure: CallFailedError | SamplerError | None = None  # a `SamplerError` will occur again in the next solve
    fault: str = ""  # the last one


@dataclass(eq=False)
class CallQueue:
    """Carries out calls in rounds: all are submitted, then their answers are awaited; failed calls go out once more.

    Calls of a device that answers at once run one after the other. No call is submitted for which the budget has no
    room beside those in flight; before it is given up, their answers are awaited, which may have cost less.
    """

    ledger: Ledger
    receipt: Receipt
    max_access_seconds: float | None
    retries: int
    backoff_seconds: float
    timeout_seconds: float
    refused: SamplerError | None = None  # an error that no retry can help, for any call

    def carry_out(self, calls: Sequence[Call]) -> None:
        """Set the answer or the failure of every call; the pauses before retries grow."""
        unfinished = list(calls)
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(self.backoff_seconds * 2 ** (attempt - 1))
            self._round(unfinished)
            unfinished = [call for call in unfinished if call.answer is None and call.failure is None]
            if not unfinished:
                return
        for call in unfinished:
            call.failure = CallFailedError(f"no answer in {self.retries + 1} tries, the last: {call.fault}")

    def _round(self, calls: Sequence[Call]) -> None:
        in_flight: deque[tuple[Call, Any, float]] = deque()
        for call in calls:
            while in_flight and not self._has_room(call):
                self._collect(*in_flight.popleft())
            pending = self._submit(call)
            if pending is not None:
                in_flight.append((call, pending, time.monotonic() + self.timeout_seconds))
        for entry in in_flight:
            self._collect(*entry)

    def _has_room(self, call: Call) -> bool:
        return self.max_access_seconds is None or self.ledger.seconds + call.estimate <= self.max_access_seconds

    def _submit(self, call: Call) -> Any:
        """Return the sample set of a call, resolved or pending; None if it failed."""
        if self.refused is not None:
            call.failure = self.refused
        elif not self._has_room(call):
            call.failure = BudgetExhaustedError(
                f"{self.ledger.seconds:.3f} s of QPU access time are used and the next call takes about "
                f"{call.estimate:.3f} s; max_access_seconds is {self.max_access_seconds}"
            )
        if call.failure is not None:
            return None
        self.ledger.seconds += call.estimate  # an interrupt from here on leaves it counted: it may have run
        self.receipt.calls += 1
        with self._recording_errors(call):
            return call.submit()

    def _collect(self, call: Call, pending: Any, deadline: float) -> None:
        """Wait for a call in flight. A late call is billed, and not submitted, and paid for, twice."""
        with self._recording_errors(call):
            while not pending.done() and time.monotonic() <= deadline:
                time.sleep(_POLL_SECONDS)
            billed = call.estimate
            if pending.done():
                pending.resolve()
                call.answer, billed = pending, _billed(pending, call.estimate)
            else:
                call.failure = CallFailedError(f"no answer within {self.timeout_seconds:g} s")
                self.receipt.faults.append(f"TimeoutError: {call.failure}")
            self.ledger.seconds += billed - call.estimate
            self.receipt.access_seconds += billed

    @contextmanager
    def _recording_errors(self, call: Call) -> Iterator[None]:
        """Decide from an error whether its call is tried again."""
        try:
            yield
        except Exception as error:
            call.fault = f"{type(error).__name__}: {error}"
            if is_transient(error):
                self.receipt.faults.append(call.fault)
                self.receipt.access_seconds += call.estimate  # lost on the way back, it may have run
                return
            self.ledger.seconds -= call.estimate
            if is_refusal(error):
                self.receipt.faults.append(call.fault)
                call.failure = CallFailedError(f"the solver declined the problem: {call.fault}")
            else:
                call.failure = self.refused = SamplerError(f"the device refused the call ({call.fault})")
            call.failure.__cause__ = error


def _billed(sampleset: Any, estimate: float) -> float:
    """Return the access time that the device bills, in seconds; the estimate where it states no valid time."""
    stated = (sampleset.info.get("timing") or {}).get("qpu_access_time")
    if isinstance(stated, bool) or not isinstance(stated, Real) or not math.isfinite(stated) or stated < 0:
        return estimate
    return float(stated) * MICROSECOND
