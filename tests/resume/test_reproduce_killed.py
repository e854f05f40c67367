"""`annealfit reproduce` killed at random moments and started again ends with the records of an undisturbed run."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from annealfit.studies.records import Store

KILLS = 20
COMMAND = [sys.executable, "-m", "annealfit", "reproduce", "digits", "--preset", "annealfit"]
COMMAND += ["--seeds", "42-43", "--jobs", "1"]


def summary(folder):
    return {r.spec.id: (r.loss, r.train, r.test, r.confusion.tolist()) for r in Store(folder).records()}


def start(folder):
    # A group of its own, so that the kill reaches the workers too.
    return subprocess.Popen([*COMMAND, "--out", str(folder)], stdout=subprocess.DEVNULL, start_new_session=True)


@pytest.mark.long
def test_killed_twenty_times(tmp_path):
    assert start(tmp_path / "whole").wait(timeout=300) == 0
    generator = random.Random(0)
    for _ in range(KILLS):
        process = start(tmp_path / "disturbed")
        time.sleep(generator.uniform(0.5, 4.0))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert start(tmp_path / "disturbed").wait(timeout=300) == 0
    assert summary(tmp_path / "disturbed") == summary(tmp_path / "whole")
    assert len(summary(tmp_path / "disturbed")) == 10
