"""Calls of a device that is paid for by use: divided by its limits, retried, and never beyond the budget."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from annealfit._support.errors import BudgetExhaustedError, SamplerError
from annealfit.hardware.limits import MICROSECOND, access_seconds, most_reads
from annealfit.samplers.protocol import is_refusal, is_transient

_NEEDED = ("problem_timing_data", "problem_run_duration_range", "num_reads_range", "h_range", "j_range")
_POLL_SECONDS = 0.02


@dataclass
class Ledger:
    """QPU access time used so far, with the estimates of calls in flight; copies of a sampler share one."""

    seconds: float = 0.0


@dataclass
class DeviceAccess:
    """A device's limits and billing, and the retries and budget of a sampler."""

    properties: Mapping[str, Any]
    parameters: Mapping[str, Any]  # of every call; D-Wave's timing model takes those that concern it
    max_access_seconds: float | None
    retries: int
    backoff_seconds: float
    timeout_seconds: float
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        missing = [name for name in _NEEDED if not self.properties.get(name)]
        if missing:
            raise SamplerError(f"the solver publishes no {', '.join(missing)}, so its calls cannot be planned")

    def estimate(self, n_qubits: int, reads: int) -> float:
        """Return the access time of a call in seconds."""
        return access_seconds(self.properties["problem_timing_data"], n_qubits, reads, **self.parameters)

    def divide(self, reads: int, n_qubits: int) -> Iterator[int]:
        """Yield the reads of each call, so that no call is longer than the device allows."""
        timing, longest = self.properties["problem_timing_data"], self.properties["problem_run_duration_range"][1]
        seconds = longest * MICROSECOND
        limit = min(self.properties["num_reads_range"][1], most_reads(timing, seconds, n_qubits, **self.parameters))
        if limit < 1:
            raise SamplerError(
                f"not even one read fits the solver's limit of {seconds:g} s per call; "
                "lower annealing_time or the thermalization times"
            )
        while reads > 0:
            yield min(reads, limit)
            reads -= limit

    def has_room(self, seconds: float) -> bool:
        """Return whether a call fits the budget beside the time used and the calls in flight."""
        return self.max_access_seconds is None or self.ledger.seconds + seconds <= self.max_access_seconds

    def reserve(self, seconds: float) -> None:
        """Count a call before it is submitted; raise if the budget has no room for it."""
        if not self.has_room(seconds):
            raise BudgetExhaustedError(
                f"{self.ledger.seconds:.3f} s of QPU access time are used and the next call takes about "
                f"{seconds:.3f} s; max_access_seconds is {self.max_access_seconds}"
            )
        self.ledger.seconds += seconds

    def settle(self, reserved: float, billed: float) -> None:
        """Replace the estimate of a call by its bill."""
        self.ledger.seconds += billed - reserved


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
    """A call of the device and its state: in the end it has an answer or a failure."""

    submit: Callable[[], Any]  # returns a sample set, resolved or pending
    reads: int
    estimate: float  # seconds of access time
    answer: Any = None
    failure: CallFailedError | SamplerError | None = None  # a `SamplerError` will occur again in the next solve
    fault: str = ""  # the last one


class CallQueue:
    """Carries out calls in rounds: all are submitted, then their answers are awaited; failed calls go out once more.

    Calls of a device that answers at once run one after the other. No call is submitted for which the budget has no
    room beside those in flight; before it is given up, their answers are awaited, which may have cost less.
    """

    def __init__(self, access: DeviceAccess, receipt: Receipt) -> None:
        self.access, self.receipt = access, receipt
        self._refused: SamplerError | None = None  # an error that no retry can help, for any call

    def carry_out(self, calls: Sequence[Call]) -> None:
        """Set the answer or the failure of every call; the pauses before retries grow."""
        tries = self.access.retries + 1
        unfinished = list(calls)
        for attempt in range(tries):
            if attempt:
                time.sleep(self.access.backoff_seconds * 2 ** (attempt - 1))
            self._round(unfinished)
            unfinished = [call for call in unfinished if call.answer is None and call.failure is None]
            if not unfinished:
                return
        for call in unfinished:
            call.failure = CallFailedError(f"no answer in {tries} tries, the last: {call.fault}")

    def _round(self, calls: Sequence[Call]) -> None:
        in_flight: deque[tuple[Call, Any, float]] = deque()
        for call in calls:
            while in_flight and not self.access.has_room(call.estimate):
                self._collect(*in_flight.popleft())
            pending = self._submit(call)
            if pending is not None:
                in_flight.append((call, pending, time.monotonic() + self.access.timeout_seconds))
        for entry in in_flight:
            self._collect(*entry)

    def _submit(self, call: Call) -> Any:
        """Return the sample set of a call, resolved or pending; None if it failed."""
        if self._refused is not None:
            call.failure = self._refused
            return None
        try:
            self.access.reserve(call.estimate)  # an interrupt from here on leaves it counted: it may have run
        except BudgetExhaustedError as error:
            call.failure = error
            return None
        self.receipt.calls += 1
        try:
            return call.submit()
        except Exception as error:
            self._record_error(call, error)
            return None

    def _collect(self, call: Call, pending: Any, deadline: float) -> None:
        """Wait for a call in flight. A late call is billed, and not submitted, and paid for, twice."""
        try:
            in_time = _resolve(pending, deadline)
            billed = _billed(pending, call.estimate) if in_time else call.estimate
        except Exception as error:
            self._record_error(call, error)
            return
        self.access.settle(call.estimate, billed)
        self.receipt.access_seconds += billed
        if in_time:
            call.answer = pending
            return
        call.failure = CallFailedError(f"no answer within {self.access.timeout_seconds:g} s")
        self.receipt.faults.append(f"TimeoutError: {call.failure}")

    def _record_error(self, call: Call, error: Exception) -> None:
        """Decide from an error whether its call is tried again."""
        call.fault = f"{type(error).__name__}: {error}"
        if is_transient(error):
            self.receipt.faults.append(call.fault)
            self.receipt.access_seconds += call.estimate  # lost on the way back, it may have run
            return
        self.access.settle(call.estimate, 0.0)
        if is_refusal(error):
            self.receipt.faults.append(call.fault)
            call.failure = CallFailedError(f"the solver declined the problem: {call.fault}")
        else:
            call.failure = self._refused = SamplerError(f"the device refused the call ({call.fault})")
        call.failure.__cause__ = error


def _resolve(sampleset: Any, deadline: float) -> bool:
    """Wait for a sample set until the deadline; return whether it is there."""
    while not sampleset.done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    sampleset.resolve()
    return True


def _billed(sampleset: Any, estimate: float) -> float:
    """Return the access time that the device bills, in seconds; the estimate where it states no valid time."""
    stated = (sampleset.info.get("timing") or {}).get("qpu_access_time")
    if isinstance(stated, bool) or not isinstance(stated, Real) or not math.isfinite(stated) or stated < 0:
        return estimate
    return float(stated) * MICROSECOND
