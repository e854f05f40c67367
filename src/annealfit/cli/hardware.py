"""The command about chips: whether the problems of a training or a layer fit, what they cost, what error leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby, product
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from rich.progress import MofNCompleteColumn, TimeRemainingColumn
from typer import Option

from annealfit._support.errors import InvalidInputError
from annealfit.cli import options
from annealfit.cli.output import Column, count_bits, pick, print_json, print_table, progress_bar, say
from annealfit.hardware.feasibility import Feasibility, Workload, published_device
from annealfit.hardware.limits import ERROR_LEVELS, Device, device_of_solver
from annealfit.hardware.topologies import TOPOLOGIES, chip_with_defects, read_properties
from annealfit.problems.encoding import MAX_BITS

_LEAST, _OF_COUPLINGS, _MOST = ERROR_LEVELS
_ENDS = (_LEAST, _MOST)
_EXPLANATION = f"""\
QPU time: access time of all calls, {{reads}} reads{{annealed}}, estimated with D-Wave's timing of Advantage in August \
2022, for Zephyr too, unless a solver's file brings its own.
span: largest coupling over the smallest. largest, chains: the largest coupling and the chain strength once scaled. \
below error: couplings smaller than {_LEAST} to {_MOST} of the range then (published error: couplings {_LEAST} to \
{_OF_COUPLINGS}, fields {_LEAST} to {_MOST})."""


def hardware(
    features: Annotated[str, Option(help="Features d of an image, as 18 or 9,18,36.")] = "18",
    classes: Annotated[str, Option(help="Classes, as 10 or 2-10.")] = "10",
    filters: Annotated[int | None, Option(help="Trained filters: their problems instead of the head's.")] = None,
    kernel: Annotated[int, Option(help="With --filters: their kernel size, 1 to 5.")] = 3,
    channels: Annotated[int, Option(help="With --filters: channels of their input.")] = 1,
    bits: Annotated[
        str | None,
        Option(help="Bits per update (or weight of a layer), as 3 or 1,2,5-8.", show_default="1-20; of a layer 1-3"),
    ] = None,
    layer: Annotated[
        str | None, Option(metavar="INPUTSxOUTPUTS", help="A layer with low-bit weights instead, as 180x64.")
    ] = None,
    topology: Annotated[
        list[str] | None, Option(help=f"Ideal chip, any of {', '.join(TOPOLOGIES)}; repeatable. Default: all.")
    ] = None,
    defects: Annotated[float, Option(help="Share of the qubits that are missing, at random.")] = 0.0,
    solver: Annotated[
        Path | None, Option(metavar="FILE", help="A solver's properties as JSON: a chip as it is.")
    ] = None,
    reads: Annotated[int, Option(help="Reads of every problem.")] = 100,
    iterations: Annotated[int, Option(help="Iterations of the training.")] = 200,
    annealing_time: Annotated[
        float | None, Option(metavar="µs", help="Microseconds of an anneal. Default: the solver's.")
    ] = None,
    coordinates: options.Coordinates = None,
    seed: Annotated[int, Option(help="Decides the filters and the defects.")] = 42,
    plot: Annotated[Path | None, Option("-o", "--plot", metavar="FILE", help="Draw it: png, svg or pdf.")] = None,
    as_json: options.Json = False,
) -> None:
    """Tell what fits an annealer's chip, and what it costs.

    Embeds every class's problem, which is a clique of (d+1)·K variables, counts how many classes fit side by side,
    and sets the coefficients of digits' problems, raw and centred, against the published analog error. With --filters
    the problems are those of filters, cliques of (kernel²·channels+1)·K variables; with --layer those of its rows,
    cliques of inputs·K. Nothing is submitted.

    Examples of use:

    \b
      annealfit hardware --features 18 --classes 10 --bits 1-20
      annealfit hardware --bits 1-10 --topology P16 --defects 0.01 --plot fit.png
      annealfit hardware --filters 16 --kernel 5 --bits 1-3 --topology P16
      annealfit hardware --bits 1-3 --solver Advantage2_system1.json --reads 1000
      annealfit hardware --layer 180x64 --bits 1,2
    """
    from annealfit.studies import hardware_study as study
    from annealfit.studies.report import drawing
    from annealfit.studies.report.drawing import save_figure

    every_bits = options.parse_numbers(bits or ("1-20" if layer is None else "1-3"), "--bits")
    settings: dict[str, Any] = {"reads": reads, "iterations": iterations, "annealing_microseconds": annealing_time}
    shown = options.parse_coordinates(coordinates)
    one, examples, sizes, counts = _problems(features, classes, filters, kernel, channels, layer, shown, seed)
    if layer is not None:
        settings |= {"iterations": 1, "bias": 0}
    workloads = [Workload(*numbers, **settings) for numbers in product(sizes, counts, every_bits)]
    if plot is not None:
        drawing.check_drawable(plot, sizes)
    devices = _devices(topology, defects, solver, seed)
    rows = []
    columns = MofNCompleteColumn(), TimeRemainingColumn()
    total, first = len(devices) * len(workloads), devices[0].chip.name
    with progress_bar("Embedding {task.description}", *columns, total=total, description=first) as update:
        for row in study.study_hardware(devices, workloads, examples):
            rows.append(row)
            update(advance=1, description=row.chip)
    if plot is not None:
        save_figure(drawing.draw_feasibility(rows), plot)
    if as_json:
        document = {
            **pick(workloads[0], "reads", "iterations", "annealing_microseconds"),
            "error_levels": ERROR_LEVELS,
            "assumed": {device.chip.name: device.assumed for device in devices},
            "rows": [asdict(row) for row in rows],
        }
        return print_json(document)
    _print_embeddings(rows, one)
    _print_coefficients(devices, rows)
    for _, group in groupby(rows, key=lambda row: (row.chip, row.features)):
        say(_answer(list(group), named=len(sizes) > 1))
    say()
    say(_EXPLANATION.format(reads=reads, annealed=f" of {annealing_time:g} µs" if annealing_time else ""))
    if any(not row.resolutions for row in rows):
        say(f"Coefficients are computed up to {study.MOST_VARIABLES_LOOKED_AT:,} variables.")
    for device in (device for device in devices if device.assumed):
        assumed = ", ".join(device.assumed)
        say(f"{device.chip.name} does not say its {assumed}: Advantage's published values stand for them.")
    say(f"Figure: {plot}" if plot else "Add --plot FILE.png for a figure, --json for every number.")


def _problems(
    features: str,
    classes: str,
    filters: int | None,
    kernel: int,
    channels: int,
    layer: str | None,
    coordinates: tuple[str, ...],
    seed: int,
) -> tuple[str, Any, list[int], list[int]]:
    """What has a problem of its own, examples of the coefficients, and the numbers of parameters and of problems."""
    from annealfit.studies import hardware_study as study

    if layer is not None:
        inputs, outputs = study.parse_layer(layer)
        return "row", {"layer": partial(study.row_example, seed=seed)}, [inputs], [outputs]
    if filters is not None:
        size, examples = study.filter_examples(kernel, channels, seed)
        return "filter", examples, [size], [filters]
    sizes, counts = options.parse_numbers(features, "--features"), options.parse_numbers(classes, "--classes")
    return "class", study.class_examples(coordinates, seed), sizes, counts


def _devices(topologies: list[str] | None, defects: float, solver: Path | None, seed: int) -> list[Device]:
    if solver is not None and not topologies and defects:
        raise InvalidInputError("--defects is for ideal chips; the one in --solver has its own: leave it out")
    names = topologies or (TOPOLOGIES if solver is None else ())
    devices = [published_device(chip_with_defects(name, defects, seed)) for name in dict.fromkeys(names)]
    if solver is not None:
        devices.append(device_of_solver(read_properties(solver), solver.name))
    return devices


def _placed(heading: str, cell: Callable[[Any], str] | str, otherwise: str = "–") -> Column:
    """A column about the embedding, for rows that may have none."""
    return Column(heading, lambda row: Column(heading, cell).text(row) if row.embeds else otherwise)


def _print_embeddings(rows: Sequence[Feasibility], one: str) -> None:
    """For every chip, what fits and what it costs; `one` is what a problem is of."""
    columns = [
        Column("features", "{0.features}", optional=True),
        Column("classes", "{0.classes}", optional=True),
        Column("bits", "{0.bits}"),
        Column("variables", "{0.variables:,}"),
        Column("couplings", "{0.couplings:,}"),
        _placed("chains", lambda row: _from_to(row.placement.shortest_chain, row.placement.longest_chain)),
        _placed(f"qubits\n{one} / call", "{0.placement.qubits_of_a_class:,} / {0.placement.qubits_of_a_call:,}"),
        _placed("at once", "{0.placement.classes_at_once} of {0.classes}", "no fit"),
        _placed("calls", lambda row: f"{row.cost.calls:,} × {1000 * row.cost.access_seconds_of_a_call:.0f} ms"),
        _placed("QPU\ntime", "{0.cost.access_seconds:,.1f} s"),
    ]
    for chip, group in groupby(rows, key=attrgetter("chip")):
        own = list(group)
        size = f"{own[0].qubits:,} qubits, {own[0].couplers:,} couplers, largest clique {own[0].largest_clique}"
        print_table(own, columns, title=f"{chip}: {size}", keys=3)
        say()


def _from_to(first: object, last: object) -> str:
    return f"{first}" if first == last else f"{first}–{last}"


def _print_coefficients(devices: Sequence[Device], rows: Sequence[Feasibility]) -> None:
    """For chips of the same ranges, what the ranges and the analog error make of the coefficients."""
    columns = [
        Column("features", "{0[0].features}", optional=True),
        Column("bits", "{0[0].bits}"),
        Column("coordinates", "{0[1]}"),
        Column("couplings", "{0[2].couplings:,}"),
        Column("span", "2^{0[2].span_of_couplings:.0f}"),
        Column("largest", "{0[2].largest_coupling:.2f}"),
        Column("chains", "{0[2].chain_strength:.2f}"),
        Column("below\nerror", lambda entry: "–".join(f"{100 * entry[2].share_below[e]:.0f}" for e in _ENDS) + " %"),
    ]
    ranges = {device.chip.name: device.ranges for device in devices}
    for same in dict.fromkeys(ranges.values()):
        own = [row for row in rows if ranges[row.chip] == same]
        once = {(row.features, row.bits): row for row in own}.values()
        if entries := [(row, *item) for row in once for item in row.resolutions.items()]:
            chips = ", ".join(dict.fromkeys(row.chip for row in own))
            say(f"Couplings of digits' problems, scaled to the ranges of {chips}")
            print_table(entries, columns, keys=3)
            say()


def _answer(rows: Sequence[Feasibility], *, named: bool) -> str:
    """For one chip and size the most bits that fit, and the bits for which counting couplers would wrongly say so."""
    row, most, largest = rows[0], rows[0].most_bits, rows[0].largest_clique
    name, parameters = f"{row.chip}, {row.features} features" if named else row.chip, row.variables // row.bits
    if most == 0:
        blocks = f"solve in blocks of at most {largest} of them" if largest else "it holds no clique at all"
        fitting = f"not even 1 bit fits ({parameters} parameters, {largest} variables at most); {blocks}."
    else:
        more = f"{most + 1} bits need {(most + 1) * parameters}" if most < MAX_BITS else "there are no more"
        fits = f"at most {count_bits(most)} {'fits' if most == 1 else 'fit'}"
        fitting = f"{fits} ({most * parameters} of {largest} variables); {more}."
    seeming = sorted({row.bits for row in rows if not row.embeds and row.couplings <= row.couplers})
    if seeming:
        span = count_bits(seeming[0]) if len(seeming) == 1 else f"{seeming[0]} to {seeming[-1]} bits"
        fitting += f" Counting couplers ({row.couplers:,}), {span} would pass."
    return f"{name}: {fitting}"
