"""Charts of a report: the numbers that the page draws."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit.studies.paper_tables import paper_table
from annealfit.studies.records import Record
from annealfit.studies.report.cells import Group, dataset_title, method_title, plain_groups
from annealfit.studies.report.comparisons import contender_bits
from annealfit.studies.report.palette import BIT_COLOURS

QUANTITIES = {  # a history's column → its title, and whether its axis is logarithmic
    "accuracy": ("Training accuracy", False),
    "cross_entropy": ("Cross-entropy", True),
    "loss": ("Regularised loss", True),
    "gap": ("Energy above the certified bound", True),
}
ACROSS = {  # what a curve is drawn against → its title
    "iteration": "Iteration",
    "solves": "QUBO solves",
    "seconds": "Seconds of training",
}
_N_POINTS = 70  # of a curve: enough to see every turn on a logarithmic axis, and a page that stays small


def main_groups(records: Sequence[Record]) -> list[Group]:
    """The groups that have charts: all but the studies of δ and α, digits first."""
    return plain_groups(records, digits=True) + plain_groups(records, digits=False)


def series_name(group: Group) -> str:
    """A curve's name, unique within its data set."""
    parts = [method_title(group.spec.label), group.spec.preset or "", group.departure]
    return ", ".join(part for part in parts if part)


def page_data(records: Sequence[Record]) -> dict[str, Any]:
    """All that the page's script draws, ready for JSON."""
    found = main_groups(records)
    return {
        "quantities": {name: {"title": title, "log": log} for name, (title, log) in QUANTITIES.items()},
        "across": ACROSS,
        "bits": list(BIT_COLOURS),
        "curves": curves(found),
        "confusions": confusions(found),
        "samples": samples(found),
        "times": times(found),
    }


