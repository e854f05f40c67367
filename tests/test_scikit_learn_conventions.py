"""Conventions of scikit-learn beside its conformance suite.

Warm starts, partial fits, validation, sparse rows, log-probabilities, grids over sampler and method, progress.
"""

import re
import threading

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from annealfit import AnnealedClassifier, Checkpoint, Method
from annealfit._support.errors import BudgetExhaustedError, CheckpointError, FileFormatError, InvalidInputError
from annealfit.samplers import BlockSampler, ExactSolver, RoundedSampler, Sampler, Samples, SimulatedAnnealer
from annealfit.training.checkpoint import checkpoint_file
from annealfit.training.objectives import LinearHead


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def test_a_warm_start_continues_from_the_weights(iris):
    clf = AnnealedClassifier(max_iter=10, warm_start=True, random_state=0, tol=0).fit(*iris)
    first, last = clf.coef_.copy(), clf.history_[-1]["loss"]
    clf.fit(*iris)
    assert clf.history_[0]["loss"] <= last
    assert not np.array_equal(clf.coef_, first)
    cold = clone(clf).set_params(warm_start=False).fit(*iris)
    assert cold.history_[0]["loss"] > last


@pytest.mark.parametrize(
    "change", [lambda X, y: (X[:, :3], y), lambda X, y: (X, y + 1), lambda X, y: (X[y > 0], y[y > 0])]
)
def test_a_warm_start_on_other_features_or_classes_is_refused(iris, change):
    clf = AnnealedClassifier(max_iter=3, warm_start=True, random_state=0).fit(*iris)
    with pytest.raises(InvalidInputError, match="warm_start=True continues a training on 4 features"):
        clf.fit(*change(*iris))


def test_partial_fits_on_all_rows_are_the_iterations_of_a_fit(iris):
    # Not so with acceptance="subspace": a previous step belongs to the rows of the previous call.
    whole = AnnealedClassifier(max_iter=6, random_state=0, tol=0, method="descent").fit(*iris)
    clf = AnnealedClassifier(random_state=0, method="descent")
    for _ in range(6):
        clf.partial_fit(*iris, classes=[0, 1, 2])
    np.testing.assert_array_equal(clf.coef_, whole.coef_)
    assert clf.n_iter_ == len(clf.history_) == 6
    assert [row["iteration"] for row in clf.history_] == [1, 2, 3, 4, 5, 6]


def test_partial_fits_on_batches_learn(iris):
    X, y = iris
    generator = np.random.default_rng(0)
    clf = AnnealedClassifier(random_state=0, method="descent")
    for _ in range(40):
        batch = generator.choice(len(y), size=30)
        clf.partial_fit(X[batch], y[batch], classes=np.unique(y))
    assert clf.score(X, y) > 0.9
    only_one = y == 1
    clf.partial_fit(X[only_one], y[only_one])  # a batch need not have every class
    fitted = AnnealedClassifier(max_iter=3, random_state=0).fit(X, y)
    before = fitted.coef_.copy()
    fitted.partial_fit(X, y)
    assert fitted.n_iter_ == 4
    assert not np.array_equal(before, fitted.coef_)


def test_settings_can_change_between_partial_fits(iris):
    X, y = iris
    clf = AnnealedClassifier(random_state=0, bits=3).partial_fit(X, y, classes=[0, 1, 2]).partial_fit(X, y)
    clf.set_params(bits=2).partial_fit(X, y)
    clf.set_params(method__curvature="joint").partial_fit(X, y)
    assert [row["bits"] for row in clf.history_] == [3, 3, 2, 2]
    assert [row["solved"] for row in clf.history_] == [3, 3, 3, 1]
    losses = [row["loss"] for row in clf.history_]
    assert losses == sorted(losses, reverse=True)


