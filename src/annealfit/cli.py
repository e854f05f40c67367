"""The command-line program: parse, call, print."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from annealfit import __version__
from annealfit.classifier import AnnealedClassifier
from annealfit.datasets import DATASETS, is_available, load_dataset
from annealfit.datasets import fetch as fetch_files
from annealfit.errors import AnnealfitError, InvalidInputError, MissingDependencyError
from annealfit.experiments import TrainingRun, paper, run_training, store
from annealfit.experiments.backends import on_dask, on_this_machine
from annealfit.experiments.records import Store
from annealfit.experiments.runner import run_all
from annealfit.export import FORMATS, write
from annealfit.features import RandomConvFeatures
from annealfit.image_classifier import ImageClassifier
from annealfit.report import tables as report_tables
from annealfit.training import Iteration

app = typer.Typer(
    help="Train image classifiers by annealing, and set classical training beside it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

Format = StrEnum("Format", list(FORMATS))  # type: ignore[misc]
HistoryFormat = StrEnum("HistoryFormat", list(store.HISTORY_FORMATS))  # type: ignore[misc]


class Preset(StrEnum):
    """Which settings a training starts from."""

    annealfit = "annealfit"
    literal = "literal"
    matched = "matched"


# An option is described once, here, and means the same in every command.
DatasetArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATASET",
        help=f"One of {', '.join(DATASETS)}; or a folder with a subfolder of images per class; or an npz file.",
    ),
]
SizeOption = Annotated[int, typer.Option(help="Side of the images after resizing.")]
DownloadOption = Annotated[
    bool, typer.Option("--download", help="Fetch the data set's files if they are not there yet.")
]
PresetOption = Annotated[
    Preset,
    typer.Option(
        help="annealfit: our defaults. literal: the paper's Algorithm 1 as printed. matched: the same, cooled further."
    ),
]
BitsOption = Annotated[
    int | None,
    typer.Option(help="Bits per weight update, 1 to 30. Default: 3, or 20 with a preset of the paper."),
]
FiltersOption = Annotated[int, typer.Option(help="Random convolution filters.")]
KernelOption = Annotated[int, typer.Option(help="Kernel size of the filters.")]
PoolOption = Annotated[int, typer.Option(help="Max-pooling size.")]
StandardizeOption = Annotated[
    str,
    typer.Option(help="none, pixels or features: what gets mean 0 and variance 1 over the training data."),
]
SeedOption = Annotated[int, typer.Option(help="Decides the split, the filters, the initial weights and every anneal.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]


def main() -> None:
    """Run the program; errors of ours become one clear line and exit code 2."""
    try:
        app(standalone_mode=True)
    except (AnnealfitError, ValueError) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))


def _fail(message: str) -> None:
    errors.print(f"[bold red]error:[/] {_plain(message)}", soft_wrap=True)
    sys.exit(2)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")  # rich's markup is ours to write, not the message's


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        console.print(f"annealfit {__version__}")
        raise typer.Exit


@app.command()
def train(
    dataset: DatasetArgument,
    preset: PresetOption = Preset.annealfit,
    bits: BitsOption = None,
    max_iter: Annotated[int | None, typer.Option(help="Iterations at most.")] = None,
    filters: FiltersOption = 2,
    kernel: KernelOption = 3,
    pool: PoolOption = 2,
    standardize: StandardizeOption = "none",
    size: SizeOption = 8,
    download: DownloadOption = False,
    seed: SeedOption = 42,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: a new one below runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out where it stopped.")] = False,
    history: Annotated[HistoryFormat, typer.Option(help="File format of the history.")] = HistoryFormat("csv"),
    as_json: JsonOption = False,
) -> None:
    """Train on a data set by annealing, with SGD and logistic regression beside it.

    Draws random convolution features, trains the classifier head by QUBO solves, prints one table, and
    leaves a run folder: model, configuration, history, metrics, plots. Ctrl-C ends the training early
    and keeps what was learnt; --resume goes on from there.

    [bold]Examples[/]

      annealfit train digits

      annealfit train digits --preset matched --bits 10 --out runs/matched

      annealfit train mnist --download --filters 8
    """
    folder = out or Path("runs") / f"{Path(dataset).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    if resume and (out is None or not (out / store.CHECKPOINT_FILE).exists()):
        raise InvalidInputError(
            "--resume needs --out, the folder of the run to continue"
            if out is None
            else f"--resume: there is no run to continue in {out}; check the name, or leave --resume out to start one"
        )
    classifier = _classifier(preset, bits, max_iter, seed)
    features = RandomConvFeatures(
        n_filters=filters, kernel_size=kernel, pool_size=pool, standardize=standardize, random_state=seed
    )
    data = load_dataset(dataset, seed=seed, size=size, download=download)
    config = {
        "annealfit": __version__,
        "dataset": dataset,
        "image_size": size,
        "preset": str(preset),
        "seed": seed,
        "features": features.get_params(),
        "classifier": {name: _describe(value) for name, value in classifier.get_params(deep=False).items()},
    }
    classifier.problems(features.fit_transform(data.X_train), data.y_train)  # bad settings fail before any file is made
    store.open_run_folder(folder, config, resume=resume)
    classifier.set_params(checkpoint=folder / store.CHECKPOINT_FILE, resume=resume)
    with _training_progress(classifier.max_iter) as on_iteration, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what they say is in the table and the notes below
        run = run_training(data, features, classifier, [on_iteration])
    store.save_run(run, folder, history_format=history)
    notes = _draw(run, folder)
    if as_json:
        typer.echo((folder / "metrics.json").read_text(encoding="utf-8").rstrip())
        return
    console.print(_comparison_table(run))
    interrupted = classifier.stop_reason_ == "interrupted"
    if interrupted:
        again = [*sys.argv[1:], *([] if out else ["--out", str(folder)]), *([] if resume else ["--resume"])]
        notes.append(
            f"Interrupted after {classifier.n_iter_} of {classifier.max_iter} iterations. Go on with:\n"
            f"annealfit {shlex.join(again)}"
        )
    for note in notes:
        console.print(_plain(note), soft_wrap=True)
    console.print(f"Run folder: {folder}", soft_wrap=True)
    if interrupted:
        raise typer.Exit(130)  # what shells say of a program that Ctrl-C ended


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A run folder, or the model file in it.")],
    images: Annotated[list[Path], typer.Argument(help="Image files; any size, resized to the model's.")],
    top: Annotated[int, typer.Option(min=1, help="How many classes to show for each image.")] = 3,
    invert: Annotated[
        bool,
        typer.Option("--invert", help="Swap dark and bright: the data sets have bright strokes on black."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Classify image files with a trained model.

    [bold]Example[/]

      annealfit predict runs/demo runs/demo/samples/class-8.png
    """
    path = model / store.MODEL_FILE if model.is_dir() else model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unstored sampler is of no concern to a prediction
        loaded = ImageClassifier.load(path)
    pixels = np.stack([loaded.read_image(image) for image in images])
    probabilities = loaded.predict_proba(1 - pixels if invert else pixels)
    ranked = [
        [(loaded.class_names[index], float(row[index])) for index in np.argsort(-row, kind="stable")[:top]]
        for row in probabilities
    ]
    if as_json:
        answer = [{"image": str(image), "classes": dict(row)} for image, row in zip(images, ranked, strict=True)]
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("image", overflow="fold")
    table.add_column("class", style="bold")
    table.add_column("probability", justify="right")
    table.add_column("then")
    for image, ((name, probability), *others) in zip(images, ranked, strict=True):
        then = ", ".join(f"{other} {share:.1%}" for other, share in others)
        table.add_row(_plain(str(image)), _plain(name), f"{probability:.1%}", _plain(then))
    console.print(table)


