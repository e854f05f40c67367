"""All of MNIST at 28×28 with frozen random filters: `python -m benchmarks.whole_mnist [wide] [images]`.

128 filters of 7×7, pooled by 5 to 4×4: 2,048 features, each standardised. Ours with 3 bits, and scikit-learn's
`LogisticRegression` (lbfgs) on the same features with the same penalty, each in a process of its own and with as many
threads as there are processors. Told are the seconds of a fit, the seconds to 1.001 × the least loss, and the memory.

The least loss is bounded from below by our certificate. The iteration at which lbfgs gets there is looked up in a run
whose weights are noted after every iteration; a fit of so many iterations is then timed without that. Ours likewise.

With `wide` the features that did best on held-out training images (docs/large.md), single precision, from a file.
"""

import sys
import tempfile
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
from scipy import optimize
from sklearn.linear_model import LogisticRegression

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.errors import AnnealfitError
from annealfit.objectives import LinearHead
from benchmarks.processes import Memory, alone
from benchmarks.tables import print_table

PENALTY = 1e-3
USUAL = [(128, 7, 5)]  # filters, their size, pooling
WIDE = [(128, 5, 6), (128, 9, 5)]
NEAR = 1.001


def make_features(folder, layers, dtype, n_train):
    """The features of all images in files; returns seconds."""
    data = load_dataset("mnist", seed=42, n_train=n_train, n_test="all", size=28)
    began = time.perf_counter()
    made = [
        RandomConvFeatures(filters, size, pool, standardize="features", random_state=42 + size)
        for filters, size, pool in layers
    ]
    for name, images, labels in (("train", data.X_train, data.y_train), ("test", data.X_test, data.y_test)):
        rows = [one.fit_transform(images) if name == "train" else one.transform(images) for one in made]
        np.save(folder / f"{name}.npy", np.concatenate(rows, axis=1).astype(dtype))
        np.save(folder / f"{name}_labels.npy", labels)
        del rows
    return time.perf_counter() - began


def load(folder, mmap_mode=None):
    names = ("train", "train_labels", "test", "test_labels")
    return [np.load(folder / f"{name}.npy", mmap_mode=mmap_mode if "labels" not in name else None) for name in names]


def ours(folder, mmap_mode=None):
    """A default fit of 3 bits; the lower bound of the loss; the iterations to `NEAR` times it, and their seconds."""
    warnings.simplefilter("ignore")
    X, y, X_test, y_test = load(folder, mmap_mode)
    settings = {"bits": 3, "regularization": PENALTY, "random_state": 0}
    AnnealedClassifier(bits=3, max_iter=2, tol=0).fit(X[:2000], y[:2000])  # compiled
    with Memory() as memory:
        began = time.perf_counter()
        fitted = AnnealedClassifier(**settings).fit(X, y)
        seconds = time.perf_counter() - began
    least = fitted.history_[-1]["loss"] - fitted.optimality_gap_
    needed = 1 + sum(row["loss"] > NEAR * least for row in fitted.history_)
    began = time.perf_counter()
    AnnealedClassifier(**settings, max_iter=needed).fit(X, y)
    near = time.perf_counter() - began
    return (
        fitted.score(X_test, y_test),
        fitted.n_iter_,
        fitted.stop_reason_,
        seconds,
        needed,
        near,
        (memory.peak, memory.anonymous),
        least,
    )


def theirs(folder, least):
    """The same of lbfgs."""
    warnings.simplefilter("ignore")
    X, y, X_test, y_test = load(folder)
    penalty = {"C": 1 / (PENALTY * len(y))}
    noted = []
    minimize = optimize.minimize

    def watched(*arguments, callback=None, **options):
        def note(weights):
            noted.append(weights.copy())
            if callback is not None:
                callback(weights)

        return minimize(*arguments, callback=note, **options)

    with mock.patch.object(optimize, "minimize", watched):
        LogisticRegression(**penalty, max_iter=2000).fit(X, y)
    head = LinearHead.of_arrays(X, y, 10, PENALTY)
    needed = _first_below([weights.reshape(10, -1, order="F").T for weights in noted], head, NEAR * least)
    del head
    with Memory() as memory:
        began = time.perf_counter()
        fitted = LogisticRegression(**penalty, max_iter=2000).fit(X, y)
        seconds = time.perf_counter() - began
    began = time.perf_counter()
    LogisticRegression(**penalty, max_iter=needed).fit(X, y)
    near = time.perf_counter() - began
    return (
        fitted.score(X_test, y_test),
        int(fitted.n_iter_[0]),
        "",
        seconds,
        needed,
        near,
        (memory.peak, memory.anonymous),
        least,
    )


def _first_below(weights, head, target):
    """The number of the first of falling losses that is below the target, by bisection."""
    low, high = 0, len(weights)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if head.at(weights[middle - 1]).loss <= target else (middle, high)
    return high


def row(name, found):
    accuracy, iterations, reason, seconds, needed, near, memory, _ = found
    return [
        name,
        f"{accuracy:.2%}",
        f"{iterations}{f' ({reason})' if reason else ''}",
        f"{seconds:.1f}",
        str(needed),
        f"{near:.1f}",
        f"{memory[0] / 2**30:.2f}",
        f"{memory[1] / 2**30:.2f}",
    ]


HEADINGS = ["training", "test", "iterations", "s", f"to {NEAR} ×", "s", "peak GiB", "anonymous"]


def run(layers, *, single, n_train):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds = alone(make_features, folder, layers, np.float32 if single else np.float64, n_train)
        size = np.load(folder / "train.npy", mmap_mode="r").shape
        print(f"{size[0]:,} rows × {size[1]:,} features in {seconds:.0f} s", flush=True)
        rows = []
        if not single:
            found = alone(ours, folder)
            rows.append(row("ours, 3 bits, in memory", found))
            rows.append(row("LogisticRegression", other := alone(theirs, folder, found[-1])))
            print(f"time to {NEAR} × the least loss: {found[5] / other[5]:.2f} of LogisticRegression's", flush=True)
        else:
            rows.append(row("ours, 3 bits, single precision, from a file", alone(ours, folder, "r")))
        print_table(f"MNIST, {size[0]:,} images, d = {size[1]:,}", HEADINGS, rows)


if __name__ == "__main__":
    try:
        wide, numbers = "wide" in sys.argv, [int(word) for word in sys.argv[1:] if word.isdigit()]
        run(WIDE if wide else USUAL, single=wide, n_train=numbers[0] if numbers else "all")
    except AnnealfitError as error:  # the files are not there
        print(f"left out: {error}")
