"""Very many classes: neighbours share the multiples of a line search, so that work grows linearly with their number."""

import numpy as np
import pytest

from annealfit import AnnealedClassifier
from annealfit.data.rows import ChunkedRows
from annealfit.training.objectives import LinearHead, linear_head
from annealfit.training.objectives.linear_head import group_starts


def table(n_rows, n_features, n_classes):
    generator = np.random.default_rng(0)
    y = np.arange(n_rows) % n_classes
    return generator.standard_normal((n_rows, n_features)) + generator.standard_normal((n_classes, n_features))[y], y


@pytest.mark.parametrize("streamed", [False, True])
def test_the_curvature_of_groups_is_the_sum_over_their_blocks(streamed, monkeypatch):
    X, y = table(200, 4, 7)
    weights = np.random.default_rng(1).random(200)
    head = LinearHead.of_arrays(X, y, 7, 0.1, weights)
    if streamed:
        head = LinearHead(ChunkedRows(X, y, 7, weights, chunk_rows=60), 0.1)
    generator = np.random.default_rng(2)
    before, now = generator.standard_normal((2, 5, 7))
    updates = generator.standard_normal((7, 5))
    point = head.at(now)
    directions = np.stack([updates, point.step_from(before)])
    every = point.curvature_along(directions, before)
    monkeypatch.setattr(linear_head, "MOST_GROUPS", 3)
    grouped = point.curvature_along(directions, before)
    members = np.zeros((7, 3))
    for group, (first, last) in enumerate(zip(group_starts(7, 3), [*group_starts(7, 3)[1:], 7], strict=True)):
        members[first:last, group] = 1
    sums = np.kron(np.eye(2), members)
    np.testing.assert_allclose(grouped, sums.T @ every @ sums, rtol=1e-10)


def test_a_training_with_shared_multiples_reaches_the_optimum(monkeypatch):
    X, y = table(600, 5, 9)
    monkeypatch.setattr(linear_head, "MOST_GROUPS", 2)
    clf = AnnealedClassifier(regularization=1e-2, random_state=0).fit(X, y)
    assert clf.stop_reason_ == "tolerance"  # certified
    losses = [row["loss"] for row in clf.history_]
    assert all(np.diff(losses) <= 0)
