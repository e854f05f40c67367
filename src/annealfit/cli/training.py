"""The commands about one model: train it, use it, hand its problems to others."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from annealfit import __version__, experiments
from annealfit.cli.display import console, errors, make_table, plain, training_progress
from annealfit.cli.options import (
    BitsOption,
    BlocksOption,
    DatasetArgument,
    DownloadOption,
    FiltersOption,
    Format,
    HistoryFormat,
    JsonOption,
    KernelOption,
    PoolOption,
    Preset,
    PresetOption,
    SamplerOption,
    SeedOption,
    SizeOption,
    StandardizeOption,
)
from annealfit.cli.preparing import make_classifier, prepare
from annealfit.cli.printing import print_table
from annealfit.cli.sampling import choose_sampler, describe_plan, sampler_notes
from annealfit.datasets.own_data import image_files
from annealfit.description import describe
from annealfit.errors import InvalidInputError, MissingDependencyError
from annealfit.experiments import store
from annealfit.export import file_offset, offset_note, write

if TYPE_CHECKING:
    from annealfit.experiments import TrainingRun


def train(
    dataset: DatasetArgument,
    preset: PresetOption = Preset.annealfit,
    bits: BitsOption = None,
    max_iter: Annotated[int | None, typer.Option(help="Iterations at most.")] = None,
    filters: FiltersOption = 2,
    kernel: KernelOption = 3,
    pool: PoolOption = 2,
    standardize: StandardizeOption = "none",
    sampler: SamplerOption = None,
    blocks: BlocksOption = None,
    size: SizeOption = 8,
    download: DownloadOption = False,
    seed: SeedOption = 42,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: a new one below runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out where it stopped.")] = False,
    history: Annotated[HistoryFormat, typer.Option(help="File format of the history.")] = HistoryFormat("csv"),
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the figures of the run.")] = True,
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

      annealfit train digits --bits 2 --max-iter 20 --sampler mock-qpu:topology=Z12,faults=0.1
    """
    folder = out or Path("runs") / f"{Path(dataset).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    _check_resumable(out, resume)
    classifier = make_classifier(preset, bits, max_iter, seed)
    used = choose_sampler(sampler, blocks, classifier.sampler, seed)
    classifier.set_params(sampler=used)
    prepared = prepare(dataset, filters, kernel, pool, standardize, size, download, seed)
    config = {
        "annealfit": __version__,
        "dataset": dataset,
        "image_size": size,
        "preset": str(preset),
        "seed": seed,
        "features": prepared.features.get_params(),
        "classifier": describe(classifier.get_params(deep=False)),
    }
    again = shlex.join([*sys.argv[1:], *([] if out else ["--out", str(folder)]), *([] if resume else ["--resume"])])
    with used:  # it may have a connection to close
        # Bad settings, or a problem that does not fit the device, fail before any file is made or any call paid for.
        plan = used.preflight(classifier.problems(prepared.X_train, prepared.dataset.y_train))
        if plan is not None:
            errors.print(plain(describe_plan(plan, classifier.max_iter)), soft_wrap=True)
        store.open_run_folder(folder, config, resume=resume)
        classifier.set_params(checkpoint=folder / store.CHECKPOINT_FILE, resume=resume)
        try:
            with training_progress(classifier.max_iter) as on_iteration, warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # what they say is in the table and the notes below
                run = experiments.run_training(prepared, classifier, [on_iteration])
            store.save_run(run, folder, config, history_format=history)
        except KeyboardInterrupt:  # before or after the iterations: during them, what was learnt is kept
            if (folder / store.CHECKPOINT_FILE).exists():
                errors.print(plain(f"Interrupted. What was learnt is in {folder}. Go on with:\nannealfit {again}"))
            else:
                errors.print("Interrupted before the first iteration: there is nothing to resume; start it again.")
            raise typer.Exit(130) from None
    notes = _draw(run, folder) if plots else []
    _tell(run, folder, again, notes, as_json=as_json)


