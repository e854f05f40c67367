"""Run what is not yet done, and store every record as it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from annealfit.experiments.backends import Backend
from annealfit.experiments.records import Record, Store
from annealfit.experiments.spec import RunSpec


@dataclass(frozen=True)
class Tally:
    """How many runs were there already, were done now, and failed."""

    already: int
    done: int
    failed: int


def run_all(
    specs: Sequence[RunSpec],
    store: Store,
    backend: Backend,
    on_record: Callable[[Record], None] = lambda record: None,
) -> Tally:
    """Carry out the runs that have no record without an error, and store each record in one step.

    So it can be killed at any moment and started again, and two at once on one folder only do some work twice.
    """
    store.remove_leftovers()
    store.ask(specs)
    todo = [spec for spec in specs if not store.is_done(spec)]
    failed = 0
    # Runs of one data set and seed stay together: a worker that has the images keeps them for the next method.
    for record in backend(sorted(todo, key=lambda spec: (spec.dataset, spec.seed))) if todo else ():
        store.save(record)
        failed += record.error is not None
        on_record(record)
    return Tally(already=len(specs) - len(todo), done=len(todo) - failed, failed=failed)
