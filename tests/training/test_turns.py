"""An objective whose parameters come in parts of different sizes, trained in turn by the same loop.

Matrix factorisation, `½‖AB − M‖²`: convex in A and in B, not in both. The exact solution of each part in turn
(alternating least squares) is the oracle.
"""

import itertools
from functools import cached_property

import numpy as np
import pytest

from annealfit.problems.coordinates import RawCoordinates
from annealfit.problems.curvature import Curvature
from annealfit.samplers import ExactSolver, LevelAnnealer
from annealfit.training import (
    ACCEPTANCES,
    PRECISION_POLICIES,
    RANGE_POLICIES,
    Checkpoint,
    DampingPolicy,
    LevenbergMarquardt,
    Outcome,
    Plan,
    Stopping,
    Trainer,
)
from annealfit.training.objectives import PlainPoint

LEFT, RIGHT = "left", "right"


class Factors:
    """A (4, 2) has four blocks of two parameters, its rows; B (2, 5) has two blocks of five."""

    multiplications = 1.0
    parts = (LEFT, RIGHT)

    def __init__(self, target):
        self.target = target

    def turn(self, iteration):
        return self.parts[iteration % 3 > 0]  # left, right, right

    def columns(self, iteration):
        return {"layer": self.turn(iteration)}

    def at(self, part, weights, cached_outputs=None):
        return FactorsPoint(self, part, weights)

    def turned(self, point, part, iteration):
        return FactorsPoint(self, part, point.all_weights)

    def objective(self, point):
        return point.objective

    def earlier(self, part, previous, point):
        return previous


class Rest:
    """What is left while one factor stays: for the left factor its columns are the regressors."""

    def __init__(self, factors, part, other):
        self.factors, self.part, self.other = factors, part, other

    @cached_property
    def metric(self):
        gram = self.other @ self.other.T if self.part == LEFT else self.other.T @ self.other
        if self.part == LEFT:
            return Curvature(gram)  # of a row of A
        return Curvature(np.kron(gram, np.eye(5)))  # of both rows of B together


class FactorsPoint(PlainPoint):
    def __init__(self, factors, part, weights):
        self.factors, self.part, self.all_weights = factors, part, dict(weights)
        self.weights = weights[part]
        self.residual = weights[LEFT] @ weights[RIGHT] - factors.target
        self.loss = 0.5 * float((self.residual**2).sum())
        self.objective = Rest(factors, part, weights[RIGHT if part == LEFT else LEFT])

    @property
    def gradients(self):
        if self.part == LEFT:
            return self.residual @ self.all_weights[RIGHT].T
        return self.all_weights[LEFT].T @ self.residual

    def curvature_along(self, directions):
        def change(direction, block):
            only = np.zeros_like(direction)
            only[block] = direction[block]
            return (only @ self.objective.other if self.part == LEFT else self.objective.other @ only).ravel()

        count, blocks, _ = directions.shape
        changes = np.array([change(directions[m], b) for m in range(count) for b in range(blocks)])
        return changes @ changes.T

    def moved(self, updates):
        moved = {**self.all_weights, self.part: self.weights + updates.reshape(self.weights.shape)}
        return FactorsPoint(self.factors, self.part, moved)

    def is_within(self, gap):
        return False

    def lower_bound(self):
        return -np.inf

    def figures(self):
        return {"loss": self.loss}


def curvature(rest):
    return lambda point: [rest.metric]


def plan(max_iter, **changes):
    settings = {
        "curvature": curvature,
        "coordinates": RawCoordinates(),
        "max_couplings": None,
        "acceptance": ACCEPTANCES["second_direction"],
        "range_policy": RANGE_POLICIES["relaxation"],
        "precision_policy": PRECISION_POLICIES["fixed"],
        "stopping": Stopping(max_iter),
        "bits": 3,
        "update_range": None,
        "step": 1.0,
        "seed": 3,
    }
    return Plan(**{**settings, **changes})


@pytest.fixture
def factors():
    generator = np.random.default_rng(0)
    exact = generator.normal(size=(4, 2)) @ generator.normal(size=(2, 5))
    return Factors(exact + 0.1 * generator.normal(size=(4, 5)))


@pytest.fixture
def first():
    generator = np.random.default_rng(1)
    return {LEFT: generator.normal(size=(4, 2)), RIGHT: generator.normal(size=(2, 5))}


def run(factors, first, max_iter, checkpoint=None, **changes):
    trainer = Trainer(factors, LevelAnnealer(), plan(max_iter, **changes))
    return trainer.run(trainer.start(first), checkpoint=checkpoint)