@app.command()
def export(
    dataset: DatasetArgument,
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write.")],
    file_format: Annotated[
        Format,
        typer.Option(
            "--format",
            help="bqm: dimod's binary file. coo, ising: text, `i j value` a line, exact. npz: NumPy arrays.",
        ),
    ] = Format("bqm"),
    class_index: Annotated[int, typer.Option("--class", help="The class whose problem is written.")] = 0,
    preset: PresetOption = Preset.annealfit,
    bits: BitsOption = None,
    filters: FiltersOption = 2,
    kernel: KernelOption = 3,
    pool: PoolOption = 2,
    standardize: StandardizeOption = "none",
    size: SizeOption = 8,
    download: DownloadOption = False,
    seed: SeedOption = 42,
) -> None:
    """Write the first QUBO of a training to a file, for other people's solvers.

    [bold]Examples[/]

      annealfit export digits --format bqm -o digits.bqm

      annealfit export digits --format coo --bits 5 --class 7 -o seven.coo
    """
    data = load_dataset(dataset, seed=seed, size=size, download=download)
    features = RandomConvFeatures(
        n_filters=filters, kernel_size=kernel, pool_size=pool, standardize=standardize, random_state=seed
    )
    classifier = _classifier(preset, bits, None, seed)
    problems = classifier.problems(features.fit_transform(data.X_train), data.y_train)
    if not 0 <= class_index < len(problems):
        raise InvalidInputError(f"--class is {class_index}; {dataset} has the classes 0 to {len(problems) - 1}")
    problem = problems[class_index]
    write(problem, out, format=file_format)
    console.print(
        f"{out}: class {data.class_names[class_index]} of {dataset}, {problem.n_variables} variables, "
        f"{problem.n_couplings:,} couplings, {out.stat().st_size:,} bytes",
        soft_wrap=True,
    )


