"""The family on the rehearsal device: its problems fit a chip, and answers with noise are used."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

pytest.importorskip("dwave.system")

from annealfit import (
    QUBOSVC,
    AnnealedRBM,
    BinaryMatrixFactorization,
    BinarySparseCoding,
    QBoostClassifier,
    QUBORidgeClassifier,
)
from annealfit.samplers import MockQPU, QPUSampler

X, y = make_blobs(24, n_features=5, centers=2, cluster_std=1.5, random_state=0)
X = (X - X.min()) / np.ptp(X)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of couplings below the noise


def device() -> QPUSampler:
    return QPUSampler(MockQPU("P16", seed=1), num_reads=20, backoff_seconds=0)


@pytest.mark.parametrize(
    "model",
    [QUBORidgeClassifier(max_iter=3), QUBOSVC(bits=1), QBoostClassifier(n_estimators=6)],
    ids=lambda model: type(model).__name__,
)
def test_classifiers_learn_on_the_device(model):
    sampler = device()
    model.set_params(sampler=sampler, random_state=0).fit(X, y)
    assert sampler.access_seconds > 0
    assert model.score(X, y) >= 0.9


@pytest.mark.parametrize(
    "model",
    [BinarySparseCoding(6, max_iter=2), BinaryMatrixFactorization(4, max_iter=2)],
    ids=lambda model: type(model).__name__,
)
def test_codes_of_the_device_are_nearly_those_of_the_default(model):
    """The device adds noise to the problems, so a few bits of 24 codes may differ."""
    model.set_params(random_state=0).fit(X)
    codes = model.transform(X)
    sampler = device()
    found = model.set_params(sampler=sampler).transform(X)
    assert sampler.access_seconds > 0
    assert set(np.unique(found)) <= {0.0, 1.0}
    assert (found == codes).mean() > 0.8


def test_a_boltzmann_machine_takes_all_reads_of_the_device():
    sampler = device()
    machine = AnnealedRBM(4, max_iter=2, sampler=sampler, random_state=0).fit(X > 0.5)
    assert sampler.access_seconds > 0
    assert machine.n_solves_ > 0
    assert np.isfinite(machine.components_).all()
