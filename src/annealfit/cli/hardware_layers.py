"""`annealfit hardware --layer`: the rows of a layer with low-bit weights on chips."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby

import typer

from annealfit._support.errors import InvalidInputError
from annealfit.cli.display import console, make_table, plain
from annealfit.cli.printing import print_table
from annealfit.hardware.feasibility import Device, Feasibility
from annealfit.hardware.limits import ERROR_LEVELS


def show_layer(
    text: str,
    bits: Sequence[int],
    devices: Sequence[Device],
    *,
    reads: int,
    annealing_time: float | None,
    seed: int,
    as_json: bool,
) -> None:
    """Print whether the rows of a layer fit, chip by chip."""
    from annealfit.studies.layer_study import parse_layer, row_workload, study_layer

    inputs, outputs = parse_layer(text)
    workloads = [row_workload(inputs, outputs, number, reads, annealing_time) for number in bits]
    rows = list(study_layer(devices, workloads, seed))
    if not rows:
        raise InvalidInputError("there is no chip to look at")
    if as_json:
        shown = [{"inputs": inputs, "outputs": outputs, **asdict(row)} for row in rows]
        typer.echo(json.dumps({"layer": [inputs, outputs], "reads": reads, "rows": shown}, indent=2))
        return
    console.print(plain(f"A layer of {inputs}×{outputs}: each of its {outputs} rows is a clique of inputs · bits."))
    for chip, own in groupby(rows, key=lambda row: row.chip):
        _print_chip(chip, list(own))
    least, _, most = ERROR_LEVELS
    console.print(
        plain(
            f"below error: couplings smaller than {least} to {most} of the range, for features of digits. "
            "annealfit quantize --sampler mock-qpu:num_reads=50 rehearses it; docs/quantization.md has what to expect."
        ),
        soft_wrap=True,
    )


def _print_chip(chip: str, rows: Sequence[Feasibility]) -> None:
    largest = rows[0].largest_clique
    table = make_table(f"{plain(chip)}: rows of up to {largest} weights at 1 bit, {largest // 2} at 2")
    for heading in ("bits", "variables", "chains", "rows at once", "calls", "QPU time", "below error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(str(row.bits), f"{row.variables:,}", *_placed(row), _below(row))
    print_table(table)
    console.print()
    for row in rows:
        if not row.embeds:
            console.print(plain(f"With bits={row.bits} {row.reason}; {row.remedy}."), soft_wrap=True)
            break


def _placed(row: Feasibility) -> tuple[str, str, str, str]:
    if row.placement is None or row.cost is None:
        return "–", "no fit", "–", "–"
    return (
        str(row.placement.longest_chain),
        f"{row.placement.classes_at_once} of {row.classes}",
        f"{row.cost.calls:,} × {1000 * row.cost.access_seconds_of_a_call:.0f} ms",
        f"{row.cost.access_seconds:,.1f} s",
    )


def _below(row: Feasibility) -> str:
    if not row.resolutions:
        return "–"
    (resolution,) = row.resolutions.values()
    least, *_, most = (resolution.share_below[error] for error in ERROR_LEVELS)
    return f"{100 * least:.0f}–{100 * most:.0f} %"
