"""The evidence for the published images: recalls of the paper's baseline under many readings of its data.

Accuracy is one number, and many images and filters give it. The recalls of ten classes are a fingerprint of both. A
`Reading` is one way to make the images and filters of a row of the benchmark; the classical baseline is trained on it,
and its recalls are compared with those of the row. Random filter banks say how good a match chance gives.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.files import read_json, write_json
from annealfit._support.threads import blas_threads
from annealfit.data.datasets import Dataset, DataWarning, is_available, load_dataset
from annealfit.data.features import RandomConvFeatures
from annealfit.studies import training_run
from annealfit.studies.execute import REGULARIZATION, in_processes
from annealfit.studies.paper_tables import BENCHMARK_DATASETS, SEEDS
from annealfit.studies.records import CLASSICAL
from annealfit.studies.report import tables
from annealfit.studies.report.drawing import save_figure
from annealfit.studies.report.figures import draw_evidence
from annealfit.studies.report.tables import Cell, Column, Row, Table
from annealfit.studies.training_run import Prepared

FILE, FIGURE = "evidence.json", "evidence.png"
N_BANKS = 100  # random banks in place of the published one
PUBLISHED, PER_SEED, STATED = "published bank", "a bank for each seed", "stated filters"
_BANK_SEED, _LIMIT = 42, np.sqrt(6 / 11)  # of the published bank


@dataclass(frozen=True)
class Reading:
    """One way to make the images and the filters of a row of the paper's benchmark."""

    row: str
    title: str
    images: str = "published"
    resize: str = "zoom"  # of stated images, which come from the official training and test files
    transposed: bool = False
    filters: str = PUBLISHED

    @property
    def source(self) -> str:
        """The data set whose files it needs."""
        return "digits" if (self.row, self.images) == ("mnist", "published") else self.row


def readings() -> list[Reading]:
    """The published reading of every row, and what else the row could have been."""
    found = []
    for row in BENCHMARK_DATASETS:
        found += [Reading(row, "published"), Reading(row, "filters drawn for each seed", filters=PER_SEED)]
        if row == "mnist":
            resizes = ("zoom", "area", "bilinear", "nearest")
            found += [Reading(row, f"real MNIST, {resize}", "stated", resize) for resize in resizes]
        else:
            found += [Reading(row, "official test file", "stated", transposed=row == "emnist")]
        if row == "emnist":
            found += [Reading(row, "letters upright", transposed=True)]
        found += [Reading(row, "as the text says", "stated", "area", filters=STATED)]
    return found


