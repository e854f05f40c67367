"""A comparison of samplers as a document, and as a folder of files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from annealfit._support.errors import InvalidInputError, MissingDependencyError
from annealfit._support.files import remove_leftovers, working_in, write_json
from annealfit.problems.export import write
from annealfit.studies import Record, store
from annealfit.studies.report import sampler_figure, success_figure
from annealfit.studies.sampler_study import Comparison, TrainingRow
from annealfit.studies.solving import ProblemSet

COMPARISON_FILE = "comparison.json"


def describe_comparison(found: Comparison) -> dict[str, Any]:
    """The comparison for JSON, with null for what it has no number for: never, or unknown because of a failure."""
    trained = [_training_row(row, found.optimum) for row in found.training]
    document = {
        "problems": [_describe_problems(taken) for taken in found.problem_sets],
        "solving": [asdict(row) for row in found.solving],
        "training": [*trained, _record_row(found.optimum, found.optimum)],
        "notes": list(found.notes),
    }
    return {name: _finite(part) for name, part in document.items()}


def _describe_problems(taken: ProblemSet) -> dict[str, Any]:
    truth = taken.truth
    return {
        "name": taken.name,
        "coordinates": taken.coordinates,
        "bits": taken.bits,
        "after": taken.after,
        "count": len(taken.problems),
        "variables": taken.problems[0].n_variables,
        "lower_bound": float(taken.bounds.sum()),
        "truth": {
            "proven": truth.is_proven,
            "seconds": truth.seconds,
            "problems": [
                {"energy": energy, "proven": proven, "lower_bound": bound}
                for energy, proven, bound in zip(
                    truth.energies.tolist(), truth.proven.tolist(), truth.lower_bounds.tolist(), strict=True
                )
            ],
        },
    }


def _training_row(row: TrainingRow, optimum: Record) -> dict[str, Any]:
    return {"coordinates": row.coordinates, "bits": row.bits, **_record_row(row.record, optimum)}


def _record_row(record: Record, optimum: Record) -> dict[str, Any]:
    return {
        "sampler": record.method,
        "loss": record.loss,
        "loss_ratio": record.loss / optimum.loss,
        "test_accuracy": record.test.get("accuracy", math.nan),
        "iterations": record.iterations,
        "stop_reason": record.stop_reason,
        "seconds": record.seconds,
        "access_seconds": record.access_seconds,
        "losses": record.history["loss"].tolist() if record.history else [],
        "failure": record.error,
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def opened_comparison_folder(folder: Path) -> Iterator[None]:
    """Have the folder to oneself; one that cannot be made fails before the work, not after it."""
    with working_in(folder):
        if (folder / COMPARISON_FILE).exists():
            raise InvalidInputError(f"{folder} holds a comparison already; name another folder with --out")
        remove_leftovers(folder / "problems")
        yield


def save_comparison(found: Comparison, document: dict[str, Any], folder: Path) -> list[str]:
    """Write problems, table, figures and, last, the document, whose presence says that all is there."""
    notes = []
    for file_format in ("npz", "bqm"):
        try:
            for taken in found.problem_sets:
                for number, problem in enumerate(taken.problems):
                    name = f"{taken.name}-{taken.coordinates}-{taken.bits}-bits-class-{number}.{file_format}"
                    write(problem, folder / "problems" / name, format=file_format)
        except MissingDependencyError as error:
            notes.append(f"no {file_format} files: {error}")
    training = ({**row, "problems": "training"} for row in document["training"])
    store.write_table([_flat(row) for row in (*document["solving"], *training)], folder / "comparison.csv")
    try:
        success_figure.save_success_figure(found, folder / "success.png")
        sampler_figure.save_comparison_figure(found, folder / "comparison.png")
    except MissingDependencyError as error:
        notes.append(f"no figures: {error}")
    write_json(folder / COMPARISON_FILE, document)
    return notes


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row for a table: an estimate is three columns, counts per problem are one each, curves are left out.

    >>> _flat({"success": {"value": 0.5, "low": 0.4, "high": 0.6}, "reads": [64, 64], "losses": [1.0]})
    {'success': 0.5, 'success_low': 0.4, 'success_high': 0.6, 'reads': '64 64'}
    """
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= {name: value["value"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
        elif name != "losses":
            flat[name] = " ".join(map(str, value)) if isinstance(value, list) else value
    return flat
