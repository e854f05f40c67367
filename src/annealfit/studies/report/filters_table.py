"""The table of what the paper leaves to the future: filters that are trained too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from annealfit.studies.records import ADAM_NETWORK, FROZEN_NETWORK, TRAINED_NETWORK, Record
from annealfit.studies.report.cells import (
    DATASET_COLUMNS,
    RUNS_COLUMN,
    Cell,
    Column,
    Group,
    Table,
    count_cell,
    dataset_title,
    groups,
    loss_cell,
    percent_cell,
    seconds_cell,
    text_cell,
)

_METHODS = {FROZEN_NETWORK: "frozen", TRAINED_NETWORK: "QUBO", ADAM_NETWORK: "Adam"}


def filters_table(records: Sequence[Record]) -> Table:
    """Test accuracy, loss and time of one network: filters frozen, trained by QUBOs, trained by Adam."""
    by_dataset: dict[str, dict[str, Group]] = {}
    for group in groups(records, networks=True):
        by_dataset.setdefault(group.spec.dataset, {})[group.spec.method] = group
    rows = []
    for dataset, found in by_dataset.items():
        seeds = min(len(group.records) for group in found.values())
        tests = [_cell(found, method, lambda group: percent_cell(_tests(group))) for method in _METHODS]
        losses = [_cell(found, method, lambda group: loss_cell(_losses(group))) for method in _METHODS]
        seconds = [_cell(found, method, lambda group: seconds_cell(_seconds(group))) for method in _METHODS]
        rows.append((text_cell(dataset_title(dataset)), count_cell(seeds), *tests, *losses, *seconds))
    columns = [
        Column(f"{method}_{name}", f"{title}, {word}", True)
        for name, title in (("test_percent", "Test accuracy"), ("loss", "Loss"), ("seconds", "Seconds"))
        for method, word in _METHODS.items()
    ]
    caption = (
        "The paper's network (2 filters of 3×3, 8×8 images, λ = 0.001), mean ± sample standard deviation over seeds. "
        "Frozen: the head alone, 3 bits. QUBO: 200 turns, a QUBO of 3 bits for every filter and every class; the loss "
        "falls at every turn. Adam: about 2,000 steps from the same weights on the same loss. The paper names this as "
        "its future work and has no numbers."
    )
    return Table("filters", "Filters trained too", caption, (*DATASET_COLUMNS, RUNS_COLUMN, *columns), tuple(rows))


def _cell(found: dict[str, Group], method: str, make: Callable[[Group], Cell]) -> Cell:
    return make(found[method]) if method in found else Cell("–")


def _tests(group: Group) -> list[float]:
    return [record.test["accuracy"] for record in group.records]


def _losses(group: Group) -> list[float]:
    return [record.loss for record in group.records]


def _seconds(group: Group) -> list[float]:
    return [record.seconds for record in group.records]
