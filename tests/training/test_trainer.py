import os
import signal
import threading
import time

import numpy as np
import pytest
from estimators import annealed
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from annealfit import AnnealedClassifier, Checkpoint, Method
from annealfit._support.errors import BudgetExhaustedError, SamplerError
from annealfit._support.files import read_tensors
from annealfit.samplers import ExactSolver, Sampler, Samples
from annealfit.training import trainer
from annealfit.training.checkpoint import CheckpointFile
from annealfit.training.objectives import LinearHead


class Scripted(Sampler):
    """A sampler whose every answer is made by a function of the problem and the number of calls so far."""

    def __init__(self, answer):
        self.answer, self.calls = answer, 0

    def solve(self, problems, seeds):
        self.calls += 1
        return self.answer(problems, self.calls)


def all_ones(problems, call):
    return [Samples.of(problem, np.ones((1, problem.n_variables), int)) for problem in problems]


def test_one_iteration_of_algorithm_1_by_hand(blobs):
    """The brute-force minimiser of the paper's surrogate is added to the weights of each class."""
    X, y = blobs
    settings = {
        "bits": 2,
        "curvature": "gram",
        "coordinates": "raw",
        "acceptance": "always",
        "range_policy": "fixed",
        "random_state": 3,
    }
    clf = annealed(max_iter=1, sampler=ExactSolver(), initialization="zeros", update_range=0.5, **settings)
    clf.fit(X, y)
    head = LinearHead.of_arrays(X, y, 3, 1e-3)
    slopes = head.at(np.zeros((5, 3))).gradients
    levels = np.array([-0.5, -0.5 / 3, 0.5 / 3, 0.5])
    grid = np.stack(np.meshgrid(*[levels] * 5, indexing="ij"), axis=-1).reshape(-1, 5)
    matrix = head.gram + np.diag(head.ridge)
    for index, slope in enumerate(slopes):
        values = 0.5 * np.einsum("ni,ij,nj->n", grid, matrix, grid) + grid @ slope
        np.testing.assert_allclose(clf.coef_[index], grid[values.argmin()][:-1], rtol=1e-12)
        np.testing.assert_allclose(clf.intercept_[index], grid[values.argmin()][-1], rtol=1e-12)


def test_the_history_has_a_row_per_iteration(blobs):
    clf = AnnealedClassifier(bits=1, max_iter=4, sampler=ExactSolver(), random_state=0).fit(*blobs)
    assert [row["iteration"] for row in clf.history_] == [1, 2, 3, 4]
    assert clf.n_iter_ == 4
    assert clf.stop_reason_ == "max_iter"
    for row in clf.history_:
        assert row.keys() >= {
            "loss", "cross_entropy", "accuracy", "loss_change", "energy", "lower_bound",
            "accepted", "range", "bits", "seconds",
        }  # fmt: skip
        assert row["lower_bound"] <= row["energy"]
        assert row["cross_entropy"] <= row["loss"]
    seconds = [row["seconds"] for row in clf.history_]
    assert seconds == sorted(seconds)
    losses = [row["loss"] for row in clf.history_]
    np.testing.assert_allclose(np.diff(losses), [row["loss_change"] for row in clf.history_[1:]], atol=1e-12)


def test_history_describes_the_final_model(blobs):
    X, y = blobs
    clf = AnnealedClassifier(bits=2, max_iter=5, sampler=ExactSolver(), random_state=0).fit(X, y)
    assert clf.history_[-1]["accuracy"] == clf.score(X, y)
    probabilities = clf.predict_proba(X)[np.arange(len(y)), y]
    assert clf.history_[-1]["cross_entropy"] == pytest.approx(-np.log(probabilities).mean(), rel=1e-9)


def test_the_step_scales_the_update(blobs):
    options = {"bits": 1, "max_iter": 1, "acceptance": "always", "initialization": "zeros", "random_state": 0}
    whole, quarter = (annealed(step=step, sampler=Scripted(all_ones), **options).fit(*blobs) for step in (1.0, 0.25))
    np.testing.assert_allclose(quarter.coef_, whole.coef_ / 4, rtol=1e-12)
    assert np.abs(whole.coef_).max() > 0


