import math
import warnings

import numpy as np
import pytest

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.bounds import lower_bounds
from annealfit.errors import InvalidInputError, SamplerError
from annealfit.experiments import Prepared
from annealfit.experiments.sampler_study import compare_samplers, take_problems
from annealfit.experiments.solving import ProblemSet, Solves, rate_solves, solve_repeatedly, time_to_target
from annealfit.metric import Metric
from annealfit.problems import Problems
from annealfit.samplers import (
    DimodSampler,
    ExactSolver,
    MockQPU,
    QPUSampler,
    RoundedSampler,
    Sampler,
    Samples,
    SimulatedAnnealer,
)
from annealfit.samplers.catalogue import make_sampler

CLASSIFIER = AnnealedClassifier(bits=1, max_iter=3, random_state=5)


class Broken(Sampler):
    def solve(self, problems, seeds):
        raise SamplerError("out of order")


class Surprising(Sampler):
    def solve(self, problems, seeds):
        raise KeyError("undocumented")


class Short(Sampler):
    def solve(self, problems, seeds):
        return [Samples.of(problem, np.ones((1, problem.n_variables))) for problem in problems[1:]]


class Unreliable(Sampler):
    """Solves all but the first problem, and warns of it."""

    def solve(self, problems, seeds):
        warnings.warn("the line is bad", stacklevel=2)
        return [Samples.failed(problems[0], "lost"), *RoundedSampler().solve(problems[1:], seeds[1:])]


class Boasting(Sampler):
    """Claims energies that its bits do not have."""

    def solve(self, problems, seeds):
        honest = RoundedSampler().solve(problems, seeds)
        return [Samples(answer.bits, answer.energies - 100.0) for answer in honest]


@pytest.fixture(scope="module")
def digits():
    features = RandomConvFeatures(pool_size=3, random_state=5)  # 9 variables: quick to search
    return Prepared.of(load_dataset("digits", seed=5), features)


@pytest.fixture(scope="module")
def comparison(digits):
    samplers = {
        "native": SimulatedAnnealer(num_reads=3),
        "rounded": RoundedSampler(),
        "exact": ExactSolver(),
        "dwave": DimodSampler(num_sweeps=20),
        "broken": Broken(),
        "surprising": Surprising(),
        "short": Short(),
        "unreliable": Unreliable(),
        "boasting": Boasting(),
    }
    return compare_samplers(samplers, digits, CLASSIFIER, late=4, repeats=2)


def rows_of(comparison, name):
    return [row for row in comparison.solving if row.sampler == name]


@pytest.mark.parametrize(
    ("seconds", "share", "expected"),
    [
        (1.0, 0.5, math.log(0.01) / math.log(0.5)),  # 6.64 runs
        (3.0, 0.1, 3 * math.log(0.01) / math.log(0.9)),
        (2.0, 0.99, 2.0),
        (2.0, 0.999, 2.0),  # there is no third of a run
        (2.0, 1.0, 2.0),
        (2.0, 0.0, math.inf),
    ],
)
def test_time_to_target_by_hand(seconds, share, expected):
    assert time_to_target(seconds, share) == pytest.approx(expected)


def test_time_to_target_refuses_what_is_no_share():
    with pytest.raises(InvalidInputError, match="share is 1.5"):
        time_to_target(1.0, 1.5)


def toy(bounds):
    problems = Problems((Metric([[1.0]]),), np.zeros((len(bounds), 1)), np.ones(len(bounds)), bits=1)
    return ProblemSet("toy", 0, problems, np.array(bounds))


