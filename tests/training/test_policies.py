import numpy as np
import pytest
from estimators import annealed
from sklearn.datasets import load_iris

from annealfit import AnnealedClassifier, Method
from annealfit.models.baselines import solve_logistic
from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import Problems
from annealfit.samplers import ExactSolver, LevelAnnealer, RoundedSampler, Samples
from annealfit.training import ACCEPTANCES, PRECISION_POLICIES, RANGE_POLICIES, Decision, Outcome, Proposal
from annealfit.training.objectives import LinearHead
from annealfit.training.policies import CLIMB, GROWTH, SHRINKAGE


class Line:
    """A point of a loss that is 1 here and `losses[multiple]` along the updates; Newton's multiple is `newton`."""

    def __init__(self, losses, newton, count, loss=1.0):
        self.losses, self.newton, self.loss = losses, newton, loss
        self.gradients = -np.ones((count, 1))

    def curvature_along(self, directions, previous=None):
        return np.eye(len(self.gradients)) / self.newton

    def moved(self, updates, *, remove_class_mean=False):
        return Line(self.losses, self.newton, len(self.gradients), self.losses[updates.max()])


def proposal(energies, losses, newton=1.0):
    updates = np.ones((len(energies), 1))
    return Proposal(Line(losses, newton, len(energies)), updates, np.array(energies))


def test_always_applies_everything():
    assert ACCEPTANCES["always"](proposal([1.0, -1.0], {})).accepted.tolist() == [True, True]


def test_descent_applies_negative_energies_unless_the_loss_increases():
    energies = [1.0, -1.0, 0.0]
    assert ACCEPTANCES["descent"](proposal(energies, {1.0: 0.9})).accepted.tolist() == [False, True, False]
    assert not ACCEPTANCES["descent"](proposal(energies, {1.0: 1.1})).accepted.any()


def test_line_search_applies_newtons_multiple_if_the_loss_decreases():
    decision = ACCEPTANCES["line_search"](proposal([-1.0], {2.5: 0.7}, newton=2.5))
    assert decision.accepted.tolist() == [True]
    assert decision.multiple == 2.5


def test_line_search_halves_and_then_gives_up():
    halved = ACCEPTANCES["line_search"](proposal([-1.0], {4.0: 1.2, 2.0: 0.9}, newton=4.0))
    assert (halved.accepted.tolist(), halved.multiple) == ([True], 2.0)
    hopeless = ACCEPTANCES["line_search"](proposal([-1.0], dict.fromkeys([4.0, 2.0, 1.0, 0.5], 1.0), newton=4.0))
    assert hopeless.accepted.tolist() == [False]
    assert not ACCEPTANCES["line_search"](proposal([1.0], {})).accepted.any()


def test_ranges_grow_after_an_accepted_update_and_shrink_after_a_refused_one():
    ranges = np.array([0.1, 0.2])
    outcome = Outcome(energies=np.array([-1.0, 1.0]), accepted=np.array([True, False]), solved=np.ones(2, dtype=bool))
    np.testing.assert_allclose(RANGE_POLICIES["adaptive"].revise(ranges, outcome), [0.1 * GROWTH, 0.2 * SHRINKAGE])
    np.testing.assert_array_equal(RANGE_POLICIES["fixed"].revise(ranges, outcome), ranges)


@pytest.mark.parametrize("word", ["fixed", "adaptive"])
def test_the_ranges_kept_are_the_ranges_used(word):
    problems = Problems((Curvature([[1.0]]),), np.zeros((2, 1)), np.array([0.1, 0.2]), bits=1)
    policy = RANGE_POLICIES[word]
    np.testing.assert_array_equal(policy.choose(problems), [0.1, 0.2])
    np.testing.assert_array_equal(policy.first(problems, 0.7), [0.7, 0.7])
    np.testing.assert_array_equal(policy.first(problems, None), [0.1, 0.1])


