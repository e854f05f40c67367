"""Calls in flight together: all go out before one is waited for, never beyond the budget, and every one is counted.

Most tests play the device by hand, with a clock that only moves when somebody waits.
"""

from __future__ import annotations

import concurrent.futures
import math
import threading
import warnings
from itertools import count

import dimod
import numpy as np
import pytest
from random_problems import random_problem

pytest.importorskip("dwave.system")

from dwave.cloud.exceptions import SolverAuthenticationError, SolverFailureError

from annealfit import AnnealedClassifier
from annealfit._support.errors import BudgetExhaustedError, SamplerError
from annealfit.samplers import BlockSampler, MockQPU, QPUSampler
from annealfit.samplers.dwave import call_queue
from annealfit.samplers.dwave.call_queue import Call, CallFailedError, CallQueue, Ledger, Receipt

SECOND = 1e6  # of access time, in the device's microseconds


def queue_of(**settings):
    usual = {"max_access_seconds": None, "retries": 3, "backoff_seconds": 1.0, "timeout_seconds": 10.0}
    return CallQueue(Ledger(), Receipt(), **{**usual, **settings})


@pytest.fixture
def clock(monkeypatch):
    """Seconds that were waited."""
    now = [0.0]
    monkeypatch.setattr(call_queue.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(call_queue.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


class Answer:
    """A sample set that is there after some seconds of the clock, or turns out to be an error."""

    def __init__(self, device, seconds, billed, error):
        self.device, self.ready, self.error = device, device.clock[0] + seconds, error
        self.info = {"timing": {"qpu_access_time": billed}}

    def done(self):
        return self.device.clock[0] >= self.ready

    def resolve(self):
        self.device.log.append("answer")
        if self.error is not None:
            raise self.error


class Device:
    """Answers calls with what is in the script for each, in turn; without an entry, well."""

    def __init__(self, clock, script=None, *, seconds=1.0, billed=1.0 * SECOND):
        self.clock, self.script, self.seconds, self.billed = clock, script or {}, seconds, billed
        self.log, self.number = [], count()

    def submit(self):
        self.log.append("call")
        entry = self.script.get(next(self.number), {})
        if "at_once" in entry:
            raise entry["at_once"]
        return Answer(self, entry.get("seconds", self.seconds), entry.get("billed", self.billed), entry.get("error"))


def carry_out(device, n_calls, **settings):
    queue = queue_of(**settings)
    calls = [Call(device.submit, reads=10, estimate=1.0) for _ in range(n_calls)]
    queue.carry_out(calls)
    assert all((call.answer is None) != (call.failure is None) for call in calls)
    assert queue.ledger.seconds == pytest.approx(queue.receipt.access_seconds)
    return calls, queue.receipt, queue


def test_all_calls_go_out_before_one_is_waited_for(clock):
    device = Device(clock)
    calls, receipt, _ = carry_out(device, 5)
    assert device.log == ["call"] * 5 + ["answer"] * 5
    assert all(call.answer is not None for call in calls)
    assert (receipt.calls, receipt.access_seconds, receipt.faults) == (5, 5.0, [])
    assert clock[0] < 1.5  # five answers of a second each, waited for together


def test_the_budget_counts_what_is_in_flight(clock):
    device = Device(clock)
    calls, receipt, queue = carry_out(device, 5, max_access_seconds=3.5)
    assert [call.answer is not None for call in calls] == [True, True, True, False, False]
    assert all(isinstance(call.failure, BudgetExhaustedError) for call in calls[3:])
    assert receipt.calls == 3
    assert device.log[:3] == ["call"] * 3
    assert queue.ledger.seconds == pytest.approx(3.0)


def test_a_call_is_given_up_only_once_those_in_flight_are_known_not_to_have_cost_less(clock):
    """Billed half of the estimate, six calls fit 3.5 s: as many as one after the other would have been made."""
    device = Device(clock, billed=0.5 * SECOND)
    calls, _, queue = carry_out(device, 8, max_access_seconds=3.5)
    alone = queue_of(max_access_seconds=3.5)
    one_by_one = [Call(Device(clock, billed=0.5 * SECOND).submit, reads=10, estimate=1.0) for _ in range(8)]
    for call in one_by_one:
        alone.carry_out([call])
    assert sum(call.answer is not None for call in calls) == sum(c.answer is not None for c in one_by_one) == 6
    assert queue.ledger.seconds == pytest.approx(3.0)


@pytest.mark.parametrize("where", ["at_once", "error"])
def test_what_failed_goes_out_again_together_after_one_pause(clock, where):
    lost = {where: ConnectionError("lost")}
    device = Device(clock, {0: lost, 2: lost, 3: lost}, seconds=0.0)
    calls, receipt, _ = carry_out(device, 3)
    assert all(call.answer is not None for call in calls)
    assert receipt.calls == 6  # three, the first and the third again, and one of them once more
    assert receipt.faults == ["ConnectionError: lost"] * 3
    assert receipt.access_seconds == pytest.approx(6.0)  # a call that was lost may have run
    assert clock[0] == pytest.approx(1.0 + 2.0)  # one pause before each round, whatever the number of calls


def test_calls_that_hang_are_waited_for_together_and_paid_once(clock):
    device = Device(clock, {1: {"seconds": 9.0}}, seconds=math.inf)
    calls, receipt, _ = carry_out(device, 6, retries=2)
    assert [str(call.failure) for call in calls if call.answer is None] == ["no answer within 10 s"] * 5
    assert calls[1].answer is not None
    assert receipt.calls == 6
    assert receipt.faults == ["TimeoutError: no answer within 10 s"] * 5
    assert receipt.access_seconds == pytest.approx(6.0)
    assert clock[0] == pytest.approx(10, abs=0.2)


def test_what_no_retry_can_help_stops_the_calls_that_are_not_out(clock):
    device = Device(clock, {1: {"at_once": SolverAuthenticationError("no token")}})
    calls, receipt, _ = carry_out(device, 4)
    assert device.log == ["call", "call", "answer"]
    assert calls[0].answer is not None
    assert all("the device refused the call (SolverAuth" in str(call.failure) for call in calls[1:])
    assert (receipt.calls, receipt.access_seconds) == (2, 1.0)


def test_a_problem_that_is_declined_costs_its_call_only(clock):
    device = Device(clock, {1: {"error": SolverFailureError("J out of range")}})
    calls, receipt, _ = carry_out(device, 3)
    assert isinstance(calls[1].failure, CallFailedError)
    assert receipt.calls == 3
    assert receipt.access_seconds == pytest.approx(2.0)
    assert receipt.faults == ["SolverFailureError: J out of range"]


def test_an_interrupt_leaves_what_is_in_flight_counted(clock):
    device, queue = Device(clock, {1: {"error": KeyboardInterrupt()}}), queue_of(max_access_seconds=9)
    with pytest.raises(KeyboardInterrupt):
        queue.carry_out([Call(device.submit, 10, 1.0) for _ in range(4)])
    assert queue.ledger.seconds == pytest.approx(4.0)  # one is billed, three may be


@pytest.mark.parametrize("billed", [None, math.nan, -1e9, math.inf, "free", True])
def test_a_bill_that_cannot_be_is_the_estimate(clock, billed):
    _, receipt, _ = carry_out(Device(clock, billed=billed), 2)
    assert receipt.access_seconds == pytest.approx(2.0)


class Behind:
    """A device behind a network: every answer, and every error, is a future that comes later."""

    def __init__(self, device, seconds=0.05):
        self.device, self.seconds, self.flying, self.most = device, seconds, 0, 0

    def __getattr__(self, name):
        return getattr(self.device, name)

    def sample(self, bqm, **parameters):
        future = concurrent.futures.Future()
        try:
            answer, error = self.device.sample(bqm, **parameters), None
        except OSError as raised:
            answer, error = None, raised
        self.flying += 1
        self.most = max(self.most, self.flying)

        def deliver():
            self.flying -= 1
            future.set_result(answer) if error is None else future.set_exception(error)

        threading.Timer(self.seconds, deliver).start()
        return dimod.SampleSet.from_future(future)


def small(**options):
    return MockQPU("Z12", num_sweeps=20, **options)


def test_gauges_and_sizes_are_in_flight_together_and_the_answers_are_those_of_one_after_the_other():
    several = [random_problem(seed, 4, bits, 0.5) for seed, bits in enumerate((1, 2, 2, 3))]
    behind = Behind(small(seed=3), seconds=2.0)  # more than six submissions take
    apart = QPUSampler(behind, num_reads=20, spin_reversals=2).solve(several, range(4))
    assert behind.most == behind.device.calls == 6
    at_once = QPUSampler(small(seed=3), num_reads=20, spin_reversals=2).solve(several, range(4))
    for one, other in zip(apart, at_once, strict=True):
        np.testing.assert_array_equal(one.bits, other.bits)


@pytest.mark.parametrize("wrapped", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("blocks", [None, 4], ids=["whole", "blocks"])
@pytest.mark.parametrize("budget", [None, 0.35])
def test_half_of_all_calls_failing_in_every_way_is_counted_to_the_last(wrapped, blocks, budget, blobs):
    X, y = blobs
    device = small(faults=0.5, seed=5)
    behind = Behind(device, seconds=0.01) if wrapped else device
    qpu = QPUSampler(
        behind,
        num_reads=10,
        spin_reversals=2 if blocks is None else 1,
        backoff_seconds=0,
        retries=1 if blocks is None else 0,
        max_access_seconds=budget,
    )
    sampler = qpu if blocks is None else BlockSampler(qpu, blocks)
    classifier = AnnealedClassifier(bits=2, max_iter=4, tol=0, sampler=sampler, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = classifier.fit(X, y).history_
    told = {name: sum(row[name] for row in history) for name in ("calls", "fault_count", "access_seconds")}
    assert told["calls"] == device.calls > 4
    noted = "; ".join(row["faults"] for row in history)
    # Reads that a spent budget left out are faults too, and many chains here are too short to break.
    raised = sum(fault in ("timeout", "connection", "refused") for fault in device.injected)
    assert noted.count("Error: ") == raised
    assert noted.count("fewer reads than asked") == device.injected.count("fewer_reads")
    assert told["fault_count"] >= raised
    assert told["access_seconds"] == pytest.approx(qpu.access_seconds)
    assert budget is None or qpu.access_seconds <= budget
    assert all(row["loss_change"] <= 0 for row in history)
    if blocks is not None and budget is None:
        # Without retries every call that raised is a block of all three classes, and costs no more than that.
        assert sum(row["failed_blocks"] for row in history) == 3 * raised > 0
        assert all(row["solved"] == 3 for row in history)


def test_a_device_that_answers_for_other_variables_is_not_believed():
    class Elsewhere(Behind):
        def sample(self, bqm, **parameters):
            answer = self.device.sample(bqm, **parameters)
            return dimod.SampleSet.from_samples(
                dimod.as_samples((answer.record.sample[:, :1], answer.variables[:1])), "SPIN", energy=0.0
            )

    sampler = QPUSampler(Elsewhere(small()), num_reads=5)
    with pytest.raises(SamplerError, match="the device refused the call"):
        sampler.sample(random_problem(0, 4, 2, 0.5))