def test_parts_of_different_sizes_are_trained_in_turn_and_the_loss_falls(factors, first):
    result = run(factors, first, 60)
    assert [row["layer"] for row in result.history[:6]] == [LEFT, RIGHT, RIGHT, LEFT, RIGHT, RIGHT]
    losses = [FactorsPoint(factors, LEFT, first).loss, *(row["loss"] for row in result.history)]
    assert all(after <= before for before, after in itertools.pairwise(losses))
    # No factorisation of rank 2 is better than that of the singular values (Eckart and Young).
    least = 0.5 * (np.linalg.svd(factors.target, compute_uv=False)[2:] ** 2).sum()
    assert result.point.loss == pytest.approx(least, rel=1e-3)
    assert result.point.loss == pytest.approx(result.history[-1]["loss"], rel=1e-15)


def test_only_the_part_whose_turn_it_is_moves(factors, first):
    trainer = Trainer(factors, LevelAnnealer(), plan(4))
    seen = []
    trainer.run(trainer.start(first), callbacks=[lambda iteration: seen.append(iteration.state.all_weights)])
    for iteration, (before, after) in enumerate(zip([first, *seen], seen, strict=False)):
        moved = [name for name in (LEFT, RIGHT) if before[name] is not after[name]]
        assert moved == [factors.turn(iteration)]


def test_each_part_keeps_its_own_ranges_step_and_damping(factors, first):
    own = plan(7, damping=LevenbergMarquardt())
    result = run(factors, first, 7, special={LEFT: own})
    left, right = (result.state.parts[name] for name in (LEFT, RIGHT))
    assert left.ranges.shape == (4,)
    assert right.ranges.shape == (1,)
    assert left.previous.weights.shape == (4, 2)
    assert right.previous.weights.shape == (2, 5)
    assert right.damping is None
    assert left.damping < 0.1  # three steps that were taken
    dampings = [row["damping"] for row in result.history]
    assert [value is None for value in dampings] == [row["layer"] == RIGHT for row in result.history]


@pytest.mark.parametrize("stop_at", [1, 2, 3, 5, 6])
def test_stopped_and_resumed_is_uninterrupted(factors, first, tmp_path, stop_at):
    changes = {"special": {LEFT: plan(9, damping=LevenbergMarquardt())}}
    whole = run(factors, first, 9, **changes)
    checkpoint = Checkpoint(tmp_path / "c.safetensors", 1, {"of": "the test"})
    run(factors, first, stop_at, checkpoint, **changes)
    state, history = checkpoint.load()
    trainer = Trainer(factors, LevelAnnealer(), plan(9, **changes))
    resumed = trainer.run(state, history=history)
    for name in (LEFT, RIGHT):
        np.testing.assert_array_equal(resumed.state.parts[name].weights, whole.state.parts[name].weights)
    for row in (*resumed.history, *whole.history):
        del row["seconds"]
    assert resumed.history == whole.history


def test_the_weights_that_did_best_elsewhere_are_those_of_all_parts(factors, first):
    other = Factors(factors.target + 0.3)
    trainer = Trainer(factors, LevelAnnealer(), plan(12), other)
    result = trainer.run(trainer.start(first))
    best = result.state.best
    assert other.at(LEFT, best.parts).loss == min(row["validation_loss"] for row in result.history)
    assert result.history[best.iteration - 1]["validation_loss"] == other.at(RIGHT, best.parts).loss


def test_a_problem_of_a_part_before_its_first_turn_can_be_seen(factors, first):
    trainer = Trainer(factors, ExactSolver(), plan(1))
    problems = trainer.problems(trainer.start(first))
    assert len(problems) == 4
    assert problems.n_parameters == 2


def outcome(*, accepted, solved=True):
    return Outcome(np.array([-1.0]), np.array([accepted]), np.array([solved]), -1.0)


def test_damping_falls_with_success_and_rises_with_failure():
    policy = LevenbergMarquardt()
    damping = policy.first()
    assert policy.revise(damping, outcome(accepted=True)) < damping < policy.revise(damping, outcome(accepted=False))
    assert policy.revise(damping, outcome(accepted=False, solved=False)) == damping
    assert DampingPolicy().revise(None, outcome(accepted=True)) is None


def test_a_damped_metric_has_more_on_its_diagonal():
    metric = Curvature([[2.0, 1.0], [1.0, 4.0]])
    np.testing.assert_allclose(metric.damped(0.1).matrix, [[2.3, 1.0], [1.0, 4.3]])
    np.testing.assert_allclose(Curvature(np.zeros((2, 2))).damped(0.1).matrix, 0.1 * np.eye(2))
