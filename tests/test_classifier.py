import json

import numpy as np
import pytest
import safetensors.numpy
from estimators import annealed
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from annealfit import AnnealedClassifier, Checkpoint
from annealfit._support.errors import BudgetExhaustedError, FileFormatError, InvalidInputError
from annealfit._support.files import write_tensors
from annealfit.samplers import ExactSolver, LevelAnnealer
from annealfit.training import METHODS
from annealfit.training.objectives import softmax


def test_the_settings_of_the_paper():
    clf = AnnealedClassifier.from_paper(bits=20)
    assert (clf.bits, clf.max_iter, clf.regularization, clf.method) == (20, 1000, 1e-3, "literal")
    for word in ("literal", "matched"):
        method = METHODS[word]
        assert (method.update_range, method.step, method.initialization) == (0.5, 1.0, "uniform")
        assert (method.curvature, method.coordinates, method.acceptance) == ("gram", "raw", "always")
        assert (method.range_policy, method.precision_policy, method.max_couplings) == ("fixed", "fixed", None)
    assert clf.sampler.beta_range == (0.01, 3.0)
    assert AnnealedClassifier.from_paper(bits=5, preset="matched").sampler.beta_range == (0.01, 12.0)
    changed = clf.set_params(max_iter=3, sampler=ExactSolver(), random_state=1)
    assert changed.max_iter == 3


@pytest.mark.parametrize("word", METHODS)
def test_every_word_is_a_method(blobs, word):
    X, y = blobs
    clf = AnnealedClassifier(max_iter=3, method=word, random_state=0).fit(X, y)
    spelt = AnnealedClassifier(max_iter=3, method=METHODS[word], random_state=0, sampler=None)
    if word in ("literal", "matched"):  # whose annealer comes with the word
        spelt.set_params(sampler=AnnealedClassifier.from_paper(bits=3, preset=word).sampler)
    np.testing.assert_array_equal(clf.coef_, spelt.fit(X, y).coef_)
    assert clf.method == word


def test_probabilities_are_the_softmax_of_the_logits(blobs):
    X, y = blobs
    clf = AnnealedClassifier(max_iter=5, random_state=0).fit(X, y)
    logits = X @ clf.coef_.T + clf.intercept_
    np.testing.assert_allclose(clf.decision_function(X), logits, rtol=1e-12)
    np.testing.assert_allclose(clf.predict_proba(X), softmax(logits.T).T, rtol=1e-12)
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[logits.argmax(axis=1)])


def test_the_seed_decides_the_weights(blobs):
    X, y = blobs
    fit = lambda seed: annealed(max_iter=5, random_state=seed, initialization="uniform").fit(X, y)  # noqa: E731
    np.testing.assert_array_equal(fit(1).coef_, fit(1).coef_)
    assert not np.array_equal(fit(1).coef_, fit(2).coef_)


def test_problems_are_those_of_the_first_iteration(blobs):
    X, y = blobs
    clf = AnnealedClassifier(bits=2, max_iter=1, random_state=0, sampler=ExactSolver())
    energies = [ExactSolver().sample(problem).best_energy for problem in clf.problems(X, y)]
    assert len(energies) == 3
    assert not hasattr(clf, "classes_")
    assert clf.fit(X, y).history_[0]["energy"] == pytest.approx(sum(energies), rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 0}, "at least 1 and at most 30"),
        ({"bits": 31}, "at least 1 and at most 30"),
        ({"update_range": 0}, "above 0"),
        ({"update_range": -1.0}, "above 0"),
        ({"max_iter": 0}, "max_iter is 0; it must be a whole number, at least 1"),
        ({"max_iter": 1.5}, "whole number"),
        ({"regularization": -1}, "regularization is -1; it must be a finite number, at least 0"),
        ({"regularization": np.nan}, "regularization"),
        ({"step": 0}, "step is 0; it must be a finite number, above 0 and at most 1"),
        ({"step": 1.5}, "at most 1"),
        ({"checkpoint": Checkpoint("c.safetensors", every=0)}, "every .* is 0; it must be a whole number, at least 1"),
        ({"checkpoint": Checkpoint("c.safetensors", resume="yes")}, "resume is 'yes'; it must be True or False"),
        ({"method": "best"}, "method is 'best'; choose one of .*'annealfit'"),
        ({"method": None}, "method is None; choose one of"),
        ({"arithmetic": "half"}, "arithmetic is 'half'; choose one of 'auto', 'double', 'numpy'"),
        ({"curvature": "hessian"}, "curvature is 'hessian'; choose one of .*'gram'"),
        ({"acceptance": "sometimes"}, "acceptance is 'sometimes'; choose one of 'always'"),
        ({"range_policy": None}, "range_policy is None; choose one of .*'fixed'"),
        ({"initialization": "ones"}, "initialization is 'ones'; choose one of 'uniform', 'zeros'"),
        ({"sampler": "anneal"}, "sampler is 'anneal'; choose one of .*'native'"),
        ({"sampler": 3}, "a dimod sampler"),
        ({"coordinates": "polar"}, "coordinates is 'polar'; choose one of 'centred', 'raw'"),
        ({"curvature": ExactSolver}, "the class ExactSolver; pass an object"),
        ({"class_weight": "heavy"}, "'balanced', a dict, or None"),
        ({"validation_fraction": 1.5}, "above 0 and at most 1"),
        ({"early_stopping": True}, "needs validation data"),
        ({"callbacks": print}, "list of functions"),
        ({"callbacks": [3]}, "list of functions"),
    ],
)
def test_bad_settings_are_refused_with_limit_and_remedy(blobs, options, message):
    with pytest.raises(InvalidInputError, match=message):
        annealed(**options).fit(*blobs)