def test_a_range_from_the_relaxation_is_a_multiple_of_the_continuous_minimum():
    policy = RANGE_POLICIES["relaxation"]
    problems = Problems((Curvature(2 * np.eye(2)),), np.array([[6.0, -8.0], [0.0, 2.0]]), np.array([0.5, 2.0]), bits=3)
    sizes = np.array([np.sqrt((3.0**2 + 4.0**2) / 2), np.sqrt(1 / 2)])
    np.testing.assert_allclose(policy.choose(problems), sizes * [0.5, 2.0], rtol=2.0**-16)  # sizes have 16 bits
    wished = problems.with_ranges(policy.first(problems, 0.7))
    np.testing.assert_allclose(policy.choose(wished), [0.7, 0.7])
    # The surrogate's minimum is −½ gᵀG⁻¹g: −25 and −1.
    np.testing.assert_allclose(policy.rate(problems, -13.0), 0.5)


def test_the_multiple_climbs_reverses_and_shrinks_when_nothing_is_applied():
    policy, ranges, yes = RANGE_POLICIES["relaxation"], np.array([0.5, 0.5]), np.ones(2, dtype=bool)

    def revised(rating, last_rating=None, last=None, accepted=yes, solved=yes):
        outcome = Outcome(-np.ones(2), accepted, solved, -1.0, rating, last_rating, last)
        return (policy.revise(ranges, outcome) / ranges)[0]

    lower, higher = ranges / CLIMB, ranges * CLIMB
    assert revised(1.0) == pytest.approx(CLIMB)
    assert revised(2.0, 1.0, lower) == pytest.approx(CLIMB)  # it rose, and that was better
    assert revised(1.0, 2.0, lower) == pytest.approx(1 / CLIMB)
    assert revised(2.0, 1.0, higher) == pytest.approx(1 / CLIMB)  # it fell, and that was better
    assert revised(1.0, 2.0, higher) == pytest.approx(CLIMB)
    assert revised(1.0, 2.0, higher, accepted=~yes) == SHRINKAGE
    assert revised(1.0, 2.0, higher, accepted=~yes, solved=~yes) == 1.0


def test_subspace_is_newtons_step_in_the_multiples_of_updates_and_previous_step():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(40, 3)), generator.integers(0, 3, 40)
    head = LinearHead.of_arrays(X, y, 3, 0.1)
    previous, point = np.zeros((4, 3)), head.at(0.01 * generator.normal(size=(4, 3)))
    updates = -0.01 * generator.uniform(0.5, 1.5, size=(3, 4)) * point.gradients
    proposal = Proposal(point, updates, -np.ones(3), previous=previous)
    decision = ACCEPTANCES["subspace"](proposal)
    found = proposal.after(decision.accepted, decision.multiple, decision.previous).loss
    line = ACCEPTANCES["line_search"](proposal)
    assert found <= proposal.after(line.accepted, line.multiple).loss
    slopes = (
        (point.gradients * updates).sum(axis=1),
        (point.gradients.T * (point.weights - previous)).sum(axis=0),
    )
    directions = np.stack([updates, (point.weights - previous).T])
    multiples = np.concatenate([decision.multiple, decision.previous])
    curvature = point.curvature_along(directions)
    margin = 2.0**-16 * (np.abs(curvature) @ np.abs(multiples)).max()  # multiples have 16 bits
    np.testing.assert_allclose(curvature @ multiples, -np.concatenate(slopes), atol=margin)


def test_subspace_falls_back_to_a_line_search_where_newtons_step_is_too_long():
    """Multiples grow as ranges shrink: without the limit of a line search, no step would ever be accepted."""
    losses = dict.fromkeys([1024.0, 512.0, 256.0, 128.0], 2.0)
    decision = ACCEPTANCES["subspace"](proposal([-1.0], losses | {16.0: 0.9}, newton=1024.0))
    assert (decision.accepted.tolist(), decision.multiple) == ([True], 16.0)
    hopeless = losses | dict.fromkeys([16.0, 8.0, 4.0, 2.0], 2.0)
    assert not ACCEPTANCES["subspace"](proposal([-1.0], hopeless, newton=1024.0)).accepted.any()