def test_partial_fits_call_callbacks_and_warn_of_failures(iris, capsys):
    X, y = iris
    seen = []
    clf = AnnealedClassifier(random_state=0, callbacks=[seen.append], verbose=2)
    clf.partial_fit(X, y, classes=[0, 1, 2]).partial_fit(X, y)
    assert [iteration.row["iteration"] for iteration in seen] == [1, 2]
    assert len(capsys.readouterr().out.splitlines()) == 2

    class Failing(Sampler):
        calls = 0

        def solve(self, problems, seeds):
            self.calls += 1
            if self.calls == 3:
                raise BudgetExhaustedError("spent")
            answers = RoundedSampler().solve(problems, seeds)
            return [Samples.failed(problems[0], "lost"), *answers[1:]] if self.calls == 2 else answers

    clf = AnnealedClassifier(random_state=0, sampler=Failing()).partial_fit(X, y, classes=[0, 1, 2])
    with pytest.warns(UserWarning, match="in 1 of 1 iterations the sampler failed .*problem 0: lost"):
        clf.partial_fit(X, y)
    before = clf.coef_.copy()
    with pytest.raises(BudgetExhaustedError, match="the classifier is as it was"):
        clf.partial_fit(X, y)
    np.testing.assert_array_equal(clf.coef_, before)
    assert clf.n_iter_ == 2


def test_a_fit_that_fails_leaves_the_model_as_it_was(iris):
    X, y = iris
    clf = AnnealedClassifier(max_iter=3, warm_start=True, random_state=0).fit(X, y)
    before = clf.predict(X)
    with pytest.raises(InvalidInputError, match="warm_start"):
        clf.fit(X[:, :3], y)
    np.testing.assert_array_equal(clf.predict(X), before)  # it still expects four features
    fresh = AnnealedClassifier()
    with pytest.raises(InvalidInputError):
        fresh.partial_fit(X, y, classes=[1])
    assert not hasattr(fresh, "classes_")
    assert not hasattr(fresh, "n_features_in_")


def test_a_sampler_with_a_budget_must_be_an_object(iris):
    for word in ("qpu:max_access_seconds=10", "mock-qpu:max_access_seconds=10", "qpu"):
        with pytest.raises(InvalidInputError, match="made anew at every fit.*pass an object"):
            AnnealedClassifier(sampler=word).fit(*iris)


def test_columns_of_a_sampler_may_be_numpy_numbers(iris, tmp_path):
    class Counting(Sampler):
        def solve(self, problems, seeds):
            return RoundedSampler().solve(problems, seeds)

        def summarise(self, answers):
            return {"count": np.int64(len(answers)), "share": np.float64(0.5)}

    clf = AnnealedClassifier(max_iter=2, random_state=0, sampler=Counting()).fit(*iris)
    clf.save(tmp_path / "m.safetensors")
    with pytest.warns(UserWarning, match="sampler"):
        loaded = AnnealedClassifier.load(tmp_path / "m.safetensors")
    assert loaded.history_[0]["count"] == 3


def test_more_features_than_memory_are_refused_with_a_remedy():
    X = scipy.sparse.random_array((30, 2_000_000), density=1e-5, rng=np.random.default_rng(0), format="csr")
    with pytest.raises(InvalidInputError, match="2000000 features make a curvature of .* GiB.*TruncatedSVD"):
        AnnealedClassifier(method=Method(curvature="bound")).fit(X, np.arange(30) % 2)


def test_a_curvature_in_blocks_needs_no_memory_for_the_whole_matrix():
    X = scipy.sparse.random_array((30, 50_000), density=1e-3, rng=np.random.default_rng(0), format="csr")
    clf = AnnealedClassifier(max_iter=2, random_state=0).fit(X, np.arange(30) % 2)
    assert clf.history_[-1]["loss"] < clf.history_[0]["loss"] < np.log(2)


@pytest.mark.parametrize("path", ["file/x.safetensors", "/dev/null/x.safetensors"])
def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_first_iteration(iris, tmp_path, path):
    (tmp_path / "file").write_text("no folder")
    seen = []
    clf = AnnealedClassifier(max_iter=3, checkpoint=tmp_path / path, callbacks=[seen.append])
    with pytest.raises(CheckpointError, match="cannot be written"):
        clf.fit(*iris)
    assert not seen


