"""The command about chips: whether the problems of a training or a layer fit, what they cost, what error leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from rich.progress import MofNCompleteColumn, TimeRemainingColumn
from typer import Option

from annealfit._support.errors import InvalidInputError
from annealfit.cli import options
from annealfit.cli.output import Column, count_bits, pick, print_json, print_table, progress_bar, say
from annealfit.hardware.feasibility import (
    Capacity,
    Device,
    Feasibility,
    Workload,
    capacity_of,
    device_of_solver,
    published_device,
)
from annealfit.hardware.limits import ERROR_LEVELS, Resolution
from annealfit.hardware.topologies import TOPOLOGIES, chip_with_defects, read_properties
from annealfit.problems.encoding import MAX_BITS
from annealfit.studies.report import figures


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
    the problems are those of filters, cliques of (kernel²·channels+1)·K variables. Nothing is submitted.

    Examples of use:

    \b
      annealfit hardware --features 18 --classes 10 --bits 1-20
      annealfit hardware --bits 1-10 --topology P16 --defects 0.01 --plot fit.png
      annealfit hardware --filters 16 --kernel 5 --bits 1-3 --topology P16
      annealfit hardware --bits 1-3 --solver Advantage2_system1.json --reads 1000
      annealfit hardware --layer 180x64 --bits 1,2
    """
    from annealfit.studies.hardware_study import FilterSize, make_workloads, study_hardware

    every_bits = options.parse_numbers(bits or ("1-20" if layer is None else "1-3"), "--bits")
    if layer is not None:
        if plot is not None:
            raise InvalidInputError("--plot draws trainings; leave it out with --layer")
        devices = _devices(topology, defects, solver, seed)
        _show_layer(layer, every_bits, devices, reads, annealing_time, seed, as_json)
        return
    size = None if filters is None else FilterSize(kernel, channels)
    workloads = make_workloads(
        options.parse_numbers(features, "--features") if size is None else [size.features],
        options.parse_numbers(classes, "--classes") if filters is None else [filters],
        every_bits,
        reads=reads,
        iterations=iterations,
        annealing_microseconds=annealing_time,
    )
    if plot is not None:
        figures.check_drawable(plot, [workload.features for workload in workloads])
    devices = _devices(topology, defects, solver, seed)
    study = study_hardware(devices, workloads, seed, options.parse_coordinates(coordinates), size)
    rows = _watched(study, devices[0].chip.name, len(devices) * len(workloads))
    every_features = dict.fromkeys(workload.features for workload in workloads)
    capacities = [capacity_of(device.chip, number) for device in devices for number in every_features]
    if plot is not None:
        figures.save_feasibility(rows, plot)
    if as_json:
        document = {
            **pick(workloads[0], "reads", "iterations", "annealing_microseconds"),
            "error_levels": ERROR_LEVELS,
            "assumed": {device.chip.name: device.assumed for device in devices},
            "capacities": [asdict(capacity) for capacity in capacities],
            "rows": [asdict(row) for row in rows],
        }
        print_json(document)
        return
    _print_embeddings(rows, capacities, "class" if filters is None else "filter")
    _print_coefficients(devices, rows)
    for capacity in capacities:
        say(_answer(capacity, rows, named=len(every_features) > 1))
    for line in _notes(devices, rows, workloads[0], plot):
        say(line)


def _watched(study: Iterable[Feasibility], first: str, total: int) -> list[Feasibility]:
    """All rows of the study, with a live bar."""
    columns, rows = (MofNCompleteColumn(), TimeRemainingColumn()), []
    with progress_bar("Embedding {task.description}", *columns, total=total, description=first) as update:
        for row in study:
            rows.append(row)
            update(advance=1, description=row.chip)
    return rows


def _devices(topologies: list[str] | None, defects: float, solver: Path | None, seed: int) -> list[Device]:
    if solver is not None and not topologies and defects:
        raise InvalidInputError("--defects is for ideal chips; the one in --solver has its own: leave it out")
    names = topologies or (TOPOLOGIES if solver is None else ())
    devices = [published_device(chip_with_defects(name, defects, seed)) for name in dict.fromkeys(names)]
    if solver is not None:
        devices.append(device_of_solver(read_properties(solver), solver.name))
    return devices