def test_all_callbacks_are_called_and_any_can_stop(blobs):
    seen = []

    def watch(iteration):
        seen.append((iteration.state.iteration, iteration.row["iteration"], iteration.state.weights.shape))

    clf = AnnealedClassifier(
        bits=1, max_iter=10, sampler=ExactSolver(), callbacks=[lambda it: it.row["iteration"] == 3, watch]
    ).fit(*blobs)
    assert seen == [(n, n, (5, 3)) for n in (1, 2, 3)]
    assert clf.n_iter_ == 3
    assert clf.stop_reason_ == "callback"


def test_control_c_raises_and_keeps_the_weights_reached(blobs, interruptible, tmp_path):
    X, y = blobs

    def slow(problems, call):
        time.sleep(0.02)
        return all_ones(problems, call)

    started = threading.Event()
    interrupter = threading.Thread(target=lambda: started.wait(10) and os.kill(os.getpid(), signal.SIGINT))
    interrupter.start()
    clf = AnnealedClassifier(
        bits=1,
        max_iter=1000,
        sampler=Scripted(slow),
        random_state=0,
        checkpoint=tmp_path / "training.safetensors",
        callbacks=[lambda it: it.row["iteration"] >= 3 and started.set()],
    )
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X, y)
    interrupter.join()
    assert clf.stop_reason_ == "interrupted"
    assert 3 <= clf.n_iter_ < 1000
    assert len(clf.history_) == clf.n_iter_
    assert clf.history_[-1]["accuracy"] == clf.score(X, y)
    resumed = clone(clf).set_params(checkpoint__resume=True, max_iter=clf.n_iter_ + 1, callbacks=None).fit(X, y)
    assert resumed.history_[: clf.n_iter_] == clf.history_


def test_control_c_ends_a_cross_validation(blobs):
    def answer(problems, call):
        if call == 4:
            raise KeyboardInterrupt
        return exact(problems)

    sampler = Scripted(answer)
    with pytest.raises(KeyboardInterrupt):
        cross_val_score(AnnealedClassifier(bits=1, max_iter=50, sampler=sampler, random_state=0), *blobs, cv=5)


def test_control_c_before_the_first_iteration_leaves_nothing_fitted(blobs):
    def answer(problems, call):
        raise KeyboardInterrupt

    clf = AnnealedClassifier(bits=1, sampler=Scripted(answer))
    with pytest.raises(KeyboardInterrupt):
        clf.fit(*blobs)
    assert not hasattr(clf, "coef_")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda problems, call: 1 / 0, "iteration 1: Scripted raised ZeroDivisionError"),
        (lambda problems, call: [], "answered 0 of 3 problems"),
        (
            lambda problems, call: [Samples.of(p, np.full((1, p.n_variables), 3)) for p in problems],
            "not bits",
        ),
        (lambda problems, call: [Samples.of(p, np.zeros((0, p.n_variables))) for p in problems], "no reads"),
        (
            lambda problems, call: [Samples.of(p, np.zeros(p.n_variables)) for p in problems],
            "expected \\(reads",
        ),
        (lambda problems, call: [Samples.of(p, "junk") for p in problems], "not bits"),
    ],
)
def test_a_sampler_that_raises_or_gives_invalid_answers_is_an_error(blobs, answer, message):
    with pytest.raises(SamplerError, match=message):
        AnnealedClassifier(bits=1, sampler=Scripted(answer)).fit(*blobs)


def test_wrong_energies_of_a_sampler_are_not_used(blobs):
    def wrong_energies(problems, call):
        return [Samples(np.ones((1, 5, 1), np.uint8), np.array([-1e9])) for _ in problems]

    clf = AnnealedClassifier(bits=1, max_iter=5, sampler=Scripted(wrong_energies), random_state=0, method="descent")
    clf.fit(*blobs)
    assert all(row["energy"] > -1e6 and row["loss_change"] <= 1e-12 for row in clf.history_)


