import math
import warnings

import numpy as np
import pytest

from annealfit import AnnealedClassifier, Method, RandomConvFeatures, load_dataset
from annealfit._support.errors import InvalidInputError, SamplerError
from annealfit._support.randomness import child_seed, child_seeds
from annealfit.problems.bounds import lower_bounds
from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import Problems
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
from annealfit.studies import Prepared
from annealfit.studies.sampler_study import (
    ProblemSet,
    Solves,
    compare_samplers,
    find_truth,
    rate_solves,
    solve_repeatedly,
    take_problems,
    with_reads,
)

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


def toy(lowest, proven=True):
    problems = Problems((Curvature([[1.0]]),), np.zeros((len(lowest), 1)), np.ones(len(lowest)), bits=1)
    return ProblemSet("toy", 0, problems, np.array(lowest), np.full(len(lowest), proven))


def solves_of(*reads, seconds=(1.0,), **others):
    """The solves that gave these reads of each problem, all in the first of them."""
    return Solves(tuple(np.array(energies, dtype=float) for energies in reads), np.array(seconds), **others)


def test_rating_by_hand():
    solves = {
        "good": solves_of([-1.0, -1.0 + 1e-10, -0.9, -0.9], [-2.0, -2.0, -2.0, -1.0], [-2.4] * 4, seconds=[6.0]),
        "poor": solves_of([-0.5], [-2.0], [-3.0], seconds=[0.3], access_seconds=0.6),
        "absent": "no connection",
    }
    good, poor, absent = rate_solves(toy([-1.0, -2.0, -3.0]), solves, target=1e-9)
    assert good.seconds_per_read == pytest.approx(0.5)
    assert (good.reads, good.successes) == ((4, 4, 4), (2, 3, 0))
    assert good.success.value == pytest.approx(5 / 12)
    assert good.residual == pytest.approx((0.05 + 0.125 + 0.2) / 3)
    # Shares 1/2, 3/4 and 0: the median problem is the one of 1/2.
    assert good.seconds_to_solution == pytest.approx(0.5 * math.log(0.01) / math.log(0.5))
    assert good.proven
    # Each problem has one read, right or wrong; a device's time is its access time.
    assert (poor.successes, poor.access_seconds) == ((0, 1, 1), 0.6)
    assert poor.seconds_per_read == poor.seconds_to_solution == pytest.approx(0.2)
    assert poor.residual == pytest.approx(0.5 / 3)
    assert absent.failure == "no connection"
    assert math.isnan(absent.success.value)
    assert math.isinf(absent.seconds_to_solution)


def test_a_sampler_that_always_misses_most_problems_never_gets_there():
    solves = {
        "steady": solves_of([-1.0] * 4, [0.0] * 4, [0.0] * 4),
        "lucky": solves_of([0.0] * 4, [-1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]),
    }
    steady, lucky = rate_solves(toy([-1.0, -1.0, -1.0]), solves, target=0.0)
    assert steady.seconds_to_solution == math.inf  # a third of all reads, and no use in going on
    assert lucky.seconds_to_solution == pytest.approx(math.log(0.01) / math.log(0.75) / 12)


def test_where_there_is_no_proof_the_best_that_any_sampler_found_counts():
    solves = {"one": solves_of([-1.0, -1.1]), "two": solves_of([-1.3, -1.3]), "broken": "out of order"}
    unproven, proven = toy([-1.2], proven=False), toy([-1.3])
    assert unproven.knowing(solves).energies == [-1.3]
    assert proven.knowing({"one": solves_of([-1.4])}).energies == [-1.3]  # rounding, then
    rows = rate_solves(unproven.knowing(solves), solves, target=1e-9)
    assert [row.proven for row in rows] == [False, False, False]
    assert [row.success.value for row in rows[:2]] == [0.0, 1.0]
    wide = rate_solves(unproven.knowing(solves), solves, target=0.2)
    assert wide[0].success.value == 0.5  # −1.1 is within a fifth of −1.3


def test_reads_are_set_where_a_sampler_takes_them_and_the_given_one_is_left_alone():
    annealer, rounded = SimulatedAnnealer(), RoundedSampler()
    assert with_reads(annealer, 7).num_reads == 7
    assert annealer.num_reads == 1
    assert with_reads(rounded, 7) is rounded
    assert with_reads(DimodSampler(num_sweeps=20), 7).get_params()["num_reads"] == 7
    qpu = QPUSampler(MockQPU("Z12"), max_access_seconds=1.0)
    assert with_reads(qpu, 7).device is qpu.device


