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

from annealfit import __version__
from annealfit.cli.display import console, errors, make_table, plain, training_progress
from annealfit.cli.options import (
    BitsOption,
    BlocksOption,
    ColorOption,
    DatasetArgument,
    DownloadOption,
    FiltersOption,
    Format,
    HistoryFormat,
    ImagesOption,
    JsonOption,
    KernelOption,
    KernelsOption,
    LayersOption,
    PoolOption,
    PoolsOption,
    Preset,
    PresetOption,
    SamplerOption,
    SeedOption,
    SizeOption,
    StandardizeOption,
    TrainFiltersOption,
    parse_images,
    parse_sizes,
)
from annealfit.cli.preparing import head_job, make_classifier, make_network, network_job, prepare
from annealfit.cli.printing import print_table
from annealfit.cli.run_output import draw_run, tell_run
from annealfit.cli.sampling import choose_sampler, describe_plan
from annealfit.datasets import load_dataset
from annealfit.datasets.own_data import image_files
from annealfit.description import describe
from annealfit.errors import InvalidInputError
from annealfit.experiments import store
from annealfit.export import file_offset, offset_note, write

if TYPE_CHECKING:
    pass


def train(
    dataset: DatasetArgument,
    preset: PresetOption = Preset.annealfit,
    bits: BitsOption = None,
    max_iter: Annotated[int | None, typer.Option(help="Iterations at most.")] = None,
    filters: LayersOption = "2",
    kernel: KernelsOption = "3",
    pool: PoolsOption = "2",
    train_filters: TrainFiltersOption = False,
    standardize: StandardizeOption = "none",
    sampler: SamplerOption = None,
    blocks: BlocksOption = None,
    size: SizeOption = 8,
    color: ColorOption = False,
    images: ImagesOption = None,
    download: DownloadOption = False,
    seed: SeedOption = 42,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: a new one below runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out where it stopped.")] = False,
    history: Annotated[HistoryFormat, typer.Option(help="File format of the history.")] = HistoryFormat("csv"),
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the figures of the run.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Train on a data set by annealing, with classical training beside it.

    Draws random convolution features, trains the classifier head by QUBO solves, prints one table, and
    leaves a run folder: model, configuration, history, metrics, plots. Ctrl-C ends the training early
    and keeps what was learnt; --resume goes on from there. With --train-filters the filters are trained
    by QUBO solves too, and the folder has pictures of them.

    [bold]Examples[/]

      annealfit train digits

      annealfit train digits --preset matched --bits 10 --out runs/matched

      annealfit train digits --train-filters --filters 4

      annealfit train mnist --download --filters 8

      annealfit train digits --bits 2 --max-iter 20 --sampler mock-qpu:topology=Z12,faults=0.1
    """
    folder = out or Path("runs") / f"{Path(dataset).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    _check_resumable(out, resume)
    sizes: dict[str, Any] = {
        "n_filters": parse_sizes(filters, "--filters"),
        "kernel_size": parse_sizes(kernel, "--kernel"),
        "pool_size": parse_sizes(pool, "--pool"),
        "standardize": standardize,
    }
    classifier: Any = (make_network if train_filters else make_classifier)(preset, bits, max_iter, seed)
    used = choose_sampler(sampler, blocks, classifier.sampler, seed)
    classifier.set_params(sampler=used)
    data = load_dataset(dataset, seed=seed, size=size, color=color, download=download, **parse_images(images))
    job = (network_job if train_filters else head_job)(data, sizes, classifier)
    config = {
        "annealfit": __version__,
        "dataset": dataset,
        "image_size": size,
        "preset": str(preset),
        "seed": seed,
        "features": job.features,
        "classifier": describe(classifier.get_params(deep=False)),
    }
    again = shlex.join([*sys.argv[1:], *([] if out else ["--out", str(folder)]), *([] if resume else ["--resume"])])
    with used:  # it may have a connection to close
        # Bad settings, or a problem that does not fit the device, fail before any file is made or any call paid for.
        plan = classifier.preflight(job.X_train, data.y_train)
        if plan is not None:
            errors.print(plain(describe_plan(plan, classifier.max_iter, of_layers=train_filters)), soft_wrap=True)
        with store.opened_run_folder(folder, config, resume=resume):
            classifier.set_params(checkpoint=folder / store.CHECKPOINT_FILE, resume=resume)
            try:
                with training_progress(classifier.max_iter) as on_iteration, warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # what they say is in the table and the notes below
                    run = job.run([on_iteration])
                store.save_run(run, folder, config, history_format=history)
            except KeyboardInterrupt:  # before or after the iterations: during them, what was learnt is kept
                if (folder / store.CHECKPOINT_FILE).exists():
                    errors.print(plain(f"Interrupted. What was learnt is in {folder}. Go on with:\nannealfit {again}"))
                else:
                    errors.print("Interrupted before the first iteration: there is nothing to resume; start it again.")
                raise typer.Exit(130) from None
    notes = draw_run(run, folder) if plots else []
    tell_run(run, folder, again, notes, as_json=as_json)


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