def test_a_sampler_whose_answer_has_another_shape_is_refused(blobs):
    def wrong_shape(problems, call):
        return [Samples(np.ones((1, 4, 1), np.uint8), np.array([0.0])) for _ in problems]

    with pytest.raises(SamplerError, match=r"expected \(reads, 5, 1\)"):
        AnnealedClassifier(bits=1, sampler=Scripted(wrong_shape)).fit(*blobs)


@pytest.mark.parametrize("value", [7, -1, 0.5, np.nan])
def test_bits_other_than_0_and_1_are_refused_and_the_checkpoint_stays_valid(blobs, tmp_path, value):
    def answer(problems, call):
        if call < 4:
            return exact(problems)
        return [Samples(np.full((1, 5, 1), value), np.array([0.0])) for _ in problems]

    path = tmp_path / "training.safetensors"
    with pytest.raises(SamplerError, match="bits other than 0 and 1"):
        AnnealedClassifier(bits=1, sampler=Scripted(answer), checkpoint=path, random_state=0).fit(*blobs)
    settings = read_tensors(path, "training checkpoint")[1]["settings"].value
    state, history = CheckpointFile(path, 1, settings).load()
    assert len(history) == state.iteration == 3
    assert np.isfinite(state.weights).all()


def test_a_sampler_may_not_write_into_its_problems(blobs):
    def writing(problems, call):
        problems[0].gradient[:] = 0
        return exact(problems)

    with pytest.raises(SamplerError, match="read-only"):
        AnnealedClassifier(bits=1, sampler=Scripted(writing)).fit(*blobs)


def test_a_sampler_may_not_overwrite_columns_of_the_history(blobs):
    class Overwriting(Scripted):
        def summarise(self, answers):
            return {"loss": 0.0, "mine": 1.0}

    with pytest.raises(SamplerError, match="columns that the history has: loss"):
        AnnealedClassifier(bits=1, sampler=Overwriting(all_ones)).fit(*blobs)


def exact(problems):
    return ExactSolver().solve(problems, [0] * len(problems))


def test_a_training_whose_sampler_raised_is_resumed(blobs, tmp_path):
    path = tmp_path / "training.safetensors"

    def answer(problems, call):
        if call == 6:
            raise ZeroDivisionError("a bug in the sampler")
        return exact(problems)

    options = {"bits": 1, "max_iter": 10, "random_state": 0}
    with pytest.raises(SamplerError, match="iteration 6: Scripted raised ZeroDivisionError"):
        AnnealedClassifier(sampler=Scripted(answer), checkpoint=path, **options).fit(*blobs)
    seen = []
    healed = Scripted(answer)  # the same sampler, working again
    healed.calls = 6
    AnnealedClassifier(
        sampler=healed,
        callbacks=[lambda it: seen.append(it.row["iteration"])],
        checkpoint=Checkpoint(path, resume=True),
        **options,
    ).fit(*blobs)
    assert seen == [6, 7, 8, 9, 10]


def test_a_lost_connection_fails_one_iteration_only(blobs):
    def answer(problems, call):
        if call == 3:
            raise ConnectionError("lost")
        return exact(problems)

    clf = AnnealedClassifier(bits=1, max_iter=6, sampler=Scripted(answer), random_state=0)
    with pytest.warns(UserWarning, match="in 1 of 6 iterations the sampler failed to solve some problems"):
        clf.fit(*blobs)
    third = clf.history_[2]
    assert third["failures"] == "problem 0, 1, 2: ConnectionError: lost"
    assert third["solved"] == third["accepted"] == third["energy"] == third["gap"] == third["loss_change"] == 0
    assert clf.history_[3]["range"] == third["range"]  # a failure says nothing about the range
    assert clf.history_[-1]["loss"] < third["loss"]


