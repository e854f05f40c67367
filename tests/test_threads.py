"""Threads that do not fight: how many are used, by whom, and that nothing is left changed."""

import os
import subprocess
import sys
import threading

import joblib
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from annealfit import AnnealedClassifier
from annealfit._support import threads
from annealfit._support.threads import WORTH_THREADS, blas_threads, processors
from annealfit.samplers import SimulatedAnnealer


def blas_limits():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture
def two_processors(monkeypatch):
    monkeypatch.setattr(threads, "_cpu_count", lambda process: 2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with threadpool_limits(2, user_api="blas"):
        yield


def test_small_products_run_on_one_thread_and_large_ones_on_as_many_as_there_are(two_processors):
    before = blas_limits()
    with blas_threads(WORTH_THREADS / 2):
        assert set(blas_limits()) == {1}
        with blas_threads(WORTH_THREADS * 2):  # a large product inside small work
            assert blas_limits() == before
        assert set(blas_limits()) == {1}
    with blas_threads(WORTH_THREADS * 2):
        assert blas_limits() == before
    assert blas_limits() == before


def test_never_more_than_was_allowed():
    with threadpool_limits(1, user_api="blas"):
        with blas_threads(WORTH_THREADS * 2):
            assert set(blas_limits()) == {1}
        assert set(blas_limits()) == {1}


def test_the_limit_comes_back_after_an_error(two_processors):
    before = blas_limits()
    with pytest.raises(ZeroDivisionError), blas_threads(1):
        raise ZeroDivisionError
    assert blas_limits() == before


def test_of_several_threads_the_smallest_wish_holds_and_the_last_one_out_restores(two_processors):
    before, inside, leave = blas_limits(), threading.Event(), threading.Event()
    seen = []

    def other():
        with blas_threads(1):
            inside.set()
            leave.wait(10)
            seen.append(blas_limits())

    thread = threading.Thread(target=other)
    with blas_threads(WORTH_THREADS * 2):
        assert blas_limits() == before
        thread.start()
        assert inside.wait(10)
        assert set(blas_limits()) == {1}
    leave.set()
    thread.join()
    assert set(seen[0]) == {1}  # still at work when the first one was done
    assert blas_limits() == before


def test_a_thread_that_somebody_else_started_is_one_of_many(two_processors):
    assert processors() == 2
    with joblib.parallel_config(backend="threading"):
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(processors)() for _ in range(2)) == [1, 1]


@pytest.mark.parametrize(("given", "expected"), [("1", 1), ("2", 2), ("64", 2), ("1,4", 1), ("", 2), ("many", 2)])
def test_the_share_that_a_worker_is_told(two_processors, monkeypatch, given, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert processors() == expected


@pytest.mark.parametrize("backend", ["multiprocessing", "loky"])
def test_workers_of_any_kind_do_not_multiply_themselves(backend):
    with joblib.parallel_config(backend=backend):
        counts = joblib.Parallel(n_jobs=2)(joblib.delayed(processors)() for _ in range(2))
    assert max(counts) <= max(joblib.cpu_count() // 2, 1)


def printed_with_threads(program, *variables):
    """What a program prints where these variables say one thread, and two; the same is there once."""
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **dict.fromkeys(variables, str(count))},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for count in (1, 2)
    }


def test_a_training_on_small_rows_gives_the_same_bits_with_any_number_of_threads():
    """Also what it leaves behind: the process's limits are as they were."""
    program = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "import hashlib\n"
        "from threadpoolctl import threadpool_info\n"
        "from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset\n"
        "data = load_dataset('digits', seed=42)\n"
        "X = RandomConvFeatures(n_filters=8, random_state=42).fit_transform(data.X_train)\n"
        "limits = lambda: [library['num_threads'] for library in threadpool_info()]\n"
        "before = limits()\n"
        "clf = AnnealedClassifier.from_paper(20, 'matched').set_params(max_iter=20, random_state=0)\n"
        "print(hashlib.sha256(clf.fit(X, data.y_train).coef_.tobytes()).hexdigest(), limits() == before)\n"
    )
    found = printed_with_threads(program, "OPENBLAS_NUM_THREADS")
    assert len(found) == 1
    assert found.pop().endswith("True\n")


COPIED_ROWS = """
import hashlib
import numpy as np
from annealfit import AnnealedClassifier
generator = np.random.default_rng(0)
for n_rows, n_features, n_classes in ((6000, 250, 3), (40000, 300, 20)):
    X = generator.standard_normal((n_rows, n_features))
    y = (X[:, :n_classes] + generator.gumbel(size=(n_rows, n_classes))).argmax(axis=1)
    fitted = AnnealedClassifier(max_iter=3, tol=0, random_state=0).fit(X, y)
    print(hashlib.sha256(fitted.coef_.tobytes()).hexdigest())
"""


def test_rows_copied_to_single_precision_give_the_same_bits_with_any_number_of_threads():
    assert len(printed_with_threads(COPIED_ROWS, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")) == 1


def test_anneals_do_not_depend_on_threads(blobs):
    fit = lambda count: AnnealedClassifier(  # noqa: E731
        max_iter=5, random_state=0, sampler=SimulatedAnnealer(num_reads=20, num_threads=count)
    ).fit(*blobs)
    np.testing.assert_array_equal(fit(1).coef_, fit(2).coef_)
