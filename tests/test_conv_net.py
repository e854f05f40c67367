"""AnnealedConvNet: training of filters and head, resuming, files, and invalid settings."""

import itertools
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from estimators import annealed_net
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from annealfit import AnnealedClassifier, AnnealedConvNet, Checkpoint, FilterMethod, RandomConvFeatures, load_dataset
from annealfit._support.errors import CheckpointError, FileFormatError, InvalidInputError, SamplerError
from annealfit.data.rows import InMemoryRows
from annealfit.problems.curvature import Curvature
from annealfit.samplers import MockQPU, QPUSampler, RoundedSampler
from annealfit.training import LevenbergMarquardt


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", seed=42, n_train=400, n_test=200)


@pytest.fixture(scope="module")
def small():
    """Colour images of three classes that differ in where a bright line runs, and not in their mean."""
    generator = np.random.default_rng(0)
    images = generator.random((60, 7, 7, 2)) * 0.4
    labels = np.arange(60) % 3
    images[labels == 0, 3] += 0.6
    images[labels == 1, :, 3] += 0.6
    images[np.flatnonzero(labels == 2)[:, None], np.arange(7), np.arange(7)] += 0.6
    return images, np.array(["row", "column", "diagonal"])[labels]


def make(**settings):
    return annealed_net(**{"n_filters": 2, "head_steps": 2, "max_iter": 9, "random_state": 5, **settings})


