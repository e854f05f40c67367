"""A real two-worker Dask cluster, started here."""

import os
import signal
import threading
import time
from functools import partial

import pytest
from distributed import Client, LocalCluster
from test_runner import SPECS, contents, in_turn

from annealfit.studies import execute
from annealfit.studies.execute import run_all
from annealfit.studies.records import RunSpec, Store


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster


def test_the_cluster_gives_the_same_records(cluster, tmp_path):
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    run_all(SPECS, here, in_turn)
    outcome = run_all(SPECS, there, partial(execute.on_dask, address=cluster.scheduler_address))
    assert outcome.failed == 0
    assert contents(there) == contents(here)


def test_a_killed_worker_costs_time_not_results(cluster, tmp_path):
    specs = [RunSpec("digits", "qubo", seed, "matched", 20, max_iter=400) for seed in range(6)]
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        victim = next(iter(client.run(os.getpid).values()))

    def kill_soon():
        time.sleep(1.5)
        os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill_soon)
    killer.start()
    store, reference = Store(tmp_path / "there"), Store(tmp_path / "here")
    outcome = run_all(specs, store, partial(execute.on_dask, address=cluster.scheduler_address))
    killer.join()
    assert (outcome.done, outcome.failed) == (6, 0)
    run_all(specs, reference, in_turn)
    assert contents(store) == contents(reference)
