"""The command that sets samplers side by side on the same problems, against the proven optimum."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from annealfit import __version__
from annealfit._support.errors import MissingDependencyError, choose
from annealfit.cli.display import errors, make_progress, plain
from annealfit.cli.options import (
    CoordinatesOption,
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
    parse_coordinates,
    parse_numbers,
)
from annealfit.cli.preparing import make_classifier, prepare
from annealfit.cli.sampling import choose_sampler
from annealfit.samplers.catalogue import SAMPLERS
from annealfit.samplers.protocol import Sampler
from annealfit.studies.success import CONFIDENCE, INTERVAL
from annealfit.studies.truth import TRUTH_SECONDS

if TYPE_CHECKING:
    from annealfit.models import AnnealedClassifier

_NOT_STORED = {"samplers", "out", "as_json", "download"}  # options that decide no result, or stand elsewhere
# All but the one that is paid for by use, and the one that finds the truth.
UNASKED = tuple(name for name in SAMPLERS if name not in ("qpu", "lattice"))


def compare(
    context: typer.Context,
    dataset: DatasetArgument,
    samplers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:SETTING=VALUE,…],…",
            help=f"Any of {', '.join(SAMPLERS)}. Default: all that are installed, but neither lattice nor qpu.",
        ),
    ] = None,
    coordinates: CoordinatesOption = None,
    reads: Annotated[
        int,
        typer.Option(min=1, help="Reads of every problem, where a sampler takes num_reads and was not given its own."),
    ] = 64,
    repeats: Annotated[
        int, typer.Option(min=1, help="Timed solves of the same problems, each with its own seeds.")
    ] = 1,
    late: Annotated[
        int, typer.Option(min=0, help="Take problems after so many iterations as well as the first; 0: the first only.")
    ] = 5,
    target: Annotated[
        float, typer.Option(min=0, help="How near to the lowest energy is a success, as a share of that energy.")
    ] = 1e-9,
    truth_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Search a problem's proven optimum for so long at most.")
    ] = TRUTH_SECONDS,
    iterations: Annotated[
        int, typer.Option(min=0, help="Iterations of the training with each sampler, at most; 0: no training.")
    ] = 30,
    preset: PresetOption = Preset.annealfit,
    bits: Annotated[
        str | None,
        typer.Option(help="Bits per weight update, as 3 or 1-3. Default: 3, or 20 with a preset of the paper."),
    ] = None,
    filters: FiltersOption = 2,
    kernel: KernelOption = 3,
    pool: PoolOption = 2,
    standardize: StandardizeOption = "none",
    size: SizeOption = 8,
    download: DownloadOption = False,
    seed: SeedOption = 42,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for the problems, the tables and the figures.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Give every sampler the same problems, and compare.

    Tells how often each finds the optimum, and how long that takes. The problems are a training's own, of its first
    iteration and of a later one, in raw and in centred coordinates. Their optimum is proven first, so that a read is
    right or wrong. Then the training itself is run with each sampler.

    Examples of use:

      annealfit compare-samplers digits

      annealfit compare-samplers digits --bits 1-3 --samplers levels,native

      annealfit compare-samplers digits --samplers native,native:num_sweeps=1000
    """
    from annealfit.cli.comparison_files import describe_comparison, opened_comparison_folder, save_comparison
    from annealfit.cli.comparison_tables import print_comparison
    from annealfit.studies import sampler_study
    from annealfit.studies.solving import with_reads

    classifier, every_bits = _make_classifier(preset, bits, iterations, seed)
    # The paper's presets are its coordinates, too.
    usual = ("raw", "centred") if preset == Preset.annealfit else ("raw",)
    bases = parse_coordinates(coordinates, usual)
    prepared = prepare(dataset, filters, kernel, pool, standardize, size, download, seed)
    classifier.problems(prepared.X_train, prepared.dataset.y_train)  # bad settings fail before any file is made
    made, skipped = _make_samplers(samplers, seed, classifier.sampler)
    solving = {name: made[name] if "num_reads" in name else with_reads(made[name], reads) for name in made}
    if out is not None:
        context.with_resource(opened_comparison_folder(out))
    solves = len(bases) * len(every_bits) * ((repeats + 1) * (2 if late else 1) + iterations)
    with _opened(made), _progress(list(made), solves) as on_solve:
        found = sampler_study.compare_samplers(
            solving,
            prepared,
            classifier,
            coordinates=bases,
            bits=every_bits,
            trainers=made if iterations else {},
            late=late,
            repeats=repeats,
            target=target,
            truth_seconds=truth_limit,
            seed=seed,
            on_solve=on_solve,
        )
    options = {name: value for name, value in context.params.items() if name not in _NOT_STORED}
    document = {
        "annealfit": __version__,
        "options": {**options, "bits": every_bits, "coordinates": list(bases)},
        "samplers": {name: sampler.describe() for name, sampler in solving.items()},
        "confidence": CONFIDENCE,
        "interval": INTERVAL,
        "skipped": skipped,
        **describe_comparison(found),
    }
    notes = [*(f"{name} is left out: {reason}" for name, reason in skipped.items()), *found.notes]
    if out is not None:
        notes += save_comparison(found, document, out)
    if as_json:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print_comparison(found)
    for note in notes:
        errors.print(plain(f"note: {note}"), soft_wrap=True)


def _make_classifier(
    preset: Preset, bits: str | None, iterations: int, seed: int
) -> tuple[AnnealedClassifier, list[int]]:
    """The classifier of the preset, with the most bits that were asked for, and all that were."""
    asked = None if bits is None else list(dict.fromkeys(parse_numbers(bits, "--bits")))
    classifier = make_classifier(preset, max(asked) if asked else None, max(iterations, 1), seed)
    return classifier, asked or [classifier.bits]


@contextmanager
def _opened(samplers: Mapping[str, Sampler]) -> Iterator[None]:
    """Samplers that are closed in the end: one may have a connection."""
    with ExitStack() as stack:
        for sampler in samplers.values():
            stack.enter_context(sampler)
        yield


def _make_samplers(
    asked: str | None, seed: int, of_preset: Sampler | str | None
) -> tuple[dict[str, Sampler], dict[str, str]]:
    """The samplers, and why others are left out; what was named and cannot be made is an error."""
    from annealfit.samplers import SimulatedAnnealer

    names = UNASKED if asked is None else split_samplers(asked)
    made, skipped = {}, {}
    for name in names:
        try:
            # The paper's presets are its temperatures, and those are the native annealer's.
            papers = name == "native" and isinstance(of_preset, SimulatedAnnealer)
            made[name] = choose_sampler(None if papers else name, None, of_preset, seed)
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
