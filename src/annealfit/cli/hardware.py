"""The command about chips: whether the problems of a training fit, what they cost, what is left of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from annealfit._support.errors import InvalidInputError
from annealfit.cli.display import console, count_bits, make_progress, plain
from annealfit.cli.hardware_layers import show_layer
from annealfit.cli.hardware_tables import coefficient_table, embedding_table
from annealfit.cli.options import CoordinatesOption, JsonOption, parse_coordinates, parse_numbers
from annealfit.cli.printing import print_table
from annealfit.hardware.feasibility import (
    Capacity,
    Device,
    Feasibility,
    Workload,
    capacity_of,
    device_of_solver,
    published_device,
)
from annealfit.hardware.limits import ERROR_LEVELS
from annealfit.hardware.topologies import TOPOLOGIES, chip_with_defects, read_properties
from annealfit.problems.encoding import MAX_BITS
from annealfit.studies.report import hardware_figure

if TYPE_CHECKING:
    from annealfit.studies.hardware_study import FilterSize


def hardware(
    features: Annotated[str, typer.Option(help="Features d of an image, as 18 or 9,18,36.")] = "18",
    classes: Annotated[str, typer.Option(help="Classes, as 10 or 2-10.")] = "10",
    filters: Annotated[
        int | None, typer.Option(help="Filters of a convolution layer that is trained: their problems, not the head's.")
    ] = None,
    kernel: Annotated[int, typer.Option(help="With --filters: their kernel size, 1 to 5.")] = 3,
    channels: Annotated[int, typer.Option(help="With --filters: channels of their input.")] = 1,
    bits: Annotated[
        str | None,
        typer.Option(
            help="Bits per weight update (or weight of a layer), as 3, 1-20 or 1,2,5-8.",
            show_default="1-20; of a layer 1-3",
        ),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            metavar="INPUTSxOUTPUTS",
            help="Look at the rows of a layer with low-bit weights instead of a training, as 180x64.",
        ),
    ] = None,
    topology: Annotated[
        list[str] | None,
        typer.Option(help=f"Ideal chip, any of {', '.join(TOPOLOGIES)}; can be repeated. Default: all of them."),
    ] = None,
    defects: Annotated[float, typer.Option(help="Share of the qubits that are missing, at random.")] = 0.0,
    solver: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON file of a solver's properties: a chip as it is.")
    ] = None,
    reads: Annotated[int, typer.Option(help="Reads of every problem.")] = 100,
    iterations: Annotated[int, typer.Option(help="Iterations of the training.")] = 200,
    annealing_time: Annotated[
        float | None, typer.Option(metavar="µs", help="Microseconds of an anneal. Default: the solver's.")
    ] = None,
    coordinates: CoordinatesOption = None,
    seed: Annotated[int, typer.Option(help="Decides the filters and the defects.")] = 42,
    plot: Annotated[Path | None, typer.Option("-o", "--plot", metavar="FILE", help="Draw it: png, svg or pdf.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what fits an annealer's chip, and what it costs.

    Embeds every class's problem, which is a clique of (d+1)·K variables, counts how many classes fit side by side,
    and sets the coefficients of digits' problems, raw and centred, against the published analog error. With --filters
    the problems are those of filters, cliques of (kernel²·channels+1)·K variables. Nothing is submitted.

    Examples of use:

      annealfit hardware --features 18 --classes 10 --bits 1-20

      annealfit hardware --bits 1-10 --topology P16 --defects 0.01 --plot fit.png

      annealfit hardware --filters 16 --kernel 5 --bits 1-3 --topology P16

      annealfit hardware --bits 1-3 --solver Advantage2_system1.json --reads 1000

      annealfit hardware --layer 180x64 --bits 1,2
    """
    if layer is not None:
        if plot is not None:
            raise InvalidInputError("--plot draws trainings; leave it out with --layer")
        show_layer(
            layer,
            _numbers(bits or "1-3", "--bits"),
            _devices(topology, defects, solver, seed),
            reads=reads,
            annealing_time=annealing_time,
            seed=seed,
            as_json=as_json,
        )
        return
    from annealfit.studies.hardware_study import FilterSize, make_workloads

    size = None if filters is None else FilterSize(kernel, channels)
    workloads = make_workloads(
        _numbers(features, "--features") if size is None else [size.features],
        _numbers(classes, "--classes") if filters is None else [filters],
        _numbers(bits or "1-20", "--bits"),
        reads=reads,
        iterations=iterations,
        annealing_microseconds=annealing_time,
    )
    if plot is not None:
        hardware_figure.check_drawable(plot, [workload.features for workload in workloads])
    devices = _devices(topology, defects, solver, seed)
    rows = _study(devices, workloads, seed, parse_coordinates(coordinates), size)
    every_features = dict.fromkeys(workload.features for workload in workloads)
    capacities = [capacity_of(device.chip, number) for device in devices for number in every_features]
    if plot is not None:
        hardware_figure.save_feasibility(rows, plot)
    if as_json:
        typer.echo(json.dumps(_as_json(devices, capacities, rows, workloads[0]), indent=2, ensure_ascii=False))
        return
    _print_tables(devices, rows, capacities, "class" if filters is None else "filter")
    for line in [*_answers(capacities, rows), *_notes(devices, rows, workloads[0], plot)]:
        console.print(plain(line), soft_wrap=True)


def _numbers(text: str, option_name: str) -> list[int]:
    return list(dict.fromkeys(parse_numbers(text, option_name)))


