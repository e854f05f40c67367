"""Ten million rows from a memory-mapped file: `python -m benchmarks.beyond_memory [rows]`.

Makes a file of rows × 128 single-precision features (5 GB) in a temporary folder, trains on it, and deletes it. Told
are the most anonymous memory (RssAnon: what the process has for itself, without the file's pages) and the seconds of a
pass, against the least there is: reading every chunk and multiplying it with the weights, in as many threads (all
processors, unless OMP_NUM_THREADS says otherwise).
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from annealfit import AnnealedClassifier
from annealfit.training.objectives import LinearHead
from annealfit.training.objectives import linear_head
from annealfit.data.rows import ChunkedRows
from benchmarks.processes import Memory
from benchmarks.tables import print_table

FEATURES, CLASSES = 128, 10


def make_file(path, n_rows):
    """Classes that overlap, written block by block; returns the labels."""
    file = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, FEATURES))
    generator = np.random.default_rng(0)
    means = generator.normal(scale=0.25, size=(CLASSES, FEATURES)).astype(np.float32)
    labels = generator.integers(0, CLASSES, n_rows, dtype=np.int8)
    for first in range(0, n_rows, 65536):
        own = labels[first : first + 65536]
        file[first : first + len(own)] = generator.standard_normal((len(own), FEATURES), np.float32) + means[own]
    file.flush()
    return labels


def alternately(functions, times=3):
    """The least seconds of each, taken in turns so that all meet the same machine."""
    least = dict.fromkeys(functions, np.inf)
    for _ in range(times):
        for name, function in functions.items():
            began = time.perf_counter()
            function()
            least[name] = min(least[name], time.perf_counter() - began)
    return least


def main(n_rows=10_000_000):
    AnnealedClassifier(max_iter=1, tol=0).fit(np.eye(20), np.arange(20) % 3)  # compiled
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        labels = make_file(path, n_rows)
        X = np.load(path, mmap_mode="r")
        with Memory() as memory:
            began = time.perf_counter()
            clf = AnnealedClassifier(random_state=0, verbose=1).fit(X, labels)
            seconds = time.perf_counter() - began
            accuracy = clf.score(X, labels)
        print(
            f"{n_rows:,} rows × {FEATURES}, {path.stat().st_size / 1e9:.2f} GB: {clf.n_iter_} iterations "
            f"({clf.stop_reason_}), {seconds:.1f} s, accuracy {accuracy:.2%}, at most {clf.optimality_gap_:.1e} above "
            f"the least loss {clf.history_[-1]['loss']:.5f}; most RssAnon {memory.anonymous / 2**30:.2f} GiB",
            flush=True,
        )
        rows = ChunkedRows(X, labels.astype(np.intp), CLASSES)
        weights = np.vstack([clf.coef_.T, clf.intercept_])
        directions = np.stack([weights.T, weights.T[::-1]])
        head = LinearHead(rows, 1e-3)
        point = head.at(weights)

        def search_with_all_rows():
            linear_head.LINE_SEARCH_ROWS, before = n_rows, linear_head.LINE_SEARCH_ROWS
            point.curvature_along(directions)
            linear_head.LINE_SEARCH_ROWS = before

        least = alternately(
            {
                "read (sum)": lambda: rows.sum(lambda chunk: (chunk.features.sum(),)),
                "limit: read, one product by NumPy": lambda: rows.sum(
                    lambda chunk: ((weights[:-1].T.astype(np.float32) @ chunk.features.T)[:, :1],)
                ),
                "the same, compiled": lambda: rows.sum(lambda chunk: (chunk.project(weights)[:, :1],)),
                "loss and gradient": lambda: head.at(weights),
                "line search, two directions": lambda: point.curvature_along(directions),
                "the same with all rows": search_with_all_rows,
            }
        )
        limit = least["limit: read, one product by NumPy"]
        print_table(
            "One pass over all rows",
            ["pass", "seconds", "ratio to the limit"],
            [[name, f"{taken:.2f}", f"{taken / limit:.2f}"] for name, taken in least.items()],
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
