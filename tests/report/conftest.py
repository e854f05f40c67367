"""A run folder with plausible records: two data sets, two seeds, a failed run, hostile names, two of stated images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from annealfit.studies.paper_tables import STUDY_SWEEPS
from annealfit.studies.records import Record, RunSpec, Store

HOSTILE_NAME = "<img src=x onerror=alert(1)>"
HOSTILE_ENDING = "</script><b>bold</b>"
HOSTILE_ERROR = "ValueError: </script><script>alert(2)</script> & $x_1$"
CLASS_NAMES = {
    "mnist": (HOSTILE_NAME, HOSTILE_ENDING, "=1+1", *map(str, range(3, 10))),
    "digits": tuple(map(str, range(10))),
}
FAILED = RunSpec("mnist", "qubo", 43, "literal", 20, images="published")


def specs() -> list[RunSpec]:
    found = []
    for seed in (42, 43):
        found += [RunSpec("digits", "classical", seed), RunSpec("digits", "optimum", seed)]
        found += [RunSpec("digits", "qubo", seed, "matched", bits, STUDY_SWEEPS) for bits in (5, 20)]
        found += [RunSpec("digits", "qubo", seed, "matched", 20, update_range=0.1)]
        found += [RunSpec("digits", "qubo", seed, "annealfit", 3), RunSpec("mnist", "classical", seed)]
        found += [RunSpec("mnist", "qubo", seed, preset, 20) for preset in ("literal", "matched")]
        found += [RunSpec("mnist", "qubo", seed, "annealfit", 3)]
        found += [RunSpec("mnist", "qubo", seed, "matched", 20, max_iter=7)]
    return [replace(spec, images="published") for spec in found] + [
        RunSpec("mnist", "classical", 42),
        RunSpec("mnist", "qubo", 42, "matched", 20),
    ]


def accuracy(spec: RunSpec) -> float:
    """Of ten test images per class: 8 right, less with few bits or as printed, and one more with the odd seed."""
    right = {None: 7, "literal": 1, "matched": 2 if spec.bits == 5 else 8, "annealfit": 8}[spec.preset]
    return (right + (spec.seed - 42) * (spec.preset != "annealfit")) / 10


def make_record(spec: RunSpec) -> Record:
    if spec == FAILED:
        return Record(spec.label, spec, error=HOSTILE_ERROR, environment={"python": "3.11"})
    share = accuracy(spec)
    right = round(10 * share)
    confusion = right * np.eye(10, dtype=np.int64) + (10 - right) * np.roll(np.eye(10, dtype=np.int64), 1, axis=1)
    metrics = dict.fromkeys(("accuracy", "precision", "recall", "f1", "kappa", "mcc"), share)
    generator = np.random.default_rng(spec.seed)
    n = 20 + spec.seed - 42
    history = {}
    if spec.method != "optimum":
        history = {
            "iteration": np.arange(1, n + 1),
            "loss": np.geomspace(3, 1, n),
            "cross_entropy": np.geomspace(2.5, 0.8, n),
            "accuracy": np.linspace(0.1, share, n),
            "seconds": np.linspace(0, 2.0 + spec.seed - 42, n),
        }
    if spec.method == "qubo":
        rises = np.where(np.arange(n) % 4 == 0, 0.01, -0.02)
        history |= {"loss_change": rises, "gap": np.geomspace(1, 0.01, n), "lower_bound": np.full(n, -0.5)}
    probabilities = np.full((10, 10), (1 - share) / 9)
    np.fill_diagonal(probabilities, share)
    return Record(
        spec.label,
        spec,
        class_names=CLASS_NAMES[spec.dataset],
        loss=1.0,
        cross_entropy=0.8,
        seconds=2.0 + spec.seed - 42,
        train=metrics,
        test=metrics,
        confusion=confusion,
        history=history,
        sample_images=generator.random((10, 8, 8)),
        sample_labels=np.arange(10),
        sample_probabilities=probabilities,
        environment={"annealfit": "0.1.0", "python": "3.11"},
    )


@pytest.fixture(scope="session")
def records() -> list[Record]:
    return [make_record(spec) for spec in specs()]


@pytest.fixture(scope="session")
def run_folder(records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for record in records:
        Store(folder).save(record)
    return folder
