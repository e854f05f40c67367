"""The command that sets samplers side by side on the same problems."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from annealfit import __version__
from annealfit.cli.comparison_tables import print_comparison
from annealfit.cli.display import errors, make_progress, plain
from annealfit.cli.options import (
    BitsOption,
    DatasetArgument,
    DownloadOption,
    FiltersOption,
    JsonOption,
    KernelOption,
    PoolOption,
    Preset,
    PresetOption,
    SeedOption,
    SizeOption,
    StandardizeOption,
)
from annealfit.cli.preparing import make_classifier, prepare
from annealfit.cli.sampling import choose_sampler
from annealfit.errors import InvalidInputError, MissingDependencyError, choose
from annealfit.experiments import Record, sampler_study, store
from annealfit.experiments.sampler_study import Comparison
from annealfit.experiments.solving import CONFIDENCE
from annealfit.export import write
from annealfit.persistence import write_json
from annealfit.report import sampler_figure
from annealfit.samplers import Sampler
from annealfit.samplers.catalogue import SAMPLERS

COMPARISON_FILE = "comparison.json"
_NOT_STORED = {"samplers", "out", "as_json", "download"}  # options that decide no result, or stand elsewhere
# All but the one that is paid for by use, and the one that takes seconds per problem where it cannot prove anything.
UNASKED = tuple(name for name in SAMPLERS if name not in ("qpu", "lattice"))


def compare(
    context: typer.Context,
    dataset: DatasetArgument,
    samplers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:SETTING=VALUE,…],…",
            help=f"Any of {', '.join(SAMPLERS)}. Default: all that are installed, but not qpu and lattice.",
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, help="Timed solves of the same problems, each with its own seeds.")
    ] = 10,
    late: Annotated[
        int, typer.Option(min=0, help="Take problems after so many iterations as well as the first; 0: the first only.")
    ] = 30,
    target: Annotated[
        float, typer.Option(min=0, help="How near to the best energy found counts as reached, as a share of the bound.")
    ] = 0.01,
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of the training with each sampler, at most.")] = 30,
    preset: PresetOption = Preset.annealfit,
    bits: BitsOption = None,
    filters: FiltersOption = 2,
    kernel: KernelOption = 3,
    pool: PoolOption = 2,
    standardize: StandardizeOption = "none",
    size: SizeOption = 8,
    download: DownloadOption = False,
    seed: SeedOption = 42,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for the problems, the tables and a figure.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Give every sampler the same problems, and say how good its answers are and how long they take.

    The problems are a training's own, of its first iteration and of a later one. Energies are held
    against a bound that no sampler can get below. Then the training itself is run with each sampler.

    [bold]Examples[/]

      annealfit compare-samplers digits

      annealfit compare-samplers digits --bits 1 --samplers native,native:num_reads=100,rounded -o runs/one-bit
    """
    classifier = make_classifier(preset, bits, iterations, seed)
    prepared = prepare(dataset, filters, kernel, pool, standardize, size, download, seed)
    classifier.problems(prepared.X_train, prepared.dataset.y_train)  # bad settings fail before any file is made
    made, skipped = _make_samplers(samplers, seed, native=classifier.sampler)
    if out is not None:
        _open_folder(out)
    with _opened(made), _progress(list(made), (repeats + 1) * (2 if late else 1) + iterations) as on_solve:
        found = sampler_study.compare_samplers(
            made, prepared, classifier, late=late, repeats=repeats, target=target, seed=seed, on_solve=on_solve
        )
    options = {name: value for name, value in context.params.items() if name not in _NOT_STORED}
    document = {
        "annealfit": __version__,
        "options": {**options, "bits": classifier.bits},
        "samplers": {name: sampler.describe() for name, sampler in made.items()},
        "confidence": CONFIDENCE,
        "skipped": skipped,
        **_describe(found),
    }
    notes = [*(f"{name} is left out: {reason}" for name, reason in skipped.items()), *found.notes]
    if out is not None:
        notes += _save(found, document, out)
    if as_json:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print_comparison(found, f"{100 * target:g} %")
    for note in notes:
        errors.print(plain(f"note: {note}"), soft_wrap=True)


@contextmanager
def _opened(samplers: Mapping[str, Sampler]) -> Iterator[None]:
    """Samplers that are closed in the end: one may have a connection."""
    with ExitStack() as stack:
        for sampler in samplers.values():
            stack.enter_context(sampler)
        yield


