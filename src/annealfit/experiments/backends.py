"""Where runs are carried out: on this machine's processors, or on a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor

from joblib import Parallel, delayed

from annealfit.errors import AnnealfitError, require
from annealfit.experiments.execute import execute
from annealfit.experiments.records import Record
from annealfit.experiments.spec import RunSpec
from annealfit.experiments.workers import end_with

Backend = Callable[[Sequence[RunSpec]], Iterator[Record]]


class LostWorkerError(AnnealfitError, RuntimeError):
    """A process that did some of the work is gone."""


def on_this_machine(n_jobs: int = -1, data_dir: str | None = None) -> Backend:
    """A process for every processor (−1), or this many; records come as they are finished."""

    def run(specs: Sequence[RunSpec]) -> Iterator[Record]:
        if n_jobs == 1:
            yield from (execute(spec, data_dir) for spec in specs)
            return
        parallel = Parallel(
            n_jobs=n_jobs,
            return_as="generator_unordered",
            batch_size=1,
            backend="loky",
            initializer=end_with,
            initargs=(os.getpid(),),
        )
        try:
            yield from parallel(delayed(execute)(spec, data_dir) for spec in specs)
        except BrokenExecutor as error:
            raise LostWorkerError(
                "a worker process was ended from outside, by the system if memory ran out; what is done is stored: "
                "start it again to go on, with fewer --jobs if memory is short"
            ) from error

    return run


def on_dask(address: str, data_dir: str | None = None) -> Backend:
    """The workers of an existing Dask cluster, which must have annealfit and the data sets' files.

    A worker that is lost costs the time of its runs; the scheduler gives them to another.
    """

    def run(specs: Sequence[RunSpec]) -> Iterator[Record]:
        distributed = require("distributed", extra="dask", purpose="running on a Dask cluster")
        lost = (
            distributed.scheduler.KilledWorker,
            distributed.client.FutureCancelledError,
            distributed.comm.CommClosedError,
        )
        with distributed.Client(address, set_as_default=False) as client:
            futures = [client.submit(execute, spec, data_dir, key=f"annealfit-{spec.id}", retries=3) for spec in specs]
            try:
                for future in distributed.as_completed(futures, loop=client.loop):
                    yield future.result()
            except lost as error:
                raise LostWorkerError(
                    f"the Dask cluster at {address} lost what it was working on ({type(error).__name__}: {error}); "
                    "what is done is stored: start it again to go on"
                ) from error

    return run
