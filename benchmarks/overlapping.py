"""Rows of classes that overlap, for benchmarks that need no real data."""

import numpy as np


def overlapping_classes(n_rows, n_features, n_classes=10):
    """Features (N, d) and labels (N,): means 2.5 standard deviations of the noise long, in random directions."""
    generator = np.random.default_rng(0)
    y = np.arange(n_rows) % n_classes
    means = 2.5 / np.sqrt(n_features) * generator.normal(size=(n_classes, n_features))
    return generator.normal(size=(n_rows, n_features)) + means[y], y