def test_a_full_disk_does_not_end_the_training(iris, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("annealfit.training.checkpoint.write_tensors", full)
    clf = AnnealedClassifier(max_iter=3, random_state=0, checkpoint=Checkpoint(tmp_path / "c.safetensors", every=2))
    with pytest.warns(UserWarning, match="could not be written after iteration 2 .*No space left"):
        clf.fit(*iris)
    assert clf.n_iter_ == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"verbose": "x"}, "verbose is 'x'"),
        ({"warm_start": "yes"}, "warm_start is 'yes'; it must be True or False"),
        ({"sampler": RoundedSampler}, r"the class RoundedSampler; pass an object of it"),
        ({"sampler": "native:num_raeds=3"}, "num_raeds.*; it has num_sweeps, num_reads"),
    ],
)
def test_mistyped_settings_are_refused(iris, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        AnnealedClassifier(**settings).fit(*iris)


def test_a_gap_is_never_larger_than_the_loss(iris):
    X, y = iris
    with pytest.warns(ConvergenceWarning):
        clf = AnnealedClassifier(max_iter=1, random_state=0).fit(1000 * X, y)
    assert clf.optimality_gap_ <= clf.history_[-1]["loss"]


def test_files_of_another_kind_are_refused(iris, tmp_path):
    with pytest.raises(FileFormatError, match="is a folder"):
        AnnealedClassifier.load(tmp_path)
    AnnealedClassifier(max_iter=1, tol=1, checkpoint=tmp_path / "c.safetensors").fit(*iris)
    with pytest.raises(FileFormatError, match="resume=True.* reads it"):
        AnnealedClassifier.load(tmp_path / "c.safetensors")


def test_invalid_partial_fits_are_refused(iris):
    X, y = iris
    with pytest.raises(InvalidInputError, match="first call of partial_fit needs classes"):
        AnnealedClassifier().partial_fit(X, y)
    with pytest.raises(InvalidInputError, match="at least two"):
        AnnealedClassifier().partial_fit(X, y, classes=[1])
    clf = AnnealedClassifier(random_state=0).partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(InvalidInputError, match="not those of the first call"):
        clf.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(InvalidInputError, match=r"labels \[3\] that are not among the classes"):
        clf.partial_fit(X, np.where(y == 2, 3, y))


def test_every_iteration_is_measured_on_the_validation_data(iris):
    X, y = iris
    clf = AnnealedClassifier(max_iter=8, random_state=0).fit(X[::2], y[::2], validation_data=(X[1::2], y[1::2]))
    head = LinearHead.of_arrays(X[1::2], y[1::2], 3, 0.0)
    point = head.at(np.vstack([clf.coef_.T, clf.intercept_]))
    assert clf.history_[-1]["validation_accuracy"] == point.accuracy == clf.score(X[1::2], y[1::2])
    assert clf.history_[-1]["validation_cross_entropy"] == pytest.approx(point.cross_entropy)
    alone = AnnealedClassifier(max_iter=8, random_state=0).fit(X[::2], y[::2])
    np.testing.assert_array_equal(clf.coef_, alone.coef_)  # validation changes nothing
    assert "validation_accuracy" not in alone.history_[0]


def overfitting():
    generator = np.random.default_rng(3)
    X = generator.normal(size=(120, 60))
    return X, (X[:, 0] + generator.normal(size=120) > 0).astype(int)


def test_early_stopping_keeps_the_best_weights(tmp_path):
    X, y = overfitting()
    settings = {"max_iter": 300, "regularization": 1e-6, "random_state": 0, "tol": 0.0}
    clf = AnnealedClassifier(validation_fraction=0.4, early_stopping=True, patience=15, **settings).fit(X, y)
    assert clf.stop_reason_ == "validation"
    scores = [(row["validation_accuracy"], -row["validation_cross_entropy"]) for row in clf.history_]
    assert clf.best_iteration_ == 1 + scores.index(max(scores)) == clf.n_iter_ - 15
    short = AnnealedClassifier(validation_fraction=0.4, **settings | {"max_iter": clf.best_iteration_}).fit(X, y)
    np.testing.assert_array_equal(clf.coef_, short.coef_)
    path = tmp_path / "training.safetensors"
    options = {"validation_fraction": 0.4, "early_stopping": True, "patience": 15}
    resume = Checkpoint(path, resume=True)
    stop = [lambda iteration: iteration.row["iteration"] == clf.n_iter_ - 5]
    AnnealedClassifier(**options, **settings, callbacks=stop, checkpoint=path).fit(X, y)
    resumed = AnnealedClassifier(**options, **settings, checkpoint=resume).fit(X, y)
    np.testing.assert_array_equal(resumed.coef_, clf.coef_)
    assert (resumed.best_iteration_, resumed.n_iter_) == (clf.best_iteration_, clf.n_iter_)
    again = AnnealedClassifier(**options, **settings, checkpoint=resume).fit(X, y)  # it has ended
    np.testing.assert_array_equal(again.coef_, clf.coef_)
    assert (again.stop_reason_, again.n_iter_) == ("validation", clf.n_iter_)
    clf.save(tmp_path / "model.safetensors")
    assert AnnealedClassifier.load(tmp_path / "model.safetensors").best_iteration_ == clf.best_iteration_


def test_validation_data_are_part_of_the_identity_of_a_checkpoint(iris, tmp_path):
    X, y = iris
    path = tmp_path / "training.safetensors"
    AnnealedClassifier(max_iter=3, random_state=0, tol=0, checkpoint=path).fit(X, y, validation_data=(X[::2], y[::2]))
    again = {"max_iter": 5, "random_state": 0, "tol": 0, "checkpoint": Checkpoint(path, resume=True)}
    for other in (None, (X[1::2], y[1::2])):
        with pytest.raises(CheckpointError, match="validation data differ"):
            AnnealedClassifier(**again).fit(X, y, validation_data=other)
    same = AnnealedClassifier(**again).fit(X, y, validation_data=(X[::2], y[::2]))
    assert [("validation_accuracy" in row) for row in same.history_] == [True] * 5


def test_the_validation_split_keeps_every_class_and_follows_the_seed():
    X, y = load_digits(return_X_y=True)
    X = X[:300] / 16
    fit = lambda seed: AnnealedClassifier(max_iter=2, validation_fraction=0.2, random_state=seed).fit(X, y[:300])  # noqa: E731
    assert fit(1).history_[0]["validation_accuracy"] == fit(1).history_[0]["validation_accuracy"]
    assert not np.array_equal(fit(1).coef_, fit(2).coef_)
    assert set(fit(1).classes_) == set(range(10))


@pytest.mark.parametrize(
    ("settings", "validation_data", "message"),
    [
        ({"validation_fraction": 0.0}, None, "validation_fraction is 0.0; it must be a finite number, above 0"),
        ({"validation_fraction": 0.01}, None, "cannot be split with every class in both parts"),
        ({"validation_fraction": 0.5}, ([[1.0] * 4], [0]), "not both"),
        ({}, [1, 2], r"tuple \(X, y\)"),
        ({}, ([[1.0] * 4], [9]), "that are not among the classes"),
        ({}, ([[1.0] * 3], [0]), "3 features"),
    ],
)
def test_invalid_validation_data_are_refused(iris, settings, validation_data, message):
    with pytest.raises(ValueError, match=message):
        AnnealedClassifier(max_iter=2, **settings).fit(*iris, validation_data=validation_data)


def sparse_table(n_rows, n_features, seed=0):
    X = scipy.sparse.random_array((n_rows, n_features), density=0.02, rng=np.random.default_rng(seed), format="csr")
    return X, np.asarray(X[:, :5].sum(axis=1) > X[:, 5:10].sum(axis=1)).astype(int).ravel()


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "csc_array", "coo_array"])
def test_sparse_rows_give_the_weights_of_dense_rows(kind):
    X, y = sparse_table(400, 30)
    sparse = AnnealedClassifier(max_iter=20, random_state=0).fit(getattr(scipy.sparse, kind)(X), y)
    dense = AnnealedClassifier(max_iter=20, random_state=0).fit(X.toarray(), y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sparse.predict_proba(X), dense.predict_proba(X.toarray()), rtol=1e-9)