def test_rating_by_hand():
    """The best energies are −0.9, −1.8 and −0.2, so −0.89, −1.78 and −0.17 are enough."""
    energies_of_good = np.array([[-0.9, -1.8, -0.1], [-0.895, -1.0, -0.1]])
    energies_of_poor = np.array([[-0.5, -1.7, -0.2], [-0.5, -1.79, -0.1]])
    solves = {
        "good": Solves(energies_of_good, np.array([6.0, 3.0]), unsolved=1, access_seconds=0.5),
        "poor": Solves(energies_of_poor, np.array([0.3, 0.3])),
        "absent": "no connection",
    }
    good, poor, absent = rate_solves(toy([-1.0, -2.0, -3.0]), solves, target=0.01)
    assert good.energy == pytest.approx((-2.8 - 1.995) / 2)
    assert good.gap == pytest.approx(6 + good.energy)
    assert good.gap_share == pytest.approx(good.gap / 6)
    assert (good.least_seconds, good.median_seconds) == (3.0, 4.5)
    # Shares of repeats: 1, 1/2 and 0 of the three problems; the median problem is the one of 1/2.
    assert (good.reached, good.problems_reached) == (pytest.approx(0.5), 2)
    assert good.seconds_to_target == pytest.approx(1.5 * math.log(0.01) / math.log(0.5))
    assert (good.unsolved, good.access_seconds, good.failure) == (1, 0.5, None)
    # 0, 1/2 and 1/2
    assert (poor.reached, poor.problems_reached) == (pytest.approx(1 / 3), 2)
    assert poor.seconds_to_target == pytest.approx(0.1 * math.log(0.01) / math.log(0.5))
    assert (absent.failure, absent.reached, absent.seconds_to_target) == ("no connection", 0.0, math.inf)


def test_a_sampler_that_always_misses_most_problems_never_gets_there():
    solves = {
        "steady": Solves(np.array([[-1.0, 0.0, 0.0]] * 4), np.ones(4)),
        "lucky": Solves(np.array([[0.0, -1.0, -1.0]] + [[0.0, 0.0, 0.0]] * 3), np.ones(4)),
    }
    steady, lucky = rate_solves(toy([-1.0, -1.0, -1.0]), solves, target=0.0)
    assert steady.seconds_to_target == math.inf  # a third of all pairs, and no use in going on
    assert lucky.seconds_to_target == pytest.approx(math.log(0.01) / math.log(0.75) / 3)


def test_the_problems_are_the_trainings_own(digits_features):
    classifier = AnnealedClassifier(bits=2, random_state=5)
    first, late = take_problems(classifier, *digits_features, late=3)
    for problem, expected in zip(first.problems, classifier.problems(*digits_features), strict=True):
        np.testing.assert_array_equal(problem.gradient, expected.gradient)
        assert problem.encoding == expected.encoding
    assert (first.after, late.after) == (0, 3)
    trained = AnnealedClassifier(bits=2, random_state=5, max_iter=4).fit(*digits_features)
    row = trained.history_[3]
    assert np.mean([problem.encoding.range for problem in late.problems]) == pytest.approx(row["range"])
    assert lower_bounds(late.problems).sum() == pytest.approx(row["lower_bound"])
    assert [taken.name for taken in take_problems(classifier, *digits_features, late=0)] == ["first"]


def test_a_classifiers_callbacks_and_checkpoint_are_left_alone(digits_features, tmp_path):
    classifier = AnnealedClassifier(
        bits=1, random_state=5, callbacks=[lambda _: True], checkpoint=tmp_path / "mine", time_limit=1e-9
    )
    assert [taken.after for taken in take_problems(classifier, *digits_features, late=2)] == [0, 2]
    assert not (tmp_path / "mine").exists()


def test_no_energy_is_below_the_bound_and_exact_search_always_reaches_the_target(comparison):
    assert [taken.name for taken in comparison.problem_sets] == ["first", "late"]
    for row in comparison.solving:
        if row.failure is None:
            assert row.gap >= 0
            assert row.seconds_to_target >= 0
    for row in rows_of(comparison, "exact"):
        assert (row.reached, row.problems_reached) == (1.0, 10)
        assert row.seconds_to_target == pytest.approx(row.median_seconds / 10)
        others = [other for other in comparison.solving if other.problems == row.problems and other.failure is None]
        assert row.energy == min(other.energy for other in others)


def test_energies_are_computed_and_not_taken_on_trust(comparison):
    assert [row.energy for row in rows_of(comparison, "boasting")] == [
        row.energy for row in rows_of(comparison, "rounded")
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken", "out of order"),
        ("surprising", "Surprising raised KeyError: 'undocumented'"),
        ("short", "Short answered 9 of 10 problems"),
    ],
)
def test_a_sampler_that_fails_is_a_row_that_says_so(comparison, name, reason):
    assert [row.failure for row in rows_of(comparison, name)] == [reason, reason]
    trained = next(record for record in comparison.training if record.method == name)
    assert trained.error == f"iteration 1: {reason}"


