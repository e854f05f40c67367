"""Fixtures shared by the tests: small real data, and random problems of every shape."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before SciPy is loaded: one of scikit-learn's checks asks for it

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from annealfit import RandomConvFeatures, load_dataset

# Fixed examples: a red test is red again on the next run. No deadline, because machines differ.
settings.register_profile(
    "annealfit",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("annealfit")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Embeddings are kept in a folder of this run, one for all its workers, and not in the user's cache."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANNEALFIT_CACHE", str(root / "cache"))
        yield


@pytest.fixture(scope="session")
def digits_features() -> tuple[np.ndarray, np.ndarray]:
    data = load_dataset("digits", seed=42)
    return RandomConvFeatures(random_state=42).fit_transform(data.X_train), data.y_train


@pytest.fixture(scope="session")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(7)
    centres = generator.normal(size=(3, 4)) * 2
    labels = np.repeat(np.arange(3), 20)
    return centres[labels] + generator.normal(size=(60, 4)), labels


@pytest.fixture
def interruptible():
    """Ctrl-C as in a terminal, also where the tests run in the background of a shell that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