def test_sparse_rows_are_never_made_dense_as_a_whole(monkeypatch):
    X, y = sparse_table(20_000, 40)
    for name in ("toarray", "todense"):
        original = getattr(scipy.sparse.csr_array, name)

        def guarded(self, *arguments, original=original, **options):
            assert self.shape[0] < len(y), "the rows were made dense"
            return original(self, *arguments, **options)

        monkeypatch.setattr(scipy.sparse.csr_array, name, guarded)
    clf = AnnealedClassifier(max_iter=5, random_state=0, validation_fraction=0.1, class_weight="balanced").fit(X, y)
    assert clf.predict(X).shape == (20_000,)


def test_log_probabilities_are_finite():
    X, y = load_iris(return_X_y=True)
    for labels in (y, y == 1):
        clf = AnnealedClassifier(max_iter=5, random_state=0).fit(X, labels)
        np.testing.assert_allclose(np.exp(clf.predict_log_proba(X)), clf.predict_proba(X), rtol=1e-12)
        clf.coef_ *= 1e6
        assert np.isfinite(clf.predict_log_proba(X)).all()
        assert (clf.predict_proba(X) == 0).any()


@pytest.mark.parametrize("word", ["rounded", "native:num_reads=2,num_sweeps=30", "dwave-sa:num_sweeps=20"])
def test_a_word_stands_for_a_sampler(iris, word, tmp_path):
    clf = AnnealedClassifier(max_iter=5, random_state=0, sampler=word).fit(*iris)
    assert clf.score(*iris) > 0.8
    clf.save(tmp_path / "m.safetensors")
    assert AnnealedClassifier.load(tmp_path / "m.safetensors").sampler == word
    assert clone(clf).sampler == word


