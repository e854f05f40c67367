"""The command that compares samplers on the same problems, against the proven optimum."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

import annealfit
from annealfit._support.errors import InvalidInputError, MissingDependencyError, choose
from annealfit._support.files import remove_leftovers, replacing, without_nan, working_in, write_json
from annealfit.cli import options
from annealfit.cli.output import Column, count_bits, pick, print_json, print_table, progress_bar, say, warn
from annealfit.problems.export import write
from annealfit.samplers.catalogue import SAMPLERS
from annealfit.samplers.protocol import Sampler

if TYPE_CHECKING:
    from annealfit.studies.sampler_study import Comparison, SolveRow

COMPARISON_FILE = "comparison.json"
# Compared by default: all but the sampler that is paid for by use and the one that proves the optimum.
DEFAULT_SAMPLERS = tuple(name for name in SAMPLERS if name not in ("qpu", "lattice"))
_NOT_STORED = {"samplers", "out", "as_json", "download"}  # options that change no result, or are stored elsewhere
_ROUNDING = 1e-12  # of energies that are computed in different ways


def compare(
    context: typer.Context,
    dataset: options.Dataset,
    samplers: Annotated[
        str | None,
        Option(
            metavar="NAME[:SETTING=VALUE,…],…",
            help=f"Any of {', '.join(SAMPLERS)}. Default: all that are installed, but neither lattice nor qpu.",
        ),
    ] = None,
    coordinates: options.Coordinates = None,
    reads: Annotated[int, Option(min=1, help="Reads per problem, unless a sampler is given num_reads.")] = 64,
    repeats: Annotated[int, Option(min=1, help="Timed solves of the same problems, with new seeds each.")] = 1,
    late: Annotated[int, Option(min=0, help="Also take problems after so many iterations; 0: do not.")] = 5,
    target: Annotated[float, Option(min=0, help="Relative distance from the optimum that is a success.")] = 1e-9,
    truth_limit: Annotated[float, Option(metavar="SECONDS", help="Time to prove an optimum, at most.")] = 10.0,
    iterations: Annotated[int, Option(min=0, help="Iterations of training with each; 0: no training.")] = 30,
    preset: options.PresetOption = options.Preset.annealfit,
    bits: Annotated[
        str | None, Option(help="Bits per update, as 3 or 1-3. Default: 3, or 20 with a paper preset.")
    ] = None,
    filters: options.Filters = 2,
    kernel: options.Kernel = 3,
    pool: options.Pool = 2,
    standardize: options.Standardize = "none",
    size: options.ImageSize = 8,
    download: options.Download = False,
    seed: options.Seed = 42,
    out: Annotated[Path | None, Option("-o", "--out", help="Folder for problems, figure, CSV and JSON.")] = None,
    as_json: options.Json = False,
) -> None:
    """Give every sampler the same problems, and compare.

    Tells how often each finds the proven optimum, and how long that takes. The problems are a training's own, of its
    first iteration and of a later one, in raw and in centred coordinates. Then each sampler trains.

    Examples of use:

    \b
      annealfit compare-samplers digits
      annealfit compare-samplers digits --bits 1-3 --samplers levels,native
      annealfit compare-samplers digits --samplers native,native:num_sweeps=1000
    """
    from annealfit.studies.sampler_study import compare_samplers, with_reads

    asked = [] if bits is None else options.parse_numbers(bits, "--bits")
    most = max(asked, default=None)
    classifier = options.make_estimator(preset, bits=most, max_iter=max(iterations, 1), random_state=seed)
    every_bits = asked or [classifier.bits]
    # The paper's presets stand for its coordinates, too.
    usual = ("raw", "centred") if preset == options.Preset.annealfit else ("raw",)
    bases = options.parse_coordinates(coordinates, usual)
    prepared = options.prepare_images(dataset, filters, kernel, pool, standardize, size, download, seed)
    classifier.problems(prepared.X_train, prepared.y_train)  # bad settings fail before any file is made
    made, skipped = _make_samplers(samplers, seed, classifier.sampler)
    solving = {name: made[name] if "num_reads" in name else with_reads(made[name], reads) for name in made}
    if out is not None:  # a folder that cannot be used fails before the work
        context.with_resource(working_in(out))
        if (out / COMPARISON_FILE).exists():
            raise InvalidInputError(f"{out} holds a comparison already; name another folder with --out")
        remove_leftovers(out / "problems")
    names = list(made)
    settings: dict[str, Any] = {"coordinates": bases, "bits": every_bits, "late": late, "repeats": repeats}
    settings |= {"target": target, "truth_seconds": truth_limit, "seed": seed}
    with ExitStack() as stack:
        for sampler in made.values():  # one may have a connection to close
            stack.enter_context(sampler)
        update = stack.enter_context(progress_bar("Comparing", total=len(made)))
        found = compare_samplers(
            solving,
            prepared,
            classifier,
            **settings,
            trainers=made if iterations else {},
            on_solve=lambda name: update(completed=names.index(name), description=name),
        )
    stored = {name: value for name, value in context.params.items() if name not in _NOT_STORED}
    stored |= {"bits": every_bits, "coordinates": list(bases)}
    described = {name: sampler.describe() for name, sampler in solving.items()}
    document = {"options": stored, "samplers": described, "skipped": skipped, **without_nan(_describe(found))}
    notes = [*(f"{name} is left out: {reason}" for name, reason in skipped.items()), *found.notes]
    if out is not None:
        notes += _save(found, document, out)
    if as_json:
        print_json(document)
    else:
        _print(found)
    for note in notes:
        warn(f"note: {note}")


def _make_samplers(
    asked: str | None, seed: int, of_preset: Sampler | str | None
) -> tuple[dict[str, Sampler], dict[str, str]]:
    """The samplers, and why others are left out; a named sampler that cannot be made is an error."""
    from annealfit.samplers import SimulatedAnnealer

    made, skipped = {}, {}
    for name in DEFAULT_SAMPLERS if asked is None else split_samplers(asked):
        try:
            # The paper's presets set the temperatures of the native annealer.
            papers = name == "native" and isinstance(of_preset, SimulatedAnnealer)
            made[name] = options.make_sampler(None if papers else name, None, of_preset, seed)
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


def _describe(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON; a number that is not finite stands for never, or for a failure."""
    problems = [
        {
            **pick(taken, "name", "coordinates", "after"),
            "bits": taken.problems.bits,
            "count": len(taken.problems),
            "variables": taken.problems[0].n_variables,
            "energies": taken.energies.tolist(),
            "proven": taken.proven.tolist(),
        }
        for taken in found.problem_sets
    ]
    training = [
        {
            **({"coordinates": row.coordinates, "bits": row.bits} if row else {}),
            "sampler": record.method,
            "loss": record.loss,
            "loss_ratio": record.loss / found.optimum.loss,
            "test_accuracy": record.test.get("accuracy", math.nan),
            **pick(record, "iterations", "stop_reason", "seconds", "access_seconds"),
            "losses": record.history["loss"].tolist() if record.history else [],
            "failure": record.error,
        }
        for row, record in (*((row, row.record) for row in found.training), (None, found.optimum))
    ]
    how = {"annealfit": annealfit.__version__, **pick(found, "confidence", "interval")}
    solving = [asdict(row) for row in found.solving]
    return {**how, "problems": problems, "solving": solving, "training": training, "notes": found.notes}


