"""A Dask cluster of processes on this machine: `python -m benchmarks.cluster [rows]`, a million if not said.

The rows are in a file that the workers read. Trained on clusters of one and of two workers, and on two of which one is
killed in mid-training; told are the seconds, what an iteration sends, and how far the weights are from those of the
same rows in memory.
"""

import os
import signal
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from annealfit import AnnealedClassifier
from annealfit.data.rows import DaskRows, NpyTable
from benchmarks.tables import exponent, print_table

FEATURES, CLASSES, CHUNKS = 64, 10, 16
SETTINGS = {"random_state": 0}


def make_file(path, n_rows):
    """Classes that overlap, in double precision; returns the labels."""
    generator = np.random.default_rng(0)
    y = np.arange(n_rows) % CLASSES
    means = 2.5 / np.sqrt(FEATURES) * generator.normal(size=(CLASSES, FEATURES))
    np.save(path, generator.normal(size=(n_rows, FEATURES)) + means[y])
    return y


@contextmanager
def workers(count):
    """A cluster of so many processes with a thread each, and its client."""
    from distributed import Client, LocalCluster

    settings = {"n_workers": count, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(**settings) as cluster, Client(cluster) as client:
        yield client


def train(path, y, client, killed_after=None):
    """A training on the cluster, of whose workers one is perhaps killed: the classifier, its rows, seconds."""
    import dask.array as da

    rows = DaskRows(da.from_array(NpyTable(path), chunks=(-(-len(y) // CHUNKS), -1), name=False), y)
    victim = next(iter(client.run(os.getpid).values()))

    def kill(iteration):
        if iteration.row["iteration"] == killed_after:
            os.kill(victim, signal.SIGKILL)

    began = time.perf_counter()
    classifier = AnnealedClassifier(**SETTINGS, callbacks=[kill]).fit(rows)
    return classifier, rows, time.perf_counter() - began


def row(name, here, found):
    classifier, _, seconds = found
    off = np.abs(classifier.coef_ - here.coef_).max() / np.abs(here.coef_).max()
    return [
        name,
        f"{classifier.n_iter_} ({classifier.stop_reason_})",
        f"{seconds:.1f}",
        f"{seconds / classifier.n_iter_:.3f}",
        f"{off:.1e}",
    ]


def run(*, quick, n_rows=None):
    n_rows = n_rows or (50_000 if quick else 200_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        y = make_file(path, n_rows)
        began = time.perf_counter()
        here = AnnealedClassifier(**SETTINGS).fit(np.load(path), y)
        seconds = time.perf_counter() - began
        found = {}
        for count in (1, 2):
            with workers(count) as client:
                found[count] = train(path, y, client)
        with workers(2) as client:
            disturbed = train(path, y, client, killed_after=3)
    print_table(
        f"Dask, {n_rows:,} rows × {FEATURES}, {CLASSES} classes, {CHUNKS} chunks (in memory, without Dask: "
        f"{here.n_iter_} iterations, {seconds:.1f} s)",
        ["workers", "iterations", "seconds", "per iteration", "difference of weights (relative)"],
        [
            row("1", here, found[1]),
            row("2", here, found[2]),
            row("2, one killed", here, disturbed),
        ],
    )
    same = all(np.array_equal(one[0].coef_, found[1][0].coef_) for one in (found[2], disturbed))
    print(f"all three to the last bit the same: {'yes' if same else 'NO'}")
    growth = exponent([1, 2], [found[count][2] / found[count][0].n_iter_ for count in (1, 2)])
    print(f"time grows with the workers as their number to the power {growth:.2f}", flush=True)


if __name__ == "__main__":
    run(quick=False, n_rows=int(sys.argv[1]) if sys.argv[1:] else 1_000_000)