def test_an_unknown_preset_is_refused():
    with pytest.raises(InvalidInputError, match="'literal', 'matched'"):
        AnnealedClassifier.from_paper(preset="improved")


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.full((4, 2), np.nan), [0, 1, 0, 1], "NaN"),
        (np.full((4, 2), np.inf), [0, 1, 0, 1], "infinity"),
        (np.zeros((4, 2)), [1, 1, 1, 1], "one class only, 1;"),
        (np.zeros((0, 2)), [], "0 sample"),
        (np.zeros((4, 2)), [0, 1, 0], "inconsistent numbers of samples"),
        (np.zeros((4, 0)), [0, 1, 0, 1], "0 feature"),
        ([[1.0], [1.0, 2.0]], [0, 1], "inhomogeneous"),
        (np.zeros((4, 2)), [0.1, 0.2, 0.3, 0.4], "continuous"),
        (np.zeros((4, 2, 2)), [0, 1, 0, 1], "dim 3"),
    ],
)
def test_bad_data_is_refused(X, y, message):
    with pytest.raises(ValueError, match=message):
        AnnealedClassifier(max_iter=2).fit(X, y)


@pytest.mark.parametrize(
    "labels", [np.array(["ape", "bee", "cow"]), np.array(["a", "b", "c"], dtype=object), np.arange(3)]
)
def test_save_and_load_give_the_same_classifier(tmp_path, blobs, labels):
    X, y = blobs
    clf = AnnealedClassifier(bits=2, max_iter=4, random_state=9).fit(X, labels[y])
    clf.save(tmp_path / "model.safetensors")
    again = AnnealedClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), clf.predict(X))
    assert again.classes_.dtype == clf.classes_.dtype
    assert again.history_ == clf.history_
    assert again.get_params() == clf.get_params()
    assert (again.n_iter_, again.n_features_in_, again.stop_reason_) == (4, 4, "max_iter")


def test_labels_that_cannot_be_stored_are_refused_before_anything_is_written(tmp_path, blobs):
    X, y = blobs
    clf = AnnealedClassifier(max_iter=1).fit(X, y)
    dates = np.array(["2026-01-01", "2026-01-02", "2026-01-03"], dtype="datetime64[D]")
    for labels in (np.array([(1,), None, "c"], dtype=object), dates):
        clf.classes_ = labels
        with pytest.raises(InvalidInputError, match="cannot be stored"):
            clf.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_model_file_cut_short_at_any_byte_is_refused(tmp_path, blobs):
    AnnealedClassifier(bits=1, max_iter=1).fit(*blobs).save(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    path = tmp_path / "cut"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(FileFormatError):
            AnnealedClassifier.load(path)


def test_a_changed_byte_among_the_weights_is_refused(tmp_path, blobs):
    path = tmp_path / "m"
    AnnealedClassifier(bits=1, max_iter=1).fit(*blobs).save(path)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="digest"):
        AnnealedClassifier.load(path)