def _devices(topologies: list[str] | None, defects: float, solver: Path | None, seed: int) -> list[Device]:
    if solver is not None and not topologies:
        if defects:
            raise InvalidInputError("--defects is for ideal chips; the one in --solver has its own: leave it out")
        names: Iterable[str] = ()
    else:
        names = dict.fromkeys(topologies or TOPOLOGIES)
    devices = [published_device(chip_with_defects(name, defects, seed)) for name in names]
    if solver is not None:
        devices.append(device_of_solver(read_properties(solver), solver.name))
    return devices


def _by_ranges(devices: Sequence[Device], rows: Sequence[Feasibility]) -> list[list[Feasibility]]:
    """The rows of chips that have the same ranges, and so the same coefficients; none where none were looked at."""
    ranges = {device.chip.name: device.ranges for device in devices}
    groups = [[row for row in rows if ranges[row.chip] == own] for own in dict.fromkeys(ranges.values())]
    return [group for group in groups if any(row.resolutions for row in group)]


def _print_tables(
    devices: Sequence[Device], rows: Sequence[Feasibility], capacities: Sequence[Capacity], one: str
) -> None:
    for _, rows_of_chip in groupby(rows, key=lambda row: row.chip):
        print_table(embedding_table(list(rows_of_chip), capacities, one))
        console.print()
    for rows_of_ranges in _by_ranges(devices, rows):
        chips = ", ".join(dict.fromkeys(row.chip for row in rows_of_ranges))
        console.print(plain(f"Couplings of digits' problems, scaled to the ranges of {chips}"), soft_wrap=True)
        coefficients = coefficient_table(rows_of_ranges)
        names = [str(column.header) for column in coefficients.columns]
        print_table(coefficients, keys=names.index("couplings"))
        console.print()


def _study(
    devices: Sequence[Device],
    workloads: Sequence[Workload],
    seed: int,
    coordinates: Sequence[str],
    filters: FilterSize | None,
) -> list[Feasibility]:
    from annealfit.studies.hardware_study import study_hardware

    progress = make_progress(
        TextColumn("Embedding {task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )
    rows = []
    with progress:
        task = progress.add_task(devices[0].chip.name, total=len(devices) * len(workloads))
        for row in study_hardware(devices, workloads, seed, coordinates, filters):
            rows.append(row)
            progress.update(task, advance=1, description=row.chip)
    return rows


def _answers(capacities: Sequence[Capacity], rows: Sequence[Feasibility]) -> list[str]:
    """What the rows say in words: the most that fits, that counting couplers is not embedding, and what is resolved."""
    lines = []
    several = len({capacity.features for capacity in capacities}) > 1
    for capacity in capacities:
        name = f"{capacity.chip}, {capacity.features} features" if several else capacity.chip
        seeming = sorted(
            {
                row.bits
                for row in rows
                if (row.chip, row.features) == (capacity.chip, capacity.features)
                and not row.embeds
                and row.couplings <= capacity.couplers
            }
        )
        counted = f" Counting couplers ({capacity.couplers:,}), {_span_of_bits(seeming)} would pass." if seeming else ""
        lines.append(f"{name}: {_most_that_fits(capacity)}{counted}")
    return lines


def _span_of_bits(bits: Sequence[int]) -> str:
    return count_bits(bits[0]) if len(bits) == 1 else f"{bits[0]} to {bits[-1]} bits"


def _most_that_fits(capacity: Capacity) -> str:
    parameters, largest, most = capacity.features + 1, capacity.largest_clique, capacity.most_bits
    if most == 0:
        blocks = f"solve in blocks of at most {largest} of them" if largest else "it holds no clique at all"
        return f"not even 1 bit fits ({parameters} parameters, {largest} variables at most); {blocks}."
    fits = f"at most {count_bits(most)} {'fits' if most == 1 else 'fit'} ({most * parameters} of {largest} variables)"
    if most == MAX_BITS:
        return f"{most} bits fit, the most there are ({most * parameters} of {largest} variables)."
    return f"{fits}; {most + 1} bits need {(most + 1) * parameters}."


def _notes(devices: Sequence[Device], rows: Sequence[Feasibility], workload: Workload, plot: Path | None) -> list[str]:
    """What the columns mean, and what was assumed."""
    from annealfit.studies.hardware_study import MOST_VARIABLES_LOOKED_AT

    annealed = f" of {workload.annealing_microseconds:g} µs" if workload.annealing_microseconds else ""
    least, of_couplings, most = ERROR_LEVELS
    notes = [
        "",
        f"QPU time: access time of {workload.iterations} iterations with {workload.reads} reads{annealed}, estimated "
        "with D-Wave's timing of Advantage in August 2022, for Zephyr too, unless a solver's file brings its own.",
        "span: largest coupling over the smallest. largest, chains: the largest coupling and the chain strength once "
        f"scaled. below error: couplings smaller than {least} to {most} of the range then "
        f"(published error: couplings {least} to {of_couplings}, fields {least} to {most}).",
    ]
    if any(not row.resolutions for row in rows):
        notes.append(f"Coefficients are looked at up to {MOST_VARIABLES_LOOKED_AT:,} variables.")
    notes += [
        f"{device.chip.name} does not say its {', '.join(device.assumed)}: Advantage's published values stand for them."
        for device in devices
        if device.assumed
    ]
    notes.append(f"Figure: {plot}" if plot else "Add --plot FILE.png for a figure, --json for every number.")
    return notes


def _as_json(
    devices: Sequence[Device], capacities: Sequence[Capacity], rows: Sequence[Feasibility], workload: Workload
) -> dict[str, Any]:
    return {
        "reads": workload.reads,
        "iterations": workload.iterations,
        "annealing_microseconds": workload.annealing_microseconds,
        "error_levels": ERROR_LEVELS,
        "assumed": {device.chip.name: device.assumed for device in devices},
        "capacities": [asdict(capacity) for capacity in capacities],
        "rows": [asdict(row) for row in rows],
    }
