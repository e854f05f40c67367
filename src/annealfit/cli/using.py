"""The commands about a trained model, and about problems for others: use it, hand them out."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from annealfit._support.errors import InvalidInputError
from annealfit.cli.display import console, make_table, plain
from annealfit.cli.options import (
    BitsOption,
    DatasetArgument,
    DownloadOption,
    FiltersOption,
    Format,
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
from annealfit.cli.printing import print_table
from annealfit.data.datasets.own_data import image_files
from annealfit.problems.export import file_offset, offset_note, write
from annealfit.studies import store


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

    Examples of use:

      annealfit predict runs/demo runs/demo/samples/class-8.png

      annealfit predict runs/demo runs/demo/samples
    """
    from annealfit.models.image_classifier import ImageClassifier

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
    """Write a QUBO of a training to a file, for other solvers.

    The text formats have no place for the energy's constant: it stands in a comment, and is told here. Problems with a
    name, a digest and a best known energy are in `annealfit instances`.

    Examples of use:

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