def by_dataset(found: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each data set."""
    sets: dict[str, list[Group]] = {}
    for group in found:
        sets.setdefault(group.spec.dataset, []).append(group)
    return sets


def curves(found: Sequence[Group]) -> list[dict[str, Any]]:
    """For each data set its curves: mean, lowest and highest over seeds at iterations evenly spread on a log axis."""
    return [
        {"dataset": dataset_title(dataset), "series": [_series(group) for group in members]}
        for dataset, members in by_dataset(found).items()
    ]


def _series(group: Group) -> dict[str, Any]:
    quantities, iterations = {}, sampled_iterations(group)
    for name in QUANTITIES:
        columns = history_columns(group, name)
        if columns is not None:
            at = columns[:, iterations - 1]
            quantities[name] = [_numbers(line) for line in (at.mean(axis=0), at.min(axis=0), at.max(axis=0))]
    if not len(iterations):  # nothing iterates: a level
        levels = {
            "accuracy": [record.train["accuracy"] for record in group.records],
            "cross_entropy": [record.cross_entropy for record in group.records],
            "loss": [record.loss for record in group.records],
        }
        quantities = {name: [[_number(f(v))] for f in (np.mean, np.min, np.max)] for name, v in levels.items()}
    return {
        "name": series_name(group),
        "bits": group.spec.bits or 0,
        "method": group.spec.method,
        "preset": group.spec.preset or "",
        "across": _across(group, iterations),
        "quantities": quantities,
    }


def _across(group: Group, iterations: NDArray[np.int64]) -> dict[str, list[Any]]:
    """Where a curve's points are on each axis. An iteration is a solve per class; a step of SGD is no solve at all."""
    places: dict[str, list[Any]] = {"iteration": iterations.tolist()}
    if group.spec.method == "qubo":
        n_classes = len(class_names(group.records[0]))
        places["solves"] = (iterations * (n_classes if n_classes > 2 else 1)).tolist()
    seconds = history_columns(group, "seconds")
    if seconds is not None:
        places["seconds"] = _numbers(seconds[:, iterations - 1].mean(axis=0))
    return places


def sampled_iterations(group: Group) -> NDArray[np.int64]:
    """The iterations shown of a group's longest run."""
    longest = max((len(record.history.get("iteration", ())) for record in group.records), default=0)
    return np.unique(np.geomspace(1, longest, _N_POINTS).round().astype(np.int64)) if longest else np.zeros(0, np.int64)


def history_columns(group: Group, name: str) -> NDArray[np.float64] | None:
    """One quantity's histories as rows of equal length: a run that stopped early keeps its last value."""
    histories = [np.asarray(r.history[name], float) for r in group.records if len(r.history.get(name, ()))]
    if not histories:
        return None
    longest = max(len(record.history.get("iteration", ())) for record in group.records)
    return np.stack([np.pad(history, (0, longest - len(history)), mode="edge") for history in histories])


def confusions(found: Sequence[Group]) -> list[dict[str, Any]]:
    """Confusion matrices, added up over seeds."""
    return [
        {
            "dataset": dataset_title(group.spec.dataset),
            "name": series_name(group),
            "classes": class_names(group.records[0]),
            "counts": np.sum([record.confusion for record in group.records], axis=0).tolist(),
        }
        for group in found
        if len({record.confusion.shape for record in group.records}) == 1
    ]


def class_names(record: Record) -> list[str]:
    """A name for every class, its number where the record has none."""
    n_classes = max(len(record.confusion), record.sample_probabilities.shape[-1])
    return [record.class_names[i] if i < len(record.class_names) else str(i) for i in range(n_classes)]


def samples(found: Sequence[Group]) -> list[dict[str, Any]]:
    """One test image of each class and every method's probabilities for it, of the first seed all methods share."""
    shown = []
    for dataset, members in by_dataset(found).items():
        seeds = set.intersection(*({record.run.seed for record in group.records} for group in members))
        if not seeds:
            continue
        chosen = [(g, next(r for r in g.records if r.run.seed == min(seeds))) for g in members]
        first = chosen[0][1]
        same = [(g, r) for g, r in chosen if np.array_equal(r.sample_labels, first.sample_labels)]
        shown.append(
            {
                "dataset": dataset_title(dataset),
                "seed": min(seeds),
                "classes": class_names(first),
                "labels": first.sample_labels.tolist(),
                "images": [png_address(image) for image in first.sample_images],
                "methods": [
                    {
                        "name": series_name(g),
                        "main": g.spec.bits == contender_bits(g.spec.preset) and not g.departure,
                        "probabilities": [_numbers(p) for p in r.sample_probabilities],
                    }
                    for g, r in same
                ],
            }
        )
    return shown


def times(found: Sequence[Group]) -> list[dict[str, Any]]:
    """Seconds of a run, ours and the paper's."""
    paper = {
        (row["dataset"], f"qubo_{row['bits']}"): float(row["mean_seconds"]) for row in paper_table("execution_seconds")
    }
    paper |= {("digits", row["method"]): float(row["seconds"]) for row in paper_table("digits")}
    return [
        {
            "dataset": dataset_title(group.spec.dataset),
            "name": series_name(group),
            "seconds": _number(np.mean([record.seconds for record in group.records])),
            "paper": None if group.departure else paper.get((group.spec.dataset, group.spec.label)),
        }
        for group in found
    ]


def png_address(image: ArrayLike) -> str:
    """A greyscale image with values from 0 to 1 as a PNG in a data address, so that the page needs no other file."""
    pixels = (np.clip(np.nan_to_num(np.asarray(image, float)), 0, 1) * 255).round().astype(np.uint8)
    height, width = pixels.shape
    lines = np.hstack([np.zeros((height, 1), np.uint8), pixels])  # each line begins with its filter: none
    header = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)  # 8 bits, greyscale
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def _number(value: Any) -> float | None:
    return float(f"{value:.4g}") if np.isfinite(value) else None  # JSON has no NaN; four digits are what a chart shows


def _numbers(values: Any) -> list[float | None]:
    return [_number(value) for value in values]