def without_seconds(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


def assert_same(one, other):
    for first, second in zip((*one.filters_, *one.biases_), (*other.filters_, *other.biases_), strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)
    assert without_seconds(one.history_) == without_seconds(other.history_)


# Training


def test_trained_filters_are_better_than_random_ones_and_the_loss_decreases_at_every_step():
    digits = load_dataset("digits", seed=42)
    features = RandomConvFeatures(n_filters=2, random_state=42)
    fixed = make_pipeline(features, AnnealedClassifier(max_iter=140, random_state=42))
    fixed.fit(digits.X_train, digits.y_train)
    net = AnnealedConvNet(n_filters=2, max_iter=140, random_state=42).fit(digits.X_train, digits.y_train)
    losses = [row["loss"] for row in net.history_]
    assert all(after < before for before, after in itertools.pairwise(losses))
    assert losses[-1] < 0.5 * fixed[-1].history_[-1]["loss"]
    assert net.score(digits.X_test, digits.y_test) > fixed.score(digits.X_test, digits.y_test) + 0.05
    assert np.abs(net.filters_[0] - net.initial_filters_[0]).max() > 0.1


def test_the_first_steps_of_the_head_are_those_of_a_classifier_on_random_features(small):
    """Up to single precision, and with features in the order of the training: loss and filters are the same."""
    images, labels = (given[:50] for given in small)  # classes of unequal size: no gradient is 0 up to rounding
    net = make(head_steps=5, max_iter=5, sampler=RoundedSampler()).fit(images, labels)
    features = RandomConvFeatures(n_filters=2, random_state=5).fit(images)
    head = AnnealedClassifier(max_iter=5, tol=0, random_state=5, sampler=RoundedSampler())
    head.fit(features.transform(images)[:, features.network_.order[:-1]], labels)
    penalty = 0.5 * 1e-3 * (net.filters_[0] ** 2).sum()  # filters are regularised too
    found, expected = ([row["loss"] for row in model.history_] for model in (net, head))
    np.testing.assert_allclose(np.array(found) - penalty, expected, rtol=1e-4)
    np.testing.assert_array_equal(net.filters_[0], features.filters_[0])


@pytest.mark.parametrize("bits", [1, 2, 3])
@pytest.mark.parametrize("filter_curvature", ["by_filter", "joint"])
def test_several_layers_are_trained_and_the_loss_never_increases(small, bits, filter_curvature):
    net = make(n_filters=(3, 2), kernel_size=(3, 2), pool_size=(2, 1), bits=bits, filter_curvature=filter_curvature,
               max_iter=16).fit(*small)  # fmt: skip
    assert {row["layer"] for row in net.history_} == {"head", "conv1", "conv2"}
    assert [row["layer"] for row in net.history_[:5]] == ["head", "head", "conv2", "conv1", "head"]
    assert [row["round"] for row in net.history_[:5]] == [1, 1, 1, 1, 2]
    losses = [row["loss"] for row in net.history_]
    assert all(after <= before for before, after in itertools.pairwise(losses))
    for layer in ("conv1", "conv2"):
        rows = [row for row in net.history_ if row["layer"] == layer]
        assert any(row["accepted"] for row in rows)
        problems = 1 if filter_curvature == "joint" else {"conv1": 3, "conv2": 2}[layer]
        assert all(row["solved"] == problems for row in rows)
        assert all(row["lower_bound"] <= row["energy"] for row in rows)  # a certificate for every solve
    assert net.optimality_gap_ == np.inf


def test_only_the_given_layers_are_trained(small):
    net = make(n_filters=(3, 2), kernel_size=2, pool_size=1, layers=[2]).fit(*small)
    np.testing.assert_array_equal(net.filters_[0], net.initial_filters_[0])
    assert not np.array_equal(net.filters_[1], net.initial_filters_[1])
    assert {row["layer"] for row in net.history_} == {"head", "conv2"}


def test_the_head_of_a_fitted_network_is_a_classifier_on_its_features(small):
    images, labels = small
    net = make(n_filters=(3, 2), kernel_size=2, pool_size=1, standardize="pixels").fit(images, labels)
    pipeline = net.to_pipeline()
    np.testing.assert_array_equal(pipeline.predict_proba(images), net.predict_proba(images))
    assert isinstance(pipeline[-1], AnnealedClassifier)
    np.testing.assert_array_equal(pipeline[-1].coef_, net.coef_)


def test_flattened_images_and_images_with_channels_give_the_same_network(small):
    images, labels = small
    net = make().fit(images, labels)
    assert_same(make(image_shape=(7, 7, 2)).fit(images.reshape(60, -1), labels), net)
    grey = images[..., :1]
    assert_same(make().fit(grey[..., 0], labels), make().fit(grey, labels))
    assert_same(make().fit(grey.reshape(60, -1), labels), make().fit(grey, labels))
    np.testing.assert_array_equal(net.predict(images), net.predict(images.reshape(60, -1)))


def test_two_classes_have_one_output(small):
    images, labels = small
    two = labels != "row"
    net = make(max_iter=12).fit(images[two], labels[two])
    assert net.coef_.shape[0] == 1
    assert net.decision_function(images).shape == (60,)
    assert net.score(images[two], labels[two]) > 0.9


def test_integer_weights_are_repeated_images(small):
    images, labels = small
    times = np.arange(60) % 3
    settings = {"max_iter": 6, "curvature_rows": None, "sampler": RoundedSampler()}
    weighted = make(**settings).fit(images, labels, sample_weight=times.astype(float))
    repeated = make(**settings).fit(np.repeat(images, times, axis=0), np.repeat(labels, times))
    assert weighted.history_[-1]["loss"] == pytest.approx(repeated.history_[-1]["loss"], rel=1e-4)
    np.testing.assert_allclose(weighted.filters_[0], repeated.filters_[0], atol=1e-3)


def test_shifted_copies_are_trained_on(small):
    images, labels = small
    net = make(shifts=1).fit(images, labels)
    assert net.history_[0]["accuracy"] != make().fit(images, labels).history_[0]["accuracy"]
    # The accuracy is a share of five times the images.
    share = net.history_[-1]["accuracy"] * 300
    assert share == pytest.approx(round(share), abs=1e-9)


def test_pixels_are_standardised_by_the_training_images(small):
    images, labels = small
    net = make(standardize="pixels").fit(images, labels)
    np.testing.assert_allclose(net.features_.pixel_scaler_.mean_, images.reshape(60, -1).mean(axis=0))
    # Training is in single precision, and prediction in double: the same network.
    right = (net.predict(images) == labels).mean()
    assert net.history_[-1]["accuracy"] == pytest.approx(right, abs=1 / 60)


def test_the_images_in_use_grow_and_their_loss_never_increases(small):
    net = make(first_images=10, max_iter=24, curvature_rows=30).fit(*small)
    rows = net.history_
    assert [row["images"] for row in rows] == [10] * 6 + [20] * 6 + [40] * 6 + [60] * 6
    assert all(row["loss_change"] <= 0 for row in rows)
    for before, after in itertools.pairwise(rows):
        if before["images"] == after["images"]:
            assert after["loss"] <= before["loss"]
    share = rows[0]["accuracy"] * 10
    assert share == pytest.approx(round(share), abs=1e-9)
    loss, _ = make().loss_and_start(*small)
    filters = np.column_stack([net.filters_[0].transpose(0, 2, 3, 1).reshape(2, -1), net.biases_[0]])
    weights = {"conv1": filters, "head": np.vstack([net.coef_.T, net.intercept_])}
    assert rows[-1]["loss"] == pytest.approx(loss.at(weights).loss, rel=1e-12)
    assert "images" not in make(max_iter=2).fit(*small).history_[0]


# Damping, curvature, samplers


def test_damping_is_recorded_and_can_be_set(small):
    net = make(max_iter=12).fit(*small)
    recorded = [row["damping"] for row in net.history_ if row["layer"] == "conv1"]
    assert recorded[0] == LevenbergMarquardt().first()
    assert len(set(recorded)) > 1
    assert all(row["damping"] is None for row in net.history_ if row["layer"] == "head")
    fixed = make(damping=0.3).fit(*small)
    assert {row["damping"] for row in fixed.history_ if row["layer"] == "conv1"} == {0.3}
    assert "damping" not in make(damping="none").fit(*small).history_[0]


def test_an_own_filter_curvature(small):
    class Identity:
        def __call__(self, layer):
            curvature = Curvature(0.1 * np.eye(layer.n_parameters))
            return lambda point: [curvature]

    net = make(filter_curvature=Identity(), damping="none", max_iter=12).fit(*small)
    assert any(row["accepted"] for row in net.history_ if row["layer"] == "conv1")


def qpu(topology):
    pytest.importorskip("dwave.system")
    return QPUSampler(MockQPU(topology, seed=1), num_reads=20, backoff_seconds=0)


def test_training_on_a_mock_device(small):
    """Filters of 3×3 pixels and two channels at one bit have 19 variables each; the head's classes have 9."""
    net = make(bits=1, max_iter=6, sampler=qpu("P16")).fit(*small)
    assert all(row["calls"] == 1 and row["access_seconds"] > 0 for row in net.history_)  # all filters in one call
    losses = [row["loss"] for row in net.history_]
    assert all(after <= before for before, after in itertools.pairwise(losses))
    assert any(row["accepted"] for row in net.history_ if row["layer"] == "conv1")


def test_a_layer_that_does_not_fit_a_device_is_refused_before_anything_is_paid_for(small):
    """73 parameters at 3 bits are 219 variables, and the chip takes 180; the head, of 2 parameters, would fit."""
    images, labels = small
    net = AnnealedConvNet(n_filters=1, kernel_size=6, pool_size=2, bits=3, sampler=qpu("P16"), random_state=0)
    with pytest.raises(SamplerError, match="219 variables"):
        net.fit(images, labels)
    assert not hasattr(net, "coef_")


def test_the_first_problems_are_the_heads(small):
    problems = make(bits=2).problems(*small)
    assert len(problems) == 3
    assert problems.n_parameters == 2 * 2 * 2 + 1


def test_later_problems_are_those_of_the_filters(small):
    net = make(bits=2)
    problems = net.problems(*small, after=2)  # after two steps of the head
    assert len(problems) == 2
    assert problems.n_parameters == 3 * 3 * 2 + 1
    row = make(bits=2, max_iter=3, sampler=RoundedSampler()).fit(*small).history_[-1]
    again = make(bits=2, sampler=RoundedSampler()).problems(*small, after=2)
    assert row["range"] == pytest.approx(float(again.ranges.mean()))
    with pytest.raises(InvalidInputError, match="after"):
        net.problems(*small, after=-1)


def test_the_cost_of_a_step_is_known_before_it(small):
    assert make().preflight(*small) is None  # no device
    cost = make(bits=1, sampler=qpu("P16")).preflight(*small)
    assert cost.calls == 2  # one for the classes, one for the filters
    assert cost.access_seconds > 0


# Stopping and resuming


@pytest.mark.parametrize("stop_at", [1, 3, 7])
@pytest.mark.parametrize(
    "settings",
    [{}, {"first_images": 30}, {"n_filters": (2, 2), "kernel_size": 2, "pool_size": (2, 1)}],
    ids=str,
)
def test_stopped_and_resumed_is_uninterrupted(small, tmp_path, settings, stop_at):
    path = tmp_path / "c.safetensors"
    settings = {**settings, "curvature_rows": 30}
    whole = make(**settings).fit(*small)
    stop = [lambda iteration: iteration.row["iteration"] == stop_at]
    make(checkpoint=path, callbacks=stop, **settings).fit(*small)
    assert_same(make(checkpoint=Checkpoint(path, resume=True), **settings).fit(*small), whole)


@pytest.mark.parametrize("change", [{"n_filters": 3}, {"head_steps": 3}, {"shifts": 1}, {"damping": 0.2}], ids=str)
def test_a_checkpoint_of_another_network_is_refused(small, tmp_path, change):
    path = tmp_path / "c.safetensors"
    make(checkpoint=path, max_iter=2).fit(*small)
    with pytest.raises(CheckpointError, match="belongs to another training"):
        make(checkpoint=Checkpoint(path, resume=True), **change).fit(*small)
    images, labels = small
    with pytest.raises(CheckpointError, match="training data"):
        make(checkpoint=Checkpoint(path, resume=True)).fit(images + 0.01, labels)


def test_the_size_of_a_checkpoint_does_not_depend_on_the_number_of_images(small, tmp_path):
    images, labels = small
    sizes = []
    for times in (1, 20):
        path = tmp_path / f"{times}.safetensors"
        make(checkpoint=path, max_iter=4).fit(np.tile(images, (times, 1, 1, 1)), np.tile(labels, times))
        sizes.append(path.stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 64  # numbers as text differ in length


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_keeps_the_weights_reached(small, tmp_path):
    net = make(max_iter=100_000, patience=None, checkpoint=tmp_path / "c.safetensors")
    begun = threading.Event()
    net.set_params(callbacks=[lambda iteration: begun.set()])

    def interrupt():
        begun.wait(60)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        net.fit(*small)
    thread.join()
    assert net.stop_reason_ == "interrupted"
    assert len(net.history_) == net.n_iter_ >= 1
    again = Checkpoint(tmp_path / "c.safetensors", resume=True)
    resumed = make(max_iter=net.n_iter_ + 1, patience=None, checkpoint=again).fit(*small)
    assert_same(resumed, make(max_iter=net.n_iter_ + 1, patience=None).fit(*small))


def test_early_stopping_keeps_the_best_filters_and_head(digits):
    net = make(n_filters=4, max_iter=60, validation_fraction=0.25, early_stopping=True, patience=10)
    net.fit(digits.X_train, digits.y_train)
    best = max(net.history_, key=lambda row: (row["validation_accuracy"], -row["validation_loss"]))
    assert net.best_iteration_ == best["iteration"] < len(net.history_)
    # A training up to that iteration gives the same network.
    again = make(n_filters=4, max_iter=net.best_iteration_, validation_fraction=0.25)
    again.fit(digits.X_train, digits.y_train)
    np.testing.assert_array_equal(again.filters_[0], net.filters_[0])
    np.testing.assert_array_equal(again.coef_, net.coef_)


def test_every_step_is_evaluated_on_the_validation_data(small):
    images, labels = small
    net = make().fit(images[:45], labels[:45], validation_data=(images[45:], labels[45:]))
    right = (net.predict(images[45:]) == labels[45:]).mean()
    assert net.history_[-1]["validation_accuracy"] == pytest.approx(right)
    probabilities = net.predict_proba(images[45:])
    expected = -np.log(probabilities[np.arange(15), np.searchsorted(net.classes_, labels[45:])]).mean()
    assert net.history_[-1]["validation_loss"] == pytest.approx(expected, rel=1e-4)


def test_a_warm_start_continues_with_the_filters(small):
    net = make(warm_start=True).fit(*small)
    before = net.history_[-1]["loss"]
    net.fit(*small)
    assert net.history_[0]["loss"] <= before * (1 + 1e-6)
    with pytest.raises(InvalidInputError, match="warm_start=True continues a training of filters"):
        net.set_params(n_filters=3).fit(*small)


# Files


@pytest.mark.parametrize(
    "settings",
    [{}, {"damping": 0.3}, {"standardize": "pixels", "n_filters": [2, 3], "kernel_size": 2, "pool_size": 1}],
    ids=str,
)
def test_a_saved_network_is_loaded_as_it_was(small, tmp_path, settings):
    images, labels = small
    net = make(sampler=RoundedSampler(), **settings).fit(images, labels)
    net.save(tmp_path / "net.safetensors")
    loaded = AnnealedConvNet.load(tmp_path / "net.safetensors")
    assert_same(loaded, net)
    np.testing.assert_array_equal(loaded.predict_proba(images), net.predict_proba(images))
    assert loaded.get_params()["n_filters"] == net.n_filters
    assert loaded.filter_method == net.filter_method
    assert loaded.sampler == net.sampler
    assert loaded.n_features_in_ == net.n_features_in_ == 98
    pipeline = loaded.to_pipeline()
    np.testing.assert_array_equal(pipeline.predict_proba(images), net.predict_proba(images))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(net)).predict(images), net.predict(images))


