"""What tables are made of: cells with the paper's number beside ours, and groups of runs that differ in their seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from annealfit.studies.paper_tables import BITS, STUDY_SWEEPS
from annealfit.studies.records import CLASSICAL, NETWORK_METHODS, OPTIMUM, RUN_PRESETS, Record, RunSpec

NEAR_POINTS = 5.0  # a percentage this close to the paper's counts as reproduced
NEAR_SHARE = 0.10  # so does a loss within this share of the paper's
DATASET_TITLES = {
    "digits": "Digits",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "emnist": "EMNIST",
    "kmnist": "KMNIST",
}


@dataclass(frozen=True)
class Cell:
    """One entry: what a reader sees, and the raw numbers behind it.

    `verdict` is "near" or "far" from the paper, "better" where the difference is good news, or empty.
    """

    text: str
    value: float | str | None = None
    spread: float | None = None
    paper: float | str | None = None
    paper_text: str = ""
    difference: float | None = None
    difference_text: str = ""
    verdict: str = ""

    @property
    def sort_key(self) -> float | str:
        """What a column is ordered by: the number where there is one."""
        if self.value is None or (isinstance(self.value, float) and math.isnan(self.value)):
            return ""
        return self.value


@dataclass(frozen=True)
class Column:
    """A heading; a compared column also has the paper's number and the difference."""

    name: str
    title: str
    numeric: bool = False
    compared: bool = False


@dataclass(frozen=True)
class Table:
    """A table that knows nothing of how it is shown. The first `headings` cells of a row name the row."""

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    headings: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """The runs that differ in nothing but their seed; failed ones are left out."""

    spec: RunSpec  # of the first seed
    records: tuple[Record, ...]

    @property
    def departure(self) -> str:
        """What sets the runs apart from the paper's or the preset's own settings; empty if nothing does."""
        return departure(self.spec)

    @property
    def preset(self) -> str:
        """The preset's word; a dash where a method has none."""
        return self.spec.preset or "–"


