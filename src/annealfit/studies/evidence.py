"""The evidence for the published images: recalls of the paper's baseline under many readings of its data.

Accuracy is one number, and many images and filters give it. The recalls of ten classes are a fingerprint of both. A
reading is one way to make the images and filters of a row of the benchmark; the classical baseline is trained on it,
and its recalls are compared with those of the row. Random filter banks say how good a match chance gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from annealfit.studies.paper_tables import BENCHMARK_DATASETS
from annealfit.studies.records import CLASSICAL, Record, RunSpec
from annealfit.studies.report import drawing, tables
from annealfit.studies.report.tables import Cell, Row

PAPER, PUBLISHED, PER_SEED = "the paper", "published", "filters drawn for each seed"
BANKS = tuple(bank for bank in range(101) if bank != 42)  # seeds of random filter banks; the published one has 42


def readings(row: str, seed: int) -> dict[str, RunSpec]:
    """The baseline on the published reading of a row, and on what else the row could have been, by title."""
    published, stated = RunSpec(row, CLASSICAL, seed, images=PUBLISHED), RunSpec(row, CLASSICAL, seed)
    found = {PUBLISHED: published, PER_SEED: replace(published, bank=seed)}
    if row == "mnist":
        resizes = ("zoom", "area", "bilinear", "nearest")
        found |= {f"real MNIST, {resize}": replace(stated, resize=resize) for resize in resizes}
    else:
        found["official test file"] = replace(stated, resize="zoom", transposed=row == "emnist")
    if row == "emnist":
        found["letters upright"] = replace(published, transposed=True)
    return found | {"as the text says": stated}


def runs(seeds: Sequence[int]) -> list[RunSpec]:
    """The readings of all rows on all seeds, and random banks on the first."""
    specs = [spec for row in BENCHMARK_DATASETS for seed in seeds for spec in readings(row, seed).values()]
    first = RunSpec("", CLASSICAL, min(seeds), images=PUBLISHED)
    return specs + [replace(first, dataset=row, bank=bank) for row in BENCHMARK_DATASETS for bank in BANKS]


@dataclass(frozen=True)
class Evidence:
    """Mean recalls by row and reading, and how far those of banks are from the paper's, in the mean of some rows."""

    recalls: dict[str, dict[str, list[float]]]  # in percent, the paper's too
    n_rows: int
    published_bank: float
    random_banks: list[float]


def compare(records: Iterable[Record]) -> Evidence:
    """Compare the recalls of the baselines among the records with the paper's."""
    ours = {record.run: 100 * record.recall for record in records if record.error is None}
    numbers = tables.paper_numbers()
    papers = {
        r: [numbers[r, CLASSICAL, f"class_{label}_percent"][0] for label in range(10)] for r in BENCHMARK_DATASETS
    }
    recalls: dict[str, dict[str, list[float]]] = {}
    for row, theirs in papers.items():
        found: dict[str, list[Any]] = {}
        for seed in sorted({spec.seed for spec in ours}):
            for title, spec in readings(row, seed).items():
                found.setdefault(title, []).extend([ours[spec]] if spec in ours else [])
        means = {title: np.mean(own, axis=0).tolist() for title, own in found.items() if own}
        recalls |= {row: {PAPER: theirs, **means}} if means else {}

    first = min((spec.seed for spec in ours if spec.bank is not None), default=0)

    def distances(bank: int | None) -> list[float]:
        specs = [replace(readings(row, first)[PUBLISHED], bank=bank) for row in papers]
        return [float(np.abs(ours[spec] - papers[spec.dataset]).mean()) for spec in specs if spec in ours]

    published = distances(None)
    others = [distances(bank) for bank in BANKS]
    means_of_others = [float(np.mean(own)) for own in others if own and len(own) == len(published)]
    return Evidence(recalls, len(published), float(np.mean(published or [np.nan])), means_of_others)


def rows(records: Sequence[Record]) -> list[Row]:
    """A row for each row of the paper and each reading of it: recalls, their mean difference and correlation."""
    found = list[Row]()
    for row, recalls in compare(records).recalls.items() if any(record.run.is_reading for record in records) else ():
        for title, own in recalls.items():
            cells = {"dataset": Cell(tables.dataset_title(row)), "reading": Cell(title)}
            cells |= {f"class_{label}": Cell(f"{value:.0f}", value) for label, value in enumerate(own)}
            fit = {} if title == PAPER else tables.recall_cells([*zip(own, recalls[PAPER], strict=True)])
            found.append(cells | fit)
    return found


def notes(records: Sequence[Record]) -> list[str]:
    """What the table does not show: what is missing, how likely the match is by chance, and what is not known."""
    found = compare(records)
    every = [(row, title, spec) for row in BENCHMARK_DATASETS for title, spec in readings(row, 0).items()]
    lacking = sorted({spec.source for row, title, spec in every if title not in found.recalls.get(row, ())})
    names = ", ".join(map(tables.dataset_title, lacking))
    told = [f"Left out, or not run yet: {names}. Data sets whose files are not here are left out."] if lacking else []
    return told + ([chance(found)] if found.random_banks else []) + tables.layouts()["evidence"]["notes"]


def chance(found: Evidence) -> str:
    """How unlikely the match of the published bank is among random banks, in words."""
    others = np.array(found.random_banks)
    return str(tables.layouts()["evidence"]["chance"]).format(
        banks=len(others),
        rows=found.n_rows,
        published=found.published_bank,
        least=others.min(),
        most=others.max(),
        median=np.median(others),
        closer=int((others <= found.published_bank).sum()),
        away=(others.mean() - found.published_bank) / others.std(ddof=1),
    )


def draw(records: Sequence[Record]) -> Any:
    """Left: recalls of the paper's MNIST row and of readings of it. Right: how close banks come."""
    found = compare(records)
    figure = drawing.make_figure(figsize=(11, 4.2))
    recalls, banks = figure.subplots(1, 2)
    of_mnist = found.recalls.get("mnist", {})
    shown = [title for title in (PAPER, PUBLISHED, PER_SEED, "real MNIST, zoom") if title in of_mnist]
    for title, colour, marker in zip(shown, (drawing.INK, *drawing.SERIES), drawing.MARKERS, strict=False):
        style = {"color": colour, "marker": marker, "linewidth": 2.2 if title == PAPER else 1.2}
        recalls.plot(range(10), of_mnist[title], label=title, **style)
    banks.hist(found.random_banks, bins=20, color=drawing.FAINT, label=f"{len(found.random_banks)} random banks")
    banks.axvline(found.published_bank, color=drawing.SERIES[0], linewidth=2)
    label = "Recall of the classical baseline, %"
    drawing.dress(recalls, xlabel="Class of the row that the paper calls MNIST", ylabel=label)
    recalls.set_xticks(range(10))
    label = f"Mean difference from the paper's recalls over {found.n_rows} rows, points"
    drawing.dress(banks, xlabel=label, ylabel="Random filter banks")
    banks.set_xlim(left=0)
    handles = [handle for panel in (recalls, banks) for handle in panel.get_legend_handles_labels()[0]]
    drawing.legend_below(figure, handles)
    return figure