def _make_samplers(
    asked: str | None, seed: int, native: Sampler | str | None
) -> tuple[dict[str, Sampler], dict[str, str]]:
    """The samplers, and why others are left out; what was named and cannot be made is an error."""
    names = UNASKED if asked is None else split_samplers(asked)
    made, skipped = {}, {}
    for name in names:
        try:
            # The native annealer is the preset's: the paper's presets are its temperatures.
            made[name] = choose_sampler(None if name == "native" else name, None, native, seed)
        except MissingDependencyError as error:
            if asked is not None:
                raise
            skipped[name] = str(error)
    return made, skipped


def split_samplers(text: str) -> tuple[str, ...]:
    """The samplers that a list names, each once, with their settings.

    >>> split_samplers("native, native:num_sweeps=20,num_reads=4,rounded")
    ('native', 'native:num_sweeps=20,num_reads=4', 'rounded')
    """
    found: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if found and "=" in part and ":" not in part:  # a further setting of the sampler before it
            found[-1] += f",{part}"
        else:
            choose("sampler", part.partition(":")[0], SAMPLERS)
            found.append(part)
    return tuple(dict.fromkeys(found))


@contextmanager
def _progress(names: Sequence[str], solves: int) -> Iterator[Callable[[str], None]]:
    """A live bar over the solves of all samplers, with the time left."""
    shown = TextColumn("Comparing"), BarColumn(), TaskProgressColumn(), TextColumn("{task.description}")
    progress = make_progress(*shown, TimeRemainingColumn())
    done = dict.fromkeys(names, 0)
    with progress:
        task = progress.add_task("", total=solves * len(names))

        def on_solve(name: str) -> None:
            done[name] += 1
            # Those before it are done, also where a failure or convergence saved them solves.
            progress.update(task, completed=names.index(name) * solves + done[name], description=name)

        yield on_solve


def _describe(found: Comparison) -> dict[str, Any]:
    """The comparison for JSON, with null for what it has no number for: never, or unknown because of a failure."""
    return {
        "problems": {
            taken.name: {
                "after": taken.after,
                "count": len(taken.problems),
                "variables": taken.problems[0].n_variables,
                "lower_bound": float(taken.bounds.sum()),
            }
            for taken in found.problem_sets
        },
        "solving": [_finite(asdict(row)) for row in found.solving],
        "training": [_finite(_training_row(record, found)) for record in (*found.training, found.optimum)],
        "notes": list(found.notes),
    }


def _training_row(record: Record, found: Comparison) -> dict[str, Any]:
    return {
        "sampler": record.method,
        "loss": record.loss,
        "loss_ratio": record.loss / found.optimum.loss,
        "test_accuracy": record.test.get("accuracy", math.nan),
        "iterations": record.iterations,
        "stop_reason": record.stop_reason,
        "seconds": record.seconds,
        "access_seconds": record.access_seconds,
        "losses": record.history["loss"].tolist() if record.history else [],
        "failure": record.error,
    }


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}


def _open_folder(folder: Path) -> None:
    if (folder / COMPARISON_FILE).exists():
        raise InvalidInputError(f"{folder} holds a comparison already; name another folder with --out")
    folder.mkdir(parents=True, exist_ok=True)  # a folder that cannot be made fails before the work, not after it


def _save(found: Comparison, document: dict[str, Any], folder: Path) -> list[str]:
    """Write problems, table, figure and, last, the document, whose presence says that all is there."""
    notes = []
    for file_format in ("npz", "bqm"):
        try:
            for taken in found.problem_sets:
                for number, problem in enumerate(taken.problems):
                    path = folder / "problems" / f"{taken.name}-class-{number}.{file_format}"
                    write(problem, path, format=file_format)
        except MissingDependencyError as error:
            notes.append(f"no {file_format} files: {error}")
    training = ({**row, "problems": "training"} for row in document["training"])
    rows = [{key: row[key] for key in row if key != "losses"} for row in (*document["solving"], *training)]
    store.write_table(rows, folder / "comparison.csv")
    try:
        sampler_figure.save_comparison_figure(found, folder / "comparison.png")
    except MissingDependencyError as error:
        notes.append(f"no figure: {error}")
    write_json(folder / COMPARISON_FILE, document)
    return notes