@app.command()
def reproduce(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]...", help=f"Any of {', '.join(paper.TABLES)}; all of them by default."),
    ] = None,
    preset: PresetOption = Preset.matched,
    out: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("runs/paper"),
    seeds: Annotated[str, typer.Option(help="Seeds, as 42-46 or 42,44.")] = "42-46",
    jobs: Annotated[int, typer.Option(help="Processes; -1 is one per processor.")] = -1,
    dask: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on this Dask cluster instead.")] = None,
    download: DownloadOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the paper's experiments and set every number beside ours.

    Every finished run is stored at once: interrupt it at any moment, start it again, and it goes on. Tables that
    share runs share them.

    [bold]Examples[/]

      annealfit reproduce digits --preset annealfit --seeds 42

      annealfit reproduce --preset matched

      annealfit reproduce benchmark --dask tcp://127.0.0.1:8786
    """
    specs = paper.runs_of(tables or paper.TABLES, preset, _parse_seeds(seeds))
    for note in _check_data(sorted({spec.dataset for spec in specs}), download):
        errors.print(_plain(note), soft_wrap=True)
    records_store = Store(out)
    backend = on_this_machine(jobs) if dask is None else on_dask(dask)
    started = time.perf_counter()
    progress = _progress(
        TextColumn("Runs"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    )
    with progress:
        task = progress.add_task("", total=len(specs), completed=sum(map(records_store.is_done, specs)))
        outcome = run_all(
            specs, records_store, backend, lambda record: progress.update(task, advance=1, description=record.spec.id)
        )
    seconds = time.perf_counter() - started
    records = records_store.of(specs)
    failed = {record.spec.id: record.error for record in records if record.error}
    if as_json:
        rows = [{"run": r.spec.to_json(), "train": r.train, "test": r.test, "error": r.error} for r in records]
        typer.echo(json.dumps({"seconds": seconds, "runs": rows}, indent=2))
    else:
        for table in report_tables.all_tables(records):
            if table.name in {shown for asked in tables or paper.TABLES for shown in _SHOWN_WITH[asked]}:
                console.print(_paper_table(table))
        console.print(
            f"{len(specs)} runs: {outcome.already} were there, {outcome.done} done now in {seconds:.1f} s, "
            f"{outcome.failed} failed. Records: {out}",
            soft_wrap=True,
        )
    for name, error in failed.items():
        errors.print(_plain(f"failed: {name}: {error}"), soft_wrap=True)
    if failed:
        raise typer.Exit(1)


# What the program prints for each TABLE of `reproduce`; the report has them all.
_SHOWN_WITH = {
    "digits": ("digits", "range_study", "step_study"),
    "sizes": ("sizes",),
    "predictions": ("predictions",),
    "benchmark": ("benchmark", "wins", "raising"),
    "recall": ("recall",),
    "times": ("times",),
    "hardware": ("hardware",),
}


def _paper_table(table: report_tables.Table) -> Table:
    """A table of the report for the terminal: means only, the paper's in brackets."""

    def mean(text: str) -> str:
        return text.partition(" ± ")[0]  # the spread over seeds is in the report

    compared = any(column.compared for column in table.columns)
    title = f"{table.title} (in brackets: the paper's)" if compared else table.title
    shown = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in table.columns:
        shown.add_column(_plain(column.title), justify="right" if column.numeric else "left")
    for row in table.rows:
        cells = (f"{mean(cell.text)} ({mean(cell.paper_text)})" if cell.paper_text else mean(cell.text) for cell in row)
        shown.add_row(*map(_plain, cells))
    return shown


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUNS", help="Folder of records that reproduce wrote.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    tables: Annotated[
        Path | None, typer.Option(help="Also write every table as CSV and LaTeX and the figures as SVG and PNG here.")
    ] = None,
) -> None:
    """Make one self-contained page of all records: the paper's numbers beside ours, curves, pictures.

    [bold]Example[/]

      annealfit report runs/paper -o report.html
    """
    from annealfit.report import html

    for path in html.write_report(folder, out, assets_dir=tables):
        console.print(_plain(str(path)), soft_wrap=True)


def _parse_seeds(text: str) -> list[int]:
    try:
        seeds: list[int] = []
        for part in text.split(","):
            first, _, last = part.partition("-")
            seeds += range(int(first), int(last or first) + 1)
    except ValueError:
        seeds = []
    if not seeds:
        raise InvalidInputError(f"--seeds is {text!r}; write whole numbers as 42, 42-46 or 42,44")
    return seeds