@pytest.mark.parametrize("acceptance", ["always", "descent", "line_search"])
def test_a_class_whose_solve_failed_keeps_its_weights(blobs, acceptance):
    def answer(problems, call):
        others = exact(problems)[1:]
        return [Samples.failed(problems[0], "chip too warm"), *others]

    clf = AnnealedClassifier(
        bits=1, max_iter=4, sampler=Scripted(answer), random_state=0, method=Method(acceptance=acceptance)
    )
    with pytest.warns(UserWarning, match="problem 0: chip too warm"):
        clf.fit(*blobs)
    assert (clf.coef_[0] == 0).all()
    assert clf.intercept_[0] == 0
    assert (clf.coef_[1:] != 0).any()
    assert [row["solved"] for row in clf.history_] == [2] * 4
    assert all(row["accepted"] <= 2 for row in clf.history_)


def test_a_sampler_that_stops_answering_ends_the_training_with_the_weights_reached(blobs, tmp_path):
    def answer(problems, call):
        if 4 < call < 10:
            return [Samples.failed(problem, "offline") for problem in problems]
        return exact(problems)

    path = tmp_path / "training.safetensors"
    clf = AnnealedClassifier(bits=1, max_iter=50, sampler=Scripted(answer), random_state=0, checkpoint=path)
    with pytest.warns(UserWarning, match="the sampler solved nothing any more after 9 of 50 iterations"):
        clf.fit(*blobs)
    assert clf.stop_reason_ == "sampler"
    assert clf.score(*blobs) > 0.5
    again_online = Scripted(answer)
    again_online.calls = 9
    resumed = AnnealedClassifier(
        bits=1, max_iter=50, sampler=again_online, random_state=0, checkpoint=Checkpoint(path, resume=True)
    )
    with pytest.warns(UserWarning, match="offline"):
        resumed.fit(*blobs)
    assert [row["failures"] for row in resumed.history_[3:9]] == ["", *["problem 0, 1, 2: offline"] * 5]
    assert resumed.n_iter_ > 9
    assert resumed.history_[-1]["loss"] < clf.history_[-1]["loss"]


def test_a_sampler_that_never_answers_is_an_error(blobs):
    never = Scripted(lambda problems, call: [Samples.failed(problem, "offline") for problem in problems])
    with pytest.raises(SamplerError, match="no problem was solved in 5 iterations; problem 0, 1, 2: offline"):
        AnnealedClassifier(bits=1, sampler=never).fit(*blobs)


def test_control_c_in_compiled_code_interrupts(blobs):
    def answer(problems, call):
        if call == 4:  # what numba makes of it
            raise SystemError("returned a result with an exception set") from KeyboardInterrupt()
        return exact(problems)

    clf = AnnealedClassifier(bits=1, max_iter=50, sampler=Scripted(answer), random_state=0)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(*blobs)
    assert (clf.stop_reason_, clf.n_iter_) == ("interrupted", 3)


def test_a_spent_budget_ends_the_training_with_the_weights_reached(blobs):
    def answer(problems, call):
        if call == 5:
            raise BudgetExhaustedError("no seconds left")
        return exact(problems)

    clf = AnnealedClassifier(bits=1, max_iter=50, sampler=Scripted(answer), random_state=0)
    with pytest.warns(UserWarning, match="training used up the sampler's budget after 4 of 50 iterations"):
        clf.fit(*blobs)
    assert (clf.stop_reason_, clf.n_iter_) == ("budget", 4)
    nothing = Scripted(lambda problems, call: answer(problems, 5))
    with pytest.raises(BudgetExhaustedError, match="no seconds left"):
        AnnealedClassifier(bits=1, sampler=nothing).fit(*blobs)


def test_a_sampler_is_prepared_before_the_clock_starts(blobs, monkeypatch):
    """What is done once per process, such as compiling, does not count as seconds of the training."""
    events = []

    class Prepared(Scripted):
        def prepare(self):
            events.append("prepared")

    monkeypatch.setattr(trainer.time, "perf_counter", lambda: events.append("clock") or 0.0)
    AnnealedClassifier(bits=1, max_iter=2, sampler=Prepared(all_ones)).fit(*blobs)
    assert events[0] == "prepared"
    assert "clock" in events


def test_features_that_overflow_are_refused(blobs):
    X, y = blobs
    with pytest.raises(ValueError, match="NaN or infinity"), np.errstate(over="ignore"):
        AnnealedClassifier(bits=1, max_iter=1).fit(X * 1e200, y)
