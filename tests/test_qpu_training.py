"""Training on a QPU, end to end, on the rehearsal device: real digits, published noise, faults, budget, blocks."""

from __future__ import annotations

import re
import warnings
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("dwave.system")

from annealfit import AnnealedClassifier, Checkpoint, Method, RandomConvFeatures, load_dataset
from annealfit._support.errors import InvalidInputError, SamplerError
from annealfit.data.rows import DenseChunk, Rows
from annealfit.models.baselines import solve_logistic
from annealfit.samplers import BlockSampler, MockQPU, QPUSampler, RoundedSampler
from annealfit.samplers.dwave.mock_qpu import FAULTS

# What an injected fault looks like in the history.
TRACES = {
    "timeout": "TimeoutError",
    "connection": "ConnectionError",
    "refused": "ResourceLimitsExceededError",
    "broken_chains": r"broken chains: \d+%",
    "fewer_reads": "fewer reads than asked",
}
ITERATIONS = 30


class Digits:
    def __init__(self, n_filters: int, n_features: int | None = None) -> None:
        data = load_dataset("digits", seed=42)
        features = RandomConvFeatures(n_filters=n_filters, random_state=42)
        self.X_train = features.fit_transform(data.X_train)[:, :n_features]
        self.X_test = features.transform(data.X_test)[:, :n_features]
        self.y_train, self.y_test = data.y_train, data.y_test

    def train(self, device: MockQPU, **options) -> AnnealedClassifier:
        sampler = QPUSampler(device, num_reads=50, backoff_seconds=0, **options)
        classifier = AnnealedClassifier(bits=2, max_iter=ITERATIONS, tol=0, sampler=sampler, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return classifier.fit(self.X_train, self.y_train)

    def accuracy(self, classifier: AnnealedClassifier) -> float:
        return classifier.score(self.X_test, self.y_test)


@pytest.fixture(scope="module")
def digits() -> Digits:
    return Digits(n_filters=2)


@pytest.fixture(scope="module")
def undisturbed(digits) -> AnnealedClassifier:
    return digits.train(MockQPU("P16", seed=1))


def test_two_bits_on_a_noisy_chip_come_within_three_points_of_the_optimum(digits, undisturbed):
    weights = solve_logistic(digits.X_train, digits.y_train, 1e-3).weights
    best = ((digits.X_test @ weights[:-1] + weights[-1]).argmax(axis=1) == digits.y_test).mean()
    assert digits.accuracy(undisturbed) > best - 0.03
    assert all(row["loss_change"] <= 0 for row in undisturbed.history_)


def test_all_ten_classes_at_two_bits_are_one_call_per_iteration(undisturbed):
    assert [row["calls"] for row in undisturbed.history_] == [1] * ITERATIONS
    assert undisturbed.sampler.device.calls == ITERATIONS
    total = sum(row["access_seconds"] for row in undisturbed.history_)
    assert total == pytest.approx(undisturbed.sampler.access_seconds)


def test_the_papers_twenty_bits_are_refused_with_reason_and_remedy(digits):
    device = MockQPU("P16")
    classifier = AnnealedClassifier.from_paper(bits=20).set_params(sampler=QPUSampler(device), random_state=0)
    with pytest.raises(
        SamplerError, match=r"380 variables .* largest clique is 180; use at most bits=9, or solve in blocks"
    ):
        classifier.fit(digits.X_train, digits.y_train)
    assert device.calls == 0  # nothing was paid for


@pytest.mark.parametrize("faults", [0.2])
def test_a_fifth_of_the_calls_failing_costs_little_and_is_all_in_the_history(digits, undisturbed, faults):
    device = MockQPU("P16", seed=1, faults=faults)
    classifier = digits.train(device)
    assert classifier.n_iter_ == ITERATIONS
    assert digits.accuracy(classifier) > digits.accuracy(undisturbed) - 0.03
    told = "; ".join(row["faults"] for row in classifier.history_)
    counts = {fault: len(re.findall(trace, told)) for fault, trace in TRACES.items()}
    assert counts == {fault: Counter(device.injected)[fault] for fault in FAULTS}
    assert len(device.injected) == sum(row["fault_count"] for row in classifier.history_) > 0


def test_bits_that_will_not_fit_later_are_refused_before_the_first_call(digits):
    device = MockQPU("P16")
    classifier = AnnealedClassifier(
        bits=12, sampler=QPUSampler(device), random_state=0, method=Method(precision_policy="adaptive")
    )
    with pytest.raises(SamplerError, match="228 variables"):
        classifier.fit(digits.X_train, digits.y_train)
    assert device.calls == 0


def test_the_budget_ends_the_training_with_what_was_learnt(digits):
    classifier = digits.train(MockQPU("P16", seed=1), max_access_seconds=0.12)
    assert classifier.stop_reason_ == "budget"
    assert classifier.n_iter_ == 4  # 29 ms per call
    assert classifier.sampler.access_seconds <= 0.12
    assert digits.accuracy(classifier) > 0.5


def test_a_training_on_a_device_is_resumed_with_its_faults(digits, tmp_path):
    path = tmp_path / "training.safetensors"
    options = {"bits": 1, "random_state": 0}

    def sampler(seed):
        return QPUSampler(MockQPU("Z12", seed=seed, faults={"connection": 0.5}), num_reads=10, backoff_seconds=0)

    first = AnnealedClassifier(max_iter=4, sampler=sampler(1), checkpoint=path, **options)
    first.fit(digits.X_train, digits.y_train)
    assert any(row["faults"] for row in first.history_)
    both = AnnealedClassifier(max_iter=8, sampler=sampler(2), checkpoint=Checkpoint(path, resume=True), **options)
    both.fit(digits.X_train, digits.y_train)
    assert both.history_[:4] == first.history_
    assert both.n_iter_ == 8
    both.save(tmp_path / "model.safetensors")
    loaded = AnnealedClassifier.load(tmp_path / "model.safetensors")
    assert loaded.history_ == both.history_
    assert loaded.sampler.describe() == both.sampler.describe()


def test_128_features_train_in_blocks_and_the_loss_falls_every_time():
    digits = Digits(n_filters=15, n_features=128)
    device = MockQPU("P16", seed=3)
    qpu = QPUSampler(device, num_reads=25)
    classifier = AnnealedClassifier(bits=2, max_iter=8, sampler=BlockSampler(qpu, max_variables=38), random_state=0)
    with pytest.raises(SamplerError, match="258 variables"):
        AnnealedClassifier(bits=2, sampler=qpu).fit(digits.X_train, digits.y_train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier.fit(digits.X_train, digits.y_train)
    losses = [row["loss"] for row in classifier.history_]
    assert all(np.diff(losses) < 0)
    assert losses[0] < np.log(10)
    assert device.calls == 8 * 7  # seven blocks, all ten classes of each in one call
    assert digits.accuracy(classifier) > 0.85


class CountedRows(Rows):
    """Streamed rows that count the passes over them."""

    n_parameters, n_classes, passes = 5, 2, 0

    @property
    def classes(self):
        return np.arange(2)

    def chunks(self):
        self.passes += 1
        generator = np.random.default_rng(0)
        yield DenseChunk(generator.normal(size=(40, 4)), generator.integers(0, 2, 40))


def test_preflight_reads_rows_only_for_a_sampler_with_costs():
    def passes(sampler):
        rows = CountedRows()
        cost = AnnealedClassifier(bits=1, sampler=sampler).preflight(rows)
        assert (cost is None) == (rows.passes == 0)
        return rows.passes

    qpu = QPUSampler(MockQPU("Z12"), num_reads=5)
    assert [passes(sampler) for sampler in (None, RoundedSampler(), BlockSampler(RoundedSampler(), 3))] == [0, 0, 0]
    assert passes(qpu) > 0
    assert passes(BlockSampler(qpu, 3)) > 0
    with pytest.raises(InvalidInputError, match="bits is 0"):  # settings are checked all the same
        AnnealedClassifier(bits=0).preflight(CountedRows())