def test_other_files_are_refused(small, tmp_path, blobs):
    AnnealedClassifier(max_iter=2, random_state=0).fit(*blobs).save(tmp_path / "clf.safetensors")
    make(max_iter=2).fit(*small).save(tmp_path / "net.safetensors")
    with pytest.raises(FileFormatError, match=r"AnnealedClassifier\.load"):
        AnnealedConvNet.load(tmp_path / "clf.safetensors")
    with pytest.raises(FileFormatError, match=r"AnnealedConvNet\.load"):
        AnnealedClassifier.load(tmp_path / "net.safetensors")


def test_inconsistent_tensors_are_refused(small):
    tensors, manifest = make(max_iter=2).fit(*small).to_tensors()
    with pytest.raises(FileFormatError, match="coef has the shape"):
        AnnealedConvNet.from_tensors({**tensors, "coef": np.ones((3, 5))}, manifest)
    with pytest.raises(FileFormatError, match="features"):
        AnnealedConvNet.from_tensors({n: t for n, t in tensors.items() if n != "features.filters.0"}, manifest)


# Conventions of scikit-learn, and invalid settings


def test_clone_grid_search_and_settings_of_the_sampler(digits):
    net = make(max_iter=6)
    assert clone(net).get_params() == net.get_params()
    grid = {"bits": [1, 2], "sampler__num_reads": [1, 2]}
    search = GridSearchCV(net, grid, cv=2).fit(digits.X_train[:100], digits.y_train[:100])
    assert search.best_estimator_.sampler.num_reads in (1, 2)
    assert search.best_estimator_.predict(digits.X_test).shape == (200,)
    before = net.filter_method
    assert clone(net).set_params(filter_method__damping=0.5).filter_method.damping == 0.5
    assert net.filter_method is before
    assert AnnealedConvNet().set_params(filter_method__head_steps=3).filter_method == FilterMethod(head_steps=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": [3]}, "layers is .*layers from 1 to 1"),
        ({"layers": "none"}, "layers is 'none'"),
        ({"layers": 1}, "layers is 1"),
        ({"layers": ()}, r"layers is empty.*use make_pipeline\(RandomConvFeatures"),
        ({"head_steps": 0}, "head_steps is 0"),
        ({"shifts": -1}, "shifts is -1"),
        ({"curvature_rows": 0}, "curvature_rows is 0"),
        ({"first_images": 0}, "first_images is 0"),
        ({"damping": -1.0}, "damping is -1.0"),
        ({"damping": "much"}, "damping is 'much'; choose one of 'adaptive', 'none'"),
        ({"filter_curvature": "gram"}, "filter_curvature is 'gram'; choose one of 'by_filter', 'joint'"),
        ({"standardize": "features"}, "use 'pixels'"),
        ({"kernel_size": 9}, "layer 1: the kernel"),
        ({"bits": 0}, "bits is 0"),
    ],
)
def test_invalid_settings_are_refused(small, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        make(**settings).fit(*small)


def test_a_filter_method_is_no_word(small):
    with pytest.raises(InvalidInputError, match="filter_method is 'by_filter'; pass a FilterMethod, or None"):
        AnnealedConvNet(filter_method="by_filter").fit(*small)


def test_invalid_data_are_refused(small):
    images, labels = small
    with pytest.raises(InvalidInputError, match="needs labels"):
        make().fit(images)
    with pytest.raises(InvalidInputError, match="not on rows"):
        make().fit(InMemoryRows(images.reshape(60, -1), np.arange(60) % 3, 3))
    with pytest.raises(InvalidInputError, match="not square grey images"):
        make().fit(images.reshape(60, -1), labels)
    with pytest.raises(ValueError, match="inconsistent"):
        make().fit(images, labels[:-1])
    with pytest.raises(ValueError, match="NaN"):
        make().fit(np.where(images > 0.99, np.nan, images), labels)
    with pytest.raises(InvalidInputError, match="one class only"):
        make().fit(images, ["a"] * 60)
    with pytest.raises(NotFittedError):
        make().predict(images)
    with pytest.raises(InvalidInputError, match="images have shape"):
        make(max_iter=1).fit(images, labels).predict(images[:, :5])