def _placed(heading: str, cell: Callable[[Any], str], otherwise: str = "–") -> Column:
    """A column about the embedding, for rows that may have none."""
    return Column(heading, lambda row: cell(row) if row.embeds else otherwise)


def _calls(row: Any) -> str:
    return f"{row.cost.calls:,} × {1000 * row.cost.access_seconds_of_a_call:.0f} ms"


def _chains(row: Any) -> str:
    shortest, longest = row.placement.shortest_chain, row.placement.longest_chain
    return str(longest) if shortest == longest else f"{shortest}–{longest}"


def _below_error(resolution: Resolution) -> str:
    least, *_, most = (resolution.share_below[error] for error in ERROR_LEVELS)
    return f"{100 * least:.0f}–{100 * most:.0f} %"


def _if_varied(columns: Sequence[Column], rows: Sequence[Any]) -> list[Column]:
    """The columns that say more than one thing."""
    return [column for column in columns if len({column.cell(row) for row in rows}) > 1]


def _print_embeddings(rows: Sequence[Feasibility], capacities: Sequence[Capacity], one: str) -> None:
    """For every chip, what fits and what it costs; `one` is what a problem is of."""
    sizes = [Column("features", lambda row: str(row.features)), Column("classes", lambda row: str(row.classes))]
    columns = [
        Column("bits", lambda row: str(row.bits)),
        Column("variables", lambda row: f"{row.variables:,}"),
        Column("couplings", lambda row: f"{row.couplings:,}"),
        _placed("chains", _chains),
        _placed(
            f"qubits\n{one} / call",
            lambda row: f"{row.placement.qubits_of_a_class:,} / {row.placement.qubits_of_a_call:,}",
        ),
        _placed("at once", lambda row: f"{row.placement.classes_at_once} of {row.classes}", "no fit"),
        _placed("calls", _calls),
        _placed("QPU\ntime", lambda row: f"{row.cost.access_seconds:,.1f} s"),
    ]
    for chip, group in groupby(rows, key=lambda row: row.chip):
        own = list(group)
        capacity = next(capacity for capacity in capacities if capacity.chip == chip)
        title = (
            f"{chip}: {capacity.qubits:,} qubits, {capacity.couplers:,} couplers, "
            f"largest clique {capacity.largest_clique}"
        )
        print_table(own, [*_if_varied(sizes, own), *columns], title=title)
        say()


def _print_coefficients(devices: Sequence[Device], rows: Sequence[Feasibility]) -> None:
    """For chips of the same ranges, what the ranges and the analog error make of the coefficients."""
    ranges = {device.chip.name: device.ranges for device in devices}
    keys = [Column("bits", lambda entry: str(entry[0].bits)), Column("coordinates", lambda entry: entry[1])]
    columns = [
        Column("couplings", lambda entry: f"{entry[2].couplings:,}"),
        Column("span", lambda entry: f"2^{entry[2].span_of_couplings:.0f}"),
        Column("largest", lambda entry: f"{entry[2].largest_coupling:.2f}"),
        Column("chains", lambda entry: f"{entry[2].chain_strength:.2f}"),
        Column("below\nerror", lambda entry: _below_error(entry[2])),
    ]
    for same in dict.fromkeys(ranges.values()):
        own = [row for row in rows if ranges[row.chip] == same]
        once = {(row.features, row.bits): row for row in own}.values()
        entries = [(row, *item) for row in once for item in row.resolutions.items()]
        if not entries:
            continue
        chips = ", ".join(dict.fromkeys(row.chip for row in own))
        say(f"Couplings of digits' problems, scaled to the ranges of {chips}")
        named = [*_if_varied([Column("features", lambda entry: str(entry[0].features))], entries), *keys]
        print_table(entries, [*named, *columns], keys=len(named))
        say()


