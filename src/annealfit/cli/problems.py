"""The commands about QUBO problems: export one of a training; list and write the instances, and score answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn
from typer import Argument, Option

from annealfit._support.errors import InvalidInputError
from annealfit.cli import options
from annealfit.cli.output import Column, pick, print_json, print_table, progress_bar, say, warn, yes_no
from annealfit.data.datasets import is_available
from annealfit.problems.export import file_offset, offset_note
from annealfit.problems.export import write as write_problem

_FORMATS = (
    "bqm: dimod's binary file. coo, ising: dimod's text, `i j value` per line. npz: NumPy arrays. "
    "qubo: qbsolv's text. qs, sparse: that of QOBLIB and Biq Mac. bqpjson: JSON. All are exact."
)
instances_app = typer.Typer(no_args_is_help=True)
_OF_RECORDS = ("proven", "strength", "date", "found_by")
Select = Annotated[
    list[str] | None,
    Option(
        metavar="PATTERN",
        help="Only those with such names; * stands for anything (quote it). May be given several times.",
        show_default="all",
    ),
]


def export(
    dataset: options.Dataset,
    out: Annotated[Path, Option("-o", "--out", help="File to write.")],
    file_format: Annotated[options.Format, Option("--format", help=_FORMATS)] = options.Format("bqm"),
    class_index: Annotated[int, Option("--class", help="The class whose problem is written.")] = 0,
    preset: options.PresetOption = options.Preset.annealfit,
    bits: options.Bits = None,
    filters: options.Filters = 2,
    kernel: options.Kernel = 3,
    pool: options.Pool = 2,
    standardize: options.Standardize = "none",
    size: options.ImageSize = 8,
    download: options.Download = False,
    seed: options.Seed = 42,
    as_json: options.Json = False,
) -> None:
    """Write a QUBO of a training to a file, for other solvers.

    The text formats have no place for the energy's constant: it is in a comment, and printed here. Problems with a
    name, a digest and a best known energy are in `annealfit instances`.

    Examples of use:

    \b
      annealfit export digits --format bqm -o digits.bqm
      annealfit export digits --format qubo --bits 5 --class 7 -o seven.qubo
    """
    prepared = options.prepare_images(dataset, filters, kernel, pool, standardize, size, download, seed)
    names = prepared.dataset.class_names
    classifier = options.make_estimator(preset, bits=bits, random_state=seed)
    problems = classifier.problems(prepared.X_train, prepared.y_train)
    if not 0 <= class_index < len(names):
        raise InvalidInputError(f"--class is {class_index}; {dataset} has the classes 0 to {len(names) - 1}")
    problem = problems[min(class_index, len(problems) - 1)]  # two classes share one
    write_problem(problem, out, format=file_format)
    offset = file_offset(problem, file_format)
    written = {
        "file": str(out),
        "dataset": dataset,
        "class": names[class_index] if len(problems) > 1 else " or ".join(names),
        "variables": problem.n_variables,
        "couplings": problem.n_couplings,
        "bytes": out.stat().st_size,
        "offset": offset,
        "note": offset_note(file_format, offset),
    }
    if as_json:
        return print_json(written)
    text = "{file}: class {class} of {dataset}, {variables} variables, {couplings:,} couplings, {bytes:,} bytes"
    say(text.format(**written))
    if written["note"]:
        say(f"Note: {written['note']}.")


@instances_app.callback()
def instances() -> None:
    """Use QUBO problems from real training, to test solvers.

    They are named and seeded, and their best known energy is on record: digits-d18-k3-centred-first-c0 is from
    training on digits with 18 features and 3 bits per weight, in centred coordinates (raw is harder), at the first
    iteration (late: after 5), for class 0. The same name gives the same coefficients everywhere.

    Examples of use:

    \b
      annealfit instances list --select "digits-*"
      annealfit instances write problems --select "digits-d18-*" --format qubo
      annealfit instances check answers.csv
    """


@instances_app.command("list")
def list_instances(select: Select = None, as_json: options.Json = False) -> None:
    """List the instances, their sizes, and the lowest energies known.

    A proven energy is the optimum. One that is not is the best of several searches, and yours may be better, above all
    where only one of them reached it.

    Examples of use:

    \b
      annealfit instances list
      annealfit instances list --select "*-d512-*" --json
    """
    from annealfit.studies.instances import INSTANCES, best_known, select_instances

    rows = [
        {
            **instance.describe(),
            **pick(best_known(instance), "couplings", "sha256", "energy", *_OF_RECORDS),
            "available": is_available(instance.features.dataset),
        }
        for instance in select_instances(select or ())
    ]
    if as_json:
        return print_json(rows)
    columns = [
        Column("name", "{0[name]}", "left"),
        Column("variables", "{0[variables]}"),
        Column("couplings", "{0[couplings]:,}"),
        Column("best energy", "{0[energy]:.6g}"),
        Column("record", "{0[strength]}, {0[date]}", "left"),
        Column("data here", lambda row: yes_no(row["available"]), "left"),
    ]
    print_table(rows, columns)
    proven = sum(row["proven"] for row in rows)
    say(f"{len(rows)} of {len(INSTANCES)} instances, {proven} with a proven optimum.")


@instances_app.command("write")
def write_instances(
    folder: Annotated[Path, Argument(help="Folder to write to; created if it does not exist.")],
    select: Select = None,
    formats: Annotated[
        list[options.Format] | None,
        Option("--format", help=f"{_FORMATS} May be given several times.", show_default="qubo"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Write instances to files, each with a sidecar NAME.json.

    The sidecar has the size, what the instance was made from, the SHA-256 of its coefficients, and the best known
    energy with its bits. The offset of text files is in a comment, which other programs ignore: the sidecar has it too.

    Examples of use:

    \b
      annealfit instances write problems --select "digits-d18-k3-*"
      annealfit instances write problems --select "*-d18-*" --format bqm
    """
    from annealfit.studies.instances import require_data, select_instances, write_instance

    chosen = select_instances(select or ())
    require_data(chosen)
    words = [str(word) for word in formats or ("qubo",)]
    written = []
    with progress_bar("{task.description}", MofNCompleteColumn(), total=len(chosen)) as update:
        for instance in chosen:
            update(description=instance.name)
            written.append(write_instance(instance, folder, words))
            update(advance=1)
    for sidecar in written:
        if not sidecar["is_the_published_one"]:
            warn(
                f"{sidecar['name']}: its coefficients are not the published ones, bit for bit: are the data set's "
                "files the official ones? The best known energy is that of the published answer, and not proven."
            )
    if as_json:
        return print_json(written)
    files = [{**sidecar, **file} for sidecar in written for file in sidecar["files"]]
    columns = [
        Column("file", "{0[file]}", "left"),
        Column("variables", "{0[variables]}"),
        Column("offset", "{0[offset]:.6g}"),
        Column("best energy", "{0[best_known][energy]:.6g}"),
        Column("proven", lambda file: yes_no(file["best_known"]["proven"]), "left"),
    ]
    print_table(files, columns)
    say(f"{len(written)} instances in {folder}, a sidecar NAME.json with each.")
    without_offset = sorted({file["format"] for file in files if file["note"]})
    if without_offset:
        say(
            f"Energies that other programs report for {' and '.join(without_offset)} files are lower by the offset: it "
            "stands in a comment, which they ignore. Add it; the sidecar says so too."
        )