def departure(spec: RunSpec) -> str:
    """What sets a run apart from the settings of the table it belongs to.

    >>> departure(RunSpec("mnist", "qubo", 42, "literal", 20, max_iter=50))
    '50 iterations'
    """
    if spec.method != "qubo":
        return ""
    usual_sweeps = STUDY_SWEEPS if spec.dataset == "digits" and spec.preset != "annealfit" else None
    studied = spec.update_range is not None or spec.step is not None
    parts = [
        f"δ = {spec.update_range:g}" if spec.update_range is not None else "",
        f"α = {spec.step:g}" if spec.step is not None else "",
        f"{spec.num_sweeps or 100} sweeps" if not studied and spec.num_sweeps != usual_sweeps else "",
        f"{spec.max_iter} iterations" if spec.max_iter is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def method_title(label: str) -> str:
    """A method's name for readers.

    >>> method_title("qubo_5")
    'QUBO 5-bit'
    """
    known = {CLASSICAL: "Classical (SGD)", OPTIMUM: "Convex optimum"}
    return known.get(label) or f"QUBO {label.removeprefix('qubo_')}-bit"


def dataset_title(name: str) -> str:
    """A data set's name for readers."""
    return DATASET_TITLES.get(name, name)


def groups(records: Iterable[Record], *, networks: bool = False) -> list[Group]:
    """Finished runs by data set, preset and method, in the paper's order: those of a head, or those of networks."""
    found: dict[RunSpec, list[Record]] = {}
    for record in records:
        if record.error is None and (record.run.method in NETWORK_METHODS) is networks:
            fields = record.run.to_json() | {"seed": 0}
            found.setdefault(RunSpec.from_json(fields), []).append(record)
    ordered = sorted(found, key=_order)
    by_seed: Callable[[Record], int] = lambda record: record.run.seed  # noqa: E731
    return [Group(found[key][0].run, tuple(sorted(found[key], key=by_seed))) for key in ordered]


def _order(spec: RunSpec) -> tuple[Any, ...]:
    names = list(DATASET_TITLES)
    place = names.index(spec.dataset) if spec.dataset in names else len(names)
    presets: list[str | None] = [None, *RUN_PRESETS]
    studied = (spec.update_range or 0, spec.step or 0, spec.max_iter or 0, spec.num_sweeps or 0)
    return (place, spec.dataset, presets.index(spec.preset), spec.bits or 0, spec.method, studied)


def plain_groups(records: Iterable[Record], *, digits: bool) -> list[Group]:
    """The groups of the precision study (digits), or of every other data set; the studies of δ and α are left out."""
    return [
        group
        for group in groups(records)
        if (group.spec.dataset == "digits") is digits and group.spec.update_range is None and group.spec.step is None
    ]


def text_cell(text: str) -> Cell:
    """A cell of words."""
    return Cell(text, text)


def count_cell(count: int, paper: int | None = None) -> Cell:
    """A whole number, which must be the paper's exactly."""
    if paper is None:
        return Cell(f"{count:,}", count)
    difference = count - paper
    return Cell(f"{count:,}", count, None, paper, f"{paper:,}", difference, f"{difference:+,}", near(difference == 0))


def percent_cell(shares: Sequence[float], paper: float | None = None, paper_spread: float | None = None) -> Cell:
    """Mean ± sample standard deviation of shares, in percent; the difference in points.

    >>> percent_cell([0.5, 0.6], paper=52.0).difference_text
    '+3.0'
    """
    mean, spread = _mean_and_spread([100 * share for share in shares])
    text = _with_spread(mean, spread, 1)
    if paper is None:
        return Cell(text, mean, spread)
    difference = mean - paper
    verdict = near(abs(difference) <= NEAR_POINTS)
    return Cell(
        text, mean, spread, paper, _with_spread(paper, paper_spread, 1), difference, signed(difference), verdict
    )


def loss_cell(losses: Sequence[float], paper: float | None = None) -> Cell:
    """Mean ± sample standard deviation of losses."""
    mean, spread = _mean_and_spread(losses)
    text = _with_spread(mean, spread, 3)
    if paper is None:
        return Cell(text, mean, spread)
    difference = mean - paper
    verdict = near(abs(difference) <= NEAR_SHARE * abs(paper))
    return Cell(text, mean, spread, paper, f"{paper:.3f}", difference, signed(difference, 3), verdict)


def seconds_cell(seconds: Sequence[float], paper: float | None = None, paper_spread: float | None = None) -> Cell:
    """Mean ± sample standard deviation of seconds; against the paper a ratio says more than a difference."""
    mean, spread = _mean_and_spread(seconds)
    text = _with_spread(mean, spread, 2 if mean < 10 else 0)
    if paper is None:
        return Cell(text, mean, spread)
    difference = mean - paper
    faster, slower = (paper / mean, mean / paper) if mean > 0 else (math.inf, 0.0)
    ratio = f"{faster:,.0f}× faster" if faster >= 1.5 else f"{slower:.1f}× the time"
    return Cell(text, mean, spread, paper, _with_spread(paper, paper_spread, 0), difference, ratio)


def score_cell(values: Sequence[float], paper_percent: float | None = None, paper_spread: float | None = None) -> Cell:
    """Mean ± sample standard deviation of a score that is no share of anything, as κ; the paper prints it times 100.

    >>> score_cell([0.5, 0.6], paper_percent=52.0).difference_text
    '+0.030'
    """
    mean, spread = _mean_and_spread(values)
    text = _with_spread(mean, spread, 3)
    if paper_percent is None:
        return Cell(text, mean, spread)
    paper = paper_percent / 100
    paper_text = _with_spread(paper, None if paper_spread is None else paper_spread / 100, 3)
    difference = mean - paper
    verdict = near(abs(difference) <= NEAR_POINTS / 100)
    return Cell(text, mean, spread, paper, paper_text, difference, signed(difference, 3), verdict)


def near(is_near: bool) -> str:
    """The verdict of a comparison, in a word."""
    return "near" if is_near else "far"


def _mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    if not len(values):
        return math.nan, None
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def _with_spread(mean: float, spread: float | None, digits: int) -> str:
    if math.isnan(mean):
        return "–"
    return f"{mean:,.{digits}f}".replace("-", "−") + ("" if spread is None else f" ± {spread:,.{digits}f}")


def signed(value: float, digits: int = 1) -> str:
    """A number with its sign, and a real minus."""
    rounded = round(value, digits) + 0.0  # no "-0.0"
    return f"{rounded:+.{digits}f}".replace("-", "−")


def row_names(group: Group, *, dataset: bool = True) -> tuple[Cell, ...]:
    """The cells that name a group's row."""
    method = method_title(group.spec.label) + (f" ({group.departure})" if group.departure else "")
    bits = group.spec.bits or (0 if group.spec.method == CLASSICAL else -1)
    cells = (Cell(method, bits), text_cell(group.preset))
    return (text_cell(dataset_title(group.spec.dataset)), *cells) if dataset else cells


METHOD_COLUMNS = (Column("method", "Method"), Column("preset", "Preset"))
DATASET_COLUMNS = (Column("dataset", "Data set"),)
RUNS_COLUMN = Column("runs", "Seeds", numeric=True)


def coverage(
    records: Sequence[Record], asked: Collection[RunSpec], plan: Callable[[str], list[RunSpec]]
) -> tuple[str, ...]:
    """What a table lacks of the runs that were asked for, preset by preset."""
    done = {record.run for record in records if record.error is None}
    failed = {record.run for record in records if record.error is not None}
    notes = []
    for preset in RUN_PRESETS:
        planned = [spec for spec in plan(preset) if spec in asked or spec in done or spec in failed]
        lost, broken = [s for s in planned if s not in done and s not in failed], [s for s in planned if s in failed]
        if lost or broken:
            notes.append(f"{preset}: of {len(planned)} runs, {len(lost)} are missing and {len(broken)} failed.")
    return tuple(notes)


def presets_of(records: Iterable[Record]) -> list[str]:
    """The presets that were run."""
    seen = {record.run.preset for record in records}
    return [preset for preset in RUN_PRESETS if preset in seen]


def is_papers(group: Group) -> bool:
    """Whether the paper has numbers for these runs."""
    return not group.departure and (group.spec.method == CLASSICAL or group.spec.bits in BITS)