def predict(
    model: Annotated[Path, typer.Argument(help="A run folder, or the model file in it.")],
    images: Annotated[
        list[Path],
        typer.Argument(help="Image files, or folders of them; any size, resized to the model's."),
    ],
    top: Annotated[int, typer.Option(min=1, help="How many classes to show for each image.")] = 3,
    invert: Annotated[
        bool,
        typer.Option("--invert", help="Swap dark and bright: the data sets have bright strokes on black."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Classify image files with a trained model.

    [bold]Examples[/]

      annealfit predict runs/demo runs/demo/samples/class-8.png

      annealfit predict runs/demo runs/demo/samples
    """
    from annealfit.image_classifier import ImageClassifier

    path = model / store.MODEL_FILE if model.is_dir() else model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unstored sampler is of no concern to a prediction
        loaded = ImageClassifier.load(path)
    images = [file for image in images for file in image_files(image)]
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
    table = make_table()
    table.add_column("image", overflow="fold")
    table.add_column("class", style="bold")
    table.add_column("probability", justify="right")
    table.add_column("then")
    for image, ((name, probability), *others) in zip(images, ranked, strict=True):
        then = ", ".join(f"{other} {share:.1%}" for other, share in others)
        table.add_row(plain(str(image)), plain(name), f"{probability:.1%}", plain(then))
    print_table(table)


def export(
    dataset: DatasetArgument,
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write.")],
    file_format: Annotated[
        Format,
        typer.Option(
            "--format",
            help="bqm: dimod's binary file. coo, ising: dimod's text, `i j value` per line. npz: NumPy arrays. "
            "qubo: qbsolv's text. All are exact.",
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
    as_json: JsonOption = False,
) -> None:
    """Write the first QUBO of a training to a file, for other people's solvers.

    The text formats have no place for the energy's constant: it stands in a comment, and is told here. Problems with a
    name, a digest and a best known energy are in `annealfit instances`.

    [bold]Examples[/]

      annealfit export digits --format bqm -o digits.bqm

      annealfit export digits --format qubo --bits 5 --class 7 -o seven.qubo
    """
    prepared = prepare(dataset, filters, kernel, pool, standardize, size, download, seed)
    data = prepared.dataset
    problems = make_classifier(preset, bits, None, seed).problems(prepared.X_train, data.y_train)
    if not 0 <= class_index < len(data.class_names):
        raise InvalidInputError(f"--class is {class_index}; {dataset} has the classes 0 to {len(data.class_names) - 1}")
    problem = problems[min(class_index, len(problems) - 1)]  # two classes share one
    write(problem, out, format=file_format)
    name = data.class_names[class_index] if len(problems) > 1 else " or ".join(data.class_names)
    offset = file_offset(problem, file_format)
    note = offset_note(file_format, offset)
    told: dict[str, Any] = {"file": str(out), "dataset": dataset, "class": name}
    told |= {"variables": problem.n_variables, "couplings": problem.n_couplings, "bytes": out.stat().st_size}
    told |= {"offset": offset, "note": note}
    if as_json:
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    text = "{file}: class {class} of {dataset}, {variables} variables, {couplings:,} couplings, {bytes:,} bytes"
    console.print(plain(text.format(**told)), soft_wrap=True)
    if note is not None:
        console.print(plain(f"Note: {note}."), soft_wrap=True)


def _check_resumable(out: Path | None, resume: bool) -> None:
    if resume and (out is None or not (out / store.CHECKPOINT_FILE).exists()):
        raise InvalidInputError(
            "--resume needs --out, the folder of the run to continue"
            if out is None
            else f"--resume: there is no run to continue in {out}; check the name, or leave --resume out to start one"
        )


def _tell(run: TrainingRun, folder: Path, again: str, notes: list[str], *, as_json: bool) -> None:
    """Print the table, or its JSON, and what else the user should know."""
    classifier = run.model.classifier
    notes = [*notes, *sampler_notes(classifier)]
    interrupted = classifier.stop_reason_ == "interrupted"
    if interrupted:
        notes.append(
            f"Interrupted after {classifier.n_iter_} of {classifier.max_iter} iterations. Go on with:\n"
            f"annealfit {again}"
        )
    if as_json:
        typer.echo((folder / "metrics.json").read_text(encoding="utf-8").rstrip())
    else:
        print_table(_comparison_table(run))
        for note in notes:
            console.print(plain(note), soft_wrap=True)
        console.print(f"Run folder: {folder}", soft_wrap=True)
    if interrupted:
        raise typer.Exit(130)  # what shells say of a program that Ctrl-C ended


def _comparison_table(run: TrainingRun) -> Table:
    table = make_table(
        f"{plain(run.dataset.name)}: {len(run.dataset.X_train)} training, {len(run.dataset.X_test)} test images"
    )
    table.add_column("method", no_wrap=True)
    for heading in ("train %", "test %", "prec. %", "recall %", "F1 %", "κ", "MCC", "loss", "sec."):
        table.add_column(heading, justify="right")
    for record in run.records:
        *percents, kappa, mcc = (record.train["accuracy"], *record.test.values())
        table.add_row(
            plain(record.method),
            *(f"{100 * value:.1f}" for value in percents),
            *(f"{value:.3f}" for value in (kappa, mcc)),  # from −1 to 1: no percentages
            f"{record.loss:.4f}",
            f"{record.seconds:.2f}",
        )
    return table


def _draw(run: TrainingRun, folder: Path) -> list[str]:
    """Save the figures; without matplotlib say so instead."""
    from annealfit.report import figures

    try:
        figures.save_run_figures(run, folder)
    except MissingDependencyError as error:
        return [f"No plots: {error}"]
    return []