def _answer(capacity: Capacity, rows: Sequence[Feasibility], *, named: bool) -> str:
    """The most bits that fit, and the bits for which counting couplers would wrongly say so."""
    name = f"{capacity.chip}, {capacity.features} features" if named else capacity.chip
    own = [row for row in rows if (row.chip, row.features) == (capacity.chip, capacity.features)]
    seeming = sorted({row.bits for row in own if not row.embeds and row.couplings <= capacity.couplers})
    counted = ""
    if seeming:
        span = count_bits(seeming[0]) if len(seeming) == 1 else f"{seeming[0]} to {seeming[-1]} bits"
        counted = f" Counting couplers ({capacity.couplers:,}), {span} would pass."
    return f"{name}: {_most_that_fits(capacity)}{counted}"


def _most_that_fits(capacity: Capacity) -> str:
    parameters, largest, most = capacity.features + 1, capacity.largest_clique, capacity.most_bits
    if most == 0:
        blocks = f"solve in blocks of at most {largest} of them" if largest else "it holds no clique at all"
        return f"not even 1 bit fits ({parameters} parameters, {largest} variables at most); {blocks}."
    used = f"({most * parameters} of {largest} variables)"
    if most == MAX_BITS:
        return f"{most} bits fit, the most there are {used}."
    fits = "fits" if most == 1 else "fit"
    return f"at most {count_bits(most)} {fits} {used}; {most + 1} bits need {(most + 1) * parameters}."


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
        notes.append(f"Coefficients are computed up to {MOST_VARIABLES_LOOKED_AT:,} variables.")
    notes += [
        f"{device.chip.name} does not say its {', '.join(device.assumed)}: Advantage's published values stand for them."
        for device in devices
        if device.assumed
    ]
    notes.append(f"Figure: {plot}" if plot else "Add --plot FILE.png for a figure, --json for every number.")
    return notes


_LAYER_COLUMNS = (
    Column("bits", lambda row: str(row.bits)),
    Column("variables", lambda row: f"{row.variables:,}"),
    _placed("chains", lambda row: str(row.placement.longest_chain)),
    _placed("rows at once", lambda row: f"{row.placement.classes_at_once} of {row.classes}", "no fit"),
    _placed("calls", _calls),
    _placed("QPU time", lambda row: f"{row.cost.access_seconds:,.1f} s"),
    Column("below error", lambda row: ", ".join(map(_below_error, row.resolutions.values())) or "–"),
)


def _show_layer(
    text: str,
    bits: Sequence[int],
    devices: Sequence[Device],
    reads: int,
    annealing_time: float | None,
    seed: int,
    as_json: bool,
) -> None:
    """Print whether the rows of a layer with low-bit weights fit, chip by chip."""
    from annealfit.studies.hardware_study import parse_layer, row_workload, study_layer

    inputs, outputs = parse_layer(text)
    workloads = [row_workload(inputs, outputs, number, reads, annealing_time) for number in bits]
    rows = list(study_layer(devices, workloads, seed))
    if as_json:
        shown = [{"inputs": inputs, "outputs": outputs, **asdict(row)} for row in rows]
        print_json({"layer": [inputs, outputs], "reads": reads, "rows": shown})
        return
    say(f"A layer of {inputs}×{outputs}: each of its {outputs} rows is a clique of inputs · bits.")
    for chip, group in groupby(rows, key=lambda row: row.chip):
        own = list(group)
        largest = own[0].largest_clique
        print_table(own, _LAYER_COLUMNS, title=f"{chip}: rows of up to {largest} weights at 1 bit, {largest // 2} at 2")
        say()
        unfit = next((row for row in own if not row.embeds), None)
        if unfit is not None:
            say(f"With bits={unfit.bits} {unfit.reason}; {unfit.remedy}.")
    least, _, most = ERROR_LEVELS
    say(
        f"below error: couplings smaller than {least} to {most} of the range, for features of digits. "
        "annealfit quantize --sampler mock-qpu:num_reads=50 rehearses it; docs/quantization.md has what to expect."
    )
