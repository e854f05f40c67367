"""The paper's tables and figures as lists of runs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from functools import partial
from importlib import resources
from itertools import product

from annealfit._support.errors import choose
from annealfit.studies.records import CLASSICAL, NETWORK_METHODS, OPTIMUM, RunSpec

SEEDS = (42, 43, 44, 45, 46)
BITS = (5, 10, 15, 20)  # the paper's
OUR_BITS = (1, 2, 3)
BENCHMARK_DATASETS = ("mnist", "fashion_mnist", "cifar10", "emnist", "kmnist")
DATASETS = ("digits", *BENCHMARK_DATASETS)
STUDY_SWEEPS = 1000  # of the study of digits; the benchmark has 100
STUDIED_RANGES = (0.1, 0.25, 0.5, 1.0)
STUDIED_STEPS = (0.25, 0.5, 1.0)

TABLES = ("digits", "sizes", "predictions", "benchmark", "recall", "times", "filters", "hardware", "evidence", "family")


def bits_of(preset: str) -> tuple[int, ...]:
    """The bits that a preset is run with."""
    return OUR_BITS if preset == "annealfit" else BITS


def digits_runs(preset: str, seeds: Sequence[int] = SEEDS, images: str = "stated") -> list[RunSpec]:
    """The precision study, its convergence curves and sample predictions, and the studies of δ and α."""
    run = partial(RunSpec, "digits", images=images)
    runs = [run(method, seed) for seed in seeds for method in (CLASSICAL, OPTIMUM)]
    if preset == "annealfit":
        return runs + [run("qubo", seed, preset, bits) for seed in seeds for bits in OUR_BITS]
    runs += [run("qubo", seed, preset, bits, STUDY_SWEEPS) for seed in seeds for bits in BITS]
    runs += [run("qubo", seed, preset, max(BITS), update_range=r) for seed in seeds for r in STUDIED_RANGES]
    return runs + [run("qubo", seed, preset, max(BITS), step=step) for seed in seeds for step in STUDIED_STEPS]


def benchmark_runs(preset: str, seeds: Sequence[int] = SEEDS, images: str = "stated") -> list[RunSpec]:
    """Five data sets × seeds × methods: the consolidated table, per-class recall, times, wins, loss-raising updates."""
    runs = []
    for dataset, seed in product(BENCHMARK_DATASETS, seeds):
        runs += [RunSpec(dataset, CLASSICAL, seed, images=images)]
        runs += [RunSpec(dataset, "qubo", seed, preset, bits, images=images) for bits in bits_of(preset)]
    return runs


def filters_runs(seeds: Sequence[int] = SEEDS) -> list[RunSpec]:
    """What the paper leaves to the future: its six data sets, of stated images, with filters that are trained."""
    chosen = product(DATASETS, seeds, NETWORK_METHODS)
    return [RunSpec(dataset, method, seed) for dataset, seed, method in chosen]


def runs_of(
    tables: Sequence[str],
    preset: str,
    seeds: Sequence[int] = SEEDS,
    images: str = "published",
    is_there: Callable[[str], bool] = lambda dataset: True,
) -> list[RunSpec]:
    """The runs of these tables, each once; `evidence` and `family` leave out data sets that are not there."""
    from annealfit.studies import evidence, family

    runs = list[RunSpec]()
    for table in tables:
        match choose("table", table, TABLES):
            case "digits" | "predictions":
                runs += digits_runs(preset, seeds, images)
            case "benchmark" | "recall" | "times":
                runs += benchmark_runs(preset, seeds, images)
            case "filters":
                runs += filters_runs(seeds)
            case "evidence":
                runs += [spec for spec in evidence.runs(seeds) if is_there(spec.source)]
            case "family":
                runs += [spec for spec in family.runs(seeds, images) if is_there(spec.source)]
    return list(dict.fromkeys(runs))


def paper_table(name: str) -> list[dict[str, str]]:
    """The paper's numbers as text, a table of them by the name of its file in `paper_numbers`."""
    path = resources.files("annealfit.studies") / "paper_numbers" / f"{name}.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
