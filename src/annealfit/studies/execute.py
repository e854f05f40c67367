"""Carry out runs on this machine or a Dask cluster, and store every record as soon as it is there."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning

from annealfit._support.errors import AnnealfitError, require
from annealfit._support.files import remove_leftovers
from annealfit._support.threads import blas_threads
from annealfit.data.datasets import Dataset, DataWarning, load_dataset
from annealfit.data.features import RandomConvFeatures
from annealfit.models import AnnealedConvNet
from annealfit.studies import family, records
from annealfit.studies.records import Record, RunSpec, Store
from annealfit.studies.training_run import (
    Fitted,
    Prepared,
    environment,
    fit_frozen_network,
    fit_network_by_adam,
    fit_optimum,
    fit_sgd,
    measure,
)
from annealfit.training.trainer import is_interrupt

REGULARIZATION = 1e-3  # the paper's λ, for every method
_SIZES: dict[str, Any] = {"n_filters": 2, "kernel_size": 3, "pool_size": 2}  # of the paper's network
_LIMIT = np.sqrt(6 / 11)  # of the weights of the published bank, and of random ones in its place
_PARENT_CHECK_SECONDS = 0.5


def execute(spec: RunSpec) -> Record:
    """Return the record of a run; an error becomes a record too, so that the other runs go on.

    Linear algebra uses one thread: runs are what is parallel, and the last bits of a sum must not depend on the number
    of processors.
    """
    try:
        with blas_threads(0), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the record says how far a run came
            if spec.model is not None:
                return family.train(spec, _load(spec.baseline))
            prepared = _prepare(spec.baseline)
            data, net = (
                prepared.dataset,
                AnnealedConvNet(**_SIZES, regularization=REGULARIZATION, random_state=spec.seed),
            )
            match spec.method:
                case records.CLASSICAL:
                    fitted = fit_sgd(prepared, REGULARIZATION, spec.seed)
                case records.OPTIMUM:
                    fitted = fit_optimum(prepared, REGULARIZATION)
                case records.FROZEN_NETWORK:
                    fitted = fit_frozen_network(data, net)
                case records.TRAINED_NETWORK:
                    fitted = Fitted.of(net.fit(data.X_train, data.y_train))
                case records.ADAM_NETWORK:
                    fitted = fit_network_by_adam(data, net)
                case _:
                    fitted = Fitted.of(spec.classifier().fit(prepared.X_train, data.y_train))
            record = measure(prepared if fitted.features is None else data, spec.label, fitted, spec)
            return replace(record, history={}) if spec.is_reading else record  # of hundreds, whose recalls are enough
    except Exception as error:
        if is_interrupt(error):  # not a fault of the run
            raise KeyboardInterrupt from error
        told = f"{type(error).__name__}: {error}"
        return Record(spec.label, spec, error=told, environment=environment())


@lru_cache(maxsize=4)  # runs on the same images and filters follow each other
def _load(baseline: RunSpec) -> Dataset:
    how: Any = {"resize": baseline.resize, "color": baseline.dataset == "cifar10"} if baseline.resize else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the command line says it once, for all runs
        data = load_dataset(baseline.dataset, seed=baseline.seed, images=baseline.images, **how)
    parts = [part.mean(axis=3) if part.ndim == 4 else part for part in (data.X_train, data.X_test)]  # grey by the mean
    X_train, X_test = (part.swapaxes(1, 2) if baseline.transposed else part for part in parts)
    return replace(data, X_train=X_train, X_test=X_test)


@lru_cache(maxsize=4)
def _prepare(baseline: RunSpec) -> Prepared:
    data = _load(replace(baseline, bank=None))
    if baseline.images == "stated" and baseline.resize is None:
        return Prepared.of(data, RandomConvFeatures(**_SIZES, random_state=baseline.seed))
    features = RandomConvFeatures(**_SIZES, filters="published").fit(data.X_train)
    if baseline.bank is not None:
        drawn = np.random.RandomState(baseline.bank).uniform(-_LIMIT, _LIMIT, features.filters_[0].shape)
        features = features.with_filters([drawn], features.biases_)
    return Prepared.of(data, features, fit=False)


class LostWorkerError(AnnealfitError, RuntimeError):
    """A worker process ended before its runs were done."""


def on_this_machine(specs: Sequence[RunSpec], n_jobs: int = -1) -> Iterator[Record]:
    """Execute runs in `n_jobs` processes; −1 is one per processor."""
    settings = {"backend": "loky", "initializer": _end_with_parent, "initargs": (os.getpid(),)}
    jobs = Parallel(n_jobs, return_as="generator_unordered", batch_size=1, **settings)
    try:
        yield from map(execute, specs) if n_jobs == 1 else jobs(delayed(execute)(spec) for spec in specs)
    except BrokenExecutor as error:
        raise LostWorkerError(
            "a worker process was ended from outside, by the system if memory ran out; what is done is stored: "
            "start it again to go on, with fewer --jobs if memory is short"
        ) from error


def _end_with_parent(parent: int) -> None:
    """End this worker once its parent is gone: a killed parent cannot stop its workers."""

    def watch() -> None:
        while os.getppid() == parent:  # the system gives an orphan another parent
            time.sleep(_PARENT_CHECK_SECONDS)
        os._exit(1)

    if os.name == "posix" and os.getpid() != parent:
        threading.Thread(target=watch, name="annealfit-parent-watch", daemon=True).start()


def on_dask(specs: Sequence[RunSpec], address: str) -> Iterator[Record]:
    """Execute runs on the workers of a Dask cluster, which need annealfit and the files of the data sets."""
    distributed = require("distributed", extra="dask", purpose="running on a Dask cluster")
    lost = distributed.KilledWorker, distributed.client.FutureCancelledError, distributed.comm.CommClosedError
    with distributed.Client(address, set_as_default=False) as client:
        # The scheduler gives the runs of a lost worker to another one.
        futures = [client.submit(execute, spec, key=f"annealfit-{spec.id}", retries=3) for spec in specs]
        try:
            for future in distributed.as_completed(futures, loop=client.loop):
                yield future.result()
        except lost as error:
            raise LostWorkerError(
                f"the Dask cluster at {address} lost what it was working on ({type(error).__name__}: {error}); "
                "what is done is stored: start it again to go on"
            ) from error


@dataclass(frozen=True)
class Tally:
    """How many runs had a record already, were done now, and failed."""

    already: int
    done: int
    failed: int


def run_all(
    specs: Sequence[RunSpec],
    store: Store,
    backend: Callable[[Sequence[RunSpec]], Iterable[Record]] = on_this_machine,
    on_record: Callable[[Record], None] = lambda record: None,
) -> Tally:
    """Carry out the runs that have no record without an error, and store each record at once.

    It can be killed at any moment and started again; two processes on one folder only do some work twice.
    """
    remove_leftovers(store.folder / "records")
    store.ask(specs)
    todo = [spec for spec in specs if not store.is_done(spec)]
    failed = 0
    # Runs of one data set and seed stay together: a worker keeps the images for the next method.
    for record in backend(sorted(todo, key=lambda spec: repr(spec.baseline))) if todo else ():
        store.save(record)
        failed += record.error is not None
        on_record(record)
    return Tally(already=len(specs) - len(todo), done=len(todo) - failed, failed=failed)