def test_subspace_tries_nothing_where_rounding_would_hide_the_decrease(blobs):
    """At the optimum every trial would be a coin toss; just before it the decrease is seen, and found."""
    clf = AnnealedClassifier(max_iter=60, tol=0, patience=None, random_state=0).fit(*blobs)
    head = LinearHead.of_arrays(*blobs, 3, 1e-3)
    optimum = head.at(np.vstack([clf.coef_.T, clf.intercept_]))
    for size, is_seen in ((1e-6, True), (1e-10, False)):
        point = head.at(optimum.weights + size)  # the loss is above that of the optimum by about the square
        proposal = Proposal(point, optimum.step_from(point.weights), -np.ones(3))
        decision = ACCEPTANCES["subspace"](proposal)
        assert decision.accepted.all() == bool(proposal._points) == is_seen
    assert not clf.history_[-1]["accepted"]
    assert clf.history_[-1]["loss_change"] == 0


def test_subspace_removes_the_class_mean_of_the_weights():
    """The class mean changes no prediction and has a small gradient: a line search keeps most of it."""
    X, y = load_iris(return_X_y=True)
    clf = AnnealedClassifier(
        max_iter=10, random_state=0, method=Method(initialization=lambda head, seed: np.full((5, 3), 3.0))
    )
    assert (clf.set_params(method__acceptance="line_search").fit(X, y).coef_.sum(axis=0) > 3).all()  # nine at first
    np.testing.assert_allclose(clf.set_params(method__acceptance="subspace").fit(X, y).coef_.sum(axis=0), 0, atol=1e-12)


class FailsOften(LevelAnnealer):
    """Has no answer for the second problem from its third call on."""

    calls = 0

    def solve(self, problems, seeds):
        answers = super().solve(problems, seeds)
        type(self).calls += 1
        return [answers[0], Samples.failed(problems[1], "offline"), *answers[2:]] if self.calls > 2 else answers


def test_a_class_whose_solve_failed_keeps_its_weights(blobs):
    """No multiple of its previous step is applied either, and no class mean is subtracted."""
    seen = []
    FailsOften.calls = 0
    watch = {"callbacks": [lambda iteration: seen.append((iteration.state.weights, iteration.row))]}
    with pytest.warns(UserWarning, match="failed to solve some problems"):
        AnnealedClassifier(1, max_iter=5, tol=0, random_state=0, sampler=FailsOften(), **watch).fit(*blobs)
    assert [row["solved"] for _, row in seen] == [3, 3, 2, 2, 2]
    assert all(row["loss_change"] < 0 for _, row in seen)
    for weights, _ in seen[2:]:
        np.testing.assert_array_equal(weights[:, 1], seen[1][0][:, 1])
        assert (weights[:, [0, 2]] != seen[1][0][:, [0, 2]]).any()


def test_integer_weights_are_moved_like_real_ones(blobs):
    X, y = blobs
    head, updates = LinearHead.of_arrays(X, y, 3, 1e-3), np.full((3, 5), 0.25)
    whole, real = (head.at(np.ones((5, 3), dtype)).moved(updates) for dtype in (int, float))
    np.testing.assert_array_equal(whole.weights, real.weights)


def test_a_proposal_evaluates_a_point_once(blobs):
    X, y = blobs
    point = LinearHead.of_arrays(X, y, 3, 1e-3).at(np.ones((5, 3)))
    proposal = Proposal(point, np.full((3, 5), 0.25), np.full(3, -1.0))
    accepted = np.ones(3, dtype=bool)
    assert proposal.after(accepted, remove_class_mean=np.True_) is proposal.after(accepted, remove_class_mean=True)
    assert proposal.after(~accepted) is point


def test_the_old_name_of_remove_class_mean_is_accepted():
    with pytest.warns(FutureWarning, match=r"Decision\(remove_class_mean=…\)"):
        assert Decision(np.ones(2, dtype=bool), balanced=True).remove_class_mean
    assert not Decision(np.ones(2, dtype=bool)).remove_class_mean


