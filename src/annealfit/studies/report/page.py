"""The report as one page: self-contained, opened offline, made from stored records alone."""

from __future__ import annotations

import base64
import hashlib
import io
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.errors import InvalidInputError, require
from annealfit._support.files import StrPath, replacing
from annealfit.studies import evidence, family
from annealfit.studies.paper_tables import SEEDS, paper_table
from annealfit.studies.records import CLASSICAL, IMAGES, Record, RunSpec, Store
from annealfit.studies.report import drawing, tables
from annealfit.studies.report.tables import Group, by_dataset, dataset_title, groups, signed

PICTURES = {"evidence": evidence.draw, "family": family.draw}  # of some tables
PAPER_LINK = "https://arxiv.org/abs/2603.02958"
# Of the curves: a history's column → its title, whether its axis is logarithmic, and the column of a table that is the
# level of a method without iterations.
QUANTITIES = {
    "accuracy": ("Training accuracy", False, "train_accuracy"),
    "cross_entropy": ("Cross-entropy", True, "final_loss"),
    "loss": ("Regularised loss", True, "loss"),
    "gap": ("Energy above the certified bound", True, ""),
}
ACROSS = {"iteration": "Iteration", "solves": "QUBO solves", "seconds": "Seconds of training"}  # horizontal axes
_N_POINTS = 70  # of a curve: enough to see every turn on a logarithmic axis, and a page that stays small


def write_report(folder: StrPath, path: StrPath, *, assets_dir: StrPath | None = None) -> list[Path]:
    """Write the page of a run folder, and on request its tables as CSV; return the paths of all."""
    records, damaged = read_records(folder)
    title = f"annealfit report: {Path(folder).resolve().name}"
    pages = {Path(path): render(records, damaged, title, Store(Path(folder)).asked())}
    if assets_dir is not None:
        pages |= {Path(assets_dir) / f"{table.name}.csv": tables.to_csv(table) for table in tables.all_tables(records)}
    for place, text in pages.items():
        with replacing(place) as file:
            file.write(text.encode())
    return [*pages]


def read_records(folder: StrPath) -> tuple[list[Record], list[str]]:
    """The whole records of a run folder, and what is wrong with each damaged one."""
    records, errors = Store(Path(folder)).read_whole()
    damaged = [error.replace(str(path), path.name) for path, error in errors.items()]  # no paths of this machine
    if records:
        return records, damaged
    if damaged:
        raise InvalidInputError(f"all {len(damaged)} records of {folder} are damaged; the first: {damaged[0]}")
    raise InvalidInputError(f"{folder} holds no run records; make some with: annealfit reproduce digits --out {folder}")


def render(
    records: Sequence[Record],
    damaged: Sequence[str] = (),
    title: str = "annealfit report",
    asked: Collection[RunSpec] = (),
) -> str:
    """The page's text."""
    jinja2 = require("jinja2", extra="report", purpose="writing a report")
    shown = {table.name: table for table in tables.all_tables(records, asked)}
    folder, names = resources.files("annealfit.studies.report"), ("template.html", "report.css", "report.js")
    template, css, script = ((folder / name).read_text(encoding="utf-8") for name in names)
    settings = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, **settings)
    # JSON that cannot end the script element it stands in: `tojson` escapes <, > and &.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters["duration"] = duration
    environment.filters["as_csv"] = lambda table: _address("text/csv;charset=utf-8", tables.to_csv(table).encode())
    return environment.from_string(template).render(
        title=title,
        tables=shown,
        sentences=opening_sentences(records),
        paper_link=PAPER_LINK,
        panels=[(dataset_title(name), found) for name, found in leading_groups(records).items()],
        summary=summarise_records(records, damaged, asked),
        near_points=tables.NEAR_POINTS,
        pictures={name: picture_address(draw(records)) for name, draw in PICTURES.items() if name in shown},
        css=drawing.css_variables() + css,
        script=script,
        # Only this very script may run: markup that slipped through the escaping would still be dead text.
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=page_data(groups(records)),
    )


def leading_groups(records: Sequence[Record]) -> dict[str, list[Group]]:
    """The classical baseline and each preset's most bits, for every data set; the published images if there are any."""
    found = [g for g in groups(records) if g.spec.method == CLASSICAL or g.has_most_bits]
    first = next((images for images in IMAGES if any(group.spec.images == images for group in found)), "")
    return by_dataset([group for group in found if group.spec.images == first])


def opening_sentences(records: Sequence[Record]) -> list[str]:
    """The page's first sentences, counted from the records; one whose runs are missing is left out."""
    words, close = tables.layouts()["agreement"]["opening"], tables.agreement_rows(records)
    told = [words["claim"]]
    for images in IMAGES:
        counts = [
            f"{row['method' if row['preset'].text == '–' else 'preset'].text} "
            f"{row['within_5'].text} of {row['percentages'].text}"
            for row in close
            if (row["study"].text, row["images"].text) == ("Benchmark", images)
        ]
        if counts:
            told.append(words[images].format(counts=", ".join(counts)))
    sets = leading_groups(records)
    shown = [group for group in groups(records) if group.data in sets and not group.departure]
    means = {(group.data, group.spec.preset, group.spec.bits): group.mean(tables.TEST) for group in shown}
    digits = {
        preset: " → ".join(f"{mean:.1f}" for key, mean in means.items() if "digits" in key[0] and key[1] == preset)
        for preset in ("literal", "matched")
    }
    if all(digits.values()):
        told.append(words["temperature"].format(**digits))
    gains = [means[data, "annealfit", 1] - means[data, None, None] for data in sets if (data, "annealfit", 1) in means]
    if gains:
        better = f"{sum(gain > 0 for gain in gains)} of {len(gains)}"
        told.append(words["one_bit"].format(better=better, least=signed(min(gains)), most=signed(max(gains))))
    return told


