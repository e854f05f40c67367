"""A device that is paid for by use: the limits of its calls, what they cost, and never beyond the budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from annealfit.errors import BudgetExhaustedError, SamplerError
from annealfit.hardware.access_time import access_seconds, most_reads

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