@lru_cache(maxsize=2)
def _images(reading: Reading, seed: int) -> Dataset:
    stated: dict[str, Any] = {"resize": reading.resize, "color": reading.row == "cifar10" and reading.resize == "zoom"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the command line says it once
        options = stated if reading.images == "stated" else {}
        data = load_dataset(reading.row, seed=seed, images=reading.images, **options)
    parts = (part.mean(axis=3) if part.ndim == 4 else part for part in (data.X_train, data.X_test))  # grey by the mean
    X_train, X_test = (part.swapaxes(1, 2) if reading.transposed else part for part in parts)
    return replace(data, X_train=X_train, X_test=X_test)


def recalls(reading: Reading, seed: int, bank: int = _BANK_SEED) -> NDArray[np.float64]:
    """Test recalls (C,) of the classical baseline; `bank` is the seed of the one filter bank."""
    with blas_threads(0):
        data = _images(reading, seed)
        features = RandomConvFeatures(filters="published").fit(data.X_train)
        if reading.filters == STATED:
            features = RandomConvFeatures(random_state=seed).fit(data.X_train)
        elif reading.filters == PER_SEED or bank != _BANK_SEED:
            generator = np.random.RandomState(seed if reading.filters == PER_SEED else bank)
            shape = features.filters_[0].shape
            features = features.with_filters([generator.uniform(-_LIMIT, _LIMIT, size=shape)], features.biases_)
        prepared = Prepared(data, features, features.transform(data.X_train), features.transform(data.X_test))
        fitted = training_run.fit_sgd(prepared, REGULARIZATION, seed)
        return training_run.measure(prepared, CLASSICAL, fitted).recall


def collect(
    folder: Path,
    n_jobs: int = -1,
    on_training: Callable[[int, int], Any] = lambda done, total: None,
    *,
    n_banks: int = N_BANKS,
    seeds: Sequence[int] = SEEDS,
) -> dict[str, Any]:
    """Return the evidence stored in the folder, or collect and store it, and draw its figure.

    Readings whose data set has no files are left out. `on_training` gets how many trainings are done, and of how many.
    """
    if (stored := read(folder)) is not None:
        return stored
    there = [reading for reading in readings() if is_available(reading.source)]
    rows = [reading for reading in there if reading.title == "published"]
    banks = [_BANK_SEED, *(bank for bank in range(n_banks + 1) if bank != _BANK_SEED)][: n_banks + 1]
    jobs = [(reading, seed, _BANK_SEED) for reading in there for seed in seeds]
    jobs += [(reading, seeds[0], bank) for reading in rows for bank in banks]
    found: list[NDArray[np.float64]] = []
    for outcome in in_processes(recalls, jobs, n_jobs, ordered=True):
        found.append(100 * outcome)
        on_training(len(found), len(jobs))
    means = np.reshape(found[: len(there) * len(seeds)], (len(there), len(seeds), -1)).mean(axis=1)
    of_banks = np.reshape(found[len(there) * len(seeds) :], (len(rows), len(banks), -1))
    compared = [[_compare(row, ours)["difference"] for ours in own] for row, own in zip(rows, of_banks, strict=True)]
    published, *others = np.mean(compared, axis=0).tolist()  # over rows
    evidence = {
        "readings": [_compare(reading, own) for reading, own in zip(there, means, strict=True)],
        "banks": {"rows": len(rows), "published": published, "random": others},
        "seeds": list(seeds),
        "missing": sorted({reading.source for reading in readings()} - {reading.source for reading in there}),
    }
    write_json(folder / FILE, evidence)
    save_figure(draw_evidence(evidence), folder / FIGURE)
    return evidence


def _compare(reading: Reading, ours: NDArray[np.float64]) -> dict[str, Any]:
    papers = [tables.paper_numbers()[reading.row, CLASSICAL, f"class_{label}_percent"][0] for label in range(len(ours))]
    difference, correlation = tables.fit_of_recalls(list(zip(ours.tolist(), papers, strict=True)))
    told = {"row": reading.row, "reading": reading.title, "recalls": ours.tolist(), "paper": papers}
    return {**told, "difference": difference, "correlation": correlation}


def read(folder: Path) -> dict[str, Any] | None:
    """Return the evidence stored in a folder; None without it."""
    if not (folder / FILE).exists():
        return None
    found = read_json(folder / FILE, "evidence of reproduce; delete it to go on")
    return {name: entry.value for name, entry in found.entries().items()}


def table(evidence: Mapping[str, Any]) -> Table:
    """A row for each row of the paper and each reading of it: recalls, their mean difference and correlation."""

    def row(entry: Mapping[str, Any], reading: str, recalls: Sequence[float]) -> Row:
        words = {"dataset": Cell(tables.dataset_title(entry["row"])), "reading": Cell(reading)}
        return words | {f"class_{label}": Cell(f"{value:.0f}", value) for label, value in enumerate(recalls)}

    rows: list[Row] = []
    for entry in evidence["readings"]:
        if entry["reading"] == "published":
            rows.append(row(entry, "the paper", entry["paper"]))
        rows.append(
            row(entry, entry["reading"], entry["recalls"])
            | tables.recall_cells(entry["difference"], entry["correlation"])
        )
    notes = [chance(evidence), *tables.layouts()["evidence"]["notes"]]
    if evidence["missing"]:
        notes.insert(0, f"Without their files, left out: {', '.join(map(tables.dataset_title, evidence['missing']))}.")
    return tables.make_table(
        "evidence", rows, [Column(f"class_{label}", str(label), True) for label in range(10)], notes
    )


def chance(evidence: Mapping[str, Any]) -> str:
    """How unlikely the match of the published bank is among random banks, in words."""
    banks = evidence["banks"]
    published, others = banks["published"], np.array(banks["random"])
    return str(tables.layouts()["evidence"]["chance"]).format(
        banks=len(others),
        rows=banks["rows"],
        published=published,
        least=others.min(),
        most=others.max(),
        median=np.median(others),
        closer=int((others <= published).sum()),
        away=(others.mean() - published) / others.std(ddof=1),
    )
