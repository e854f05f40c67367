"""The paper's tables and figures as lists of runs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib import resources

from annealfit._support.errors import choose
from annealfit.studies.records import CLASSICAL, NETWORK_METHODS, OPTIMUM, RunSpec

SEEDS = (42, 43, 44, 45, 46)
BITS = (5, 10, 15, 20)  # the paper's
OUR_BITS = (1, 2, 3)
BENCHMARK_DATASETS = ("mnist", "fashion_mnist", "cifar10", "emnist", "kmnist")
STUDY_SWEEPS = 1000  # of the study of digits; the benchmark has 100
STUDIED_RANGES = (0.1, 0.25, 0.5, 1.0)
STUDIED_STEPS = (0.25, 0.5, 1.0)

# Which runs each table needs. Tables without runs of their own are made from the problem sizes.
TABLES = ("digits", "sizes", "predictions", "benchmark", "recall", "times", "filters", "hardware")


def digits_runs(preset: str, seeds: Sequence[int] = SEEDS) -> list[RunSpec]:
    """The precision study, its convergence curves and sample predictions, and the studies of δ and α."""
    runs = [RunSpec("digits", method, seed) for seed in seeds for method in (CLASSICAL, OPTIMUM)]
    bits = OUR_BITS if preset == "annealfit" else BITS
    sweeps = None if preset == "annealfit" else STUDY_SWEEPS
    runs += [RunSpec("digits", "qubo", seed, preset, k, sweeps) for seed in seeds for k in bits]
    if preset != "annealfit":
        most = max(bits)
        runs += [RunSpec("digits", "qubo", s, preset, most, update_range=r) for s in seeds for r in STUDIED_RANGES]
        runs += [RunSpec("digits", "qubo", s, preset, most, step=a) for s in seeds for a in STUDIED_STEPS]
    return runs


def benchmark_runs(preset: str, seeds: Sequence[int] = SEEDS) -> list[RunSpec]:
    """Five data sets × seeds × methods: the consolidated table, per-class recall, times, wins, loss-raising updates."""
    bits = OUR_BITS if preset == "annealfit" else BITS
    runs = []
    for dataset in BENCHMARK_DATASETS:
        for seed in seeds:
            runs += [RunSpec(dataset, CLASSICAL, seed)]
            runs += [RunSpec(dataset, "qubo", seed, preset, k) for k in bits]
    return runs


def filters_runs(seeds: Sequence[int] = SEEDS) -> list[RunSpec]:
    """What the paper leaves to the future: its six data sets with filters that are trained, whatever the preset."""
    datasets = ("digits", *BENCHMARK_DATASETS)
    return [RunSpec(dataset, method, seed) for dataset in datasets for seed in seeds for method in NETWORK_METHODS]


def runs_of(tables: Sequence[str], preset: str, seeds: Sequence[int] = SEEDS) -> list[RunSpec]:
    """The runs of these tables, each once."""
    wanted: dict[RunSpec, None] = {}
    for table in tables:
        choose("table", table, TABLES)
        if table in ("digits", "predictions"):
            wanted |= dict.fromkeys(digits_runs(preset, seeds))
        elif table in ("benchmark", "recall", "times"):
            wanted |= dict.fromkeys(benchmark_runs(preset, seeds))
        elif table == "filters":
            wanted |= dict.fromkeys(filters_runs(seeds))
    return list(wanted)


def paper_table(name: str) -> list[dict[str, str]]:
    """The paper's numbers as text, a table of them by the name of its file in `paper_numbers`.

    >>> paper_table("qubo_size")[0]
    {'bits': '5', 'logical_variables': '95', 'quadratic_terms': '4465'}
    """
    path = resources.files("annealfit.studies") / "paper_numbers" / f"{name}.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