@pytest.mark.parametrize("coordinates", ["raw", "centred"])
def test_success_is_what_brute_force_says(digits, coordinates):
    """Nine variables: every energy is known, and so is the share of the reads that are the lowest."""
    classifier = AnnealedClassifier(bits=1, random_state=5)
    sampler = SimulatedAnnealer(num_sweeps=3, num_reads=40)
    found = compare_samplers(
        {"hasty": sampler}, digits, classifier, coordinates=[coordinates], late=3, trainers={}, seed=9
    )
    assert found.training == ()
    for taken in found.problem_sets:
        assert taken.variant == (coordinates, 1)
        exact = np.array([answer.best_energy for answer in ExactSolver().solve(taken.problems, [0] * 10)])
        assert taken.proven.all()
        assert taken.energies == pytest.approx(exact, rel=1e-12)
        (row,) = taken.own(found.solving)
        assert row.reads == (40,) * 10
        assert 0 < row.success.low < row.success.value < row.success.high < 1
        position = found.problem_sets.index(taken)
        seeds = child_seeds(child_seed(9, 3, position), 0, np.arange(10)).tolist()
        answers = sampler.solve(taken.problems, seeds)
        hits = [int((a.energies <= e + 1e-9 * abs(e)).sum()) for a, e in zip(answers, exact, strict=True)]
        assert list(row.successes) == hits
        residual = np.mean([(a.energies - e).mean() / abs(e) for a, e in zip(answers, exact, strict=True)])
        assert row.residual == pytest.approx(residual)


def test_a_search_that_is_cut_short_is_not_a_proof(digits_features):
    method = Method(coordinates="raw", update_range=0.01, range_policy="fixed")
    classifier = AnnealedClassifier(bits=6, method=method, random_state=5)
    problems = classifier.problems(*digits_features)
    _, proven = find_truth(problems, time_limit=1e-6)
    assert not proven.all()


def test_what_is_not_convex_has_no_truth_but_the_best_known():
    problems = Problems((Curvature([[1.0, 2.0], [2.0, 1.0]]),), np.array([[0.3, 0.1]]), np.ones(1), bits=1)
    energies, proven = find_truth(problems)
    assert (proven.tolist(), energies.tolist()) == ([False], [np.inf])
    taken = ProblemSet("bent", 0, problems, energies, proven)
    assert taken.knowing({"one": solves_of([-1.0, 0.0])}).energies[0] == -1.0


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


def test_the_truth_is_not_below_the_bounds_and_exact_search_always_finds_it(comparison):
    assert [taken.name for taken in comparison.problem_sets] == ["first", "late"]
    for taken in comparison.problem_sets:
        assert taken.proven.all()
        assert (taken.energies >= lower_bounds(taken.problems, tight=True) - 1e-12).all()
    for row in rows_of(comparison, "exact"):
        assert row.success.value == 1.0
        assert row.residual == pytest.approx(0, abs=1e-12)
        assert row.seconds_to_solution == pytest.approx(row.seconds_per_read)


def test_energies_are_computed_and_not_taken_on_trust(comparison):
    assert [row.residual for row in rows_of(comparison, "boasting")] == [
        row.residual for row in rows_of(comparison, "rounded")
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken", "out of order"),
        ("surprising", "Surprising raised KeyError: 'undocumented'"),
        ("short", "Short answered 0 of 1 problems"),
    ],
)
def test_a_sampler_that_fails_is_a_row_that_says_so(comparison, name, reason):
    assert [row.failure for row in rows_of(comparison, name)] == [reason, reason]
    trained = next(row.record for row in comparison.training if row.record.method == name)
    assert trained.error == f"iteration 1: {reason.replace('0 of 1', '9 of 10')}"


def test_what_is_not_solved_has_no_reads_and_warnings_are_noted(comparison):
    for row, solved in zip(rows_of(comparison, "unreliable"), rows_of(comparison, "rounded"), strict=True):
        assert row.reads == (0, *solved.reads[1:])
        assert row.successes == (0, *solved.successes[1:])
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
    record = next(row.record for row in comparison.training if row.record.method == "rounded")
    assert record.history["loss"] == pytest.approx([step["loss"] for step in trained.history_], rel=1e-12)
    assert record.test["accuracy"] == trained.score(digits.X_test, digits.dataset.y_test)
    assert (record.iterations, record.stop_reason) == (3, "max_iter")
    assert record.loss == pytest.approx(record.history["loss"][-1])
    records = [row.record for row in comparison.training]
    assert all(record.loss > comparison.optimum.loss for record in records if record.error is None)


def test_a_budget_that_ends_midway_leaves_what_was_paid_for(digits):
    sampler = QPUSampler(MockQPU("Z12", num_sweeps=5), num_reads=5, max_access_seconds=0.05)
    found = compare_samplers({"mock": sampler}, digits, CLASSIFIER, late=0, repeats=10)
    (row,) = found.solving
    assert row.failure is None
    assert sum(row.reads) > 0
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
        assert [row.record.access_seconds is not None for row in found.training] == [False, False, False, True]
        losses = [row.record.history["loss"].tolist() for row in found.training]
        return [(row.sampler, row.residual, row.successes) for row in found.solving], losses

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


@pytest.mark.parametrize("settings", [{"repeats": 0}, {"target": -0.1}, {"late": -1}, {"truth_seconds": 0}])
def test_bad_settings_are_refused(digits, settings):
    with pytest.raises(InvalidInputError, match=f"{next(iter(settings))} is"):
        compare_samplers({"rounded": RoundedSampler()}, digits, CLASSIFIER, **settings)