def _save(found: Comparison, document: dict[str, Any], folder: Path) -> list[str]:
    """Write problems, table, figure and, last, the document, whose presence says that the folder is complete."""
    from annealfit.studies.records import csv_text
    from annealfit.studies.report.drawing import draw_success, save_figure

    notes = []
    for file_format in ("npz", "bqm"):
        try:
            for taken in found.problem_sets:
                start = f"{taken.name}-{taken.coordinates}-{taken.problems.bits}-bits"
                for number, problem in enumerate(taken.problems):
                    path = folder / "problems" / f"{start}-class-{number}.{file_format}"
                    write(problem, path, format=file_format)
        except MissingDependencyError as error:
            notes.append(f"no {file_format} files: {error}")
    with replacing(folder / "comparison.csv") as file:
        file.write(csv_text([{**asdict(row), "success": row.success.value} for row in found.solving]).encode())
    try:
        save_figure(draw_success(found), folder / "success.png")
    except MissingDependencyError as error:
        notes.append(f"no figure: {error}")
    write_json(folder / COMPARISON_FILE, document)
    return notes


def _number(value: float) -> str:
    """A number of at least three digits, and without a power of ten if it is large."""
    return "never" if math.isinf(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _solution(row: SolveRow) -> str:
    least = "" if row.proven or math.isinf(row.seconds_to_solution) else "≥ "
    return least + _number(1e3 * row.seconds_to_solution)


_SOLVING = (
    Column("sampler", "{0.sampler}", "fold"),
    Column("residual\n%", lambda row: "0" if row.residual < _ROUNDING else _number(100 * row.residual)),
    Column("success\n%", lambda row: f"{'' if row.proven else '≤ '}{100 * row.success.value:.1f}"),
    Column("from–to", lambda row: f"{100 * row.success.low:.0f}–{100 * row.success.high:.0f}"),
    Column("ms per\nread", lambda row: _number(1e3 * row.seconds_per_read)),
    Column("solution\nms", _solution),
)


def _print(found: Comparison) -> None:
    """A table per problem set and per set of trainings; failures below them."""
    for taken in found.problem_sets:
        when = f"after {taken.after} iterations" if taken.after else "of the first iteration"
        bits, count, variables = taken.problems.bits, len(taken.problems), taken.problems[0].n_variables
        what = f"{count} problems {when}, {taken.coordinates}, {count_bits(bits)}, {variables} variables"
        rows = [row for row in taken.own(found.solving) if row.failure is None]
        print_table(rows, _SOLVING, title=f"{what};\noptimum proven for {taken.proven.sum()} of {count}")
        say()
    training = (
        Column("sampler", "{0.method}", "fold"),
        Column("loss ÷\noptimum", lambda record: f"{record.loss / found.optimum.loss:.5f}"),
        Column("test\n%", lambda record: f"{100 * record.test['accuracy']:.1f}"),
        Column("iterations", lambda record: str(record.iterations or "")),
        Column("seconds", "{0.seconds:.2f}"),
        Column("QPU\nseconds", lambda r: "" if r.access_seconds is None else f"{r.access_seconds:.2f}"),
    )
    for variant, trained in groupby(found.training, key=lambda row: (row.coordinates, row.bits)):
        records = [row.record for row in trained if row.record.error is None]
        title = f"Training with each, {variant[0]}, {count_bits(variant[1])}"
        print_table([*records, found.optimum], training, title=title)
        say()
    failures = {row.record.method: row.record.error for row in found.training if row.record.error}
    failures |= {row.sampler: row.failure for row in found.solving if row.failure}
    for sampler, failure in failures.items():
        say(f"{sampler} failed: {failure}")
    say(
        "Success: share of the reads that are the optimum. Solution: the time of a problem until one is, with "
        f"{found.confidence:.0%} confidence, median. From–to: {found.interval:.0%} confidence interval. Residual: mean "
        "of (E − E*)/|E*| over reads. The time of a device is its access time. ≤ and ≥: an optimum was not proven "
        "within --truth-limit, and the best energy known stands for it.",
        wrap=True,
    )
