"""Charts of a report: the numbers that the page's script draws, and that figures are drawn from."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit.studies.records import Record
from annealfit.studies.report.drawing import BIT_COLOURS, plotting
from annealfit.studies.report.tables import Group, by_dataset, dataset_title, groups, method_title

QUANTITIES = {  # a history's column → its title, and whether its axis is logarithmic
    "accuracy": ("Training accuracy", False),
    "cross_entropy": ("Cross-entropy", True),
    "loss": ("Regularised loss", True),
    "gap": ("Energy above the certified bound", True),
}
ACROSS = {"iteration": "Iteration", "solves": "QUBO solves", "seconds": "Seconds of training"}  # horizontal axes
# Of methods that do not iterate: the column of a table that is the level of a quantity.
LEVELS = {"accuracy": "train_accuracy", "cross_entropy": "cross_entropy", "loss": "loss"}
_N_POINTS = 70  # of a curve: enough to see every turn on a logarithmic axis, and a page that stays small


def page_data(records: Sequence[Record]) -> dict[str, Any]:
    """All that the page's script draws, ready for JSON."""
    found = groups(records)
    return {
        "quantities": {name: {"title": title, "log": log} for name, (title, log) in QUANTITIES.items()},
        "across": ACROSS,
        "bits": list(BIT_COLOURS),
        "curves": curves(found),
        "confusions": confusions(found),
        "samples": samples(found),
    }


def series_name(group: Group) -> str:
    """A curve's name, unique within the runs on the same images."""
    parts = [method_title(group.spec.label), group.spec.preset, group.departure]
    return ", ".join(part for part in parts if part)


def history_columns(group: Group, name: str) -> NDArray[np.float64] | None:
    """One quantity's histories as rows of equal length: a run that stopped early keeps its last value."""
    histories = [np.asarray(r.history[name], float) for r in group.records if len(r.history.get(name, ()))]
    if not histories:
        return None
    longest = max(record.iterations for record in group.records)
    return np.stack([np.pad(history, (0, longest - len(history)), mode="edge") for history in histories])


def curves(found: Sequence[Group]) -> list[dict[str, Any]]:
    """For each data set its curves: mean, lowest and highest over seeds."""
    return [
        {"dataset": dataset_title(dataset), "series": [_series(group) for group in members]}
        for dataset, members in by_dataset(found).items()
    ]


def _series(group: Group) -> dict[str, Any]:
    longest = max(record.iterations for record in group.records)
    spread = np.geomspace(1, longest, _N_POINTS) if longest else np.zeros(0)  # even on a logarithmic axis
    iterations = np.unique(spread.round().astype(np.int64))
    if longest:
        histories = {name: history_columns(group, name) for name in (*QUANTITIES, "seconds")}
        shown = {name: rows[:, iterations - 1] for name, rows in histories.items() if rows is not None}
    else:  # a method without iterations is a level
        shown = {name: np.array(group.values(column))[:, None] for name, column in LEVELS.items()}
    across: dict[str, list[Any]] = {"iteration": iterations.tolist()}
    if group.spec.method == "qubo":  # an iteration is a solve per class; a step of SGD is no solve at all
        n_classes = len(class_names(group.records[0]))
        across["solves"] = (iterations * (n_classes if n_classes > 2 else 1)).tolist()
    if "seconds" in shown:
        across["seconds"] = _numbers(shown.pop("seconds").mean(axis=0))
    summaries = (np.mean, np.min, np.max)
    return {
        "name": series_name(group),
        "bits": group.spec.bits or 0,
        "method": group.spec.method,
        "preset": group.spec.preset or "",
        "across": across,
        "quantities": {name: [_numbers(f(rows, axis=0)) for f in summaries] for name, rows in shown.items()},
    }


def confusions(found: Sequence[Group]) -> list[dict[str, Any]]:
    """Confusion matrices, added up over seeds."""
    return [
        {
            "dataset": dataset_title(group.data),
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
    return [*record.class_names, *map(str, range(len(record.class_names), n_classes))][:n_classes]


def samples(found: Sequence[Group]) -> list[dict[str, Any]]:
    """One test image of each class and every method's probabilities for it, of the first seed all methods share."""
    shown = []
    for dataset, members in by_dataset(found).items():
        seeds = set.intersection(*({record.run.seed for record in group.records} for group in members))
        if not seeds:
            continue
        chosen = [next(record for record in group.records if record.run.seed == min(seeds)) for group in members]
        first = chosen[0]
        methods = [
            {
                "name": series_name(group),
                "main": group.spec.bits is None or group.has_most_bits,
                "probabilities": [_numbers(row) for row in record.sample_probabilities],
            }
            for group, record in zip(members, chosen, strict=True)
            if np.array_equal(record.sample_labels, first.sample_labels)
        ]
        shown.append({
            "dataset": dataset_title(dataset),
            "seed": min(seeds),
            "classes": class_names(first),
            "labels": first.sample_labels.tolist(),
            "images": [png_address(image) for image in first.sample_images],
            "methods": methods,
        })  # fmt: skip
    return shown


def png_address(image: ArrayLike) -> str:
    """A greyscale image with values from 0 to 1 as a PNG in a data address."""
    file = io.BytesIO()
    plotting("image").imsave(file, np.nan_to_num(np.asarray(image, float)), cmap="gray", vmin=0, vmax=1, format="png")
    return data_address("image/png", file.getvalue())


def figure_address(figure: Any) -> str:
    """A figure as a PNG in a data address."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return data_address("image/png", file.getvalue())


def data_address(kind: str, content: bytes) -> str:
    """Content as an address, so that the page needs no other file."""
    return f"data:{kind};base64," + base64.b64encode(content).decode()


def _numbers(values: Any) -> list[float | None]:
    """Numbers for JSON, which has no NaN, to the four digits that a chart shows."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]
