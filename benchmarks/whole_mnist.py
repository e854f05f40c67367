"""All of MNIST at 28×28 with frozen random filters: `python -m benchmarks.whole_mnist [wide] [images] [folder]`.

128 filters of 7×7, pooled by 5 to 4×4: 2,048 features, each standardised. Ours with 3 bits, and scikit-learn's
`LogisticRegression` (lbfgs) on the same features with the same penalty, each in a process of its own and with as many
threads as there are processors. Told are the seconds of a fit, the seconds to 1.001 × the least loss, and the memory.

The least loss is bounded from below by our certificate. How many iterations lbfgs needs to 1.001 × that is looked up
in a run whose loss is noted after every one; a fit of so many iterations is then timed without that. Ours are the
seconds of a fit without those of the iterations that follow.

With `wide` 256 filters, 4,096 features, 60 iterations, in single precision, from a file (docs/large.md).
With a folder the features are kept there, and taken from there the next time.
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
from annealfit._support.errors import AnnealfitError
from benchmarks.processes import Memory, alone
from benchmarks.tables import print_table

USUAL, WIDE = [(128, 7, 5)], [(256, 7, 5)]  # filters, their size, pooling
WIDTH = 16  # places that pooling leaves of a 28×28 image, each a feature of every filter
PENALTY = 1e-3
WIDE_SETTINGS = {"regularization": 3e-4, "max_iter": 60}
NEAR = 1.001


def make_features(folder, layers, dtype, n_train):
    """The features of all images in files; returns seconds."""
    data = load_dataset("mnist", seed=42, n_train=n_train, n_test="all", size=28)
    began = time.perf_counter()
    made = [
        RandomConvFeatures(filters, size, pool, standardize="features", random_state=42 + size)
        for filters, size, pool in layers
    ]
    first = 0
    for one in made:
        rows = one.fit_transform(data.X_train)
        columns = slice(first, first := first + rows.shape[1])
        for name, found in (("train", rows), ("test", one.transform(data.X_test))):
            _written(folder / f"{name}.npy", (len(found), WIDTH * sum(f for f, _, _ in layers)), dtype)[:, columns] = (
                found
            )
    for name, labels in (("train", data.y_train), ("test", data.y_test)):
        np.save(folder / f"{name}_labels.npy", labels)
    return time.perf_counter() - began


def _written(path, shape, dtype):
    """The array in a file, which is made if it is not there."""
    if path.exists():
        return np.load(path, mmap_mode="r+")
    return np.lib.format.open_memmap(path, "w+", dtype, shape)


def load(folder, mmap_mode=None):
    names = ("train", "train_labels", "test", "test_labels")
    return [np.load(folder / f"{name}.npy", mmap_mode=mmap_mode if "labels" not in name else None) for name in names]


def ours(folder, settings, mmap_mode=None):
    """A default fit of 3 bits; the lower bound of the loss; the iterations to `NEAR` times it, and their seconds."""
    warnings.simplefilter("ignore")
    X, y, X_test, y_test = load(folder, mmap_mode)
    AnnealedClassifier(bits=3, max_iter=2, tol=0).fit(X[:2000], y[:2000])  # compiled
    with Memory() as memory:
        began = time.perf_counter()
        fitted = AnnealedClassifier(bits=3, random_state=0, **settings).fit(X, y)
        seconds = time.perf_counter() - began
    history = fitted.history_
    least = history[-1]["loss"] - fitted.optimality_gap_
    needed = 1 + sum(row["loss"] > NEAR * least for row in history)
    near = seconds - (
        history[-1]["seconds"] - history[min(needed, len(history)) - 1]["seconds"]
    )  # with all that is not an iteration
    end = fitted.n_iter_, fitted.stop_reason_
    return fitted.score(X_test, y_test), *end, seconds, needed, near, (memory.peak, memory.anonymous), least


def theirs(folder, least):
    """The same of lbfgs, whose default tolerance may end it before."""
    warnings.simplefilter("ignore")
    X, y, X_test, y_test = load(folder)
    penalty = {"C": 1 / (PENALTY * len(y))}
    with Memory() as memory:
        began = time.perf_counter()
        fitted = LogisticRegression(**penalty, max_iter=2000).fit(X, y)
        seconds = time.perf_counter() - began
    losses = []
    minimize = optimize.minimize

    def watched(*arguments, callback=None, **options):
        def note(intermediate_result):
            losses.append(intermediate_result.fun)  # the same loss as ours: the mean, and the penalty
            if losses[-1] <= NEAR * least:
                raise StopIteration

        return minimize(*arguments, callback=note, **options)

    with mock.patch.object(optimize, "minimize", watched):
        LogisticRegression(**penalty, max_iter=2000, tol=1e-9).fit(X, y)
    began = time.perf_counter()
    LogisticRegression(**penalty, max_iter=len(losses), tol=1e-9).fit(X, y)
    near = time.perf_counter() - began
    end = int(fitted.n_iter_[0]), "tolerance"
    return fitted.score(X_test, y_test), *end, seconds, len(losses), near, (memory.peak, memory.anonymous), least


def row(name, found):
    accuracy, iterations, reason, seconds, needed, near, memory, _ = found
    return [
        name,
        f"{accuracy:.2%}",
        f"{iterations} ({reason})",
        f"{seconds:.1f}",
        str(needed),
        f"{near:.1f}",
        f"{memory[0] / 2**30:.2f}",
        f"{memory[1] / 2**30:.2f}",
    ]


HEADINGS = ["training", "test", "iterations", "s", f"to {NEAR} ×", "s", "peak GiB", "anonymous"]


def run(folder, layers, *, single, n_train):
    if not (folder / "train.npy").exists():
        seconds = alone(make_features, folder, layers, np.float32 if single else np.float64, n_train)
        print(f"features: {seconds:.0f} s", flush=True)
    size = np.load(folder / "train.npy", mmap_mode="r").shape
    rows = []
    if single:
        rows.append(row("ours, 3 bits, single precision, from a file", alone(ours, folder, WIDE_SETTINGS, "r")))
    else:
        found = alone(ours, folder, {"regularization": PENALTY})
        rows.append(row("ours, 3 bits, in memory", found))
        print(f"{rows[-1]}", flush=True)
        rows.append(row("LogisticRegression", other := alone(theirs, folder, found[-1])))
        print(f"time to {NEAR} × the least loss: {found[5] / other[5]:.2f} of LogisticRegression's", flush=True)
    print_table(f"MNIST, {size[0]:,} images, d = {size[1]:,}", HEADINGS, rows)


def main(words):
    wide, numbers = "wide" in words, [int(word) for word in words if word.isdigit()]
    folders = [Path(word) for word in words if word != "wide" and not word.isdigit()]
    with tempfile.TemporaryDirectory() as made:
        folder = folders[0] if folders else Path(made)
        run(folder, WIDE if wide else USUAL, single=wide, n_train=numbers[0] if numbers else "all")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except AnnealfitError as error:  # the files are not there
        print(f"left out: {error}")
