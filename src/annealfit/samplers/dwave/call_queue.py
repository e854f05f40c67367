"""A device that is paid for by use: the limits of its calls, what they cost, and never beyond the budget."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from annealfit._support.errors import BudgetExhaustedError, SamplerError
from annealfit.hardware.limits import access_seconds, most_reads
from annealfit.samplers.protocol import Receipt, is_refusal, is_transient

_MICROSECONDS = 1e-6
_NEEDED = ("problem_timing_data", "problem_run_duration_range", "num_reads_range", "h_range", "j_range")


@dataclass
class Ledger:
    """QPU access time used so far, calls in flight as estimated; copies of a sampler write in one and the same."""

    seconds: float = 0.0


class DeviceAccess:
    """The way to a device: its limits and billing, our retries and budget."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        parameters: Mapping[str, Any],
        *,
        max_access_seconds: float | None,
        retries: int,
        backoff_seconds: float,
        timeout_seconds: float,
    ) -> None:
        missing = [name for name in _NEEDED if not properties.get(name)]
        if missing:
            raise SamplerError(f"the solver publishes no {', '.join(missing)}, so its calls cannot be planned")
        self._timing = properties["problem_timing_data"]
        self._timed = dict(parameters)  # D-Wave's timing model takes what concerns it
        self._longest_seconds = properties["problem_run_duration_range"][1] * _MICROSECONDS
        self._most_reads = properties["num_reads_range"][1]
        self.max_access_seconds = max_access_seconds
        self.retries, self.backoff_seconds, self.timeout_seconds = retries, backoff_seconds, timeout_seconds
        self.ledger = Ledger()

    def estimate(self, n_qubits: int, reads: int) -> float:
        """Seconds of access time that a call takes."""
        return access_seconds(self._timing, n_qubits, reads, **self._timed)

    def divide(self, reads: int, n_qubits: int) -> Iterator[int]:
        """The reads of each call when so many are wanted: no call longer than the device allows."""
        limit = min(self._most_reads, most_reads(self._timing, self._longest_seconds, n_qubits, **self._timed))
        if limit < 1:
            raise SamplerError(
                f"not even one read fits the solver's limit of {self._longest_seconds:g} s per call; "
                "lower annealing_time or the thermalization times"
            )
        while reads > 0:
            yield min(reads, limit)
            reads -= limit

    def reserve(self, seconds: float) -> None:
        """Count a call that is about to go out; raise if the budget has no room for it beside those in flight."""
        if self.max_access_seconds is not None and not self.has_room(seconds):
            raise BudgetExhaustedError(
                f"{self.ledger.seconds:.3f} s of QPU access time are used and the next call takes about "
                f"{seconds:.3f} s; max_access_seconds is {self.max_access_seconds:g}"
            )
        self.ledger.seconds += seconds

    def has_room(self, seconds: float) -> bool:
        """Whether a call of so many seconds fits the budget beside what was used and what is in flight."""
        return self.max_access_seconds is None or self.ledger.seconds + seconds <= self.max_access_seconds

    def settle(self, reserved: float, billed: float) -> None:
        """Put what a call did cost in place of what was reserved for it."""
        self.ledger.seconds += billed - reserved


_MICROSECONDS = 1e-6
_POLL_SECONDS = 0.02


class CallFailedError(Exception):
    """A call failed in spite of its retries."""


@dataclass(eq=False)
class Call:
    """A call of the device, and what became of it: in the end it has an answer or a failure."""

    submit: Callable[[], Any]  # brings a sample set, at once or when it is resolved
    reads: int
    estimate: float  # seconds of access time
    answer: Any = None
    failure: CallFailedError | SamplerError | None = None  # a `SamplerError` will meet the next solve again
    pending: Any = None  # a sample set that is on its way
    submitted: float = 0.0
    late: int = 0  # how often it was waited for in vain
    fault: str = ""  # the last one


class CallQueue:
    """Carries out calls: all of a round go out, then their answers are waited for; what failed goes out once more.

    A device that answers at once is asked one call after the other. No call goes out that the budget has no room for
    beside those in flight; before it is given up, the answers of those are waited for, which may have cost less.
    """

    def __init__(self, access: DeviceAccess, receipt: Receipt) -> None:
        self.access, self.receipt = access, receipt
        self._refused: SamplerError | None = None  # what no retry can help, for any call

    def carry_out(self, calls: Sequence[Call]) -> None:
        """Fill in the answer or the failure of every call, with pauses that grow before those that are repeated."""
        tries = self.access.retries + 1
        going = list(calls)
        for attempt in range(tries):
            if attempt and any(call.pending is None for call in going):
                time.sleep(self.access.backoff_seconds * 2 ** (attempt - 1))
            self._round(going)
            going = [call for call in going if call.answer is None and call.failure is None]
            if not going:
                return
        for call in going:
            if call.pending is not None:  # it will be billed, and nobody waits for it any more
                self.receipt.access_seconds += call.estimate
            call.failure = CallFailedError(f"no answer in {tries} tries, the last: {call.fault}")

    def _round(self, calls: Sequence[Call]) -> None:
        flying: deque[Call] = deque()
        for call in calls:
            if call.pending is None:
                while flying and not self.access.has_room(call.estimate):
                    self._collect(flying.popleft())
                self._submit(call)
            flying.append(call)
        for call in flying:
            self._collect(call)

    def _submit(self, call: Call) -> None:
        if self._refused is not None:
            call.failure = self._refused
            return
        try:
            self.access.reserve(call.estimate)  # an interrupt from here on leaves it counted: it may have run
        except BudgetExhaustedError as error:
            call.failure = error
            return
        self.receipt.calls += 1
        call.submitted, call.late = time.monotonic(), 0
        try:
            call.pending = call.submit()
        except Exception as error:
            self._note(call, error)

    def _collect(self, call: Call) -> None:
        """Wait for a call in flight. One that is only late stays so: it is not asked for, and paid for, twice."""
        if call.pending is None:
            return
        timeout = self.access.timeout_seconds
        try:
            # Counted from when it went out: calls in flight together wait together.
            in_time = _resolve(call.pending, call.submitted + (call.late + 1) * timeout)
            billed = _billed(call.pending, call.estimate) if in_time else 0.0
        except Exception as error:
            call.pending = None
            self._note(call, error)
            return
        if not in_time:
            call.late += 1
            call.fault = f"TimeoutError: no answer within {timeout:g} s"
            self.receipt.faults.append(call.fault)
            return
        self.access.settle(call.estimate, billed)
        self.receipt.access_seconds += billed
        call.answer, call.pending = call.pending, None

    def _note(self, call: Call, error: Exception) -> None:
        """What an error means for its call: another try, or none."""
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
    """Wait for a sample set; whether it is there in time."""
    while not sampleset.done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    sampleset.resolve()
    return True


def _billed(sampleset: Any, estimate: float) -> float:
    """The access time that the device bills, in seconds; the estimate where it names none that can be."""
    told = (sampleset.info.get("timing") or {}).get("qpu_access_time")
    if isinstance(told, bool) or not isinstance(told, Real) or not math.isfinite(told) or told < 0:
        return estimate
    return float(told) * _MICROSECONDS
