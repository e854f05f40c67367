"""The paper's tables and figures as lists of runs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from itertools import product

from annealfit._support.errors import choose
from annealfit.studies.records import CLASSICAL, NETWORK_METHODS, OPTIMUM, RunSpec

SEEDS = (42, 43, 44, 45, 46)
BITS = (5, 10, 15, 20)  # the paper's
OUR_BITS = (1, 2, 3)
BENCHMARK_DATASETS = ("mnist", "fashion_mnist", "cifar10", "emnist", "kmnist")
STUDY_SWEEPS = 1000  # of the study of digits; the benchmark has 100
STUDIED_RANGES = (0.1, 0.25, 0.5, 1.0)
STUDIED_STEPS = (0.25, 0.5, 1.0)

TABLES = ("digits", "sizes", "predictions", "benchmark", "recall", "times", "filters", "hardware", "evidence", "family")


def bits_of(preset: str) -> tuple[int, ...]:
    """The bits that a preset is run with."""
    return OUR_BITS if preset == "annealfit" else BITS


def digits_runs(preset: str, seeds: Sequence[int] = SEEDS) -> list[RunSpec]:
    """The precision study, its convergence curves and sample predictions, and the studies of δ and α."""
    runs = [RunSpec("digits", method, seed) for seed in seeds for method in (CLASSICAL, OPTIMUM)]
    if preset == "annealfit":
        return runs + [RunSpec("digits", "qubo", seed, preset, bits) for seed in seeds for bits in OUR_BITS]
    runs += [RunSpec("digits", "qubo", seed, preset, bits, STUDY_SWEEPS) for seed in seeds for bits in BITS]
    most = max(BITS)
    runs += [RunSpec("digits", "qubo", s, preset, most, update_range=r) for s in seeds for r in STUDIED_RANGES]
    return runs + [RunSpec("digits", "qubo", s, preset, most, step=a) for s in seeds for a in STUDIED_STEPS]


def benchmark_runs(preset: str, seeds: Sequence[int] = SEEDS) -> list[RunSpec]:
    """Five data sets × seeds × methods: the consolidated table, per-class recall, times, wins, loss-raising updates."""
    runs = []
    for dataset, seed in product(BENCHMARK_DATASETS, seeds):
        runs += [RunSpec(dataset, CLASSICAL, seed)]
        runs += [RunSpec(dataset, "qubo", seed, preset, bits) for bits in bits_of(preset)]
    return runs


def filters_runs(preset: str, seeds: Sequence[int] = SEEDS) -> list[RunSpec]:
    """What the paper leaves to the future: its six data sets with filters that are trained, whatever the preset."""
    chosen = product(("digits", *BENCHMARK_DATASETS), seeds, NETWORK_METHODS)
    return [RunSpec(dataset, method, seed) for dataset, seed, method in chosen]


# The runs of each table; `sizes` and `hardware` are made from the problem sizes, `evidence` and `family` from runs of
# their own.
_RUNS = {
    **dict.fromkeys(("digits", "predictions"), digits_runs),
    **dict.fromkeys(("benchmark", "recall", "times"), benchmark_runs),
    "filters": filters_runs,
}


def runs_of(
    tables: Sequence[str], preset: str, seeds: Sequence[int] = SEEDS, images: str = "published"
) -> list[RunSpec]:
    """The runs of these tables, each once; those of `filters` have the stated images always."""
    for table in tables:
        choose("table", table, TABLES)
    runs = [spec for table in tables if table in _RUNS for spec in _RUNS[table](preset, seeds)]
    return list(
        dict.fromkeys(spec if spec.method in NETWORK_METHODS else replace(spec, images=images) for spec in runs)
    )


def paper_table(name: str) -> list[dict[str, str]]:
    """The paper's numbers as text, a table of them by the name of its file in `paper_numbers`."""
    path = resources.files("annealfit.studies") / "paper_numbers" / f"{name}.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