def _check_data(names: list[str], download: bool) -> list[str]:
    """Load each data set once: what is missing is said before hours of work, and warnings once instead of per run."""
    notes = []
    for name in names:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            load_dataset(name, download=download)
        notes += [f"note: {warning.message}" for warning in caught]
    return notes


datasets_app = typer.Typer(invoke_without_command=True, rich_markup_mode="rich")
app.add_typer(datasets_app, name="datasets")


@datasets_app.callback()
def datasets(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the data sets that can be trained on, and fetch them.

    Files are kept in the folder that the environment variable ANNEALFIT_DATA names, or else in the user's cache.

    [bold]Examples[/]

      annealfit datasets

      annealfit datasets fetch mnist
    """
    if context.invoked_subcommand is not None:
        return
    rows = [
        {
            "name": name,
            "available": is_available(name),
            "n_train": source.n_train,
            "n_test": source.n_test,
            "classes": len(source.class_names),
            "description": source.description,
        }
        for name, source in DATASETS.items()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("name", "here", "train / test", "description"):
        table.add_column(heading)
    for row in rows:
        here = "yes" if row["available"] else "no"
        table.add_row(str(row["name"]), here, f"{row['n_train']} / {row['n_test']}", str(row["description"]))
    console.print(table)


@datasets_app.command()
def fetch(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(DATASETS)}.")],
    offline: Annotated[bool, typer.Option("--offline", help="Do not use the network; say what is missing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Fetch again, and replace files that are there.")] = False,
) -> None:
    """Download the files of a data set and check their digests.

    [bold]Example[/]

      annealfit datasets fetch mnist
    """
    progress = _progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}

    def on_chunk(file: str, done: int, total: int | None) -> None:
        if file not in tasks:
            tasks[file] = progress.add_task(file, total=total)
        progress.update(tasks[file], completed=done, total=total)

    with progress:
        paths = fetch_files(name, offline=offline, force=force, progress=on_chunk)
    for path in paths:
        console.print(_plain(str(path)), soft_wrap=True)
    if not paths:
        console.print(f"{name} comes with annealfit; there is nothing to fetch")


def _classifier(preset: Preset, bits: int | None, max_iter: int | None, seed: int) -> AnnealedClassifier:
    if preset == Preset.annealfit:
        classifier = AnnealedClassifier()
        if bits is not None:
            classifier.set_params(bits=bits)
    else:
        classifier = AnnealedClassifier.from_paper(20 if bits is None else bits, preset=preset)
    if max_iter is not None:
        classifier.set_params(max_iter=max_iter)
    return classifier.set_params(random_state=seed)


def _progress(*columns: ProgressColumn) -> Progress:
    """A live display that is gone when the work is done, and nothing at all where output is not a terminal."""
    return Progress(*columns, console=errors, disable=not errors.is_terminal, transient=True)


@contextmanager
def _training_progress(max_iter: int) -> Iterator[Callable[[Iteration], None]]:
    """A live bar with loss, accuracy and time left."""
    progress = _progress(
        TextColumn("Training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  accuracy {task.fields[accuracy]:.1%}"),
        TimeRemainingColumn(),
    )
    with progress:
        task = progress.add_task("training", total=max_iter, loss=float("nan"), accuracy=float("nan"))

        def on_iteration(iteration: Iteration) -> None:
            row = iteration.row
            progress.update(task, completed=row["iteration"], loss=row["loss"], accuracy=row["accuracy"])

        yield on_iteration


def _comparison_table(run: TrainingRun) -> Table:
    table = Table(
        title=f"{run.dataset.name}: {len(run.dataset.X_train)} training, {len(run.dataset.X_test)} test images; in %",
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        title_justify="left",
    )
    table.add_column("method", no_wrap=True)
    for heading in ("train", "test", "prec.", "recall", "F1", "κ", "MCC", "loss", "sec."):
        table.add_column(heading, justify="right", no_wrap=True)
    for method in run.methods:
        table.add_row(
            method.method,
            *(f"{100 * value:.1f}" for value in (method.train["accuracy"], *method.test.values())),
            f"{method.loss:.4f}",
            f"{method.seconds:.2f}",
        )
    return table


def _draw(run: TrainingRun, folder: Path) -> list[str]:
    """Save the figures; without matplotlib say so instead."""
    from annealfit.report import figures

    try:
        figures.save_figures(run, folder)
    except MissingDependencyError as error:
        return [f"No plots: {error}"]
    return []


def _describe(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float) else repr(value)


if os.name == "nt":  # pragma: no cover
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
