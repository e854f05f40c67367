"""The commands about the library of instances: list them, write them to files, score other solvers' answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from annealfit.cli.display import console, errors, make_progress, make_table, plain
from annealfit.cli.options import Format, JsonOption
from annealfit.cli.printing import print_table
from annealfit.data.datasets import is_available
from annealfit.studies.instances.answers import WITHIN
from annealfit.studies.instances.catalogue import INSTANCES, Instance, select_instances

if TYPE_CHECKING:
    from annealfit.studies.instances import Score, WrittenInstance

instances_app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

SelectOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Only those with such names; * stands for anything (quote it). May be given several times.",
        show_default="all",
    ),
]


@instances_app.callback()
def instances() -> None:
    """Use QUBO problems from real training, to test solvers.

    They are named and seeded, and their best known energy is on record. A name says it all:
    digits-d18-k3-centred-first-c0 is from training on digits with 18 features and 3 bits per weight, in centred
    coordinates (raw is harder), at the first iteration (late: after 5), for class 0. It has (18 + 1) · 3 variables. The
    same name gives the same coefficients everywhere; their SHA-256 says so.

    Examples of use:

      annealfit instances list --select "digits-*"

      annealfit instances write problems --select "digits-d18-*" --format qubo

      annealfit instances check answers.csv
    """


@instances_app.command("list")
def list_instances(select: SelectOption = None, as_json: JsonOption = False) -> None:
    """List the instances, their sizes, and the lowest energies known.

    A proven energy is the optimum. One that is not is the best of many anneals, and yours may be better.

    Examples of use:

      annealfit instances list

      annealfit instances list --select "*-d512-*" --json
    """
    chosen = select_instances(select or ())
    rows = [_row(instance) for instance in chosen]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = make_table()
    table.add_column("name", no_wrap=True)
    for heading in ("variables", "couplings", "best energy"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("proven", "data here"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        words = ("yes" if row[key] else "no" for key in ("proven", "available"))
        energy = f"{row['energy']:.6g}"
        table.add_row(row["name"], str(row["variables"]), f"{row['couplings']:,}", energy, *words)
    print_table(table)
    proven = sum(row["proven"] for row in rows)
    console.print(f"{len(rows)} of {len(INSTANCES)} instances, {proven} with a proven optimum.")


@instances_app.command("write")
def write_instances(
    folder: Annotated[Path, typer.Argument(help="Folder to write to; it is made if it is not there.")],
    select: SelectOption = None,
    formats: Annotated[
        list[Format] | None,
        typer.Option(
            "--format",
            help="qubo: qbsolv's text. coo: dimod's text. ising: the same over spins. bqm: dimod's binary file. "
            "npz: NumPy arrays. May be given several times.",
            show_default="qubo",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write instances to files, each with a sidecar NAME.json.

    The sidecar has the size, the offset, what the instance was made from, the SHA-256 of its coefficients, the best
    known energy with its bits, whether it is proven, and which sampler found it. All text files are exact; their
    offset stands in a comment, which other programs pass over: the sidecar says what to add to their energies.

    Examples of use:

      annealfit instances write problems --select "digits-d18-k3-*"

      annealfit instances write problems --select "*-d18-*" --format bqm
    """
    from annealfit.studies.instances import require_data, write_instance

    chosen = select_instances(select or ())
    require_data(chosen)
    words = [str(word) for word in formats or [Format("qubo")]]
    written: list[WrittenInstance] = []
    progress = make_progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with progress:
        task = progress.add_task("", total=len(chosen))
        for instance in chosen:
            progress.update(task, description=instance.name)
            written.append(write_instance(instance, folder, words))
            progress.advance(task)
    for one in written:
        if not one.sidecar["is_the_published_one"]:
            errors.print(plain(f"{one.instance.name}: {_OTHER_COEFFICIENTS}"), soft_wrap=True)
    if as_json:
        told = [{**one.sidecar, "paths": [str(path) for path in one.files]} for one in written]
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    _tell_written(written)


