"""Very many classes, very many features: `python -m benchmarks.large_heads [classes | features]`.

1,000 classes (d = 512, N = 20,000), beside 125, 250 and 500; 4,096 features (N = 10,000, 10 classes), beside 1,024 and
2,048, and with a time limit. Overlapping classes, default settings, each training in a process of its own with as many
threads as there are processors.
"""

import sys
import time
import warnings

import numpy as np

from annealfit import AnnealedClassifier
from benchmarks.overlapping import overlapping_classes
from benchmarks.processes import Memory, alone
from benchmarks.tables import exponent, print_table

ITERATIONS = 5
TIME_LIMIT = 3.0


def train(sizes, settings):
    """Seconds of the fit and of every iteration, losses, accuracy, why it ended, and the most memory."""
    warnings.simplefilter("ignore")
    AnnealedClassifier(max_iter=2, tol=0).fit(np.eye(20), np.arange(20) % 3)  # compiled
    X, y = overlapping_classes(*sizes)
    with Memory() as memory:
        began = time.perf_counter()
        classifier = AnnealedClassifier(random_state=0, **settings).fit(X, y)
        seconds = time.perf_counter() - began
    history = classifier.history_
    taken = np.diff([row["seconds"] for row in history], prepend=0.0)
    return {
        "seconds": seconds,
        "first": taken[0],
        "per iteration": float(np.median(taken[1:])) if len(taken) > 1 else taken[0],
        "end": f"{classifier.n_iter_} ({classifier.stop_reason_})",
        "losses": f"{history[0]['loss']:.4f} → {history[-1]['loss']:.4f}",
        "accuracy": history[-1]["accuracy"],
        "peak": memory.peak,
    }


def row(size, found):
    return [
        size,
        found["end"],
        f"{found['seconds']:.1f}",
        f"{found['first']:.2f}",
        f"{found['per iteration']:.2f}",
        found["losses"],
        f"{found['accuracy']:.1%}",
        f"{found['peak'] / 2**30:.2f}",
    ]


def compare(title, heading, sizes, settings, case):
    """A table of trainings of growing size, and the exponent of their seconds per iteration."""
    found = [alone(train, case(size), settings) for size in sizes]
    headings = [heading, "iterations", "s", "first s", "s per iteration", "loss, first → last", "accuracy", "peak GiB"]
    print_table(title, headings, [row(f"{size:,}", one) for size, one in zip(sizes, found, strict=True)])
    print(f"exponent of the seconds per iteration: {exponent(sizes, [one['per iteration'] for one in found]):.2f}")


def classes():
    compare(
        f"20,000 rows × 512, {ITERATIONS} iterations",
        "classes",
        [125, 250, 500, 1000],
        {"max_iter": ITERATIONS, "tol": 0},
        lambda size: (20_000, 512, size),
    )


def features():
    compare("10,000 rows, 10 classes, to the end", "features", [1024, 2048, 4096], {}, lambda size: (10_000, size, 10))
    limited = alone(train, (10_000, 4096, 10), {"time_limit": TIME_LIMIT, "tol": 1e-12})
    print(f"d = 4,096 with time_limit={TIME_LIMIT}: {limited['end']}, {limited['seconds']:.1f} s in all")


if __name__ == "__main__":
    for name, part in (("classes", classes), ("features", features)):
        if name in sys.argv or len(sys.argv) == 1:
            part()
