"""What the page opens with: one plain sentence, and a dot plot of the benchmark, the paper against ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from annealfit.studies.paper_tables import paper_table
from annealfit.studies.records import CLASSICAL, Record
from annealfit.studies.report.cells import NEAR_POINTS, Group, dataset_title, groups, method_title, presets_of
from annealfit.studies.report.comparisons import contender_bits

PAPER_TITLE = "Layer-wise QUBO-Based Training of CNN Classifiers for Quantum Annealing"
PAPER_AUTHORS = "Mostafa Atallah and Rebekah Herrman"
PAPER_NUMBER = "arXiv:2603.02958"
PAPER_LINK = "https://arxiv.org/abs/2603.02958"


@dataclass(frozen=True)
class Dot:
    """Test accuracies in percent of one method on one data set: ours over seeds, and the paper's where it has one."""

    method: str
    preset: str | None
    bits: int  # 0 for a method without
    mean: float
    lowest: float
    highest: float
    paper: float | None


def dots_by_dataset(records: Sequence[Record]) -> dict[str, list[Dot]]:
    """The classical baseline and each preset's most bits, for every data set."""
    paper = _paper_percents()
    found: dict[str, list[Dot]] = {}
    for group in groups(records):
        if not group.departure and _stands_for_its_preset(group):
            found.setdefault(group.spec.dataset, []).append(_dot(group, paper))
    return found


def _stands_for_its_preset(group: Group) -> bool:
    return group.spec.method == CLASSICAL or (
        group.spec.bits is not None and group.spec.bits == contender_bits(group.spec.preset)
    )


def _dot(group: Group, paper: dict[tuple[str, str], float]) -> Dot:
    percents = [100 * record.test["accuracy"] for record in group.records]
    return Dot(
        method_title(group.spec.label),
        group.spec.preset,
        group.spec.bits or 0,
        float(np.mean(percents)),
        min(percents),
        max(percents),
        paper.get((group.spec.dataset, group.spec.label)),
    )


def _paper_percents() -> dict[tuple[str, str], float]:
    found = {("digits", row["method"]): float(row["test_accuracy_percent"]) for row in paper_table("digits")}
    return found | {
        (row["dataset"], row["method"]): float(row["mean_percent"])
        for row in paper_table("benchmark")
        if row["metric"] == "test_accuracy"
    }


def opening_sentence(records: Sequence[Record]) -> str:
    """What a reader should take away, counted from the records."""
    sets = list(dots_by_dataset(records).values())
    parts = []
    if "annealfit" in presets_of(records):
        parts.append(_against_sgd(sets))
    printed = [_against_paper(sets, preset) for preset in presets_of(records) if preset != "annealfit"]
    if any(printed):
        share = " and ".join(filter(None, printed))
        parts.append(f"the paper's 20 bits come within {NEAR_POINTS:g} points of its own test accuracy on {share}")
    told = "; ".join(filter(None, parts))
    return f"Image classifiers whose weights are found by annealing{': ' + told if told else ''}."


def _against_sgd(sets: Sequence[Sequence[Dot]]) -> str:
    pairs = []
    for dots in sets:
        ours = next((dot for dot in dots if dot.preset == "annealfit"), None)
        sgd = next((dot for dot in dots if dot.preset is None), None)
        if ours is not None and sgd is not None:
            pairs.append(ours.mean > sgd.mean)
    bits = contender_bits("annealfit")
    return f"with {bits} bits each they test better than SGD on {_counted(pairs)}" if pairs else ""


def _against_paper(sets: Sequence[Sequence[Dot]], preset: str) -> str:
    close = [
        abs(dot.mean - dot.paper) <= NEAR_POINTS
        for dots in sets
        for dot in dots
        if dot.preset == preset and dot.paper is not None
    ]
    return f"{_counted(close)} ({preset})" if close else ""


def _counted(answers: Sequence[bool]) -> str:
    """How many are true, in words.

    >>> _counted([True, False]), _counted([True, True]), _counted([False]), _counted([True])
    ('1 of 2 data sets', 'all 2 data sets', '0 of 1 data set', 'the one data set that was run')
    """
    if list(answers) == [True]:
        return "the one data set that was run"
    noun = "data set" if len(answers) == 1 else "data sets"
    return f"all {len(answers)} {noun}" if all(answers) else f"{sum(answers)} of {len(answers)} {noun}"


def dot_panels(records: Sequence[Record]) -> list[tuple[str, list[Dot]]]:
    """The dots under the titles of their data sets."""
    return [(dataset_title(name), dots) for name, dots in dots_by_dataset(records).items()]
