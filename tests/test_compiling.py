"""The seconds of a training do not include loading or compiling of code."""

import json
import subprocess
import sys
from importlib import import_module

import pytest

from annealfit import AnnealedClassifier, AnnealedConvNet, load_dataset
from annealfit.models import messages
from annealfit.samplers import RoundedSampler

PROGRAM = """
import json, sys, time
from types import SimpleNamespace
import numpy as np
from numba.core.dispatcher import Dispatcher
from annealfit import AnnealedClassifier
from annealfit.models import base

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("annealfit.") and module is not None]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)}
    return {(f.py_func.__module__, f.py_func.__name__, str(s)) for f in found for s in f.signatures}

before = []

def clock():
    before.append(compiled())
    return time.perf_counter()

base.time = SimpleNamespace(perf_counter=clock)
generator, late, loaded = np.random.default_rng(0), [], 0
for rows, features, classes in [(300, 5, 2), (300, 5, 4), (4000, 20, 10), (3000, 128, 4), (900, 320, 2)]:
    X = generator.normal(size=(rows, features))
    y = (X @ generator.normal(size=(features, classes)) + 3 * generator.normal(size=(rows, classes))).argmax(axis=1)
    before.clear()
    AnnealedClassifier(max_iter=30, random_state=0).fit(X, y)
    loaded = len(before[0])
    late += sorted(compiled() - before[0])
print(json.dumps([loaded, late]))
"""


def test_the_code_of_a_training_is_loaded_before_its_clock_starts():
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=True)
    loaded, late = json.loads(run.stdout.splitlines()[-1])
    assert loaded > 10
    assert late == []


@pytest.fixture
def clock(monkeypatch):
    """A clock that only loading and preparing advance, by an hour each."""
    elapsed = [0.0]

    def load(name):
        elapsed[0] += 3600
        return import_module(name)

    messages.load_compiled_code.cache_clear()
    monkeypatch.setattr(messages, "import_module", load)
    monkeypatch.setattr("time.perf_counter", lambda: elapsed[0])
    return elapsed


class Prepared(RoundedSampler):
    def __init__(self, clock):
        self.clock, self.prepared = clock, 0

    def prepare(self):
        if not self.prepared:
            self.clock[0] += 3600
        self.prepared += 1


def test_seconds_do_not_include_loading(blobs, clock):
    for _ in range(2):
        sampler = Prepared(clock)
        clf = AnnealedClassifier(max_iter=3, tol=0, random_state=0, sampler=sampler).fit(*blobs)
        assert sampler.prepared
        assert [row["seconds"] for row in clf.history_] == [0.0] * 3
    assert clock[0] >= 3 * 3600


def test_seconds_of_a_network_do_not_include_loading(clock):
    data = load_dataset("digits", n_train=60, n_test=10)
    net = AnnealedConvNet(n_filters=1, max_iter=8, random_state=0, sampler=Prepared(clock))
    net.fit(data.X_train, data.y_train)
    assert [row["seconds"] for row in net.history_] == [0.0] * 8