def summarise_records(
    records: Sequence[Record], damaged: Sequence[str] = (), asked: Collection[RunSpec] = ()
) -> dict[str, Any]:
    """The account at the top of the page: how complete it is, how close to the paper, what was run and where."""
    finished = [record for record in records if record.error is None]
    all_groups = groups(records, "digits", "benchmark", "range_study", "step_study", "filters")
    environments = Counter(", ".join(f"{k} {v}" for k, v in record.environment.items()) for record in records)
    times: dict[str | None, dict[str, Any]] = {}  # of the benchmark's runs that the paper has times for
    for group in groups(records, "benchmark"):
        paper, seconds, preset = group.cell("seconds").paper, group.values("seconds"), group.spec.preset
        if isinstance(paper, float):
            total = times.setdefault(preset, {"preset": preset, "runs": 0, "seconds": 0.0, "paper_seconds": 0.0})
            total["runs"] += len(seconds)
            total["seconds"] += sum(seconds)
            total["paper_seconds"] += paper * len(seconds)
    return {
        "finished": len(finished),
        "failed": len(records) - len(finished),
        "missing": len(set(asked) - {record.run for record in records}),
        "damaged": damaged,
        "agreements": tables.agreement_rows(records),
        "times": [*times.values()],
        "paper_total_seconds": sum(float(row["mean_seconds"]) for row in paper_table("execution_seconds")) * len(SEEDS),
        "datasets": list(dict.fromkeys(dataset_title(group.data) for group in all_groups)),
        "presets": tables.presets_of(records),
        "images": sorted({record.run.images for record in records}),
        "seeds": sorted({record.run.seed for record in records}),
        "total_seconds": float(np.sum([record.seconds for record in finished])),
        "environments": environments.most_common(),  # versions and machine, and how many runs had them
    }


def duration(seconds: float) -> str:
    """A time in the unit a reader would choose."""
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def page_data(found: Sequence[Group]) -> dict[str, Any]:
    """All that the page's script draws, ready for JSON."""
    sets = by_dataset(found)
    return {
        "quantities": {name: {"title": title, "log": log} for name, (title, log, _) in QUANTITIES.items()},
        "across": ACROSS,
        "bits": list(drawing.BIT_COLOURS),
        "curves": [{"dataset": dataset_title(data), "series": [*map(_series, own)]} for data, own in sets.items()],
        "confusions": [
            {
                "dataset": dataset_title(group.data),
                "name": series_name(group),
                "classes": class_names(group.records[0]),
                "counts": np.sum([record.confusion for record in group.records], axis=0).tolist(),
            }
            for group in found
            if len({record.confusion.shape for record in group.records}) == 1
        ],
        "samples": [shown for members in sets.values() if (shown := _samples(members))],
    }


def series_name(group: Group) -> str:
    """A curve's name, unique within the runs on the same images."""
    parts = [tables.method_title(group.spec.label), group.spec.preset, group.departure]
    return ", ".join(part for part in parts if part)


def history_columns(group: Group, name: str) -> NDArray[np.float64] | None:
    """One quantity's histories as rows of equal length: a run that stopped early keeps its last value."""
    histories = [np.asarray(r.history[name], float) for r in group.records if len(r.history.get(name, ()))]
    longest = max(record.iterations for record in group.records)
    padded = [np.pad(history, (0, longest - len(history)), mode="edge") for history in histories]
    return np.stack(padded) if padded else None


def _series(group: Group) -> dict[str, Any]:
    """A curve: of every quantity mean, lowest and highest over seeds, and its places on every axis."""
    longest = max(record.iterations for record in group.records)
    spread = np.geomspace(1, longest, _N_POINTS) if longest else np.zeros(0)  # even on a logarithmic axis
    iterations = np.unique(spread.round().astype(np.int64))
    if longest:
        histories = {name: history_columns(group, name) for name in (*QUANTITIES, "seconds")}
        shown = {name: rows[:, iterations - 1] for name, rows in histories.items() if rows is not None}
    else:  # a method without iterations is a level
        shown = {name: np.array(group.values(level))[:, None] for name, (*_, level) in QUANTITIES.items() if level}
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


def class_names(record: Record) -> list[str]:
    """A name for every class, its number where the record has none."""
    n_classes = max(len(record.confusion), record.sample_probabilities.shape[-1])
    return [*record.class_names, *map(str, range(len(record.class_names), n_classes))][:n_classes]


def _samples(members: Sequence[Group]) -> dict[str, Any] | None:
    """A test image of each class and every method's probabilities for it, of the first seed that all methods share."""
    seeds = set.intersection(*({record.run.seed for record in group.records} for group in members))
    if not seeds:
        return None
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
    return {
        "dataset": dataset_title(members[0].data),
        "seed": min(seeds),
        "classes": class_names(first),
        "labels": first.sample_labels.tolist(),
        "images": [png_address(image) for image in first.sample_images],
        "methods": methods,
    }


def png_address(image: ArrayLike) -> str:
    """A greyscale image with values from 0 to 1 as a PNG in a data address."""
    file = io.BytesIO()
    drawing.save_pixels(image, file)
    return _address("image/png", file.getvalue())


def picture_address(figure: Any) -> str:
    """A figure as a PNG in a data address."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return _address("image/png", file.getvalue())


def _address(kind: str, content: bytes) -> str:
    """Content as an address, so that the page needs no other file."""
    return f"data:{kind};base64," + base64.b64encode(content).decode()


def _numbers(values: Iterable[Any]) -> list[float | None]:
    """Numbers for JSON, which has no NaN, to the four digits that a chart shows."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]