def test_a_grid_over_the_settings_of_the_sampler(iris):
    for given in (None, "native", SimulatedAnnealer(num_sweeps=5)):
        grid = {"sampler__num_reads": [1, 4], "sampler__num_sweeps": [7]}
        search = GridSearchCV(AnnealedClassifier(max_iter=5, random_state=0, sampler=given), grid, cv=2).fit(*iris)
        assert search.best_estimator_.sampler.num_sweeps == 7
        assert {row["sampler__num_reads"] for row in search.cv_results_["params"]} == {1, 4}
    assert given.num_sweeps == 5  # unchanged
    nested = AnnealedClassifier(sampler=BlockSampler(SimulatedAnnealer(), max_variables=6))
    piped = make_pipeline(StandardScaler(), nested)
    piped.set_params(annealedclassifier__sampler__child__num_reads=3)
    assert nested.sampler.child.num_reads == 3
    assert AnnealedClassifier().get_params()["sampler"] is None
    with pytest.raises(InvalidInputError, match="SimulatedAnnealer has no setting reads; it has num_sweeps, num_reads"):
        AnnealedClassifier(sampler=SimulatedAnnealer()).set_params(sampler__reads=3)
    with pytest.raises(InvalidInputError, match="num_reads is 0"):
        AnnealedClassifier(sampler=SimulatedAnnealer()).set_params(sampler__num_reads=0)


def test_a_grid_over_the_fields_of_the_method(iris):
    for given in ("annealfit", Method(step=0.5)):
        estimator = AnnealedClassifier(max_iter=5, random_state=0, method=given)
        grid = {"method__curvature": ["local", "bound"], "method__acceptance": ["subspace", "line_search"]}
        search = GridSearchCV(estimator, grid, cv=2).fit(*iris)
        assert estimator.method is given  # unchanged
        best = search.best_estimator_.method
        assert (best.curvature, best.acceptance) == tuple(search.best_params_[name] for name in grid)
        assert best.step == (1.0 if given == "annealfit" else 0.5)
    words = GridSearchCV(AnnealedClassifier(max_iter=5, random_state=0), {"method": ["annealfit", "descent"]}, cv=2)
    assert words.fit(*iris).best_params_["method"] in ("annealfit", "descent")
    with pytest.raises(InvalidInputError, match="Method has no setting curvatures; it has curvature"):
        AnnealedClassifier().set_params(method__curvatures="bound")
    with pytest.raises(ValueError, match="bits is 3, which has no most"):
        AnnealedClassifier().set_params(bits__most=3)


def test_settings_are_changed_in_a_copy():
    """Methods, checkpoints and samplers are values: an estimator that shares one is never changed through another."""
    method, checkpoint, sampler = Method(), Checkpoint("c.safetensors"), SimulatedAnnealer()
    one, other = (AnnealedClassifier(method=method, checkpoint=checkpoint, sampler=sampler) for _ in range(2))
    one.set_params(method__step=0.5, checkpoint__resume=True, sampler__num_reads=7)
    assert (one.method.step, one.checkpoint.resume, one.sampler.num_reads) == (0.5, True, 7)
    assert (other.method, other.checkpoint, other.sampler) == (method, checkpoint, sampler)
    assert (method.step, checkpoint.resume, sampler.num_reads) == (1.0, False, SimulatedAnnealer().num_reads)
    assert one.get_params()["method__step"] == 0.5
    assert clone(one).get_params() == one.get_params()
    with pytest.raises(AttributeError):
        method.step = 0.1