def test_what_is_not_solved_counts_as_no_update_and_warnings_are_noted(comparison):
    for row, solved in zip(rows_of(comparison, "unreliable"), rows_of(comparison, "rounded"), strict=True):
        taken = next(taken for taken in comparison.problem_sets if taken.name == row.problems)
        missing = RoundedSampler().sample(taken.problems[0]).best_energy
        assert row.unsolved == 2
        assert row.energy == pytest.approx(solved.energy - missing)
    assert "unreliable: the line is bad" in comparison.notes
    assert any(note.startswith("unreliable: in 3 of 3 iterations the sampler failed") for note in comparison.notes)


def test_a_sampler_that_solves_nothing_fails():
    class Absent(Sampler):
        def solve(self, problems, seeds):
            return [Samples.failed(problem, "nobody there") for problem in problems]

    with pytest.raises(SamplerError, match="no problem was solved in 2 solves; nobody there"):
        solve_repeatedly(Absent(), toy([-1.0]), 2, seed=0)


def test_training_rows_hold_the_classifiers_own_results(comparison, digits):
    trained = AnnealedClassifier(bits=1, max_iter=3, random_state=5, sampler=RoundedSampler())
    trained.fit(digits.X_train, digits.dataset.y_train)
    record = next(record for record in comparison.training if record.method == "rounded")
    assert record.history["loss"] == pytest.approx([step["loss"] for step in trained.history_], rel=1e-12)
    assert record.test["accuracy"] == trained.score(digits.X_test, digits.dataset.y_test)
    assert (record.iterations, record.stop_reason) == (3, "max_iter")
    assert record.loss == pytest.approx(record.history["loss"][-1])
    assert all(record.loss > comparison.optimum.loss for record in comparison.training if record.error is None)


def test_a_budget_that_ends_midway_leaves_what_was_paid_for(digits):
    sampler = QPUSampler(MockQPU("Z12", num_sweeps=5), num_reads=5, max_access_seconds=0.05)
    found = compare_samplers({"mock": sampler}, digits, CLASSIFIER, late=0, repeats=10)
    (row,) = found.solving
    assert row.failure is None
    assert row.gap > 0
    assert sampler.access_seconds <= 0.05


def test_the_same_seed_gives_the_same_energies_and_another_does_not(digits):
    def results(seed):
        samplers = {
            "native": SimulatedAnnealer(),
            "dwave": DimodSampler(num_sweeps=20),
            "openjij": make_sampler("openjij", num_sweeps=20),
            "mock": QPUSampler(MockQPU("Z12", num_sweeps=5, seed=1), num_reads=5),
        }
        calls = []
        found = compare_samplers(
            samplers, digits, CLASSIFIER, late=2, repeats=2, seed=seed, on_solve=lambda name: calls.append(name)
        )
        # A warm-up (not where solves are paid for) and two repeats of two sets, and three iterations.
        assert calls == [name for name in samplers for _ in range((2 if name == "mock" else 3) * 2 + 3)]
        for row in found.solving:
            assert (row.access_seconds is not None) == (row.sampler == "mock")
        assert [record.access_seconds is not None for record in found.training] == [False, False, False, True]
        losses = [record.history["loss"].tolist() for record in found.training]
        return [(row.sampler, row.energy, row.reached) for row in found.solving], losses

    energies, losses = results(1)
    again, losses_again = results(1)
    other, _ = results(2)
    assert energies == again
    assert losses == losses_again
    assert energies[0] != other[0]


def test_control_c_ends_the_comparison_and_not_only_a_training(digits):
    class Interrupted(Sampler):
        calls = 0

        def solve(self, problems, seeds):
            self.calls += 1
            if self.calls > 4:  # a warm-up and two repeats, then the training's second iteration
                raise KeyboardInterrupt
            return RoundedSampler().solve(problems, seeds)

    with pytest.raises(KeyboardInterrupt):
        compare_samplers({"one": Interrupted()}, digits, CLASSIFIER, late=0, repeats=2)


@pytest.mark.parametrize("settings", [{"repeats": 0}, {"target": -0.1}, {"late": -1}])
def test_bad_settings_are_refused(digits, settings):
    with pytest.raises(InvalidInputError, match=f"{next(iter(settings))} is"):
        compare_samplers({"rounded": RoundedSampler()}, digits, CLASSIFIER, **settings)
