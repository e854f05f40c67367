"""All tables of a report: the paper's numbers, ours, and the difference, as plain values made from records alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from annealfit.studies.paper_tables import BITS, OUR_BITS, benchmark_runs, digits_runs
from annealfit.studies.records import Record, RunSpec
from annealfit.studies.report.benchmark_tables import (
    benchmark_table,
    gap_table,
    raising_table,
    recall_table,
    times_table,
    wins_table,
)
from annealfit.studies.report.cells import (
    Column,
    Table,
    count_cell,
    coverage,
    text_cell,
)
from annealfit.studies.report.claims import claims_table
from annealfit.studies.report.digits_tables import (
    N_PARAMETERS,
    digits_table,
    predictions_table,
    range_table,
    settings_table,
    sizes_table,
    step_table,
)
from annealfit.studies.report.filters_table import filters_table

# Qubits and couplers of Pegasus P16 as the paper counts them, and the largest clique that each ideal graph embeds.
PEGASUS_QUBITS, PEGASUS_COUPLERS = 5_640, 40_484
LARGEST_CLIQUES = {"Pegasus P16": 180, "Zephyr Z12": 184}
PAPER_HARDWARE_CLAIMS = {
    5: "embeddable on current hardware",
    10: "within the qubit limit",
    15: "the highest precision that fits within the couplers",
    20: "exceeds the couplers; 7,000 to 9,500 qubits with chains",
}


def hardware_table(records: Sequence[Record]) -> Table:
    """What the discussion says about hardware, by bits."""
    rows = []
    for bits in sorted({*BITS, *OUR_BITS}):
        n = N_PARAMETERS * bits
        couplings = n * (n - 1) // 2
        fits = [n <= PEGASUS_QUBITS, couplings <= PEGASUS_COUPLERS, *(n <= size for size in LARGEST_CLIQUES.values())]
        answers = (text_cell("yes" if fit else "no") for fit in fits)
        claim = text_cell(PAPER_HARDWARE_CLAIMS.get(bits, "–"))
        rows.append((count_cell(bits), count_cell(n), count_cell(couplings), *answers, claim))
    columns = (
        Column("bits", "Bits K", True),
        Column("variables", "Variables", True),
        Column("couplings", "Couplings", True),
        Column("within_qubits", f"Within {PEGASUS_QUBITS:,} qubits"),
        Column("within_couplers", f"Within {PEGASUS_COUPLERS:,} couplers"),
        *(
            Column(f"clique_{name.split()[1].lower()}", f"Embeds as a clique in {name} (≤ {size})")
            for name, size in LARGEST_CLIQUES.items()
        ),
        Column("paper_claim", "What the paper says"),
    )
    caption = (
        "Counting couplers is not embedding. The problems are dense, so each needs a clique of its size, and the "
        "largest clique of an ideal Pegasus P16 has 180 variables, of Zephyr Z12 184: 10 bits at d = 18 (190 "
        "variables) already do not embed, and neither do the 15 bits the paper calls the most practical."
    )
    return Table("hardware", "Hardware", caption, columns, tuple(rows))


def failures_table(records: Sequence[Record]) -> Table:
    """Runs that ended with an error."""
    failed = [record for record in records if record.error is not None]
    rows = tuple((text_cell(record.run.id), text_cell(str(record.error))) for record in failed)
    columns = (Column("run", "Run"), Column("error", "Error"))
    return Table("failures", "Failed runs", "Runs that ended with an error; they are in no other table.", columns, rows)


# The runs that a table is made of; what it lacks of those that were asked for is said below it.
_PLANS: dict[str, Callable[[str], list[RunSpec]]] = {
    "digits": lambda preset: [s for s in digits_runs(preset) if s.update_range is None and s.step is None],
    "range_study": lambda preset: [s for s in digits_runs(preset) if s.update_range is not None],
    "step_study": lambda preset: [s for s in digits_runs(preset) if s.step is not None],
    **dict.fromkeys(("benchmark", "recall", "times", "wins"), benchmark_runs),
}


def all_tables(records: Sequence[Record], asked: Collection[RunSpec] = ()) -> list[Table]:
    """Every table of the report, in the paper's order; a table without rows is left out.

    `asked` are the runs that should be there, as far as that is known.
    """
    builders = (
        claims_table,
        settings_table,
        sizes_table,
        digits_table,
        predictions_table,
        benchmark_table,
        recall_table,
        times_table,
        wins_table,
        raising_table,
        gap_table,
        range_table,
        step_table,
        filters_table,
        hardware_table,
        failures_table,
    )
    return [_with_coverage(table, records, asked) for build in builders if (table := build(records)).rows]


def _with_coverage(table: Table, records: Sequence[Record], asked: Collection[RunSpec]) -> Table:
    if table.name not in _PLANS:
        return table
    return replace(table, notes=(*coverage(records, asked, _PLANS[table.name]), *table.notes))