def test_a_dimod_sampler_is_used_as_it_is(iris):
    dimod = pytest.importorskip("dimod")
    theirs, ours = dimod.ExactSolver(), ExactSolver()
    found, expected = (
        AnnealedClassifier(bits=2, max_iter=3, random_state=0, sampler=sampler).fit(*iris) for sampler in (theirs, ours)
    )
    assert found.sampler is theirs
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-9)


def test_checkpoints_in_a_folder_do_not_collide(iris, tmp_path):
    folder = tmp_path / "search"
    estimator = AnnealedClassifier(max_iter=5, random_state=0, checkpoint=folder)
    GridSearchCV(estimator, {"bits": [1, 2], "regularization": [1e-2, 1e-3]}, cv=2, n_jobs=2).fit(*iris)
    assert len(list(folder.glob("*.safetensors"))) == 4 * 2 + 1
    again = clone(estimator).set_params(checkpoint__resume=True, max_iter=7)
    assert cross_val_score(again, *iris, cv=2).shape == (2,)
    file = AnnealedClassifier(max_iter=5, random_state=0, checkpoint=tmp_path / "one.safetensors")
    with pytest.raises(
        CheckpointError, match="name a folder, which keeps the checkpoints of different trainings apart"
    ):
        GridSearchCV(file, {"bits": [1, 2]}, cv=2, error_score="raise").fit(*iris)
    with pytest.raises(InvalidInputError, match="needs random_state to be a number"):
        AnnealedClassifier(checkpoint=Checkpoint(folder, resume=True)).fit(*iris)


def test_a_folder_that_another_process_is_making_is_a_folder(tmp_path):
    folder, is_over = tmp_path / "search", threading.Event()

    def make_and_remove():
        while not is_over.is_set():
            folder.mkdir()
            folder.rmdir()

    thread = threading.Thread(target=make_and_remove)
    thread.start()
    try:
        assert all(checkpoint_file(folder, {}).parent == folder for _ in range(5_000))
    finally:
        is_over.set()
        thread.join()


def test_only_settings_that_can_change_a_result_identify_a_checkpoint(iris, tmp_path):
    path = tmp_path / "training.safetensors"
    settings = {"random_state": 0, "tol": 0.0}
    AnnealedClassifier(max_iter=3, sampler=SimulatedAnnealer(num_threads=1), checkpoint=path, **settings).fit(*iris)
    resume = Checkpoint(path, resume=True, every=7)
    more = AnnealedClassifier(
        max_iter=5, sampler=SimulatedAnnealer(num_threads=2), verbose=0, checkpoint=resume, **settings
    )
    assert more.fit(*iris).n_iter_ == 5
    other = AnnealedClassifier(max_iter=6, sampler=SimulatedAnnealer(num_sweeps=50), checkpoint=resume, **settings)
    with pytest.raises(CheckpointError, match=r"sampler differ .*'num_sweeps': 100.*'num_sweeps': 50"):
        other.fit(*iris)


def test_progress_is_printed(iris, capsys):
    X, y = iris
    AnnealedClassifier(max_iter=4, random_state=0).fit(X, y)
    assert capsys.readouterr().out == ""
    AnnealedClassifier(max_iter=4, random_state=0, verbose=2, validation_fraction=0.3).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    pattern = r"iteration 4/4  loss 0\.\d+  accuracy \d+\.\d%  validation \d+\.\d%"
    assert re.fullmatch(pattern, lines[-1])
    AnnealedClassifier(max_iter=4, random_state=0, verbose=1).fit(X, y)
    assert len(capsys.readouterr().out.splitlines()) == 1  # the last line only
    done = AnnealedClassifier(max_iter=5000, random_state=0, tol=1e-2, verbose=1).fit(X, y)
    assert done.stop_reason_ == "tolerance"
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"iteration {done.n_iter_}/5000")


def test_the_sampler_is_part_of_a_model_file(iris, tmp_path):
    sampler = BlockSampler(SimulatedAnnealer(num_sweeps=30, beta_range=(0.1, 10.0)), max_variables=9)
    clf = AnnealedClassifier(max_iter=3, random_state=0, sampler=sampler).fit(*iris)
    clf.save(tmp_path / "m.safetensors")
    loaded = AnnealedClassifier.load(tmp_path / "m.safetensors")
    assert loaded.sampler == sampler
    assert loaded.get_params(deep=False) == clf.get_params(deep=False)
    np.testing.assert_array_equal(loaded.fit(*iris).coef_, clf.coef_)
