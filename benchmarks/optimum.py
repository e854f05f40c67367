"""Time to the optimum against scikit-learn's `LogisticRegression`: `OMP_NUM_THREADS=1 python -m benchmarks.optimum`.

Both in turns in one run, one BLAS thread each. Ours: 3 bits, just the iterations to 1.001 times the least loss, and a
fit with the defaults. Theirs: a fit with the default tolerance, on the features as they are and on centred ones, and
how far above the least loss it ends. Words choose cases: `python -m benchmarks.optimum digits "two classes"`.
"""

import sys
import time
import warnings

from benchmarks.timing import least_seconds, print_table

import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.models.baselines import solve_logistic
from annealfit._support.errors import AnnealfitError
from annealfit.training.objectives import LinearHead
from benchmarks.overlapping import overlapping_classes

PENALTY = 1e-3
MOST_ROUNDS, BUDGET_SECONDS = 20, 20  # of one case; there is always one round


def digits():
    data = load_dataset("digits", seed=42)
    return RandomConvFeatures(n_filters=2, random_state=42).fit_transform(data.X_train), data.y_train


def mnist():
    data = load_dataset("mnist", seed=42, n_train=6000, n_test=10, size=28)
    features = RandomConvFeatures(n_filters=32, kernel_size=7, pool_size=5, random_state=42)
    return features.fit_transform(data.X_train), data.y_train


def correlated(n_features, n_rows=5000, n_classes=10):
    """scikit-learn's generator: half of the features matter, and they are mixed with each other."""
    return make_classification(n_rows, n_features, n_informative=n_features // 2, n_classes=n_classes, random_state=0)


CASES = {
    "digits, d = 18": digits,
    "synthetic, d = 128": lambda: overlapping_classes(5000, 128),
    "synthetic, d = 512": lambda: overlapping_classes(5000, 512),
    "synthetic, d = 2000": lambda: overlapping_classes(5000, 2000),
    "correlated, d = 128": lambda: correlated(128),
    "correlated, d = 512": lambda: correlated(512),
    "correlated, d = 2000": lambda: correlated(2000),
    "MNIST 6000, d = 512": mnist,
    "two classes, synthetic, d = 128": lambda: overlapping_classes(5000, 128, 2),
    "two classes, synthetic, d = 512": lambda: overlapping_classes(5000, 512, 2),
    "two classes, synthetic, d = 2000": lambda: overlapping_classes(5000, 2000, 2),
    "two classes, correlated, d = 128": lambda: correlated(128, n_classes=2),
    "two classes, correlated, d = 512": lambda: correlated(512, n_classes=2),
    "two classes, correlated, d = 2000": lambda: correlated(2000, n_classes=2),
}


def measure(X, y):
    """Iterations and seconds of ours, of theirs as is and centred, and of ours with the defaults; where theirs ends."""
    head = LinearHead.of_arrays(X, y, int(y.max()) + 1, PENALTY)
    least = head.at(solve_logistic(X, y, PENALTY).weights).loss
    target = 1.001 * least
    history = AnnealedClassifier(max_iter=200, tol=0, random_state=0).fit(X, y).history_
    needed = 1 + sum(row["loss"] > target for row in history)
    ours = AnnealedClassifier(max_iter=needed, tol=0, random_state=0)
    usual = AnnealedClassifier(random_state=0)
    theirs = LogisticRegression(C=1 / (PENALTY * len(y)), max_iter=10_000)
    centred = X - X.mean(axis=0)
    fits = [lambda: ours.fit(X, y), lambda: theirs.fit(X, y), lambda: theirs.fit(centred, y), lambda: usual.fit(X, y)]
    rounds, began = [], time.perf_counter()
    while len(rounds) < MOST_ROUNDS and (not rounds or time.perf_counter() - began < BUDGET_SECONDS):
        rounds.append([least_seconds(fit, repeats=1) for fit in fits])
    theirs.fit(X, y)
    excess = head.at(np.vstack([theirs.coef_.T, theirs.intercept_])).loss / least - 1
    return needed, usual, np.min(rounds, axis=0), excess


def main():
    warnings.simplefilter("ignore")
    rows = []
    for name, make in CASES.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        try:
            X, y = make()
        except AnnealfitError as error:
            print(f"{name} is left out: {error}")
            continue
        with threadpool_limits(1):
            needed, usual, (ours, theirs, centred, whole), excess = measure(X, y)
        milliseconds = [f"{1e3 * value:.0f}" for value in (ours, theirs, centred, whole)]
        ratios = f"{ours / theirs:.2f}×, {ours / centred:.2f}×", f"{whole / theirs:.2f}×, {whole / centred:.2f}×"
        end = f"{usual.n_iter_}, {usual.stop_reason_}"
        rows.append([name, str(needed), *milliseconds[:3], ratios[0], milliseconds[3], end, ratios[1], f"{excess:.1e}"])
    print_table(
        "To 1.001 × the least loss with 3 bits, and a default fit, against LogisticRegression (as is, centred)",
        [
            "rows",
            "iterations",
            "ours ms",
            "as is ms",
            "centred ms",
            "ratios",
            "default ms",
            "iterations",
            "ratios",
            "theirs above",
        ],
        rows,
    )


if __name__ == "__main__":
    main()
