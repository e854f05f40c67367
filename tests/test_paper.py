"""Accuracies on digits beside those that the paper reports."""

import functools

import numpy as np
import pytest

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.models.baselines import train_sgd
from annealfit.studies.paper_tables import paper_table
from annealfit.training.objectives import LinearHead
from annealfit.training.policies import uniform

SEEDS = (42, 43)
PAPER = {row["method"]: row for row in paper_table("digits")}


@functools.cache
def digits(seed):
    data = load_dataset("digits", seed=seed)
    features = RandomConvFeatures(n_filters=2, kernel_size=3, pool_size=2, random_state=seed).fit(data.X_train)
    return features.transform(data.X_train), data.y_train, features.transform(data.X_test), data.y_test


def paper_accuracies(method):
    row = PAPER[method]
    return np.array([float(row["train_accuracy_percent"]), float(row["test_accuracy_percent"])])


def annealed_accuracies(bits, preset):
    accuracies = []
    for seed in SEEDS:
        X_train, y_train, X_test, y_test = digits(seed)
        clf = AnnealedClassifier.from_paper(bits, preset=preset).set_params(random_state=seed).fit(X_train, y_train)
        accuracies.append((clf.score(X_train, y_train), clf.score(X_test, y_test)))
    return 100 * np.mean(accuracies, axis=0)


def test_sgd_is_within_3_points_of_the_papers_classical_row():
    accuracies = []
    for seed in SEEDS:
        X_train, y_train, X_test, y_test = digits(seed)
        train, test = (LinearHead.of_arrays(X, y, 10, 1e-3) for X, y in ((X_train, y_train), (X_test, y_test)))
        weights = train_sgd(train, uniform(train, seed)).weights
        accuracies.append((train.at(weights).accuracy, test.at(weights).accuracy))
    difference = 100 * np.mean(accuracies, axis=0) - paper_accuracies("classical")
    assert np.abs(difference).max() <= 3


@pytest.mark.parametrize("bits", [5, 10, 15, 20])
def test_matched_is_within_5_points_of_the_paper(bits):
    difference = annealed_accuracies(bits, "matched") - paper_accuracies(f"qubo_{bits}")
    assert np.abs(difference).max() <= 5


@pytest.mark.parametrize("bits", [10, 20])
def test_literal_does_not_reach_the_papers_accuracy(bits):
    """Algorithm 1 at the printed temperatures: every step is mostly noise, at any number of bits."""
    train, test = annealed_accuracies(bits, "literal")
    assert max(train, test) < 40
    assert min(paper_accuracies(f"qubo_{bits}")) > 75