@instances_app.command("check")
def check_samples(
    samples: Annotated[Path, Argument(help="A .csv, .json or .npz file of instance names and bits.")],
    within: Annotated[
        float, Option(min=0, help="A read succeeds so close to the best known energy, relatively.")
    ] = 1e-9,
    qoblib: Annotated[
        Path | None, Option("--qoblib", metavar="FOLDER", help="Write a submission to QOBLIB for each instance there.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Score another solver's answers.

    Energies are computed anew. The file has a row for every read, with the bits in the order of the variables:

    \b
      instance,bits
      digits-d18-k1-centred-first-c0,0100110101101001011

    What a read took can stand in a column `seconds` after the name (header instance,seconds,bits). A submission to
    QOBLIB then has run times and a time series.

    residual is how far the best read is above the best known energy, as a share of it; success is the share of reads
    that reach it. "optimal" means proven; "new best" means that an unproven record is beaten: --json has the bits.

    Example of use:

    \b
      annealfit instances check answers.csv
    """
    from annealfit.studies.instances import read_answers, require_data, score_answers, write_submission

    answers = read_answers(samples)
    require_data([found.instance for found in answers])
    scores = [score_answers(found, within=within) for found in answers]
    if qoblib is not None:
        for score in scores:
            warn(f"{write_submission(score, qoblib, within)}: fill in the empty columns of the summary")
    if as_json:
        rows = [
            {
                "instance": score.instance.name,
                "reads": len(score.energies),
                "mean_energy": float(score.energies.mean()),
                "best_known": score.known.energy,
                **pick(score.known, *_OF_RECORDS),
                **pick(score, "best_energy", "residual", "success", "verdict", "best_bits"),
                "energies": score.energies.tolist(),
            }
            for score in scores
        ]
        return print_json(rows)
    columns = [
        Column("instance", "{0.instance.name}", "left"),
        Column("reads", "{0.energies.size}"),
        Column("best energy", "{0.best_energy:.6g}"),
        Column("best known", "{0.known.energy:.6g}"),
        Column("record", "{0.known.strength}, {0.known.date}", "left"),
        Column("residual", lambda score: f"{0.0 if abs(score.residual) <= within else score.residual:.2g}"),
        Column("success", "{0.success:.1%}"),
        Column("best read is", "{0.verdict}", "fold"),
    ]
    print_table(scores, columns)
