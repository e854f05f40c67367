"""Milliseconds per iteration of several trainings, as JSON: run by `benchmarks.versions` with one version or another.

Only names that every version has are used, and nothing of this package, so that an old version can run it.
"""

import json
import sys
import time
import warnings

import numpy as np

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset


def digits(n_filters):
    data = load_dataset("digits", seed=42)
    return RandomConvFeatures(n_filters=n_filters, random_state=42).fit_transform(data.X_train), data.y_train


def synthetic(n_rows, n_features, n_classes=10):
    generator = np.random.default_rng(0)
    y = np.arange(n_rows) % n_classes
    return generator.normal(size=(n_rows, n_features)) + generator.normal(size=(n_classes, n_features))[y], y


def cases():
    """Name → rows, classifier, iterations."""
    small, larger, wide, widest = digits(2), digits(8), synthetic(5000, 512), synthetic(5000, 2000)
    options = {"tol": 0, "patience": None, "random_state": 0}
    yield "d=18, 3 bits", small, AnnealedClassifier(3, **options), 60
    yield "d=18, 3 bits, 8 iterations", small, AnnealedClassifier(3, **options), 8
    yield "d=18, 1 bit", small, AnnealedClassifier(1, **options), 60
    yield "d=18, matched, 20 bits", small, AnnealedClassifier.from_paper(20, "matched"), 60
    yield "d=18, 3 bits, gauss_newton", small, AnnealedClassifier(3, curvature="gauss_newton", **options), 20
    yield "d=72, 3 bits", larger, AnnealedClassifier(3, **options), 60
    yield "d=72, matched, 20 bits", larger, AnnealedClassifier.from_paper(20, "matched"), 60
    yield "d=512, 5000 rows, 3 bits", wide, AnnealedClassifier(3, **options), 4
    yield "d=2000, 5000 rows, 3 bits", widest, AnnealedClassifier(3, **options), 8
    two = widest[0], widest[1] % 2
    yield "d=2000, 5000 rows, 2 classes, 3 bits", two, AnnealedClassifier(3, **options), 8


def main(wanted, budget_seconds):
    warnings.simplefilter("ignore")
    found = {}
    for name, (X, y), classifier, iterations in cases():
        if wanted and name not in wanted:
            continue
        classifier.set_params(max_iter=iterations, random_state=0).fit(X, y)  # compiles, and fills the caches
        least, stop = np.inf, time.perf_counter() + budget_seconds
        while time.perf_counter() < stop:
            started = time.perf_counter()
            classifier.fit(X, y)
            least = min(least, time.perf_counter() - started)
        found[name] = 1e3 * least / iterations
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(set(sys.argv[2:]), float(sys.argv[1]))
