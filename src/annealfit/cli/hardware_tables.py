"""The tables of `annealfit hardware`: what fits a chip, and what its error makes of the coefficients."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from annealfit.cli.display import make_table, plain
from annealfit.hardware.feasibility import Capacity, Feasibility
from annealfit.hardware.limits import ERROR_LEVELS, Resolution

_NOTHING = "–"
_HEADED_IF_VARIED = ("features", "classes")


def embedding_table(rows: Sequence[Feasibility], capacities: Sequence[Capacity], one: str = "class") -> Table:
    """What fits one chip, and what it costs there; `one` is what a problem is of."""
    capacity = next(capacity for capacity in capacities if capacity.chip == rows[0].chip)
    table = make_table(
        f"{plain(capacity.chip)}: {capacity.qubits:,} qubits, {capacity.couplers:,} couplers, "
        f"largest clique {capacity.largest_clique}"
    )
    return _filled(table, [_cells(row, one) for row in rows])


def coefficient_table(rows: Sequence[Feasibility]) -> Table:
    """What the device's ranges and error make of the coefficients, the coordinates one below the other."""
    once = {(row.features, row.bits): row for row in rows}.values()
    return _filled(
        make_table(),
        [
            {"features": str(row.features), "bits": str(row.bits), "coordinates": name, **_resolution_cells(resolution)}
            for row in once
            for name, resolution in row.resolutions.items()
        ],
    )


def _filled(table: Table, cells: Sequence[dict[str, str]]) -> Table:
    shown = [name for name in cells[0] if name not in _HEADED_IF_VARIED or len({row[name] for row in cells}) > 1]
    for name in shown:
        table.add_column(name, justify="right")
    for row in cells:
        table.add_row(*(row[name] for name in shown))
    return table


def _cells(row: Feasibility, one: str) -> dict[str, str]:
    """The texts of a row by their headings."""
    placement, cost = row.placement, row.cost
    texts = {
        "features": str(row.features),
        "classes": str(row.classes),
        "bits": str(row.bits),
        "variables": f"{row.variables:,}",
        "couplings": f"{row.couplings:,}",
        "chains": _NOTHING,
        f"qubits\n{one} / call": _NOTHING,
        "at once": "no fit",
        "calls": _NOTHING,
        "QPU\ntime": _NOTHING,
    }
    if placement and cost:
        shortest, longest = placement.shortest_chain, placement.longest_chain
        texts |= {
            "chains": str(longest) if shortest == longest else f"{shortest}–{longest}",
            f"qubits\n{one} / call": f"{placement.qubits_of_a_class:,} / {placement.qubits_of_a_call:,}",
            "at once": f"{placement.classes_at_once} of {row.classes}",
            "calls": f"{cost.calls:,} × {1000 * cost.access_seconds_of_a_call:.0f} ms",
            "QPU\ntime": f"{cost.access_seconds:,.1f} s",
        }
    return texts


def _resolution_cells(resolution: Resolution) -> dict[str, str]:
    least, *_, most = (resolution.share_below[error] for error in ERROR_LEVELS)
    return {
        "couplings": f"{resolution.couplings:,}",
        "span": f"2^{resolution.span_of_couplings:.0f}",
        "largest": f"{resolution.largest_coupling:.2f}",
        "chains": f"{resolution.chain_strength:.2f}",
        "below\nerror": f"{100 * least:.0f}–{100 * most:.0f} %",
    }
