"""How time grows with rows, features, classes and workers: `python -m benchmarks.large [--quick]`.

Seconds per iteration (the median) of trainings in which one number doubles, and the exponent that fits them: 1 is
proportional. One thread. `benchmarks.large_heads`, `whole_mnist`, `cluster` and `beyond_memory` have the large sizes.
"""

import sys

from benchmarks.timing import print_table  # first: one thread

import numpy as np

from annealfit import AnnealedClassifier
from benchmarks import cluster
from benchmarks.overlapping import overlapping_classes
from benchmarks.tables import exponent

ITERATIONS = 7


def seconds_per_iteration(X, y):
    """Without what is done once: the median over the iterations after the first."""
    classifier = AnnealedClassifier(max_iter=ITERATIONS, tol=0, random_state=0).fit(X, y)
    return float(np.median(np.diff([row["seconds"] for row in classifier.history_])))


def growth(name, sizes, case):
    """A row of the table."""
    taken = [seconds_per_iteration(*case(size)) for size in sizes]
    return [
        name,
        ", ".join(f"{size:,}" for size in sizes),
        ", ".join(f"{value:.3f}" for value in taken),
        f"{exponent(sizes, taken):.2f}",
    ]


def run(*, quick):
    AnnealedClassifier(max_iter=1, tol=0).fit(np.eye(20), np.arange(20) % 3)  # compiled
    doublings = 2 ** np.arange(3 if quick else 5)
    print_table(
        "Seconds per iteration, and the exponent that fits them",
        ["what grows", "sizes", "seconds", "exponent"],
        [
            growth("rows (d = 64, C = 10)", (10_000 * doublings).tolist(), lambda n: overlapping_classes(n, 64, 10)),
            growth(
                "features (N = 5,000, C = 10)", (256 * doublings).tolist(), lambda d: overlapping_classes(5000, d, 10)
            ),
            growth(
                "classes (N = 5,000, d = 64)", (64 * doublings).tolist(), lambda c: overlapping_classes(5000, 64, c)
            ),
        ],
    )
    cluster.run(quick=quick)


if __name__ == "__main__":
    run(quick="--quick" in sys.argv)
