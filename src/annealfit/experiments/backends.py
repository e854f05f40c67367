"""Where runs are carried out: on this machine's processors, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from joblib import Parallel, delayed

from annealfit.errors import require
from annealfit.experiments.execute import execute
from annealfit.experiments.records import Record
from annealfit.experiments.spec import RunSpec

Backend = Callable[[Sequence[RunSpec]], Iterator[Record]]


def on_this_machine(n_jobs: int = -1, data_dir: str | None = None) -> Backend:
    """A process for every processor (−1), or this many; records come as they are finished."""

    def run(specs: Sequence[RunSpec]) -> Iterator[Record]:
        parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
        return parallel(delayed(execute)(spec, data_dir) for spec in specs)

    return run


def on_dask(address: str, data_dir: str | None = None) -> Backend:
    """The workers of an existing Dask cluster, which must have annealfit and the data sets' files.

    A worker that is lost costs the time of its runs; the scheduler gives them to another.
    """

    def run(specs: Sequence[RunSpec]) -> Iterator[Record]:
        distributed = require("distributed", extra="dask", purpose="running on a Dask cluster")
        with distributed.Client(address, set_as_default=False) as client:
            futures = [client.submit(execute, spec, data_dir, key=f"annealfit-{spec.id}", retries=3) for spec in specs]
            for future in distributed.as_completed(futures, loop=client.loop):
                yield future.result()

    return run