def _foreign(metadata):
    return safetensors.numpy.save({"coef": np.zeros((2, 2))}, metadata=metadata)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut short"),
        (b"\x80\x04\x95 a pickle", "cut short"),
        (_foreign(None), "not one written by annealfit"),
        (_foreign({"annealfit": "no json"}), "not one written by annealfit"),
        (_foreign({"annealfit": json.dumps([1])}), "not one written by annealfit"),
        (
            _foreign({"annealfit": json.dumps({"kind": "classifier", "version": 99, "sha256": "", "content": {}})}),
            "format version 99",
        ),
        (
            _foreign({"annealfit": json.dumps({"kind": "classifier", "version": 1, "sha256": "", "content": {}})}),
            "does not match its digest",
        ),
    ],
)
def test_foreign_files_are_refused(tmp_path, content, message):
    path = tmp_path / "m"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        AnnealedClassifier.load(path)


def test_a_whole_file_of_another_kind_is_refused(tmp_path):
    write_tensors(tmp_path / "m", "sofa", {"coef": np.zeros((2, 2))}, {})
    with pytest.raises(FileFormatError, match="of the kind 'sofa', not 'classifier'"):
        AnnealedClassifier.load(tmp_path / "m")


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        AnnealedClassifier.load(tmp_path / "nowhere")


def test_a_fit_that_fails_leaves_the_classifier_as_it_was(blobs):
    X, y = blobs

    def fail(iteration):
        raise ZeroDivisionError

    clf = AnnealedClassifier(max_iter=3, callbacks=[fail])
    with pytest.raises(ZeroDivisionError):
        clf.fit(X, y)
    with pytest.raises(NotFittedError):
        clf.predict(X)
    fitted = AnnealedClassifier(max_iter=3, random_state=0).fit(X, y)
    before = fitted.predict(X)
    with pytest.raises(ZeroDivisionError):
        fitted.set_params(callbacks=[fail]).fit(X, y > 0)
    np.testing.assert_array_equal(fitted.predict(X), before)


def test_a_training_that_did_not_converge_warns(blobs):
    X, y = blobs
    with pytest.warns(ConvergenceWarning, match="standardise the features"):
        AnnealedClassifier(max_iter=2).fit(X * 100, y)


def rare_class(scale):
    generator = np.random.default_rng(0)
    return scale * generator.normal(size=(400, 5)), generator.uniform(size=400) < 0.05


def test_a_training_that_stalls_warns():
    with pytest.warns(ConvergenceWarning, match="ended by plateau"):
        clf = AnnealedClassifier(random_state=0).fit(*rare_class(1e12))
    assert clf.optimality_gap_ > 0.1


@pytest.mark.parametrize(
    ("scale", "regularization"), [(1e-12, 1e-3), (1e-6, 1e-3), (1e6, 1e-3), (1.0, 1e3), (1.0, 1e14)]
)
def test_the_bias_is_fitted_whatever_the_units_and_the_penalty(scale, regularization):
    X, y = rare_class(scale)
    clf = AnnealedClassifier(regularization=regularization, random_state=0).fit(X, y)
    assert clf.stop_reason_ == "tolerance"
    # At the optimum the mean probability is the share of the class, because the bias is not regularised.
    assert clf.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=1e-3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, "NaT"], dtype="datetime64[D]"), "hold NaT"),
        (np.array(["a", None], dtype=object), "types NoneType, str"),
        (np.array([1, "b"], dtype=object), "types int, str"),
    ],
)
def test_labels_that_are_missing_or_of_several_types_are_refused(labels, message):
    with pytest.raises(InvalidInputError, match=message):
        AnnealedClassifier(max_iter=1).fit(np.eye(40), labels[np.arange(40) % 2])


def test_labels_in_extended_precision_are_stored_as_double(tmp_path, blobs):
    X, y = blobs
    clf = AnnealedClassifier(max_iter=2, random_state=0).fit(X, y.astype(np.longdouble))
    clf.save(tmp_path / "m")
    assert np.array_equal(AnnealedClassifier.load(tmp_path / "m").predict(X), clf.predict(X))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BudgetExhaustedError("no time is left")])
def test_problems_of_a_later_iteration_are_never_those_of_an_earlier_one(error):
    class Ending(LevelAnnealer):
        solves = 0

        def solve(self, problems, seeds):
            Ending.solves += 1
            if Ending.solves == 2:
                raise error
            return super().solve(problems, seeds)

    with pytest.raises(type(error)):
        AnnealedClassifier(sampler=Ending(), random_state=0).problems(*load_iris(return_X_y=True), after=3)
    assert Ending.solves == 2