_OTHER_COEFFICIENTS = (
    "its coefficients are not the published ones, bit for bit: are the data set's files the official ones? "
    "The best known energy is that of the published answer, and not proven."
)


@instances_app.command("check")
def check_samples(
    samples: Annotated[Path, typer.Argument(help="A .csv, .json or .npz file of instance names and bits.")],
    within: Annotated[
        float, typer.Option(min=0, help="A read succeeds within this share of the best known energy.")
    ] = WITHIN,
    as_json: JsonOption = False,
) -> None:
    """Score another solver's answers.

    Energies are computed anew; the table has the distance to the best known energy and the success probability. The
    file has a row for every read, with the bits in the order of the variables. As CSV:

      instance,bits

      digits-d18-k1-centred-first-c0,0100110101101001011

    As JSON: a list of {"instance": NAME, "bits": "0100…"}, or an object {NAME: ["0100…", …]}; bits may be a list too.
    As npz: under each name an array of shape (reads, variables).

    residual is how far the best read is above the best known energy, as a share of it; success is the share of reads
    that reach it. "optimal" means proven; "new best" means that an unproven record is beaten: --json has the bits.

    Example of use:

      annealfit instances check answers.csv
    """
    from annealfit.studies.instances import read_answers, require_data, score_answers

    answers = read_answers(samples)
    require_data([found.instance for found in answers])
    scores = [score_answers(found, within=within) for found in answers]
    if as_json:
        typer.echo(json.dumps([_as_data(score) for score in scores], indent=2, ensure_ascii=False))
        return
    table = make_table()
    table.add_column("instance", no_wrap=True)
    for heading in ("reads", "best energy", "best known", "residual", "success"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("best read is")
    for score in scores:
        table.add_row(
            score.instance.name,
            str(len(score.energies)),
            f"{score.best_energy:.6g}",
            f"{score.known.energy:.6g}",
            f"{0.0 if abs(score.residual) <= within else score.residual:.2g}",
            f"{score.success:.1%}",
            f"[bold]{score.verdict}[/]" if score.verdict == "new best" else score.verdict,
        )
    print_table(table)


def _row(instance: Instance) -> dict[str, Any]:
    from annealfit.studies.instances import best_known

    known = best_known(instance)
    return {
        "name": instance.name,
        "dataset": instance.features.dataset,
        "d": instance.features.n_features,
        "K": instance.bits,
        "coordinates": instance.coordinates,
        "stage": instance.stage,
        "class": instance.class_index,
        "variables": instance.n_variables,
        "couplings": known.couplings,
        "sha256": known.sha256,
        "energy": known.energy,
        "proven": known.proven,
        "found_by": known.found_by,
        "available": is_available(instance.features.dataset),
    }


def _as_data(score: Score) -> dict[str, Any]:
    return {
        "instance": score.instance.name,
        "reads": len(score.energies),
        "best_energy": score.best_energy,
        "mean_energy": float(score.energies.mean()),
        "best_known": score.known.energy,
        "proven": score.known.proven,
        "residual": score.residual,
        "success": score.success,
        "verdict": score.verdict,
        "best_bits": score.best_bits,
        "energies": score.energies.tolist(),
    }


def _tell_written(written: list[WrittenInstance]) -> None:
    table = make_table()
    table.add_column("file", no_wrap=True)
    for heading in ("variables", "offset", "best energy"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("proven")
    for one in written:
        known = one.sidecar["best_known"]
        for file in one.sidecar["files"]:
            table.add_row(
                plain(file["file"]),
                str(one.sidecar["variables"]),
                f"{file['offset']:.6g}",
                f"{known['energy']:.6g}",
                "yes" if known["proven"] else "no",
            )
    print_table(table)
    console.print(plain(f"{len(written)} instances in {written[0].files[-1].parent}, a sidecar NAME.json with each."))
    without = sorted({file["format"] for one in written for file in one.sidecar["files"] if file["note"]})
    if without:
        console.print(
            f"Energies that other programs report for {' and '.join(without)} files are lower by the offset: it "
            "stands in a comment, which they pass over. Add it; the sidecar says so too.",
            soft_wrap=True,
        )