def test_adaptive_precision_adds_a_bit_when_stuck_up_to_the_limit():
    stuck = Outcome(np.array([1.0, 1.0, -1.0]), np.array([False, False, True]), np.ones(3, dtype=bool))
    going = Outcome(np.array([1.0, -1.0, -1.0]), np.array([False, True, True]), np.ones(3, dtype=bool))
    adaptive, fixed = PRECISION_POLICIES["adaptive"], PRECISION_POLICIES["fixed"]
    assert adaptive.first(5) == 1
    assert [adaptive.following(2, 5, outcome) for outcome in (stuck, going)] == [3, 2]
    assert adaptive.following(5, 5, stuck) == 5
    assert (fixed.first(5), fixed.following(5, 5, stuck)) == (5, 5)


def test_adaptive_precision_in_training_starts_with_one_bit_and_ends_with_more(digits_features):
    settings = {"precision_policy": "adaptive", "range_policy": "fixed", "update_range": 0.5}  # which gets stuck
    clf = annealed(bits=4, max_iter=100, random_state=0, **settings).fit(*digits_features)
    bits = [row["bits"] for row in clf.history_]
    assert bits[0] == 1
    assert bits == sorted(bits)
    assert bits[-1] > 1


def test_tolerance_is_certified_against_scikit_learns_optimum(digits_features):
    X, y = digits_features
    optimum = LinearHead.of_arrays(X, y, 10, 1e-3).at(solve_logistic(X, y, 1e-3).weights).loss
    for tol in (1e-2, 1e-3, 1e-4):
        clf = AnnealedClassifier(tol=tol, max_iter=2000, random_state=0).fit(X, y)
        loss = clf.history_[-1]["loss"]
        assert clf.stop_reason_ == "tolerance"
        assert 0 <= loss - optimum <= clf.optimality_gap_ <= tol * loss


def test_reasons_to_stop(blobs):
    X, y = blobs
    fit = lambda **options: annealed(random_state=0, **options).fit(X, y)  # noqa: E731
    assert fit(max_iter=2).stop_reason_ == "max_iter"
    assert fit(max_iter=100_000, tol=0, patience=None, time_limit=0.2).stop_reason_ == "time_limit"
    stuck = fit(
        max_iter=1000, bits=1, tol=0, patience=7, range_policy="fixed", update_range=50.0, sampler=ExactSolver()
    )
    assert stuck.stop_reason_ == "plateau"
    assert stuck.n_iter_ < 50
    assert stuck.n_iter_ % 7 == 0


@pytest.mark.parametrize("options", [{"tol": -1}, {"patience": 0}, {"time_limit": 0}, {"max_couplings": -1}])
def test_bad_stopping_options(blobs, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        annealed(**options).fit(*blobs)


def test_rounded_answers_are_feasible_and_train(digits_features):
    X, y = digits_features
    problems = AnnealedClassifier(bits=3, random_state=0).problems(X, y)
    for problem, found in zip(problems, RoundedSampler().solve(problems, [0] * 10), strict=True):
        assert problem.lower_bound() <= found.best_energy
        np.testing.assert_allclose(problem.energy(found.bits), found.energies, rtol=1e-12)
    clf = AnnealedClassifier(bits=3, max_iter=50, sampler=RoundedSampler(), random_state=0).fit(X, y)
    assert clf.score(X, y) > 0.7


@pytest.mark.parametrize("curvature", ["gauss_newton", "joint", "diagonal", "gram"])
def test_every_curvature_trains(blobs, curvature):
    X, y = blobs
    clf = AnnealedClassifier(max_iter=60, random_state=0, method=Method(curvature=curvature)).fit(X, y)
    assert clf.score(X, y) > 0.85
    if curvature == "joint":
        assert clf.problems(X, y)[0].n_variables == 5 * 3 * 3
