"""How time grows with rows, features, classes and workers: `python -m benchmarks.large [--quick]`.

Seconds per iteration of trainings in which one number doubles, and the exponent that fits them: 1 is proportional.
With `mnist` instead: all of MNIST at 28×28, frozen random 7×7 filters, beside scikit-learn's `LogisticRegression`.
"""

import resource
import sys
import time
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.baselines import solve_logistic
from annealfit.errors import AnnealfitError
from annealfit.objectives import LinearHead
from benchmarks.timing import print_table

ITERATIONS = 3
PENALTY = 1e-3


def synthetic(n_rows, n_features, n_classes):
    """Classes that overlap."""
    generator = np.random.default_rng(0)
    y = np.arange(n_rows) % n_classes
    means = 2.5 / np.sqrt(n_features) * generator.normal(size=(n_classes, n_features))
    return generator.normal(size=(n_rows, n_features)) + means[y], y


def seconds_per_iteration(X, y):
    """Without what is done once: the difference between a longer and a shorter training."""
    seconds = []
    for iterations in (1, 1 + ITERATIONS):
        classifier = AnnealedClassifier(max_iter=iterations, tol=0, random_state=0)
        seconds.append(classifier.fit(X, y).history_[-1]["seconds"])
    return (seconds[1] - seconds[0]) / ITERATIONS


def growth(name, sizes, case):
    """A row of the table: the seconds of every size, and the slope of their logarithms."""
    taken = [seconds_per_iteration(*case(size)) for size in sizes]
    slope = np.polyfit(np.log(sizes), np.log(taken), 1)[0]
    return [name, ", ".join(map(str, sizes)), ", ".join(f"{value:.3f}" for value in taken), f"{slope:.2f}"]


def workers(counts, n_rows):
    """Seconds per iteration on clusters of so many workers, and what is sent."""
    import dask.array as da
    from distributed import Client, LocalCluster

    from annealfit.rows import DaskRows

    X, y = synthetic(n_rows, 64, 10)
    reference = AnnealedClassifier(max_iter=4, tol=0, random_state=0).fit(X, y).coef_
    rows = []
    for count in counts:
        with (
            LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster),
        ):
            there = DaskRows(da.from_array(X, chunks=(n_rows // 16, -1)), y)
            clf = AnnealedClassifier(max_iter=4, tol=0, random_state=0).fit(there)
        taken = (clf.history_[-1]["seconds"] - clf.history_[0]["seconds"]) / 3
        off = np.abs(clf.coef_ - reference).max() / np.abs(reference).max()
        sent, passes = there.traffic, there.traffic.passes
        rows.append(
            [str(count), f"{taken:.2f}", f"{off:.1e}"]
            + [f"{value / passes:,.0f}" for value in (sent.bytes_of_terms, sent.bytes_of_sums)]
        )
    return rows


def run(*, quick):
    step = 1 if quick else 4
    print_table(
        "Seconds per iteration, and the exponent that fits them",
        ["what grows", "sizes", "seconds", "exponent"],
        [
            growth(
                "rows (d = 64, C = 10)", [step * n for n in (5000, 10000, 20000, 40000)], lambda n: synthetic(n, 64, 10)
            ),
            growth("features (N = 5000, C = 10)", [64, 128, 256, 512][: 2 + step], lambda d: synthetic(5000, d, 10)),
            growth("classes (N = 4000, d = 64)", [50, 100, 200, 400], lambda c: synthetic(4000, 64, c)),
        ],
    )
    n_rows = 50_000 if quick else 1_000_000
    print_table(
        f"Dask, {n_rows:,} rows × 64, 10 classes, 16 chunks; bytes are those of a pass",
        ["workers", "s per iteration", "off by (relative)", "bytes to a worker", "bytes back"],
        workers([1, 2], n_rows),
    )


def mnist(n_filters=128, n_train="all"):
    """d = 16 · filters: 7×7 filters on 28×28 leave 22×22, pooled by 5 to 4×4."""
    warnings.simplefilter("ignore")
    data = load_dataset("mnist", seed=42, n_train=n_train, n_test="all", size=28)
    features = RandomConvFeatures(n_filters, 7, 5, standardize="features", random_state=42)
    X, X_test = features.fit_transform(data.X_train), features.transform(data.X_test)
    began = time.perf_counter()
    ours = AnnealedClassifier(bits=3, regularization=PENALTY, random_state=0).fit(X, data.y_train)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"MNIST {len(X)}, d = {X.shape[1]}, 3 bits: test {ours.score(X_test, data.y_test):.2%}, {ours.n_iter_} "
        f"iterations ({ours.stop_reason_}), {seconds:.1f} s; peak {peak:.1f} GiB",
        flush=True,
    )
    began = time.perf_counter()
    theirs = LogisticRegression(C=1 / (PENALTY * len(X)), max_iter=1000).fit(X, data.y_train)
    print(f"LogisticRegression: test {theirs.score(X_test, data.y_test):.2%}, {time.perf_counter() - began:.1f} s")
    best = LinearHead.of_arrays(X, data.y_train, 10, PENALTY).at(solve_logistic(X, data.y_train, PENALTY).weights).loss
    there = next((row["seconds"] for row in ours.history_ if row["loss"] <= 1.001 * best), np.nan)
    print(f"ours to 1.001 × the optimum: {there:.1f} s; ended at {ours.history_[-1]['loss'] / best:.5f} ×")


def main():
    if "mnist" in sys.argv:
        try:
            mnist(*(int(size) for size in sys.argv[2:]))
        except AnnealfitError as error:  # the files are not there
            print(f"left out: {error}")
    else:
        run(quick="--quick" in sys.argv)


if __name__ == "__main__":
    main()
