"""Calls of a device that is paid for by use: planned, tried again where that can help, never beyond the budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from annealfit.errors import BudgetExhaustedError, SamplerError
from annealfit.hardware.access_time import access_seconds, most_reads
from annealfit.samplers.protocol import Receipt, is_passing, is_refusal

# More broken chains than this are worth a word in the history: majority votes are then half guesses.
MANY_BROKEN_CHAINS = 0.25
_MICROSECONDS = 1e-6
_POLL_SECONDS = 0.02
_NEEDED = ("problem_timing_data", "problem_run_duration_range", "num_reads_range", "h_range", "j_range")


@dataclass
class Ledger:
    """QPU access time used so far; copies of a sampler write in one and the same."""

    seconds: float = 0.0


class CallFailedError(Exception):
    """A call failed in spite of its retries."""


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

    def call(self, submit: Callable[[], Any], n_qubits: int, reads: int, receipt: Receipt) -> Any:
        """The sample set that `submit` brings, tried again after growing pauses while it fails for a passing reason.

        An answer that is only late is waited for again, not asked for a second time: it will be billed anyway.
        """
        estimate = self.estimate(n_qubits, reads)
        pending, fault = None, ""
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(self.backoff_seconds * 2 ** (attempt - 1))
            try:
                if pending is None:
                    self._check_budget(estimate)
                    receipt.calls += 1
                    pending = submit()
                sampleset = _resolve(pending, self.timeout_seconds)
            except BudgetExhaustedError:
                raise
            except _LateError as error:
                fault = f"TimeoutError: {error}"
            except Exception as error:
                pending, fault = None, f"{type(error).__name__}: {error}"
                if is_refusal(error):
                    receipt.faults.append(fault)
                    raise CallFailedError(f"the solver declined the problem: {fault}") from error
                if not is_passing(error):
                    raise SamplerError(f"the device refused the call ({fault})") from error
                self._charge(estimate, receipt)  # lost on the way back, it may have run: a budget has to count it
            else:
                timing = sampleset.info.get("timing", {})
                self._charge(timing.get("qpu_access_time", estimate / _MICROSECONDS) * _MICROSECONDS, receipt)
                return sampleset
            receipt.faults.append(fault)
        if pending is not None:
            self._charge(estimate, receipt)
        raise CallFailedError(f"no answer in {self.retries + 1} tries, the last: {fault}")

    def _check_budget(self, estimate: float) -> None:
        if self.max_access_seconds is not None and self.ledger.seconds + estimate > self.max_access_seconds:
            raise BudgetExhaustedError(
                f"{self.ledger.seconds:.3f} s of QPU access time are used and the next call takes about "
                f"{estimate:.3f} s; max_access_seconds is {self.max_access_seconds:g}"
            )

    def _charge(self, seconds: float, receipt: Receipt) -> None:
        self.ledger.seconds += seconds
        receipt.access_seconds += seconds


def note_quality(sampleset: Any, asked: int, receipt: Receipt) -> None:
    """Write on the receipt what is short or broken in an answer; an answer without reads is a failure."""
    occurrences = sampleset.record.num_occurrences
    reads = int(occurrences.sum())
    if reads == 0:
        receipt.faults.append("fewer reads than asked: none")
        raise CallFailedError("the device returned no reads")
    if reads < asked:
        receipt.faults.append(f"fewer reads than asked: {reads} of {asked}")
    share = float(np.average(sampleset.record.chain_break_fraction, weights=occurrences))
    receipt.breaks.append((share, reads))
    if share > MANY_BROKEN_CHAINS:
        receipt.faults.append(f"broken chains: {share:.0%}")


class _LateError(Exception):
    """The answer is not there yet."""


def _resolve(sampleset: Any, timeout_seconds: float) -> Any:
    deadline = time.monotonic() + timeout_seconds
    while not sampleset.done():
        if time.monotonic() > deadline:
            raise _LateError(f"no answer within {timeout_seconds:g} s")
        time.sleep(_POLL_SECONDS)
    sampleset.resolve()
    return sampleset
